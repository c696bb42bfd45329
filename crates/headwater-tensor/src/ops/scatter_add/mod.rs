//! Adding rows to the rows they name: `out[ids[i], :] += source[i, :]`.
//!
//! **Inputs.** A view of `n` rows and one id for each, in one of four integer types. Every id is checked before anything
//! is written; the error names the first bad one and its position.
//!
//! **Outputs.** A packed table of rows that is added to. Rows nobody names are untouched.
//!
//! **Determinism.** Ids are first turned into a plan: for each row that is named, the positions that name it, in
//! ascending order. A row is then its old value plus its sources in that order, added by one thread. The result
//! depends neither on threads nor on the device: the CUDA twin takes the same plan and gives the same bits.
//!
//! **Types.** Floats and integers; integers wrap. The 16-bit floats are added in f32 and rounded once a row, however many
//! sources it has. Truth values are refused.
//!
//! **Error.** A row with `k` sources is within `k * u * (|old| + sum(|source|))` of the true sum, `u` being half a unit in
//! the last place of the type that is added in.

pub mod cpu;
mod plan;

pub use plan::{Ids, ScatterPlan};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Shape;

/// Checks everything about a scatter but the ids: a source of `ids` rows, and a target of as many columns.
pub fn check(dtype: DType, source: &Shape, ids: usize, target: &Shape) -> Result<()> {
    const OP: &str = "scatter_add";
    if dtype == DType::Bool {
        return Err(Error::Unsupported { op: OP, dtype });
    }
    for shape in [source, target] {
        if shape.len() != 2 {
            return Err(Error::Shape { op: OP, expected: "two dimensions, rows and columns", found: shape.to_vec() });
        }
    }
    if source[1] != target[1] {
        return Err(Error::ShapeMismatch { op: OP, left: source.to_vec(), right: target.to_vec() });
    }
    if source[0] != ids {
        return Err(Error::Length { what: "ids", expected: source[0], found: ids });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
