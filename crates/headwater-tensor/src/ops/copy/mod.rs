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
mod cuda;

use headwater_cuda::{Span, Stream};

pub use cuda::kernel_builds;

use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::exec::{GpuOperand, Placed, Side};
use crate::layout::Shape;
use crate::loops::LoopsArg;
use crate::read::{HostOperand, typed_mut};
use crate::tensor::Tensor;

/// What a new array is filled with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// One value.
    Value(Scalar),
    /// `start + i * step`.
    Range {
        /// The first element.
        start: Scalar,
        /// The distance to the next.
        step: Scalar,
    },
}

/// The kernel's argument for one operand of a concat; `HwRows` in `copy.cu` has the same fields in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RowsArg {
    /// Where the operand's elements lie.
    pub loops: LoopsArg<1>,
    /// Elements it gives to each row of the output.
    pub width: u64,
    /// Elements of a row of the output.
    pub row: u64,
    /// Where in a row its elements begin.
    pub first: u64,
}

/// A new array.
pub(crate) fn generate(fill: Fill, shape: &Shape, dtype: DType, placed: &Placed) -> Result<Tensor> {
    let whole = |value| matches!(value, Scalar::Int(_));
    if matches!(fill, Fill::Range { start, step } if !(dtype.is_float() || whole(start) && whole(step))) {
        return Err(Error::Unsupported { op: "arange of floats", dtype });
    }
    match &placed.side {
        Side::Cpu => placed.on_host(dtype, shape, |out| cpu::generate(fill, dtype, out)),
        Side::Gpu(gpu) => placed.on_gpu(gpu, dtype, shape, |stream, out| cuda::generate(stream, fill, dtype, out)),
    }
}

/// Joins tensors along an axis, brought to one type.
pub(crate) fn concat(tensors: &[&Tensor], axis: usize) -> Result<Tensor> {
    let shapes: Vec<&Shape> = tensors.iter().map(|tensor| tensor.shape()).collect();
    let shape = concat_shape(&shapes, axis)?;
    let dtype = tensors.iter().map(|tensor| tensor.dtype()).reduce(DType::promote).unwrap_or(DType::F32);
    let placed = Placed::of(tensors)?;
    match &placed.side {
        Side::Cpu => placed.on_host(dtype, &shape, |out| {
            let operands = tensors.iter().map(|tensor| tensor.host_operand(dtype)).collect::<Result<Vec<_>>>()?;
            crate::dispatch!(dtype, T => {
                let views = operands.iter().map(HostOperand::view::<T>).collect::<Result<Vec<_>>>()?;
                cpu::concat(&views, axis, typed_mut(out)?)
            })
        }),
        Side::Gpu(gpu) => placed.on_gpu(gpu, dtype, &shape, |stream, out| {
            let operands =
                tensors.iter().map(|tensor| tensor.gpu_operand(stream, dtype)).collect::<Result<Vec<_>>>()?;
            cuda::concat(stream, &operands, axis, &shape, out)
        }),
    }
}

/// Writes a tensor's elements one after the other, by the CPU.
pub(crate) fn pack_on_host(tensor: &Tensor, out: &mut [u8]) -> Result<()> {
    let operand = tensor.host_operand(tensor.dtype())?;
    crate::dispatch!(tensor.dtype(), T => cpu::copy(operand.view::<T>()?, typed_mut(out)?))
}

/// Writes an operand's elements one after the other, by the GPU.
pub(crate) fn pack_on_gpu(stream: &Stream, from: &GpuOperand, out: &Span) -> Result<()> {
    cuda::pack(stream, from, out)
}

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
