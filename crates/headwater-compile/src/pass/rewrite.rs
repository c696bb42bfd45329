//! Programs rebuilt value by value: what every pass over values stands on.

use std::collections::HashMap;

use crate::error::Result;
use crate::inter::text::op_text;
use crate::inter::{Builder, Domain, Op, Output, Program, Shape, Value, ValueId};

/// A program that is being rebuilt. Values that are computed alike are one value.
pub(super) struct Rebuilt {
    pub builder: Builder,
    known: HashMap<String, ValueId>,
    /// Where each old value is now.
    place: Vec<ValueId>,
}

/// Rebuilds a program. `visit` gets each value with its operands replaced, and returns what stands for it.
pub(super) fn rewrite(
    program: &Program,
    mut visit: impl FnMut(&mut Rebuilt, Value) -> Result<ValueId>,
) -> Result<Program> {
    let mut rebuilt = Rebuilt { builder: Builder::new(&program.name), known: HashMap::new(), place: Vec::new() };
    for value in &program.values {
        let op = value.op.with_operands(|operand| rebuilt.place[operand.at()]);
        let label = value.label.clone();
        let id = visit(&mut rebuilt, Value { op, ..value.clone() })?;
        if let (Some(label), None) = (label, &rebuilt.builder.value(id).label) {
            rebuilt.builder.label(id, &label);
        }
        rebuilt.place.push(id);
    }
    for Output { name, value } in &program.outputs {
        let value = rebuilt.place[value.at()];
        rebuilt.builder.output(name, value);
    }
    Ok(rebuilt.builder.finish().without_unused())
}

impl Rebuilt {
    /// A value of the new program.
    pub fn value(&self, id: ValueId) -> &Value {
        self.builder.value(id)
    }

    /// Where a value of the old program is now.
    pub fn place(&self, old: ValueId) -> ValueId {
        self.place[old.at()]
    }

    /// Adds a value, or finds the one that is computed alike.
    pub fn push(&mut self, op: Op, domain: Domain, shape: Shape) -> ValueId {
        let key = format!("{domain} {shape} {}", op_text(&op));
        if let Some(id) = self.known.get(&key) {
            return *id;
        }
        let id = self.builder.push(op, domain, shape);
        self.known.insert(key, id);
        id
    }

    /// Adds a value as it is.
    pub fn keep(&mut self, value: Value) -> ValueId {
        self.push(value.op, value.domain, value.shape)
    }
}
