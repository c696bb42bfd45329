//! One rule an operator: how its gradient becomes gradients of its operands.

use super::Gradients;
use crate::error::Result;
use crate::inter::{Binary, Domain, Op, Path, Reduce, Unary, ValueId};

/// Hands the gradient `d` of value `y` down to its operands.
pub(super) fn hand_down(to: &mut Gradients, y: ValueId, op: &Op, d: ValueId) -> Result<()> {
    match *op {
        Op::Input { .. } | Op::Parameter { .. } | Op::Constant(_) | Op::Outer { .. } => Ok(()),
        Op::Linear { x, w, transposed, path } => linear(to, (x, w), transposed, path, d),
        Op::Product { a, b, transpose_a, transpose_b } => product(to, (a, transpose_a), (b, transpose_b), d),
        Op::Dot { x, y: other } => {
            let (dx, dy) = (to.builder.binary(Binary::Mul, d, other)?, to.builder.binary(Binary::Mul, d, x)?);
            to.give(x, dx)?;
            to.give(other, dy)
        }
        Op::Unary { f, x } => unary(to, f, x, y, d),
        Op::Binary { f, x, y: other } => binary(to, f, (x, other), y, d),
        Op::Concat { x, y: other } => {
            let width = |to: &Gradients, id: ValueId| to.builder.value(id).shape.width().unwrap_or(0);
            let (first, second) = (width(to, x), width(to, other));
            let (dx, dy) = (to.builder.slice(d, 0, first)?, to.builder.slice(d, first, second)?);
            to.give(x, dx)?;
            to.give(other, dy)
        }
        Op::Slice { x, from } => {
            let width = to.builder.value(x).shape.width().unwrap_or(0);
            let dx = to.builder.pad(d, from, width)?;
            to.give(x, dx)
        }
        Op::Pad { x, from } => {
            let width = to.builder.value(x).shape.width().unwrap_or(0);
            let dx = to.builder.slice(d, from, width)?;
            to.give(x, dx)
        }
        Op::Reshape { x } => {
            let dx = to.builder.reshape(d, to.builder.value(x).shape)?;
            to.give(x, dx)
        }
        Op::SumHeads { x } | Op::SumWidth { x } => {
            let dx = to.builder.expand(d, to.builder.value(x).shape)?;
            to.give(x, dx)
        }
        // `give` adds up what was repeated.
        Op::Expand { x } => to.give(x, d),
        Op::Lift { x, path } => {
            let dx = to.builder.reduce_by(d, to.builder.value(x).domain, Reduce::Sum, path)?;
            to.give(x, dx)
        }
        Op::Reduce { x, how, path } => reduce(to, how, (x, y), path, d),
        Op::Softmax { x, by } => softmax(to, x, y, by, d),
        Op::Dropout { x, probability, key } => {
            let dx = to.builder.dropout(d, probability, key);
            to.give(x, dx)
        }
    }
}

fn linear(to: &mut Gradients, (x, w): (ValueId, ValueId), transposed: bool, path: Path, d: ValueId) -> Result<()> {
    if to.is_needed[x.at()] {
        let dx = to.builder.linear_by(d, w, !transposed, path)?;
        to.give(x, dx)?;
    }
    if to.is_needed[w.at()] {
        let types = to.builder.value(w).domain;
        let (rows, cols) = if transposed { (d, x) } else { (x, d) };
        let dw = to.builder.outer(rows, cols, types, path)?;
        to.give(w, dw)?;
    }
    Ok(())
}

/// With `C = A B` (each transposed or not): `dA = dC B'` and `dB = A' dC`, transposed as A and B are.
fn product(to: &mut Gradients, a: (ValueId, bool), b: (ValueId, bool), d: ValueId) -> Result<()> {
    if to.is_needed[a.0.at()] {
        let da = if a.1 { to.builder.product(b.0, d, b.1, true)? } else { to.builder.product(d, b.0, false, !b.1)? };
        to.give(a.0, da)?;
    }
    if to.is_needed[b.0.at()] {
        let db = if b.1 { to.builder.product(d, a.0, true, a.1)? } else { to.builder.product(a.0, d, !a.1, false)? };
        to.give(b.0, db)?;
    }
    Ok(())
}

/// The slope of each function, from its argument `x` or its value `y`, whichever is cheaper.
fn unary(to: &mut Gradients, f: Unary, x: ValueId, y: ValueId, d: ValueId) -> Result<()> {
    let b = &mut to.builder;
    let dx = match f {
        Unary::Neg => b.unary(Unary::Neg, d),
        Unary::Exp => b.binary(Binary::Mul, d, y)?,
        Unary::Log => b.binary(Binary::Div, d, x)?,
        Unary::Sigmoid => {
            let one = b.constant(1.0);
            let rest = b.binary(Binary::Sub, one, y)?;
            let slope = b.binary(Binary::Mul, y, rest)?;
            b.binary(Binary::Mul, d, slope)?
        }
        Unary::Tanh => {
            let (one, square) = (b.constant(1.0), b.binary(Binary::Mul, y, y)?);
            let slope = b.binary(Binary::Sub, one, square)?;
            b.binary(Binary::Mul, d, slope)?
        }
        Unary::Sqrt => {
            let half = b.constant(0.5);
            let slope = b.binary(Binary::Div, half, y)?;
            b.binary(Binary::Mul, d, slope)?
        }
        Unary::Rsqrt | Unary::Recip => {
            // -y^3 / 2 and -y^2.
            let power = b.binary(Binary::Mul, y, y)?;
            let power = if f == Unary::Rsqrt { b.binary(Binary::Mul, power, y)? } else { power };
            let factor = b.constant(if f == Unary::Rsqrt { -0.5 } else { -1.0 });
            let slope = b.binary(Binary::Mul, power, factor)?;
            b.binary(Binary::Mul, d, slope)?
        }
        Unary::Relu | Unary::LeakyRelu(_) | Unary::Elu(_) | Unary::Gelu | Unary::Abs => {
            // The first two have the sign of their argument, so their value serves as well and is kept anyway.
            let slope = match f {
                Unary::LeakyRelu(slope) if slope > 0.0 => b.unary(Unary::LeakyStep(slope), y),
                Unary::LeakyRelu(slope) => b.unary(Unary::LeakyStep(slope), x),
                Unary::Elu(a) => b.unary(Unary::EluSlope(a), x),
                Unary::Gelu => b.unary(Unary::GeluSlope, x),
                Unary::Abs => b.unary(Unary::Sign, x),
                _ => b.unary(Unary::Step, y),
            };
            b.binary(Binary::Mul, d, slope)?
        }
        // Slopes themselves only stand in gradients; their own are not asked for.
        Unary::Step | Unary::LeakyStep(_) | Unary::EluSlope(_) | Unary::GeluSlope | Unary::Sign => return Ok(()),
    };
    to.give(x, dx)
}

fn binary(to: &mut Gradients, f: Binary, (x, y): (ValueId, ValueId), z: ValueId, d: ValueId) -> Result<()> {
    let b = &mut to.builder;
    let (dx, dy) = match f {
        Binary::Add => (d, d),
        Binary::Sub => (d, b.unary(Unary::Neg, d)),
        Binary::Mul => (b.binary(Binary::Mul, d, y)?, b.binary(Binary::Mul, d, x)?),
        Binary::Div => {
            let dx = b.binary(Binary::Div, d, y)?;
            let product = b.binary(Binary::Mul, dx, z)?;
            (dx, b.unary(Unary::Neg, product))
        }
        // Equal operands share the gradient. NaN is neither less nor equal, so both operands get all of it: as torch has it.
        Binary::Max | Binary::Min => {
            let (less, more) = if f == Binary::Max { (x, y) } else { (y, x) };
            let (one, half) = (b.constant(1.0), b.constant(0.5));
            let is_same = b.binary(Binary::Equal, x, y)?;
            let tie = b.binary(Binary::Mul, is_same, half)?;
            let most = b.binary(Binary::Sub, one, tie)?;
            let (is_under, is_over) = (b.binary(Binary::Greater, more, less)?, b.binary(Binary::Greater, less, more)?);
            let (first, second) = (b.binary(Binary::Sub, most, is_under)?, b.binary(Binary::Sub, most, is_over)?);
            (b.binary(Binary::Mul, d, first)?, b.binary(Binary::Mul, d, second)?)
        }
        Binary::Equal | Binary::Greater => return Ok(()),
    };
    to.give(x, dx)?;
    to.give(y, dy)
}

fn reduce(to: &mut Gradients, how: Reduce, (x, y): (ValueId, ValueId), path: Path, d: ValueId) -> Result<()> {
    let (fine, coarse) = (to.builder.value(x).domain, to.builder.value(y).domain);
    let dx = match how {
        Reduce::Sum => to.builder.lift_by(d, fine, path)?,
        Reduce::Mean => {
            let counts = to.counts(fine, coarse, path)?;
            let each = to.builder.binary(Binary::Div, d, counts)?;
            to.builder.lift_by(each, fine, path)?
        }
        // Rows that share the largest element share its gradient. Where that is NaN, none is equal to it, and gradients are NaN.
        Reduce::Max => {
            let largest = to.builder.lift_by(y, fine, path)?;
            let is_it = to.builder.binary(Binary::Equal, x, largest)?;
            let counts = to.builder.reduce_by(is_it, coarse, Reduce::Sum, path)?;
            // At least 1, but for NaN: what was rounded otherwise on its way back is equal to nothing either.
            let least = to.builder.binary(Binary::Equal, y, y)?;
            let counts = to.builder.binary(Binary::Max, counts, least)?;
            let each = to.builder.binary(Binary::Div, d, counts)?;
            let each = to.builder.lift_by(each, fine, path)?;
            to.builder.binary(Binary::Mul, each, is_it)?
        }
    };
    to.give(x, dx)
}

/// `dx = y (d - sum of y d)`, the sum over what shares a row of `by`.
fn softmax(to: &mut Gradients, x: ValueId, y: ValueId, by: Domain, d: ValueId) -> Result<()> {
    let weighted = if to.one_walk { weighted_sum(to, y, by) } else { None };
    let b = &mut to.builder;
    let sum = match weighted {
        Some((sum, gradient)) => b.dot(sum, gradient)?,
        None => {
            let part = b.binary(Binary::Mul, y, d)?;
            b.reduce(part, by, Reduce::Sum)?
        }
    };
    let sum = b.lift(sum, b.value(y).domain)?;
    let rest = b.binary(Binary::Sub, d, sum)?;
    let dx = b.binary(Binary::Mul, y, rest)?;
    to.give(x, dx)
}

/// Where shares `y` are weights of a sum of vectors `v` and nothing else, that sum and its gradient `g`: the sum of `y d`, where `d` is the inner
/// product of `v` and `g`, is that of the sum and `g`. So gradients of shares wait for no sum over them.
fn weighted_sum(to: &Gradients, y: ValueId, by: Domain) -> Option<(ValueId, ValueId)> {
    let only_reader = |of: ValueId| {
        let forward = (0..to.of.len()).map(ValueId::new);
        let mut readers = forward.filter(|id| to.builder.value(*id).op.operands().contains(&of));
        readers.next().filter(|_| readers.next().is_none())
    };
    let product = only_reader(y)?;
    let sum = only_reader(product)?;
    let (Op::Binary { f: Binary::Mul, x: a, y: b }, Op::Reduce { how: Reduce::Sum, .. }) =
        (&to.builder.value(product).op, &to.builder.value(sum).op)
    else {
        return None;
    };
    let (shares, vectors, summed) = (to.builder.value(y), to.builder.value(product), to.builder.value(sum));
    let is_weight = a != b && shares.shape.heads() == vectors.shape.heads() && shares.shape.width() == Some(1);
    let gradient = to.of[sum.at()].filter(|_| is_weight && summed.domain == by)?;
    Some((sum, gradient))
}
