//! From what a text says to what it means: statements are walked in order, and operators add values to a program.
//!
//! Options and sizes are known, so `if` is decided and functions are expanded on the way. Work is bounded: functions
//! that call each other twice would double it at every step.

mod aggregate;
mod argument;
mod call;
mod expression;
mod field;
mod function;
mod meaning;
mod scope;
mod setup;
mod statement;
mod weight;

use std::collections::BTreeMap;

use super::fault::{Outcome, Source, Span};
use super::surface::Function;
use super::{Arguments, Layer};
use crate::error::{Error, Result};
use crate::inter::{Builder, Domain, Op, Shape, Value, ValueId};
use field::Fields;
use scope::Scope;

/// Expressions and statements that are walked at most.
const MOST_STEPS: usize = 200_000;
/// Expressions, statements and calls in each other at most.
const MOST_DEPTH: usize = 160;
/// Numbers in a row of a value at most.
const MOST_NUMBERS: usize = 1 << 32;

/// What the layer of a text means with a caller's arguments.
pub fn expand<'a>(
    source: &'a Source<'a>,
    functions: &'a [Function],
    layer: &'a Function,
    arguments: &Arguments,
) -> Outcome<Layer> {
    let mut expand = Expand::new(source, functions, layer);
    let options = expand.declare(layer, arguments)?;
    let self_loops = expand.self_loops(layer)?;
    expand.block(&layer.body)?;
    let out = expand.result(layer.name.at)?;
    expand.builder.output("out", out);
    Ok(Layer { program: expand.builder.finish(), self_loops, options })
}

/// A text half way to its program.
struct Expand<'a> {
    source: &'a Source<'a>,
    functions: BTreeMap<&'a str, &'a Function>,
    /// Functions that are being expanded, the layer first.
    calls: Vec<&'a str>,
    /// Sizes by name, where the caller gave them. They are known in every function.
    sizes: BTreeMap<&'a str, Option<usize>>,
    /// What is read as `n.x`.
    inputs: BTreeMap<&'a str, ValueId>,
    fields: Fields,
    scope: Scope,
    /// The rows of the loop that is being walked; `Const` outside of loops.
    here: Domain,
    builder: Builder,
    dropouts: u64,
    steps: usize,
    depth: usize,
}

impl<'a> Expand<'a> {
    fn new(source: &'a Source<'a>, functions: &'a [Function], layer: &'a Function) -> Self {
        Self {
            source,
            functions: functions.iter().map(|function| (function.name.text.as_str(), function)).collect(),
            calls: vec![&layer.name.text],
            sizes: BTreeMap::new(),
            inputs: BTreeMap::new(),
            fields: Fields::default(),
            scope: Scope::default(),
            here: Domain::Const,
            builder: Builder::new(&layer.name.text),
            dropouts: 0,
            steps: 0,
            depth: 0,
        }
    }

    /// One step inwards, if that is not too far.
    fn deeper<T>(&mut self, at: Span, walk: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<T> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Err(at.fault(format!("the layer is too long; expected at most {MOST_STEPS} steps")));
        }
        if self.depth >= MOST_DEPTH {
            return Err(at.fault(format!("nested too deeply; expected at most {MOST_DEPTH} levels")));
        }
        self.depth += 1;
        let result = walk(self);
        self.depth -= 1;
        result
    }

    /// Walks the elements of a loop: `here` and names are as they were afterwards.
    fn inside<T>(&mut self, domain: Domain, walk: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<T> {
        let outside = std::mem::replace(&mut self.here, domain);
        self.scope.enter(scope::Sight::Outer);
        let result = walk(self);
        self.scope.leave();
        self.here = outside;
        result
    }

    /// A value that was just built, if it is one.
    fn built(&self, value: Result<ValueId>, at: Span) -> Outcome<ValueId> {
        let value = value.map_err(|error| match error {
            Error::Malformed { why, .. } => at.fault(why),
            other => at.fault(other.to_string()),
        })?;
        let shape = self.shape(value);
        let numbers = match shape {
            Shape::Row { heads, width } => heads.checked_mul(width),
            Shape::Matrix { heads, rows, cols } => heads.checked_mul(rows).and_then(|some| some.checked_mul(cols)),
        };
        match numbers {
            Some(1..=MOST_NUMBERS) => Ok(value),
            _ => Err(at.fault(format!("{shape} is no size of a row; expected 1 to {MOST_NUMBERS} numbers"))),
        }
    }

    /// A value at the rows of the loop.
    fn lift_here(&mut self, value: ValueId, at: Span) -> Outcome<ValueId> {
        let lifted = self.builder.lift(value, self.here);
        self.built(lifted, at)
    }

    /// Gives a value the name that the text has for it, unless it has one. Inputs and weights have theirs.
    fn label(&mut self, value: ValueId, name: &str) {
        let Value { op, label, .. } = self.builder.value(value);
        let is_declared = matches!(op, Op::Input { .. } | Op::Parameter { .. } | Op::Constant(_));
        if label.is_none() && !is_declared {
            self.builder.label(value, name);
        }
    }

    fn shape(&self, value: ValueId) -> Shape {
        self.builder.value(value).shape
    }

    fn domain(&self, value: ValueId) -> Domain {
        self.builder.value(value).domain
    }
}
