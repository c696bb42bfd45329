//! Moving elements on the CPU.

use super::{Fill, concat_shape};
use crate::dtype::{DType, Element, Scalar};
use crate::error::{Error, Result};
use crate::layout::Shape;
use crate::loops::Loops;
use crate::ops::map::{Operand, PART, in_parts};
use crate::parallel::for_parts;
use crate::read::typed_mut;
use crate::view::{View, check_output};

/// Writes the elements of a view one after the other.
pub fn copy<T: Element>(from: View<'_, T>, out: &mut [T]) -> Result<()> {
    check_output(out, from.count())?;
    let loops = Loops::new([from.layout()]);
    in_parts(out, &|start, part| copy_range(&loops, from.data(), start, part));
    Ok(())
}

/// Joins views along an axis.
pub fn concat<T: Element>(views: &[View<'_, T>], axis: usize, out: &mut [T]) -> Result<()> {
    let shapes: Vec<&Shape> = views.iter().map(View::shape).collect();
    let joined = concat_shape(&shapes, axis)?;
    check_output(out, joined.count()?)?;
    if out.is_empty() {
        return Ok(());
    }
    // Each input gives one piece to every row of the output, a row being all that lies under one outer position.
    let below: usize = joined[axis + 1..].iter().product();
    let row = joined[axis] * below;
    let pieces: Vec<_> = views.iter().map(|v| (Loops::new([v.layout()]), v.data(), v.shape()[axis] * below)).collect();
    let fill_row = |number: usize, row: &mut [T]| {
        let mut rest = row;
        for (loops, data, width) in &pieces {
            let (piece, after) = std::mem::take(&mut rest).split_at_mut(*width);
            for_parts(piece, PART, &|start, part| copy_range(loops, data, number * width + start, part));
            rest = after;
        }
    };
    if out.len() <= 2 * PART {
        out.chunks_mut(row).enumerate().for_each(|(number, row)| fill_row(number, row));
    } else {
        for_parts(out, row, &|start, out| fill_row(start / row, out));
    }
    Ok(())
}

/// Sets every element.
pub fn fill<T: Element>(value: T, out: &mut [T]) {
    in_parts(out, &|_, part| part.fill(value));
}

/// `out[i] = start + i * step`. Refuses a float start or step for an integer output rather than round it.
pub fn arange<T: Element>(start: Scalar, step: Scalar, out: &mut [T]) -> Result<()> {
    match (start, step) {
        (Scalar::Int(start), Scalar::Int(step)) => in_parts(out, &|first, part| {
            for (i, o) in (first as u64..).zip(part) {
                *o = T::narrow(Scalar::Int(start.wrapping_add(step.wrapping_mul(i.cast_signed()))));
            }
        }),
        _ if !T::DTYPE.is_float() => return Err(Error::Unsupported { op: "arange of floats", dtype: T::DTYPE }),
        _ => {
            let (start, step) = (real(start), real(step));
            in_parts(out, &|first, part| {
                for (i, o) in (first..).zip(part) {
                    *o = T::narrow(Scalar::Float(start + i as f64 * step));
                }
            });
        }
    }
    Ok(())
}

/// Fills a packed array of `dtype`.
pub(super) fn generate(fill_with: Fill, dtype: DType, out: &mut [u8]) -> Result<()> {
    crate::dispatch!(dtype, T => match fill_with {
        Fill::Value(value) => {
            fill(T::narrow(value), typed_mut::<T>(out)?);
            Ok(())
        }
        Fill::Range { start, step } => arange(start, step, typed_mut::<T>(out)?),
    })
}

fn real(value: Scalar) -> f64 {
    match value {
        Scalar::Float(x) => x,
        Scalar::Int(x) => x as f64,
    }
}

fn copy_range<T: Copy>(loops: &Loops<1>, data: &[T], start: usize, out: &mut [T]) {
    loops.for_each_run(start..start + out.len(), &mut |run| {
        let to = &mut out[run.first..run.first + run.len];
        match Operand::new(data, run.offsets[0], run.strides[0], run.len) {
            Operand::Packed(from) => to.copy_from_slice(from),
            Operand::Same(value) => to.fill(value),
            Operand::Spread(from, step) => to.iter_mut().zip(from.iter().step_by(step)).for_each(|(o, &x)| *o = x),
        }
    });
}
