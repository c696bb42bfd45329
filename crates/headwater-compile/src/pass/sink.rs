//! A long row times a number of a pair, which only sums over edges read, is multiplied where edges are added up.
//!
//! `domains.rs` puts every operator where its rows are fewest. For such a product that is the pairs: a row for each would be written, and read
//! by every edge of it. But the long row is that of a node already, and an edge finds it there as well: what is read is as much, nothing is
//! written, and the rows that edges meet are those of a table that is smaller and more often in a cache.

use super::rewrite::{Rebuilt, rewrite};
use crate::error::Result;
use crate::inter::{Binary, Domain, Op, Path, Program, Reduce, Value, ValueId};

/// The program with such products at edges.
pub(super) fn sink(program: &Program) -> Result<Program> {
    let sunk: Vec<bool> = program.iter().map(|(id, _)| is_only_summed(program, id)).collect();
    if !sunk.contains(&true) {
        return Ok(program.clone());
    }
    let mut at = 0;
    rewrite(program, |to, value| {
        let old = &program.values[at];
        at += 1;
        match old.op {
            Op::Lift { x, .. } if sunk[x.at()] => product_at(to, &value),
            _ => Ok(to.keep(value)),
        }
    })
}

/// Whether a value is a number of a pair times the row of a node, which only sums over edges read.
fn is_only_summed(program: &Program, id: ValueId) -> bool {
    let value = &program[id];
    let (Op::Binary { f: f @ (Binary::Mul | Binary::Div), x, y }, Domain::Pair(_)) = (&value.op, value.domain) else {
        return false;
    };
    let is_row_of_node = |row: ValueId| match program[row].op {
        Op::Lift { x, .. } => matches!(program[x].domain, Domain::Node(_)) && program[x].shape == value.shape,
        _ => false,
    };
    let is_number = |factor: ValueId| program[factor].shape.len() < value.shape.len();
    let fits = |row: ValueId, factor: ValueId| is_row_of_node(row) && is_number(factor);
    let fits = fits(*x, *y) || (*f == Binary::Mul && fits(*y, *x));
    let is_output = program.outputs.iter().any(|output| output.value == id);
    fits && !is_output && readers(program, id).all(|(lift, value)| is_lift_to_sum(program, lift, value))
}

/// Whether a value lifts to edges what sums over edges alone read.
fn is_lift_to_sum(program: &Program, id: ValueId, value: &Value) -> bool {
    let is_sum = |value: &Value| {
        matches!(value.op, Op::Reduce { how: Reduce::Sum, path: Path::Only, .. }) && !value.domain.is_type()
    };
    matches!(value.op, Op::Lift { path: Path::Only, .. })
        && value.domain == Domain::Edge
        && readers(program, id).all(|(_, value)| is_sum(value))
}

fn readers(program: &Program, of: ValueId) -> impl Iterator<Item = (ValueId, &Value)> {
    program.iter().filter(move |(_, value)| value.op.operands().contains(&of))
}

/// The product of what is lifted in its place.
fn product_at(to: &mut Rebuilt, lift: &Value) -> Result<ValueId> {
    let Op::Lift { x: product, path } = lift.op else { return Ok(to.keep(lift.clone())) };
    let Op::Binary { f, x, y } = to.value(product).op else { return Ok(to.keep(lift.clone())) };
    let [x, y] = [x, y].map(|id| {
        let shape = to.value(id).shape;
        to.push(Op::Lift { x: id, path }, lift.domain, shape)
    });
    Ok(to.push(Op::Binary { f, x, y }, lift.domain, lift.shape))
}
