//! Programs by hand: one method an operator, the same that layer texts have.
//!
//! Operands of different domains are lifted to the coarsest domain that has a row for each pair of theirs. Domain and shape
//! of a result follow from its operands; what does not fit is an error that says what would.

use super::{Binary, Domain, Op, Output, Path, Program, Reduce, Shape, Side, Unary, Value, ValueId};
use crate::error::{Error, Result};

/// Adds values to a program.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    program: Program,
}

impl Builder {
    /// A program of this name without values.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { program: Program { name: name.to_owned(), ..Program::default() } }
    }

    /// Goes on with a program.
    #[must_use]
    pub fn on(program: Program) -> Self {
        Self { program }
    }

    /// The program so far.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// A value so far.
    #[must_use]
    pub fn value(&self, id: ValueId) -> &Value {
        &self.program[id]
    }

    /// The program.
    #[must_use]
    pub fn finish(self) -> Program {
        self.program
    }

    /// Gives a value a name for people.
    pub fn label(&mut self, id: ValueId, label: &str) {
        self.program.values[id.at()].label = Some(label.to_owned());
    }

    /// Asks for a value.
    pub fn output(&mut self, name: &str, value: ValueId) {
        self.program.outputs.push(Output { name: name.to_owned(), value });
    }

    /// Rows that the caller gives.
    pub fn input(&mut self, name: &str, domain: Domain, shape: Shape) -> ValueId {
        self.push(Op::Input { name: name.to_owned(), wants_gradient: false }, domain, shape)
    }

    /// Rows that the caller gives and may want the gradient of.
    pub fn input_with_gradient(&mut self, name: &str, domain: Domain, shape: Shape) -> ValueId {
        self.push(Op::Input { name: name.to_owned(), wants_gradient: true }, domain, shape)
    }

    /// Learnt rows.
    pub fn parameter(&mut self, name: &str, domain: Domain, shape: Shape) -> ValueId {
        self.push(Op::Parameter { name: name.to_owned() }, domain, shape)
    }

    /// A number.
    pub fn constant(&mut self, number: f64) -> ValueId {
        self.push(Op::Constant(number), Domain::Const, Shape::SCALAR)
    }

    /// `x` at a finer domain. A value that is there already stays as it is.
    pub fn lift(&mut self, x: ValueId, to: Domain) -> Result<ValueId> {
        self.lift_by(x, to, Path::Only)
    }

    /// `x` at a finer domain, along one of two ways.
    pub fn lift_by(&mut self, x: ValueId, to: Domain, path: Path) -> Result<ValueId> {
        let (from, shape) = (self.value(x).domain, self.value(x).shape);
        if from == to {
            return Ok(x);
        }
        if !to.maps_to(from, path) {
            return Err(self.wrong(x, format!("a value of {from} has no row for one of {to}")));
        }
        Ok(self.push(Op::Lift { x, path }, to, shape))
    }

    /// All rows that belong together, combined. A value that is there already stays as it is.
    pub fn reduce(&mut self, x: ValueId, to: Domain, how: Reduce) -> Result<ValueId> {
        self.reduce_by(x, to, how, Path::Only)
    }

    /// All rows that belong together along one of two ways, combined.
    pub fn reduce_by(&mut self, x: ValueId, to: Domain, how: Reduce, path: Path) -> Result<ValueId> {
        let (from, shape) = (self.value(x).domain, self.value(x).shape);
        if from == to {
            return Ok(x);
        }
        if !from.maps_to(to, path) {
            return Err(self.wrong(x, format!("rows of {from} do not belong to rows of {to}")));
        }
        Ok(self.push(Op::Reduce { x, how, path }, to, shape))
    }

    /// Every row times the matrix of its type. A matrix with one head takes all heads of the row as one vector.
    pub fn linear(&mut self, x: ValueId, w: ValueId) -> Result<ValueId> {
        self.linear_by(x, w, false, Path::Only)
    }

    /// `linear` with a matrix that may be transposed and is found along a path.
    pub fn linear_by(&mut self, x: ValueId, w: ValueId, transposed: bool, path: Path) -> Result<ValueId> {
        let Shape::Matrix { heads, rows, cols } = self.value(w).shape else {
            return Err(self.wrong(w, "expected a matrix a type".to_owned()));
        };
        let x = if heads == 1 { self.flat(x)? } else { x };
        let (from, to) = if transposed { (cols, rows) } else { (rows, cols) };
        let x = self.at_least(x, self.value(w).domain, path)?;
        let found = self.value(x).shape;
        let wanted = Shape::Row { heads, width: from };
        if found != wanted {
            return Err(self.wrong(x, format!("rows of {found} meet a matrix that takes {wanted}")));
        }
        let (domain, shape) = (self.value(x).domain, Shape::Row { heads, width: to });
        Ok(self.push(Op::Linear { x, w, transposed, path }, domain, shape))
    }

    /// For every row of the type domain `to`, the sum of outer products.
    pub fn outer(&mut self, x: ValueId, y: ValueId, to: Domain, path: Path) -> Result<ValueId> {
        let (x, y) = self.together(x, y)?;
        let (a, b) = (self.value(x).shape, self.value(y).shape);
        let (Shape::Row { heads, width: rows }, Shape::Row { heads: same, width: cols }) = (a, b) else {
            return Err(self.wrong(x, format!("expected vectors, found {a} and {b}")));
        };
        if heads != same {
            return Err(self.wrong(x, format!("{heads} heads meet {same}")));
        }
        Ok(self.push(Op::Outer { x, y, path }, to, Shape::Matrix { heads, rows, cols }))
    }

    /// The product of two matrices a type.
    pub fn product(&mut self, a: ValueId, b: ValueId, transpose_a: bool, transpose_b: bool) -> Result<ValueId> {
        let (a, b) = self.together(a, b)?;
        let sides = |shape: Shape, transposed: bool| match shape {
            Shape::Matrix { heads, rows, cols } if transposed => Some((heads, cols, rows)),
            Shape::Matrix { heads, rows, cols } => Some((heads, rows, cols)),
            Shape::Row { .. } => None,
        };
        let (left, right) = (self.value(a).shape, self.value(b).shape);
        match (sides(left, transpose_a), sides(right, transpose_b)) {
            (Some((heads, rows, inner)), Some((same, other, cols))) if heads == same && inner == other => {
                let domain = self.value(a).domain;
                let op = Op::Product { a, b, transpose_a, transpose_b };
                Ok(self.push(op, domain, Shape::Matrix { heads, rows, cols }))
            }
            _ => Err(self.wrong(a, format!("{left} and {right} cannot be multiplied"))),
        }
    }

    /// The inner product, a head at a time.
    pub fn dot(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        let (x, y) = self.together(x, y)?;
        let (a, b) = (self.value(x).shape, self.value(y).shape);
        match (a, b) {
            (Shape::Row { heads, .. }, _) if a == b => {
                let domain = self.value(x).domain;
                Ok(self.push(Op::Dot { x, y }, domain, Shape::Row { heads, width: 1 }))
            }
            _ => Err(self.wrong(x, format!("the inner product needs two vectors of one shape, found {a} and {b}"))),
        }
    }

    /// A function of every element.
    pub fn unary(&mut self, f: Unary, x: ValueId) -> ValueId {
        let (domain, shape) = (self.value(x).domain, self.value(x).shape);
        self.push(Op::Unary { f, x }, domain, shape)
    }

    /// A function of every two elements.
    pub fn binary(&mut self, f: Binary, x: ValueId, y: ValueId) -> Result<ValueId> {
        let (x, y) = self.together(x, y)?;
        let (a, b) = (self.value(x).shape, self.value(y).shape);
        let Some(shape) = a.broadcast(b) else {
            return Err(self.wrong(x, format!("{a} and {b} do not fit together element by element")));
        };
        let domain = self.value(x).domain;
        Ok(self.push(Op::Binary { f, x, y }, domain, shape))
    }

    /// Both vectors of a head in one.
    pub fn concat(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        let (x, y) = self.together(x, y)?;
        let (a, b) = (self.value(x).shape, self.value(y).shape);
        match (a, b) {
            (Shape::Row { heads, width }, Shape::Row { heads: same, width: more }) if heads == same => {
                let domain = self.value(x).domain;
                Ok(self.push(Op::Concat { x, y }, domain, Shape::Row { heads, width: width + more }))
            }
            _ => Err(self.wrong(x, format!("{a} and {b} cannot be joined"))),
        }
    }

    /// Elements `from` to `from + width` of every head's vector.
    pub fn slice(&mut self, x: ValueId, from: usize, width: usize) -> Result<ValueId> {
        match self.value(x).shape {
            Shape::Row { heads, width: all } if from + width <= all => {
                let domain = self.value(x).domain;
                Ok(self.push(Op::Slice { x, from }, domain, Shape::Row { heads, width }))
            }
            shape => Err(self.wrong(x, format!("{shape} has no elements {from} to {}", from + width))),
        }
    }

    /// Zeros around every head's vector, `width` elements in all.
    pub fn pad(&mut self, x: ValueId, from: usize, width: usize) -> Result<ValueId> {
        match self.value(x).shape {
            Shape::Row { heads, width: inner } if from + inner <= width => {
                let domain = self.value(x).domain;
                Ok(self.push(Op::Pad { x, from }, domain, Shape::Row { heads, width }))
            }
            shape => Err(self.wrong(x, format!("{shape} does not fit into {width} elements from {from} on"))),
        }
    }

    /// The same numbers as another shape.
    pub fn reshape(&mut self, x: ValueId, shape: Shape) -> Result<ValueId> {
        let Value { domain, shape: found, .. } = *self.value(x);
        if found == shape {
            return Ok(x);
        }
        if found.len() != shape.len() {
            return Err(self.wrong(x, format!("{found} has not as many elements as {shape}")));
        }
        Ok(self.push(Op::Reshape { x }, domain, shape))
    }

    /// Heads or widths of 1 repeated up to a shape.
    pub fn expand(&mut self, x: ValueId, shape: Shape) -> Result<ValueId> {
        let Value { domain, shape: found, .. } = *self.value(x);
        if found == shape {
            return Ok(x);
        }
        if found.broadcast(shape) != Some(shape) {
            return Err(self.wrong(x, format!("{found} cannot be repeated up to {shape}")));
        }
        Ok(self.push(Op::Expand { x }, domain, shape))
    }

    /// The sum over heads.
    pub fn sum_heads(&mut self, x: ValueId) -> Result<ValueId> {
        match *self.value(x) {
            Value { shape: Shape::Row { heads: 1, .. }, .. } => Ok(x),
            Value { shape: Shape::Row { width, .. }, domain, .. } => {
                Ok(self.push(Op::SumHeads { x }, domain, Shape::vector(width)))
            }
            _ => Err(self.wrong(x, "matrices are not added up".to_owned())),
        }
    }

    /// The sum over a head's vector.
    pub fn sum_width(&mut self, x: ValueId) -> Result<ValueId> {
        match *self.value(x) {
            Value { shape: Shape::Row { width: 1, .. }, .. } => Ok(x),
            Value { shape: Shape::Row { heads, .. }, domain, .. } => {
                Ok(self.push(Op::SumWidth { x }, domain, Shape::Row { heads, width: 1 }))
            }
            _ => Err(self.wrong(x, "matrices are not added up".to_owned())),
        }
    }

    /// The softmax of an edge value over all edges that belong to the same row of `by`.
    pub fn softmax(&mut self, x: ValueId, by: Domain) -> Result<ValueId> {
        let (domain, shape) = (self.value(x).domain, self.value(x).shape);
        if !domain.maps_to(by, Path::Only) {
            return Err(self.wrong(x, format!("rows of {domain} do not belong to rows of {by}")));
        }
        Ok(self.push(Op::Softmax { x, by }, domain, shape))
    }

    /// Elements set to 0 at random. Dropouts of one program have different keys.
    pub fn dropout(&mut self, x: ValueId, probability: f64, key: u64) -> ValueId {
        let (domain, shape) = (self.value(x).domain, self.value(x).shape);
        self.push(Op::Dropout { x, probability, key }, domain, shape)
    }

    /// Adds any value as it is. [`verify`](super::verify) says whether it makes sense.
    pub fn push(&mut self, op: Op, domain: Domain, shape: Shape) -> ValueId {
        let id = ValueId::new(self.program.values.len());
        self.program.values.push(Value { op, domain, shape, label: None });
        id
    }

    /// Both at their common domain.
    fn together(&mut self, x: ValueId, y: ValueId) -> Result<(ValueId, ValueId)> {
        let (a, b) = (self.value(x).domain, self.value(y).domain);
        let Some(to) = a.join(b) else {
            return Err(self.wrong(x, format!("rows of {a} and of {b} do not meet")));
        };
        Ok((self.lift(x, to)?, self.lift(y, to)?))
    }

    /// `x` at a domain that has types of `types`.
    fn at_least(&mut self, x: ValueId, types: Domain, path: Path) -> Result<ValueId> {
        let domain = self.value(x).domain;
        if domain == types || domain.maps_to(types, path) {
            return Ok(x);
        }
        match domain.join(types) {
            Some(to) if path == Path::Only => self.lift(x, to),
            _ => Err(self.wrong(x, format!("rows of {domain} have no row of {types}"))),
        }
    }

    /// All heads as one.
    fn flat(&mut self, x: ValueId) -> Result<ValueId> {
        let len = self.value(x).shape.len();
        self.reshape(x, Shape::vector(len))
    }

    fn wrong(&self, at: ValueId, why: String) -> Error {
        let label = self.value(at).label.as_ref().map_or_else(String::new, |label| format!(" ({label})"));
        Error::Malformed { program: self.program.name.clone(), at: format!("%{}{label}", at.at()), why }
    }
}

/// The node domain of each side, for callers that loop over both.
impl Domain {
    /// Nodes that are read.
    pub const SRC: Self = Self::Node(Side::Src);
    /// Nodes that are written.
    pub const DST: Self = Self::Node(Side::Dst);
}
