//! Weights of heads put together otherwise: vectors as columns, a matrix a head as one matrix with blocks, and back.
//!
//! All of them are slices, zeros around them and joins of a type's numbers, so that gradients find their way back.

use super::term::heads;
use crate::error::Result;
use crate::inter::{Shape, ValueId};
use crate::pass::rewrite::Rebuilt;

/// A matrix a head as one: each head's rows and columns are its own, and zeros elsewhere.
pub(super) fn diagonal(to: &mut Rebuilt, w: ValueId) -> Result<ValueId> {
    let Shape::Matrix { heads, rows, cols } = to.value(w).shape else { return Ok(w) };
    if heads == 1 {
        return Ok(w);
    }
    let flat = to.builder.reshape(w, Shape::vector(heads * rows * cols))?;
    let all = joined(to, heads, |to, head| {
        let own = to.builder.slice(flat, head * rows * cols, rows * cols)?;
        let own = to.builder.reshape(own, Shape::Row { heads: rows, width: cols })?;
        to.builder.pad(own, head * cols, heads * cols)
    })?;
    to.builder.reshape(all.unwrap_or(flat), Shape::matrix(heads * rows, heads * cols))
}

/// One matrix as a matrix a head, whose columns, or rows where it is `transposed`, are those of the head.
pub(super) fn a_head(to: &mut Rebuilt, w: ValueId, heads: usize, transposed: bool) -> Result<ValueId> {
    let Shape::Matrix { heads: 1, rows, cols } = to.value(w).shape else { return Ok(w) };
    if transposed {
        return to.builder.reshape(w, Shape::Matrix { heads, rows: rows / heads, cols });
    }
    let width = cols / heads;
    let lines = to.builder.reshape(w, Shape::Row { heads: rows, width: cols })?;
    let all = joined(to, heads, |to, head| to.builder.slice(lines, head * width, width))?;
    to.builder.reshape(all.unwrap_or(lines), Shape::Matrix { heads, rows, cols: width })
}

/// A matrix with a row a head: the head's vector at its own elements, and zeros.
pub(super) fn columns(to: &mut Rebuilt, a: ValueId) -> Result<ValueId> {
    let (len, heads) = (to.value(a).shape.len(), heads(to, a));
    let width = len / heads;
    let flat = to.builder.reshape(a, Shape::vector(len))?;
    let all = joined(to, heads, |to, head| {
        let part = to.builder.slice(flat, head * width, width)?;
        to.builder.pad(part, head * width, len)
    })?;
    to.builder.reshape(all.unwrap_or(flat), Shape::matrix(heads, len))
}

/// What every head gives, one behind the other.
fn joined(
    to: &mut Rebuilt,
    heads: usize,
    part: impl Fn(&mut Rebuilt, usize) -> Result<ValueId>,
) -> Result<Option<ValueId>> {
    let mut all: Option<ValueId> = None;
    for head in 0..heads {
        let own = part(to, head)?;
        let own = to.builder.reshape(own, Shape::vector(to.value(own).shape.len()))?;
        all = Some(match all {
            Some(before) => to.builder.concat(before, own)?,
            None => own,
        });
    }
    Ok(all)
}
