//! Products of the same rows with several weights are one product with the weights side by side: the rows are read once.

use super::rewrite::{Rebuilt, rewrite};
use crate::error::Result;
use crate::inter::{Domain, Op, Path, Program, Shape, Value, ValueId};

/// The program with all products merged that share the rows of the product `at`; `None` where there is no other.
pub(super) fn merge_at(program: &Program, at: ValueId) -> Result<Option<Program>> {
    let Some(key) = key(program, at) else { return Ok(None) };
    let is_alike = |id: &ValueId| *id >= at && self::key(program, *id) == Some(key);
    let alike: Vec<ValueId> = program.iter().map(|(id, _)| id).filter(is_alike).collect();
    // The joined weight stands in front of the first product.
    let alike: Vec<ValueId> = alike.into_iter().filter(|id| weight(program, *id).is_some_and(|w| w < at)).collect();
    let shadowed = program.iter().any(|(id, _)| id < at && self::key(program, id) == Some(key));
    if alike.len() < 2 || shadowed {
        return Ok(None);
    }
    let mut parts: Vec<ValueId> = Vec::new();
    let mut next = 0;
    let merged = rewrite(program, |to, value| {
        let id = ValueId::new(next);
        next += 1;
        if id == at {
            let weights: Vec<ValueId> =
                alike.iter().filter_map(|id| weight(program, *id)).map(|w| to.place(w)).collect();
            parts = products(to, &value, &weights)?;
        }
        Ok(match alike.iter().position(|member| *member == id) {
            Some(part) => parts[part],
            None => to.keep(value),
        })
    })?;
    Ok(Some(merged))
}

type Key = (ValueId, Domain, Path, usize, usize);

/// What products have in common that can be merged: rows, types, how they are found, heads and elements.
fn key(program: &Program, id: ValueId) -> Option<Key> {
    let Op::Linear { x, w, transposed: false, path } = program[id].op else { return None };
    let Shape::Matrix { heads, rows, .. } = program[w].shape else { return None };
    (!program[id].domain.is_type()).then_some((x, program[w].domain, path, heads, rows))
}

fn weight(program: &Program, id: ValueId) -> Option<ValueId> {
    match program[id].op {
        Op::Linear { w, .. } => Some(w),
        _ => None,
    }
}

/// One product, and the parts of it that belong to each weight.
fn products(to: &mut Rebuilt, value: &Value, weights: &[ValueId]) -> Result<Vec<ValueId>> {
    let Op::Linear { x, path, .. } = value.op else { return Ok(Vec::new()) };
    let (joined, widths) = join(to, weights)?;
    let all = to.builder.linear_by(x, joined, false, path)?;
    let mut from = 0;
    let mut parts = Vec::new();
    for width in widths {
        parts.push(to.builder.slice(all, from, width)?);
        from += width;
    }
    Ok(parts)
}

/// Matrices side by side, and how many columns each has. A row of a matrix is a vector, and vectors can be joined.
fn join(to: &mut Rebuilt, weights: &[ValueId]) -> Result<(ValueId, Vec<usize>)> {
    let mut widths = Vec::new();
    let mut all: Option<ValueId> = None;
    let mut shape = Shape::matrix(1, 1);
    for w in weights {
        let Shape::Matrix { heads, rows, cols } = to.value(*w).shape else { continue };
        let flat = to.builder.reshape(*w, Shape::Row { heads: heads * rows, width: cols })?;
        all = Some(match all {
            Some(before) => to.builder.concat(before, flat)?,
            None => flat,
        });
        widths.push(cols);
        shape = Shape::Matrix { heads, rows, cols: widths.iter().sum() };
    }
    let joined = to.builder.reshape(all.unwrap_or(weights[0]), shape)?;
    Ok((joined, widths))
}
