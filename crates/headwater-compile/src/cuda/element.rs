//! One element of a vector, as an expression of elements of others: what a thread computes where lanes need not meet.
//!
//! An element is pulled: it asks for those that it is made from, at the places that shapes say, and each of them is written
//! once. So slices, reshapes and repetitions cost index arithmetic, and a vector may be as long as a matrix.

use std::collections::BTreeMap;

use super::row::sizes;
use super::scalar::{binary, dropout, single, unary};
use super::text::Writer;
use crate::inter::{Binary, Domain, Path, Shape};
use crate::intra::{Body, Read, Register, Step, StepOp};

/// Sums over more heads than this are left to lanes.
const MOST_HEADS: usize = 32;

/// What is written where there is no such element: a name that nothing has, so that the kernel is refused by the compiler. Any
/// number here would be a wrong result without a word.
const NOT_AN_ELEMENT: &str = "hw_not_an_element";

/// Whether every element of what a body makes is made from single elements of the same row.
pub(super) fn is_flat(body: &Body) -> bool {
    body.steps.iter().all(|step| step.op != StepOp::Product && is_single(body, step))
}

/// Whether every element of what a step makes is made from single elements of the same row.
pub(super) fn is_single(body: &Body, step: &Step) -> bool {
    match step.op {
        StepOp::Dot(..) | StepOp::SumWidth(_) | StepOp::Reduce(..) | StepOp::Softmax { .. } | StepOp::Spread(_) => {
            false
        }
        StepOp::SumHeads(x) => body.steps[x.at()].shape.heads() <= MOST_HEADS,
        _ => true,
    }
}

/// Whether every element is made from those at its own place.
pub(super) fn keeps_place(op: &StepOp) -> bool {
    let is_copied = matches!(op, StepOp::Reshape(_) | StepOp::Expand(_) | StepOp::Store(..));
    is_copied || matches!(op, StepOp::Product | StepOp::Unary(..) | StepOp::Binary(..) | StepOp::Dropout { .. })
}

/// Elements of the vectors of one row.
pub(super) struct Elements<'a> {
    body: &'a Body,
    rows: Domain,
    /// The row's name in the text.
    row: &'a str,
    /// Names of the places that are asked for, neighbours, in vectors of so many elements.
    places: (&'a [&'a str], usize),
    /// Vectors whose elements at these places are there, by names: a product, a part of one, or inner products.
    given: Vec<(Register, &'a [&'a str])>,
    /// The way to the row's type, and the name of that, where it is known.
    known: Option<(Domain, Path, &'a str)>,
    made: BTreeMap<(Register, String), String>,
    /// Four neighbouring elements of registers, by name.
    fours: BTreeMap<Register, String>,
    indices: BTreeMap<String, String>,
}

impl<'a> Elements<'a> {
    pub fn new(body: &'a Body, rows: Domain, row: &'a str) -> Self {
        let (made, fours, indices) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { body, rows, row, places: (&[], 0), given: Vec::new(), known: None, made, fours, indices }
    }

    /// The same at neighbouring places of vectors of so many elements. Four of them begin at a multiple of four.
    pub fn at(self, places: &'a [&'a str], len: usize) -> Self {
        Self { places: (places, len), ..self }
    }

    /// The same where the type of the row has a name.
    pub fn of_type(self, to: Domain, path: Path, name: &'a str) -> Self {
        Self { known: Some((to, path, name)), ..self }
    }

    /// The same with elements of a vector at these places.
    pub fn with(mut self, given: Register, elements: &'a [&'a str]) -> Self {
        self.given.push((given, elements));
        self
    }

    /// The name of element `at` of a register, which is written if it is not there.
    pub fn value(&mut self, out: &mut Writer<'_>, register: Register, at: &str) -> String {
        let at = if self.shape(register).len() == 1 { "0" } else { at };
        if let Some(name) = self.made.get(&(register, at.to_owned())) {
            return name.clone();
        }
        let value = self.expression(out, register, at);
        let name = format!("v{}", self.made.len());
        out.line(&format!("const float {name} = {value};"));
        self.made.insert((register, at.to_owned()), name.clone());
        name
    }

    fn shape(&self, register: Register) -> Shape {
        self.body.steps[register.at()].shape
    }

    /// The name of a place.
    fn index(&mut self, out: &mut Writer<'_>, place: String) -> String {
        self.once(out, "u32", place)
    }

    /// The name of an expression that is written once.
    fn once(&mut self, out: &mut Writer<'_>, of_type: &str, expression: String) -> String {
        let name = format!("i{}", self.indices.len());
        let found = self.indices.entry(expression.clone()).or_insert_with(|| {
            out.line(&format!("const {of_type} {name} = {expression};"));
            name
        });
        found.clone()
    }

    fn expression(&mut self, out: &mut Writer<'_>, register: Register, at: &str) -> String {
        let step = &self.body.steps[register.at()];
        let shape = step.shape;
        let width = sizes(shape).1;
        if let Some((_, elements)) = self.given.iter().find(|(given, _)| *given == register) {
            // A product of one element is the same at every place.
            let is_it = |place: &&str| *place == at || shape.len() == 1;
            let found = self.places.0.iter().position(is_it).and_then(|place| elements.get(place));
            return (*found.unwrap_or(&NOT_AN_ELEMENT)).to_owned();
        }
        match step.op {
            StepOp::Load(ref read) => self.load(out, (register, read), shape, at),
            StepOp::Constant(number) => single(number),
            StepOp::Unary(f, x) => unary(f, &self.value(out, x, at)),
            // One division for all elements.
            StepOp::Binary(Binary::Div, x, y) if self.shape(y).len() == 1 && shape.len() > 1 => {
                let y = self.value(out, y, "0");
                let inverse = self.once(out, "float", format!("1.0f / {y}"));
                format!("{} * {inverse}", self.matching(out, x, shape, at))
            }
            StepOp::Binary(f, x, y) => binary(f, &self.matching(out, x, shape, at), &self.matching(out, y, shape, at)),
            StepOp::Reshape(x) => self.value(out, x, at),
            StepOp::Expand(x) => self.matching(out, x, shape, at),
            StepOp::Concat(x, y) => self.concat(out, (x, y), width, at),
            StepOp::Slice(x, from) => {
                let all = sizes(self.shape(x)).1;
                let place = self.index(out, format!("{at} / {width} * {all} + {from} + {at} % {width}"));
                self.value(out, x, &place)
            }
            StepOp::Pad(x, from) => {
                let inner = sizes(self.shape(x)).1;
                // Elements before `from` wrap to others of the vector, whose values are not taken.
                let ahead = from.next_multiple_of(inner.max(1)) - from;
                let place = self.index(out, format!("{at} / {width} * {inner} + ({at} % {width} + {ahead}) % {inner}"));
                let value = self.value(out, x, &place);
                format!("{at} % {width} >= {from} && {at} % {width} < {} ? {value} : 0.0f", from + inner)
            }
            StepOp::SumHeads(x) => {
                let heads = self.shape(x).heads();
                let places: Vec<String> =
                    (0..heads).map(|head| self.index(out, format!("{} + {at}", head * width))).collect();
                places.iter().map(|place| self.value(out, x, place)).collect::<Vec<_>>().join(" + ")
            }
            StepOp::Dropout { x, probability, key } => {
                let place = format!("(u64){} * {} + {at}", self.row, shape.len());
                dropout(&self.value(out, x, at), key, &place, probability)
            }
            StepOp::Product
            | StepOp::Dot(..)
            | StepOp::SumWidth(_)
            | StepOp::Reduce(..)
            | StepOp::Softmax { .. }
            | StepOp::Spread(_)
            | StepOp::Store(..) => NOT_AN_ELEMENT.to_owned(),
        }
    }

    fn load(&mut self, out: &mut Writer<'_>, (register, read): (Register, &Read), shape: Shape, at: &str) -> String {
        let (row, data) = (self.read_row(out, read), out.buffer(read.from));
        let len = shape.len();
        let (places, wide) = self.places;
        let place = places.iter().position(|place| *place == at);
        let Some(place) = place.filter(|_| places.len() == 4 && len == wide) else {
            return format!("__ldg({data} + (u64){row} * {len} + {at})");
        };
        let (name, first) = (format!("f{}", self.fours.len()), places[0]);
        let found = self.fours.entry(register).or_insert_with(|| {
            out.line(&format!("const float4 {name} = __ldg((const float4 *)({data} + (u64){row} * {len} + {first}));"));
            name
        });
        format!("{found}.{}", ["x", "y", "z", "w"][place])
    }

    /// The row of a buffer that this row reads.
    fn read_row(&self, out: &mut Writer<'_>, read: &Read) -> String {
        match (self.known, &read.hops[..]) {
            (Some((to, path, name)), [hop, rest @ ..]) if (hop.to, hop.path) == (to, path) => {
                out.row_of(to, &Read { from: read.from, hops: rest.to_vec() }, name)
            }
            _ => out.row_of(self.rows, read, self.row),
        }
    }

    /// The element that belongs to element `at` of a result of some shape, heads and widths of 1 repeated.
    fn matching(&mut self, out: &mut Writer<'_>, x: Register, shape: Shape, at: &str) -> String {
        let ((heads, width), (all, wide)) = (sizes(self.shape(x)), sizes(shape));
        if (heads, width) == (all, wide) || heads * width == 1 {
            return self.value(out, x, at);
        }
        let head = if heads == 1 { "0".to_owned() } else { format!("{at} / {wide} * {width}") };
        let within = if width == 1 { "0".to_owned() } else { format!("{at} % {wide}") };
        let place = self.index(out, format!("{head} + {within}"));
        self.value(out, x, &place)
    }

    /// Both vectors of a head in one: both are asked, each at a place that it has.
    fn concat(&mut self, out: &mut Writer<'_>, (x, y): (Register, Register), all: usize, at: &str) -> String {
        let (first, second) = (sizes(self.shape(x)).1, sizes(self.shape(y)).1);
        let left = self.index(out, format!("{at} / {all} * {first} + hw_least({at} % {all}, {first} - 1)"));
        let within = format!("({at} % {all} < {first} ? 0 : {at} % {all} - {first})");
        let right = self.index(out, format!("{at} / {all} * {second} + {within}"));
        let (left, right) = (self.value(out, x, &left), self.value(out, y, &right));
        format!("{at} % {all} < {first} ? {left} : {right}")
    }
}
