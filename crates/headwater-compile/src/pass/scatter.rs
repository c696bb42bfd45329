//! What is known of written nodes alone goes to all that are read as late as it can: the others have zeros, and products and
//! sums of zeros are work for nothing.
//!
//! Gradients of what a layer reads of its written nodes are such values: sums along a map that has one row at most for each.

use super::rewrite::{Rebuilt, rewrite};
use crate::error::Result;
use crate::inter::{Domain, Op, Path, Program, Reduce, Value, ValueId};

/// The program with products of written nodes in place of products of all.
pub(super) fn scatter_last(program: &Program) -> Result<Program> {
    rewrite(program, visit)
}

fn visit(to: &mut Rebuilt, value: Value) -> Result<ValueId> {
    match value.op {
        Op::Reshape { x } => {
            let Some(rows) = scattered(to, x) else { return Ok(to.keep(value)) };
            let shaped = to.push(Op::Reshape { x: rows }, to.value(rows).domain, value.shape);
            Ok(scatter(to, shaped, value.domain))
        }
        Op::Linear { x, w, transposed, path: Path::Only } => {
            let Some(rows) = scattered(to, x) else { return Ok(to.keep(value)) };
            let op = Op::Linear { x: rows, w, transposed, path: Path::Only };
            let product = to.push(op, to.value(rows).domain, value.shape);
            Ok(scatter(to, product, value.domain))
        }
        Op::Reduce { x, how: Reduce::Sum, path: Path::Only } if value.domain.is_type() => {
            let Some(rows) = scattered(to, x) else { return Ok(to.keep(value)) };
            Ok(scatter(to, rows, value.domain))
        }
        Op::Outer { x, y, path: Path::Only } => {
            let Some(domain) = [x, y].into_iter().find_map(|id| scattered(to, id)).map(|rows| to.value(rows).domain)
            else {
                return Ok(to.keep(value));
            };
            let (x, y) = (at(to, x, domain), at(to, y, domain));
            Ok(to.push(Op::Outer { x, y, path: Path::Only }, value.domain, value.shape))
        }
        _ => Ok(to.keep(value)),
    }
}

/// The rows that a value has, where all others are 0.
fn scattered(to: &Rebuilt, id: ValueId) -> Option<ValueId> {
    match to.value(id).op {
        Op::Reduce { x, how: Reduce::Sum, path: Path::Only } => {
            to.value(x).domain.is_injective(to.value(id).domain).then_some(x)
        }
        _ => None,
    }
}

/// Rows added up at a coarser domain.
fn scatter(to: &mut Rebuilt, rows: ValueId, domain: Domain) -> ValueId {
    let shape = to.value(rows).shape;
    to.push(Op::Reduce { x: rows, how: Reduce::Sum, path: Path::Only }, domain, shape)
}

/// A value at the rows that are not all 0.
fn at(to: &mut Rebuilt, id: ValueId, domain: Domain) -> ValueId {
    match scattered(to, id) {
        Some(rows) => rows,
        None => {
            let shape = to.value(id).shape;
            to.push(Op::Lift { x: id, path: Path::Only }, domain, shape)
        }
    }
}
