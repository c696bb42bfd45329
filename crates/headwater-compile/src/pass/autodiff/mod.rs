//! Gradients, as values of the same form.
//!
//! Reverse mode: from the last value to the first, each one's gradient is handed to its operands by the rule of its operator
//! (`rules.rs`). Only values on the way from a parameter, or from an input whose gradient is asked for, to the output get one.
//! The same passes then run on the result, so that gradients are computed on coarse domains and share kernels too.

mod rules;
#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::inter::{Binary, Builder, Domain, Op, Program, Reduce, Shape, ValueId};

/// The name of the gradient of a parameter, an input or the output.
#[must_use]
pub fn gradient_name(name: &str) -> String {
    format!("d.{name}")
}

/// A program that computes the gradients of all parameters, and of inputs that want one, from that of `output`: an input
/// called `d.OUTPUT`. It has the program's own outputs too; [`split`](super::split()) cuts the two directions apart.
pub fn gradients(program: &Program, output: &str) -> Result<Program> {
    gradients_by(program, output, false)
}

/// The same; `one_walk`: the sum of shares times their gradients is the inner product of what they weigh and its gradient.
pub fn gradients_by(program: &Program, output: &str, one_walk: bool) -> Result<Program> {
    let mut found = Gradients { one_walk, ..Gradients::new(program) };
    let Some(last) = program.output(output) else { return Ok(program.clone()) };
    let (domain, shape) = (program[last].domain, program[last].shape);
    let seed = found.builder.input(&gradient_name(output), domain, shape);
    found.of[last.at()] = Some(seed);
    for (id, value) in program.iter().rev() {
        if let (Some(gradient), true) = (found.of[id.at()], found.is_needed[id.at()]) {
            rules::hand_down(&mut found, id, &value.op, gradient)?;
        }
    }
    for (id, value) in program.iter() {
        let name = match &value.op {
            Op::Parameter { name } | Op::Input { name, wants_gradient: true } => gradient_name(name),
            _ => continue,
        };
        // What the output does not depend on has a gradient of zeros.
        let gradient = match found.of[id.at()] {
            Some(gradient) => gradient,
            None => found.zeros(value.domain, value.shape)?,
        };
        found.builder.output(&name, gradient);
    }
    Ok(found.builder.finish())
}

/// Gradients so far.
struct Gradients {
    builder: Builder,
    /// The gradient of each value, when it has one.
    of: Vec<Option<ValueId>>,
    /// Whether a value depends on something whose gradient is asked for.
    is_needed: Vec<bool>,
    /// Whether gradients of shares wait for no sum over them.
    one_walk: bool,
}

impl Gradients {
    fn new(program: &Program) -> Self {
        let mut is_needed = vec![false; program.values.len()];
        for (id, value) in program.iter() {
            is_needed[id.at()] = match value.op {
                Op::Parameter { .. } | Op::Input { wants_gradient: true, .. } => true,
                ref op => op.operands().iter().any(|operand| is_needed[operand.at()]),
            };
        }
        Self { builder: Builder::on(program.clone()), of: vec![None; program.values.len()], is_needed, one_walk: false }
    }

    /// Adds to the gradient of a value.
    fn give(&mut self, to: ValueId, gradient: ValueId) -> Result<()> {
        if !self.is_needed[to.at()] {
            return Ok(());
        }
        let shape = self.builder.value(to).shape;
        let gradient = self.shrink(gradient, shape)?;
        self.of[to.at()] = Some(match self.of[to.at()] {
            Some(other) => self.builder.binary(Binary::Add, other, gradient)?,
            None => gradient,
        });
        Ok(())
    }

    /// Sums over heads and widths that were repeated.
    fn shrink(&mut self, x: ValueId, to: Shape) -> Result<ValueId> {
        let Shape::Row { heads, width } = to else { return Ok(x) };
        let mut x = x;
        if width == 1 {
            x = self.builder.sum_width(x)?;
        }
        if heads == 1 {
            x = self.builder.sum_heads(x)?;
        }
        Ok(x)
    }

    fn zeros(&mut self, domain: Domain, shape: Shape) -> Result<ValueId> {
        let zero = self.builder.constant(0.0);
        let row = self.builder.expand(zero, Shape::vector(shape.len()))?;
        let row = self.builder.reshape(row, shape)?;
        self.spread(row, domain)
    }

    /// A constant's row at any domain.
    fn spread(&mut self, x: ValueId, domain: Domain) -> Result<ValueId> {
        self.builder.lift(x, domain)
    }

    /// How many rows of `fine` belong to each row of `coarse`, at least 1.
    fn counts(&mut self, fine: Domain, coarse: Domain, path: crate::inter::Path) -> Result<ValueId> {
        let one = self.builder.constant(1.0);
        let ones = self.builder.lift(one, fine)?;
        let counts = self.builder.reduce_by(ones, coarse, Reduce::Sum, path)?;
        self.builder.binary(Binary::Max, counts, one)
    }
}
