//! What is done with a product where it is made: element by element, four neighbours at a time, and inner products of whole rows, of which four lanes
//! have a quarter each.

use super::element::{Elements, is_single, keeps_place};
use super::text::{PLACES, Writer};
use crate::inter::{Domain, Path, Shape};
use crate::intra::{Body, Buffer, Gemm, GemmSum, Register, Step, StepOp};

/// Columns of products that one warp makes at a time; as `mma.cuh` has it.
pub(super) const SIDE: usize = 64;

/// A body behind products, and the rows that have these.
#[derive(Debug, Clone, Copy)]
pub(super) struct Behind<'a> {
    pub body: &'a Body,
    /// Rows that have a product each.
    rows: Domain,
    /// Where products go, if not to these.
    scatter: Option<Domain>,
    /// The domain of the types of rows and the way there, where a kernel knows the type.
    typed: Option<(Domain, Path)>,
}

impl<'a> Behind<'a> {
    pub fn product(gemm: &'a Gemm, buffers: &[Buffer]) -> Self {
        let (rows, types) = (gemm.product.rows, buffers[gemm.product.w.at()].domain);
        // Rows that products go to have types of their own.
        let is_known = gemm.scatter.is_none() && types != rows;
        let typed = is_known.then_some((types, gemm.product.path));
        Self { body: &gemm.body, rows, scatter: gemm.scatter, typed }
    }

    pub fn sum(sum: &'a GemmSum) -> Self {
        Self { body: &sum.body, rows: sum.to, scatter: None, typed: None }
    }

    /// Elements of the rows that products go to, which know the type of their own.
    fn elements(self) -> Elements<'a> {
        let elements = Elements::new(self.body, self.scatter.unwrap_or(self.rows), "to");
        match self.typed {
            Some((types, path)) => elements.of_type(types, path, "type"),
            None => elements,
        }
    }
}

/// What a step of a body is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    /// Of no product.
    Free,
    /// Elements at the same places of the product, or of a part of it, by the register of that.
    Part(Register),
    /// Inner products of a row with the product.
    Dotted,
}

/// A body that is done where its product is made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Epilogue {
    made: Vec<Made>,
}

impl Epilogue {
    /// That of a product; `None` where elements meet others in other ways. Without `has_dots` there are no inner products.
    pub fn of(body: &Body, has_dots: bool) -> Option<Self> {
        let product = body.steps.first().filter(|step| step.op == StepOp::Product)?.shape;
        // A head's elements are those of one warp.
        let has_dots = has_dots && product.len() / product.heads().max(1) <= SIDE;
        let mut found = Self { made: Vec::new() };
        for (at, step) in body.steps.iter().enumerate() {
            let made = found.step(body, (Register::new(at), step), has_dots)?;
            found.made.push(made);
        }
        // What does not depend on the product is not stored with every element of it.
        let is_stored = |(step, made): (&Step, &Made)| !matches!(step.op, StepOp::Store(..)) || *made != Made::Free;
        body.steps.iter().zip(&found.made).all(is_stored).then_some(found)
    }

    fn step(&self, body: &Body, (register, step): (Register, &Step), has_dots: bool) -> Option<Made> {
        let product = body.steps[0].shape;
        let operands = step.op.operands();
        let made_of = |register: Register| self.made[register.at()];
        let shape_of = |register: Register| body.steps[register.at()].shape;
        if step.op == StepOp::Product {
            return Some(Made::Part(register));
        }
        if let StepOp::Dot(x, y) = step.op {
            let whole = Made::Part(Register::new(0));
            let both = [x, y].map(made_of);
            let is_whole = both.contains(&whole) && both.iter().all(|made| *made == whole || *made == Made::Free);
            let is_alike = [x, y].into_iter().all(|x| shape_of(x) == product);
            return (has_dots && is_whole && is_alike).then_some(Made::Dotted);
        }
        if !is_single(body, step) {
            return None;
        }
        if operands.iter().any(|x| made_of(*x) == Made::Dotted) {
            let is_scalar = |shape: Shape| shape.len() == product.heads() || shape.len() == 1;
            let fits =
                |x: &Register| made_of(*x) == Made::Dotted || (made_of(*x) == Made::Free && is_scalar(shape_of(*x)));
            let fits = keeps_place(&step.op) && step.shape.len() == product.heads() && operands.iter().all(fits);
            return fits.then_some(Made::Dotted);
        }
        let own: Vec<Register> = operands.iter().copied().filter(|x| made_of(*x) != Made::Free).collect();
        let Some(Made::Part(part)) = own.first().map(|x| made_of(*x)) else { return Some(Made::Free) };
        if let StepOp::Slice(x, from) = step.op {
            // Four elements beside each other stay so, where rows are made of such.
            let is_whole = |len: usize| len.is_multiple_of(4);
            let keeps = !is_whole(product.len()) || (is_whole(from) && is_whole(step.shape.len()));
            return (x.at() == 0 && keeps && product.heads() == 1).then_some(Made::Part(register));
        }
        let len = shape_of(part).len();
        let is_same = |x: &Register| made_of(*x) == Made::Part(part) && shape_of(*x).len() == len;
        (keeps_place(&step.op) && step.shape.len() == len && own.iter().all(is_same)).then_some(Made::Part(part))
    }

    /// Registers that elements of the product lie in, or of parts of it.
    fn parts(&self) -> Vec<Register> {
        let parts = self.made.iter().filter_map(|made| if let Made::Part(part) = made { Some(*part) } else { None });
        let mut parts: Vec<Register> = parts.collect();
        parts.sort_unstable();
        parts.dedup();
        parts
    }

    /// Inner products, by their registers.
    fn dots(&self, body: &Body) -> Vec<(Register, [Register; 2])> {
        let dot = |(at, step): (usize, &Step)| match step.op {
            StepOp::Dot(x, y) => Some((Register::new(at), [x, y])),
            _ => None,
        };
        body.steps.iter().enumerate().filter_map(dot).collect()
    }
}

impl Writer<'_> {
    /// A struct that does with products what a body says, and one of it. Rows have `to` elements a head.
    pub fn epilogue(&mut self, behind: Behind<'_>, name: &str, to: usize) -> String {
        let Some(epilogue) = Epilogue::of(behind.body, behind.scatter.is_none()) else { return String::new() };
        let dots = epilogue.dots(behind.body).len();
        self.methods(name, |own| {
            own.line(&format!("static const u32 DOTS = {dots};"));
            let taken = format!("float (&dots)[{}]", dots.max(1));
            own.store(
                behind,
                &epilogue,
                &format!("one(bool is_there, u32 row, u32 type, u32 e, float a, {taken})"),
                &["a"],
            );
            if to.is_multiple_of(4) {
                let four = "four(bool is_there, u32 row, u32 type, u32 e, float a, float b, float c, float d";
                own.store(behind, &epilogue, &format!("{four}, {taken})"), &["a", "b", "c", "d"]);
            }
            own.behind_dots(behind, &epilogue, &format!("whole(u32 row, u32 type, u32 head, {taken})"));
        })
    }

    /// A method that does with one or four neighbouring products of a row what the body says.
    fn store(&mut self, behind: Behind<'_>, epilogue: &Epilogue, signature: &str, products: &[&str]) {
        self.line(&format!("__device__ void {signature} const {{"));
        self.indented(|out| {
            out.row_of_products(behind);
            for part in epilogue.parts() {
                out.part(behind, epilogue, part, products);
            }
        });
        self.line("}");
    }

    /// Names the row that products go to.
    fn row_of_products(&mut self, behind: Behind<'_>) {
        let to = match behind.scatter {
            Some(to) => format!("hw_map({}, row)", self.map(behind.rows, to, Path::Only)),
            None => "row".to_owned(),
        };
        self.line(&format!("const u32 to = {to};"));
        self.line("(void)to, (void)type, (void)dots;");
    }

    /// What is done with the elements of a product, or of a part of one: those of the part lie from the first place on.
    fn part(&mut self, behind: Behind<'_>, epilogue: &Epilogue, part: Register, products: &[&str]) {
        let Step { op, shape, .. } = &behind.body.steps[part.at()];
        let from = if let StepOp::Slice(_, from) = op { *from } else { 0 };
        let places = &PLACES[..products.len()];
        match behind.body.steps[0].shape.len() == shape.len() {
            true => self.line("{"),
            false => self.line(&format!("if (e >= {from} && e < {}) {{", from + shape.len())),
        }
        self.indented(|out| {
            out.neighbours(&format!("e - {from}"), places);
            let mut elements = behind.elements().at(places, shape.len()).with(part, products);
            for (step, made) in behind.body.steps.iter().zip(&epilogue.made) {
                let StepOp::Store(x, buffer) = step.op else { continue };
                if *made == Made::Part(part) {
                    let values: Vec<String> = places.iter().map(|at| elements.value(out, x, at)).collect();
                    out.put(buffer, "to", step.shape.len(), &values, Some("is_there"));
                }
            }
            let dots = if part.at() == 0 { epilogue.dots(behind.body) } else { Vec::new() };
            for (number, (_, [x, y])) in dots.into_iter().enumerate() {
                for at in places {
                    let both = [x, y].map(|x| elements.value(out, x, at));
                    out.line(&format!("dots[{number}] += {};", both.join(" * ")));
                }
            }
        });
        self.line("}");
    }

    /// A method that does what is left with the inner products of a head.
    fn behind_dots(&mut self, behind: Behind<'_>, epilogue: &Epilogue, signature: &str) {
        let dots = epilogue.dots(behind.body);
        let heads = behind.body.steps[0].shape.heads();
        self.line(&format!("__device__ void {signature} const {{"));
        self.indented(|out| {
            out.row_of_products(behind);
            let places = &PLACES[..1];
            out.neighbours("head", places);
            let names: Vec<String> = (0..dots.len()).map(|number| format!("dots[{number}]")).collect();
            let names: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
            let mut elements = behind.elements().at(places, heads);
            for ((dot, _), name) in dots.iter().zip(&names) {
                elements = elements.with(*dot, name);
            }
            for (step, made) in behind.body.steps.iter().zip(&epilogue.made) {
                let StepOp::Store(x, buffer) = step.op else { continue };
                if *made == Made::Dotted {
                    let value = elements.value(out, x, places[0]);
                    out.put(buffer, "to", step.shape.len(), &[value], None);
                }
            }
        });
        self.line("}");
    }
}
