//! The inter-operator form: what a layer computes, and nothing about how.
//!
//! A program is a list of values in the order of their dependence. Each has an operator, a domain (which rows there are) and
//! a shape (what a row holds). [`verify`] says whether that makes sense, [`text`] writes and reads it, and
//! [`evaluate`] computes it by definition: what it is compiled to has to give the same numbers.

mod build;
mod domain;
mod evaluate;
mod op;
mod shape;
pub mod text;
mod verify;

pub use build::Builder;
pub use domain::{Domain, Path, Side};
pub use evaluate::evaluate;
pub use op::{Binary, Op, Reduce, Unary};
pub use shape::Shape;
pub use verify::verify;

/// A value of a program, by its place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(u32);

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// What it is computed from: values before it.
    pub op: Op,
    /// Which rows it has.
    pub domain: Domain,
    /// What a row holds.
    pub shape: Shape,
    /// What a text calls it; for people.
    pub label: Option<String>,
}

/// What a program is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// The value.
    pub value: ValueId,
}

/// Values in the order of their dependence, and which of them are asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// The layer's name.
    pub name: String,
    /// Values.
    pub values: Vec<Value>,
    /// What is asked for.
    pub outputs: Vec<Output>,
}

impl ValueId {
    /// The value at a place.
    #[must_use]
    pub fn new(at: usize) -> Self {
        Self(u32::try_from(at).unwrap_or(u32::MAX))
    }

    /// Its place.
    #[must_use]
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

impl std::ops::Index<ValueId> for Program {
    type Output = Value;

    fn index(&self, id: ValueId) -> &Value {
        &self.values[id.at()]
    }
}

impl Program {
    /// All values with their places.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (ValueId, &Value)> {
        self.values.iter().enumerate().map(|(at, value)| (ValueId::new(at), value))
    }

    /// An output by its name.
    #[must_use]
    pub fn output(&self, name: &str) -> Option<ValueId> {
        self.outputs.iter().find(|output| output.name == name).map(|output| output.value)
    }

    /// How often each value is an operand or an output.
    #[must_use]
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.values.len()];
        let operands = self.values.iter().flat_map(|value| value.op.operands());
        for id in operands.chain(self.outputs.iter().map(|output| output.value)) {
            uses[id.at()] += 1;
        }
        uses
    }

    /// The program without values that no output needs. Inputs and parameters stay: they are the layer's signature.
    #[must_use]
    pub fn without_unused(&self) -> Self {
        let mut needed: Vec<bool> =
            self.values.iter().map(|value| matches!(value.op, Op::Input { .. } | Op::Parameter { .. })).collect();
        for output in &self.outputs {
            needed[output.value.at()] = true;
        }
        for (id, value) in self.iter().rev() {
            if needed[id.at()] {
                value.op.operands().iter().for_each(|operand| needed[operand.at()] = true);
            }
        }
        self.of_values(self.iter().map(|(id, _)| id).filter(|id| needed[id.at()]))
    }

    /// The program of some of its values, in an order in which operands come before their readers. Outputs are among them.
    pub(crate) fn of_values(&self, ids: impl IntoIterator<Item = ValueId>) -> Self {
        let mut kept = Self { name: self.name.clone(), ..Self::default() };
        let mut place = vec![ValueId(u32::MAX); self.values.len()];
        for id in ids {
            place[id.at()] = ValueId::new(kept.values.len());
            let op = self[id].op.with_operands(|operand| place[operand.at()]);
            kept.values.push(Value { op, ..self[id].clone() });
        }
        let moved = |output: &Output| Output { name: output.name.clone(), value: place[output.value.at()] };
        kept.outputs = self.outputs.iter().map(moved).collect();
        kept
    }
}
