//! Products of matrices, alone or in batches.
//!
//! **Inputs.** Two views of one float type: `[m, k]` and `[k, n]`, or `[b, m, k]` and `[b, k, n]` with equal `b` (repeat a
//! matrix over the batch with a zero stride). Any strides. Integers and truth values are refused.
//!
//! **Outputs.** A packed `[m, n]` or `[b, m, n]`. With `k = 0` it is zero.
//!
//! **Arithmetic.** f32 and f64 accumulate in their own type; f16 and bf16 accumulate in f32 and are rounded once. An
//! element is within `k * u * sum(|a| * |b|)` of the true value. NaN and infinities spread as in any sum of products.
//!
//! **Determinism.** The order of a sum depends on the sizes and the CPU's vector width, not on the number of threads: the
//! products are split over rows and columns only. Between devices, and between GPUs through cuBLAS, results agree within
//! the bound above and not to the bit.

pub mod cpu;
mod cuda;
mod dense;

pub use cuda::kernel_builds;
pub use dense::{Before, Strided, product_into};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::exec::{Placed, Side};
use crate::layout::{Layout, Shape};
use crate::read::typed_mut;
use crate::tensor::Tensor;

/// Multiplies tensors, brought to one type.
pub(crate) fn run(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    let dtype = left.dtype().promote(right.dtype());
    let (sizes, shape) = check(dtype, left.shape(), right.shape())?;
    let placed = Placed::of(&[left, right])?;
    match &placed.side {
        Side::Cpu => placed.on_host(dtype, &shape, |out| {
            let (left, right) = (left.host_operand(dtype)?, right.host_operand(dtype)?);
            crate::dispatch!(dtype, T => cpu::matmul::<T>(left.view()?, right.view()?, typed_mut(out)?))
        }),
        Side::Gpu(gpu) => placed.on_gpu(gpu, dtype, &shape, |stream, out| {
            cuda::matmul(stream, sizes, &left.gpu_operand(stream, dtype)?, &right.gpu_operand(stream, dtype)?, out)
        }),
    }
}

/// The sizes of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulSizes {
    /// Matrices in the batch; one when there is no batch axis.
    pub batch: usize,
    /// Rows of the left and of the result.
    pub m: usize,
    /// Columns of the right and of the result.
    pub n: usize,
    /// Columns of the left and rows of the right.
    pub k: usize,
}

/// The kernel's argument, passed by value; `HwMatmul` in `matmul.cu` has the same fields in the same order. Offsets and
/// strides count elements; the batch strides are zero when there is no batch axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields are named after what the comment above says of them")]
pub struct MatmulArg {
    pub batch: u64,
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub left_offset: u64,
    pub left_strides: [u64; 3],
    pub right_offset: u64,
    pub right_strides: [u64; 3],
}

impl MatmulArg {
    /// The argument for a product that has been checked.
    pub fn new(sizes: MatmulSizes, left: &Layout, right: &Layout) -> MatmulArg {
        MatmulArg {
            batch: sizes.batch as u64,
            m: sizes.m as u64,
            n: sizes.n as u64,
            k: sizes.k as u64,
            left_offset: left.offset() as u64,
            left_strides: three_strides(left),
            right_offset: right.offset() as u64,
            right_strides: three_strides(right),
        }
    }
}

/// Strides over batch, rows and columns.
fn three_strides(layout: &Layout) -> [u64; 3] {
    let mut strides = [0; 3];
    for (to, &from) in strides.iter_mut().rev().zip(layout.strides().iter().rev()) {
        *to = from as u64;
    }
    strides
}

/// Checks the type and the shapes of a product; returns its sizes and the shape of the result.
pub fn check(dtype: DType, left: &Shape, right: &Shape) -> Result<(MatmulSizes, Shape)> {
    const OP: &str = "matmul";
    if !dtype.is_float() {
        return Err(Error::Unsupported { op: OP, dtype });
    }
    let mismatch = || Error::ShapeMismatch { op: OP, left: left.to_vec(), right: right.to_vec() };
    let (sizes, shape) = match (&left[..], &right[..]) {
        (&[m, k], &[k2, n]) if k == k2 => (MatmulSizes { batch: 1, m, n, k }, Shape::new(&[m, n])?),
        (&[batch, m, k], &[b2, k2, n]) if batch == b2 && k == k2 => {
            (MatmulSizes { batch, m, n, k }, Shape::new(&[batch, m, n])?)
        }
        ([_, _] | [_, _, _], _) => return Err(mismatch()),
        _ => return Err(Error::Shape { op: OP, expected: "two or three dimensions", found: left.to_vec() }),
    };
    shape.count()?;
    Ok((sizes, shape))
}

#[cfg(test)]
mod tests;
