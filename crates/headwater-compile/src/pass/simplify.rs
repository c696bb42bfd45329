//! The same results from fewer operators: what is computed twice is computed once, lifts of lifts are one, factors of 1 and
//! terms of 0 go, numbers are computed, the sum of a product's elements is an inner product, and the inner product with two
//! joined vectors is two inner products.

use super::rewrite::{Rebuilt, rewrite};
use crate::cpu::scalar;
use crate::error::Result;
use crate::inter::{Binary, Domain, Op, Path, Program, Shape, Side, Unary, Value, ValueId};

/// The simplified program.
pub fn simplify(program: &Program) -> Result<Program> {
    let once = rewrite(program, visit)?;
    // What one round uncovers, the next one takes. Two rounds leave nothing that a third would find in practice, and a
    // program that still could be simplified is as right as any.
    rewrite(&once, visit)
}

fn visit(to: &mut Rebuilt, value: Value) -> Result<ValueId> {
    match value.op {
        Op::Lift { x, path } => Ok(lift(to, x, path, value)),
        Op::Reshape { x } => Ok(reshape(to, x, value)),
        Op::Dropout { x, probability: 0.0, .. } => Ok(x),
        Op::Unary { f, x } => Ok(unary(to, f, x, value)),
        Op::Binary { f, x, y } => Ok(binary(to, f, x, y, value)),
        Op::Dot { x, y } => dot(to, x, y, value),
        Op::SumWidth { x } => Ok(sum_width(to, x, value)),
        Op::Slice { x, from: 0 } | Op::Pad { x, from: 0 } | Op::Expand { x } if to.value(x).shape == value.shape => {
            Ok(x)
        }
        _ => Ok(to.keep(value)),
    }
}

/// Two maps one after the other are one, where the domains have it.
fn lift(to: &mut Rebuilt, x: ValueId, path: Path, value: Value) -> ValueId {
    if let (Op::Lift { x: inner, path: first }, Path::Only) = (to.value(x).op.clone(), path) {
        let (middle, coarse) = (to.value(x).domain, to.value(inner).domain);
        let restricts = middle == Domain::Node(Side::Dst) && coarse == Domain::Node(Side::Src);
        // From a node's type the way is known by the node's side, and a written node is of the type of the one that is read; the
        // other ways have no fork.
        let path = match (value.domain, middle, coarse) {
            (Domain::Node(_), Domain::Node(_), Domain::NodeType) => Path::Only,
            (_, Domain::Node(side), Domain::NodeType) => Path::By(side),
            _ => first,
        };
        if !restricts && value.domain.maps_to(coarse, path) {
            return to.push(Op::Lift { x: inner, path }, value.domain, value.shape);
        }
    }
    to.keep(value)
}

fn reshape(to: &mut Rebuilt, x: ValueId, value: Value) -> ValueId {
    let inner = match to.value(x).op {
        Op::Reshape { x: inner } => inner,
        _ => x,
    };
    if to.value(inner).shape == value.shape {
        return inner;
    }
    to.push(Op::Reshape { x: inner }, value.domain, value.shape)
}

fn unary(to: &mut Rebuilt, f: Unary, x: ValueId, value: Value) -> ValueId {
    match (f, number(to, x), &to.value(x).op) {
        (_, Some(x), _) if scalar::unary(f, x).is_finite() => constant(to, scalar::unary(f, x), &value),
        (Unary::Neg, _, &Op::Unary { f: Unary::Neg, x: inner }) => inner,
        _ => to.keep(value),
    }
}

fn binary(to: &mut Rebuilt, f: Binary, x: ValueId, y: ValueId, value: Value) -> ValueId {
    let is_whole = |id: ValueId| to.value(id).shape == value.shape;
    let folded = number(to, x).zip(number(to, y)).map(|(x, y)| scalar::binary(f, x, y));
    match (f, number(to, x), number(to, y)) {
        _ if folded.is_some_and(f64::is_finite) && value.shape == Shape::SCALAR => {
            constant(to, folded.unwrap_or(0.0), &value)
        }
        (Binary::Add | Binary::Sub, _, Some(0.0)) | (Binary::Mul | Binary::Div, _, Some(1.0)) if is_whole(x) => x,
        (Binary::Add, Some(0.0), _) | (Binary::Mul, Some(1.0), _) if is_whole(y) => y,
        // The order of commuting operands tells nothing.
        (Binary::Add | Binary::Mul, ..) if y < x => to.push(Op::Binary { f, x: y, y: x }, value.domain, value.shape),
        _ => to.keep(value),
    }
}

/// `a . [u | v]` as `a1 . u + a2 . v`: the parts may then be computed where they are few.
fn dot(to: &mut Rebuilt, x: ValueId, y: ValueId, value: Value) -> Result<ValueId> {
    let joined = [(x, y), (y, x)].into_iter().find(|(_, other)| matches!(to.value(*other).op, Op::Concat { .. }));
    let Some((a, other)) = joined else { return Ok(to.keep(value)) };
    let Op::Concat { x: u, y: v } = to.value(other).op else { return Ok(to.keep(value)) };
    let (first, second) = (width(to, u), width(to, v));
    let (front, back) = (slice(to, a, 0, first)?, slice(to, a, first, second)?);
    let left = to.push(Op::Dot { x: front, y: u }, value.domain, value.shape);
    let right = to.push(Op::Dot { x: back, y: v }, value.domain, value.shape);
    Ok(to.push(Op::Binary { f: Binary::Add, x: left, y: right }, value.domain, value.shape))
}

fn sum_width(to: &mut Rebuilt, x: ValueId, value: Value) -> ValueId {
    if let Op::Binary { f: Binary::Mul, x: a, y: b } = to.value(x).op {
        let is_whole = |id: ValueId| to.value(id).shape == to.value(x).shape;
        if is_whole(a) && is_whole(b) {
            return to.push(Op::Dot { x: a, y: b }, value.domain, value.shape);
        }
    }
    to.keep(value)
}

/// A part of a vector, taken before it is lifted.
fn slice(to: &mut Rebuilt, x: ValueId, from: usize, width: usize) -> Result<ValueId> {
    if let Op::Lift { x: inner, path } = to.value(x).op {
        let part = slice(to, inner, from, width)?;
        let (domain, shape) = (to.value(x).domain, to.value(part).shape);
        return Ok(to.push(Op::Lift { x: part, path }, domain, shape));
    }
    let (domain, heads) = (to.value(x).domain, to.value(x).shape.heads());
    Ok(to.push(Op::Slice { x, from }, domain, Shape::Row { heads, width }))
}

fn width(to: &Rebuilt, id: ValueId) -> usize {
    to.value(id).shape.width().unwrap_or(0)
}

/// The number that every row of a value is, when it is one.
pub(super) fn number(to: &Rebuilt, id: ValueId) -> Option<f64> {
    match to.value(id).op {
        Op::Constant(number) => Some(number),
        Op::Lift { x, .. } => number(to, x),
        _ => None,
    }
}

/// A number at the rows of a value.
fn constant(to: &mut Rebuilt, number: f64, value: &Value) -> ValueId {
    let x = to.push(Op::Constant(number), Domain::Const, Shape::SCALAR);
    if value.domain == Domain::Const {
        return x;
    }
    to.push(Op::Lift { x, path: Path::Only }, value.domain, Shape::SCALAR)
}
