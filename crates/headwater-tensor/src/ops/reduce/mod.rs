//! Reductions along one axis: sum, mean, max, argmax.
//!
//! **Inputs.** A view and an axis. **Outputs.** A packed slice with one element for each position of the other axes, in
//! row-major order; whether the axis stays as size one is a matter of the shape the caller gives the result.
//!
//! **Types.** As torch has them: sums of integers and truth values are `int64` and wrap, sums of floats keep their type,
//! means are of floats only, maxima keep the type, positions are `int64`.
//!
//! **Order of summation.** Floats of every type are added in f64 and the result is rounded once. The axis is cut into
//! blocks of `BLOCK` elements; in a block, lane `l` of `LANES` adds elements `l`, `l + LANES`, ... in that order, and the
//! lanes are added in halves: lane `l` takes lane `l + 16`, then `l + 8`, and so on. More than one block gives a row of
//! partial sums, which is summed by the same rule until one is left. The order depends on the length of the axis alone,
//! not on threads, strides or device: the CUDA twin gives the same bits.
//!
//! **Error.** With `u = 2^-53` and `n` elements, at most `min(n, BLOCK) / LANES + 5` roundings are in a row at each level,
//! so the sum before its last rounding is within `(133 * levels) * u * sum(|x|)`, with `levels = ceil(log(n) / log(BLOCK))`.
//! For f32 that is far below the half unit of the last rounding, unless the terms cancel.
//!
//! **NaN and ties.** NaN is larger than everything, as in torch: a maximum over NaN is NaN and its position is that of the
//! first NaN. Of equal elements the first counts.
//!
//! **Empty axes.** The sum is 0, the mean NaN; max and argmax are errors.

pub mod cpu;
mod cuda;
mod fold;

pub use cuda::kernel_builds;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::exec::{Placed, Side};
use crate::layout::Shape;
use crate::loops::LoopsArg;
use crate::tensor::Tensor;

/// Elements of the axis in a block.
pub const BLOCK: usize = 4096;

/// Running sums in a block; a warp's width, so that a lane of the rule is a lane of the GPU.
pub const LANES: usize = 32;

/// What is made of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The sum over the length.
    Mean,
    /// The largest element.
    Max,
    /// The position of the largest element.
    ArgMax,
}

impl ReduceOp {
    /// Every reduction.
    pub const ALL: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::ArgMax];

    /// The name users and the kernel's `OP` define have for it.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Mean => "mean",
            ReduceOp::Max => "max",
            ReduceOp::ArgMax => "argmax",
        }
    }

    /// The type of the result.
    pub fn result_dtype(self, operand: DType) -> Result<DType> {
        match self {
            ReduceOp::Sum if operand.is_float() => Ok(operand),
            ReduceOp::Sum | ReduceOp::ArgMax => Ok(DType::I64),
            ReduceOp::Mean if operand.is_float() => Ok(operand),
            ReduceOp::Mean => Err(Error::Unsupported { op: "mean", dtype: operand }),
            ReduceOp::Max => Ok(operand),
        }
    }
}

/// What becomes of the axis that is reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum KeepAxis {
    /// It vanishes.
    #[default]
    No,
    /// It stays, with size one.
    Yes,
}

/// The kernels' argument, passed by value; `HwReduce` in `reduce.cu` has the same fields in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ReduceArg {
    /// Where each output's axis begins.
    pub outputs: LoopsArg<1>,
    /// Elements of the axis.
    pub length: u64,
    /// Elements from one to the next.
    pub stride: u64,
    /// Rows of states.
    pub rows: u64,
}

/// Reduces an axis of a tensor.
pub(crate) fn run(op: ReduceOp, a: &Tensor, axis: usize, keep: KeepAxis) -> Result<Tensor> {
    let dtype = op.result_dtype(a.dtype())?;
    let length = a.layout().size_of(axis)?;
    let shape = *a.layout().remove_axis(axis)?.shape();
    if length == 0 && matches!(op, ReduceOp::Max | ReduceOp::ArgMax) {
        return Err(Error::EmptyAxis { op: op.name(), axis, shape: a.shape().to_vec() });
    }
    let placed = Placed::of(&[a])?;
    let reduced = match &placed.side {
        Side::Cpu => placed.on_host(dtype, &shape, |out| cpu::run(op, &a.host_operand(a.dtype())?, axis, out))?,
        Side::Gpu(gpu) => placed.on_gpu(gpu, dtype, &shape, |stream, out| {
            cuda::run(stream, op, &a.gpu_operand(stream, a.dtype())?, axis, out)
        })?,
    };
    match keep {
        KeepAxis::No => Ok(reduced),
        KeepAxis::Yes => reduced.reshape(&kept_shape(a.shape(), axis)),
    }
}

fn kept_shape(shape: &Shape, axis: usize) -> Vec<usize> {
    shape.iter().enumerate().map(|(i, &size)| if i == axis { 1 } else { size }).collect()
}

#[cfg(test)]
mod tests;
