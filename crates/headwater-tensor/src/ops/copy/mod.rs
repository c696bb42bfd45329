//! Operators that move elements without computing: materialise a view, join arrays, fill, count.
//!
//! **Inputs.** Views of one element type, of any layout. `concat` takes any number of them, at least one; they agree in
//! every axis but the one they are joined along.
//!
//! **Outputs.** Packed row-major slices of the right length. Elements are copied to the bit, NaN payloads included.
//! `arange` computes `start + i * step` in f64 for floats and in wrapping 64-bit integers otherwise, then rounds once.
//!
//! **Determinism.** The result does not depend on threads and agrees with the CUDA twin to the bit.
//!
//! **Limits.** Eight dimensions. Nothing is written when an error is returned.

pub mod cpu;

use crate::error::{Error, Result};
use crate::layout::Shape;

/// The shape of arrays joined along an axis.
pub fn concat_shape(shapes: &[&Shape], axis: usize) -> Result<Shape> {
    let Some((first, rest)) = shapes.split_first() else {
        return Err(Error::Length { what: "arrays to join", expected: 1, found: 0 });
    };
    let mut dims = first.to_vec();
    if axis >= dims.len() {
        return Err(Error::NoSuchAxis { axis, rank: dims.len() });
    }
    for shape in rest {
        let agrees = shape.len() == dims.len() && (0..dims.len()).all(|i| i == axis || shape[i] == dims[i]);
        if !agrees {
            return Err(Error::ShapeMismatch { op: "concat", left: first.to_vec(), right: shape.to_vec() });
        }
        dims[axis] = dims[axis].checked_add(shape[axis]).ok_or_else(|| Error::TooLarge { dims: dims.clone() })?;
    }
    let joined = Shape::new(&dims)?;
    joined.count()?;
    Ok(joined)
}

/// How many elements `arange` gives: `ceil((end - start) / step)`.
pub fn arange_count(start: f64, end: f64, step: f64) -> Result<usize> {
    let count = ((end - start) / step).ceil();
    // Above 2^53 neighbouring counts are the same double.
    if !(0.0..9_007_199_254_740_992.0).contains(&count) {
        return Err(Error::BadRange { start, end, step });
    }
    whole(count).ok_or(Error::BadRange { start, end, step })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the caller checked that it is a small count"
)]
fn whole(count: f64) -> Option<usize> {
    usize::try_from(count as u64).ok()
}

#[cfg(test)]
mod tests;
