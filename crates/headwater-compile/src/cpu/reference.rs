//! The definition of the intra-operator form: a plain interpreter in double precision.
//!
//! It visits one outermost row after the other and runs each step for all rows of its level, in order. Nothing is clever, so
//! that it can be read; every fast path and every emitted kernel is compared with it.

use std::collections::BTreeMap;

use headwater_graph::random::Key;

use super::dropout::Dropout;
use super::scalar;
use crate::adjacency::{Adjacency, Map, Members};
use crate::error::{Error, Result};
use crate::inter::{Domain, Path, Reduce, Shape};
use crate::intra::{
    Body, Buffer, BufferId, Gemm, GemmSum, Kernel, Library, Outer, Program, Read, Register, Role, RowProduct, Step,
    StepOp,
};

/// Runs a program. `given` has every input and parameter by name; what comes back are the outputs.
pub fn run(
    program: &Program,
    graph: &Adjacency,
    step: Key,
    given: &BTreeMap<String, Vec<f64>>,
) -> Result<BTreeMap<String, Vec<f64>>> {
    let mut state = State { program, graph, step, buffers: Vec::new() };
    for buffer in &program.buffers {
        let values = state.first_values(buffer, given)?;
        state.buffers.push(values);
    }
    for kernel in &program.kernels {
        state.kernel(kernel)?;
    }
    let outputs = program.buffers.iter().zip(state.buffers).filter(|(buffer, _)| buffer.role == Role::Output);
    Ok(outputs.map(|(buffer, values)| (buffer.name.clone(), values)).collect())
}

/// All buffers while a program runs.
struct State<'a> {
    program: &'a Program,
    graph: &'a Adjacency,
    step: Key,
    buffers: Vec<Vec<f64>>,
}

/// The rows of one level that belong to the outermost row at hand.
struct Level {
    rows: Vec<usize>,
    /// The place of each one's row in the level before.
    parents: Vec<usize>,
}

/// A register: a vector for every row of its level.
type Vectors = Vec<Vec<f64>>;

impl State<'_> {
    fn first_values(&self, buffer: &Buffer, given: &BTreeMap<String, Vec<f64>>) -> Result<Vec<f64>> {
        let count = self.graph.rows(buffer.domain) * buffer.shape.len();
        if !matches!(buffer.role, Role::Input | Role::Parameter) {
            return Ok(vec![0.0; count]);
        }
        let found = given.get(&buffer.name).cloned().unwrap_or_default();
        if found.len() == count {
            return Ok(found);
        }
        Err(Error::Binding { name: buffer.name.clone(), expected: count, found: found.len() })
    }

    fn kernel(&mut self, kernel: &Kernel) -> Result<()> {
        match kernel {
            Kernel::Gemm(gemm) => {
                let rows = *gemm.body_rows();
                for row in 0..self.graph.rows(rows) {
                    let product = self.product_at(gemm, row)?;
                    self.body(&[rows], Path::Only, &gemm.body, row, Some(product))?;
                }
            }
            Kernel::GemmSum(sum) => {
                for row in 0..self.graph.rows(sum.to) {
                    let products = self.sum_at(sum, row)?;
                    self.body(&[sum.to], Path::Only, &sum.body, row, Some(products))?;
                }
            }
            Kernel::Outer(outer) => self.outer(outer)?,
            Kernel::Traverse(traverse) => {
                for row in 0..self.graph.rows(traverse.nest[0]) {
                    self.body(&traverse.nest, traverse.path, &traverse.body, row, None)?;
                }
            }
            Kernel::Library(Library::Product { a, b, to }) => return self.product(a, b, *to),
        }
        Ok(())
    }

    /// What goes to a row: its own product, or that of the row that belongs to it, or 0.
    fn product_at(&self, gemm: &Gemm, row: usize) -> Result<Vec<f64>> {
        let Some(to) = gemm.scatter else { return self.row_times_matrix(&gemm.product, row) };
        let mut from = None;
        self.members(to, gemm.product.rows, Path::Only)?.visit(row, |member| from = Some(member));
        let zeros = || vec![0.0; gemm.body.steps.first().map_or(0, |product| product.shape.len())];
        from.map_or_else(|| Ok(zeros()), |from| self.row_times_matrix(&gemm.product, from))
    }

    /// The sum of the products that belong to a row.
    fn sum_at(&self, sum: &GemmSum, row: usize) -> Result<Vec<f64>> {
        let mut found = vec![0.0; sum.body.steps.first().map_or(0, |sum| sum.shape.len())];
        for term in &sum.terms {
            let mut own = Vec::new();
            match term.rows == sum.to {
                true => own.push(row),
                false => self.members(sum.to, term.rows, Path::Only)?.visit(row, |member| own.push(member)),
            }
            for member in own {
                let product = self.row_times_matrix(term, member)?;
                found.iter_mut().zip(product).for_each(|(sum, product)| *sum += product);
            }
        }
        Ok(found)
    }

    fn row_times_matrix(&self, product: &RowProduct, row: usize) -> Result<Vec<f64>> {
        let x = self.read(product.rows, &product.x, row)?;
        let scale = match &product.scale {
            Some(scale) => self.read(product.rows, scale, row)?[0],
            None => 1.0,
        };
        let kind = self.map(product.rows, self.program[product.w].domain, product.path)?.get(row);
        let w = self.row(product.w, kind);
        let Shape::Matrix { heads, rows, cols } = self.program[product.w].shape else { return Ok(Vec::new()) };
        let (from, to) = if product.transposed { (cols, rows) } else { (rows, cols) };
        let mut found = vec![0.0; heads * to];
        for head in 0..heads {
            for i in 0..from {
                for j in 0..to {
                    let at = if product.transposed { j * cols + i } else { i * cols + j };
                    found[head * to + j] += scale * x[head * from + i] * w[head * rows * cols + at];
                }
            }
        }
        Ok(found)
    }

    fn outer(&mut self, outer: &Outer) -> Result<()> {
        let Shape::Matrix { heads, rows, cols } = self.program[outer.to].shape else { return Ok(()) };
        for row in 0..self.graph.rows(outer.rows) {
            let (x, y) = (self.read(outer.rows, &outer.x, row)?, self.read(outer.rows, &outer.y, row)?);
            let kind = self.map(outer.rows, self.program[outer.to].domain, outer.path)?.get(row);
            let to = &mut self.buffers[outer.to.at()][kind * heads * rows * cols..][..heads * rows * cols];
            for head in 0..heads {
                for i in 0..rows {
                    for j in 0..cols {
                        to[(head * rows + i) * cols + j] += x[head * rows + i] * y[head * cols + j];
                    }
                }
            }
        }
        Ok(())
    }

    fn product(&mut self, a: &(Read, bool), b: &(Read, bool), to: BufferId) -> Result<()> {
        let Shape::Matrix { heads, rows, cols } = self.program[to].shape else { return Ok(()) };
        let inner = self.program[a.0.from].shape.len() / (heads * rows);
        let types = self.program[to].domain;
        for kind in 0..self.graph.rows(types) {
            let (x, y) = (self.read(types, &a.0, kind)?, self.read(types, &b.0, kind)?);
            for (at, sum) in
                self.buffers[to.at()][kind * heads * rows * cols..][..heads * rows * cols].iter_mut().enumerate()
            {
                let (head, i, j) = (at / cols / rows, at / cols % rows, at % cols);
                let left = |k: usize| head * rows * inner + if a.1 { k * rows + i } else { i * inner + k };
                let right = |k: usize| head * inner * cols + if b.1 { j * inner + k } else { k * cols + j };
                *sum = (0..inner).map(|k| x[left(k)] * y[right(k)]).sum();
            }
        }
        Ok(())
    }

    fn body(&mut self, nest: &[Domain], path: Path, body: &Body, row: usize, product: Option<Vec<f64>>) -> Result<()> {
        let levels = self.levels(nest, path, row)?;
        let mut registers: Vec<Vectors> = Vec::new();
        for step in &body.steps {
            let made = match (&step.op, &product) {
                (StepOp::Product, Some(product)) => vec![product.clone()],
                (StepOp::Load(read), _) => {
                    let rows = levels[step.level].rows.iter();
                    rows.map(|row| self.read(nest[step.level], read, *row)).collect::<Result<_>>()?
                }
                (StepOp::Store(x, to), _) => {
                    let len = step.shape.len();
                    for (row, values) in levels[step.level].rows.iter().zip(&registers[x.at()]) {
                        self.buffers[to.at()][row * len..][..len].copy_from_slice(values);
                    }
                    Vec::new()
                }
                _ => Steps { levels: &levels, body, registers: &registers, step: self.step }.run(step),
            };
            registers.push(made);
        }
        Ok(())
    }

    fn levels(&self, nest: &[Domain], path: Path, row: usize) -> Result<Vec<Level>> {
        let mut levels = vec![Level { rows: vec![row], parents: vec![0] }];
        for (at, pair) in nest.windows(2).enumerate() {
            let members = self.members(pair[0], pair[1], if at == 0 { path } else { Path::Only })?;
            let (mut rows, mut parents) = (Vec::new(), Vec::new());
            for (parent, row) in levels[levels.len() - 1].rows.iter().enumerate() {
                members.visit(*row, |member| {
                    rows.push(member);
                    parents.push(parent);
                });
            }
            levels.push(Level { rows, parents });
        }
        Ok(levels)
    }

    fn read(&self, from: Domain, read: &Read, row: usize) -> Result<Vec<f64>> {
        let (mut domain, mut at) = (from, row);
        for hop in &read.hops {
            at = self.map(domain, hop.to, hop.path)?.get(at);
            domain = hop.to;
        }
        Ok(self.row(read.from, at).to_vec())
    }

    fn row(&self, buffer: BufferId, row: usize) -> &[f64] {
        let len = self.program[buffer].shape.len();
        &self.buffers[buffer.at()][row * len..][..len]
    }

    fn map(&self, fine: Domain, coarse: Domain, path: Path) -> Result<Map<'_>> {
        self.graph.map(fine, coarse, path).ok_or_else(|| no_map(self.program, fine, coarse))
    }

    fn members(&self, coarse: Domain, fine: Domain, path: Path) -> Result<Members<'_>> {
        self.graph.members(coarse, fine, path).ok_or_else(|| no_map(self.program, fine, coarse))
    }
}

fn no_map(program: &Program, fine: Domain, coarse: Domain) -> Error {
    let why = format!("rows of {fine} do not belong to rows of {coarse}");
    Error::Malformed { program: program.name.clone(), at: "a kernel".to_owned(), why }
}

/// Steps that need registers alone.
struct Steps<'a> {
    levels: &'a [Level],
    body: &'a Body,
    registers: &'a [Vectors],
    step: Key,
}

impl Steps<'_> {
    fn run(&self, step: &Step) -> Vectors {
        let len = step.shape.len();
        match step.op {
            StepOp::Constant(number) => vec![vec![number; len]; self.levels[step.level].rows.len()],
            StepOp::Dropout { x, probability, key } => {
                let dropout = Dropout::new(self.step, key, probability);
                let kept = |row: usize, at: usize| if dropout.keeps(row * len + at) { dropout.scale() } else { 0.0 };
                let rows = self.levels[step.level].rows.iter().zip(&self.registers[x.at()]);
                rows.map(|(row, x)| x.iter().enumerate().map(|(at, x)| x * kept(*row, at)).collect()).collect()
            }
            StepOp::Spread(x) => {
                let count = self.levels[step.level].rows.len();
                let from = self.body.steps[x.at()].level;
                (0..count).map(|at| self.registers[x.at()][self.ancestor(step.level, at, from)].clone()).collect()
            }
            StepOp::Reduce(how, x) => self.reduce(how, x, step),
            StepOp::Softmax { x, over } => self.softmax(x, over, step),
            _ => (0..self.levels[step.level].rows.len()).map(|at| self.row_wise(step, at)).collect(),
        }
    }

    fn row_wise(&self, step: &Step, at: usize) -> Vec<f64> {
        let value = |register: Register| &self.registers[register.at()][at];
        let sizes = |register: Register| sizes(self.body.steps[register.at()].shape);
        let (heads, width) = self::sizes(step.shape);
        // The element of a register that an element of the result is made from.
        let pick = |register: Register, head: usize, i: usize| {
            let (heads, width) = sizes(register);
            value(register)[if heads == 1 { 0 } else { head } * width + if width == 1 { 0 } else { i }]
        };
        let each = |f: &dyn Fn(usize, usize) -> f64| {
            (0..heads).flat_map(|head| (0..width).map(move |i| (head, i))).map(|(head, i)| f(head, i)).collect()
        };
        match step.op {
            StepOp::Unary(f, x) => value(x).iter().map(|x| scalar::unary(f, *x)).collect(),
            StepOp::Binary(f, x, y) => each(&|head, i| scalar::binary(f, pick(x, head, i), pick(y, head, i))),
            StepOp::Expand(x) => each(&|head, i| pick(x, head, i)),
            StepOp::Dot(x, y) => {
                let inner = sizes(x).1;
                each(&|head, _| (0..inner).map(|i| pick(x, head, i) * pick(y, head, i)).sum())
            }
            StepOp::Concat(x, y) => {
                let first = sizes(x).1;
                each(&|head, i| {
                    if i < first { value(x)[head * first + i] } else { value(y)[head * sizes(y).1 + i - first] }
                })
            }
            StepOp::Slice(x, from) => each(&|head, i| value(x)[head * sizes(x).1 + from + i]),
            StepOp::Pad(x, from) => {
                let inner = sizes(x).1;
                let is_inside = |i: usize| (from..from + inner).contains(&i);
                each(&|head, i| if is_inside(i) { value(x)[head * inner + i - from] } else { 0.0 })
            }
            StepOp::SumHeads(x) => each(&|_, i| (0..sizes(x).0).map(|head| value(x)[head * width + i]).sum()),
            StepOp::SumWidth(x) => each(&|head, _| (0..sizes(x).1).map(|i| value(x)[head * sizes(x).1 + i]).sum()),
            StepOp::Reshape(x) => value(x).clone(),
            _ => Vec::new(),
        }
    }

    fn reduce(&self, how: Reduce, x: Register, step: &Step) -> Vectors {
        let from = self.body.steps[x.at()].level;
        let count = self.levels[step.level].rows.len();
        let mut found: Vectors = vec![vec![0.0; step.shape.len()]; count];
        let mut counts = vec![0usize; count];
        for (at, values) in self.registers[x.at()].iter().enumerate() {
            let to = self.ancestor(from, at, step.level);
            counts[to] += 1;
            let is_first = counts[to] == 1;
            for (sum, value) in found[to].iter_mut().zip(values) {
                *sum = if how == Reduce::Max && !is_first { scalar::larger(*sum, *value) } else { *sum + value };
            }
        }
        if how == Reduce::Mean {
            for (sum, count) in found.iter_mut().zip(&counts) {
                sum.iter_mut().for_each(|sum| *sum /= (*count).max(1) as f64);
            }
        }
        found
    }

    fn softmax(&self, x: Register, over: usize, step: &Step) -> Vectors {
        let (values, len) = (&self.registers[x.at()], step.shape.len());
        let groups = self.levels[over].rows.len();
        let group = |at: usize| self.ancestor(step.level, at, over);
        let mut largest = vec![vec![f64::NEG_INFINITY; len]; groups];
        for (at, values) in values.iter().enumerate() {
            largest[group(at)].iter_mut().zip(values).for_each(|(largest, value)| *largest = largest.max(*value));
        }
        let shifted = |at: usize, i: usize| (values[at][i] - largest[group(at)][i]).exp();
        let mut sums = vec![vec![0.0; len]; groups];
        for at in 0..values.len() {
            sums[group(at)].iter_mut().enumerate().for_each(|(i, sum)| *sum += shifted(at, i));
        }
        (0..values.len()).map(|at| (0..len).map(|i| shifted(at, i) / sums[group(at)][i]).collect()).collect()
    }

    /// The place in a coarser level of what row `at` of a level belongs to.
    fn ancestor(&self, level: usize, at: usize, to: usize) -> usize {
        (to + 1..=level).rev().fold(at, |at, level| self.levels[level].parents[at])
    }
}

fn sizes(shape: Shape) -> (usize, usize) {
    (shape.heads(), shape.len() / shape.heads())
}
