//! Matrix products on the CPU, by the `gemm` crates.
//!
//! The 16-bit types are turned into f32 first, one matrix of the batch at a time. `gemm` has a kernel of its own for f16,
//! but it rounds its running sums to f16 whenever a block of `k` ends; here a sum is rounded once.

use half::{bf16, f16};

use super::dense::{Matrix, multiply};
use super::{MatmulSizes, check};
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::layout::{Layout, Slice};
use crate::ops::elementwise::cpu::cast;
use crate::view::{View, check_output};

/// `out = left x right`, matrix by matrix.
pub fn matmul<T: Multiply>(left: View<'_, T>, right: View<'_, T>, out: &mut [T]) -> Result<()> {
    let (sizes, shape) = check(T::DTYPE, left.shape(), right.shape())?;
    check_output(out, shape.count()?)?;
    let per_matrix = sizes.m * sizes.n;
    for batch in 0..if per_matrix == 0 { 0 } else { sizes.batch } {
        let out = &mut out[batch * per_matrix..][..per_matrix];
        T::multiply(nth(left, batch)?, nth(right, batch)?, sizes, out)?;
    }
    Ok(())
}

/// Element types that matrices can be multiplied in, and those that say they cannot.
pub trait Multiply: Element {
    /// One product of two-dimensional views, of sizes that have been checked.
    fn multiply(left: View<'_, Self>, right: View<'_, Self>, sizes: MatmulSizes, out: &mut [Self]) -> Result<()>;
}

macro_rules! multiply_directly {
    ($($type:ty),*) => {$(
        impl Multiply for $type {
            fn multiply(left: View<'_, Self>, right: View<'_, Self>, sizes: MatmulSizes, out: &mut [Self]) -> Result<()> {
                multiply(Matrix::new(left)?, Matrix::new(right)?, sizes, out)
            }
        }
    )*};
}

macro_rules! multiply_as_f32 {
    ($($type:ty),*) => {$(
        impl Multiply for $type {
            fn multiply(left: View<'_, Self>, right: View<'_, Self>, sizes: MatmulSizes, out: &mut [Self]) -> Result<()> {
                let (mut a, mut b) = (vec![0f32; left.count()], vec![0f32; right.count()]);
                cast(left, &mut a)?;
                cast(right, &mut b)?;
                let mut wide = vec![0f32; out.len()];
                let (a, b) = (View::contiguous(&a, left.shape())?, View::contiguous(&b, right.shape())?);
                multiply(Matrix::new(a)?, Matrix::new(b)?, sizes, &mut wide)?;
                cast(View::contiguous(&wide, &[wide.len()])?, out)
            }
        }
    )*};
}

macro_rules! refuse {
    ($($type:ty),*) => {$(
        impl Multiply for $type {
            fn multiply(_: View<'_, Self>, _: View<'_, Self>, _: MatmulSizes, _: &mut [Self]) -> Result<()> {
                Err(Error::Unsupported { op: "matmul", dtype: Self::DTYPE })
            }
        }
    )*};
}

multiply_directly!(f32, f64);
multiply_as_f32!(f16, bf16);
refuse!(i8, i32, i64, u8, crate::dtype::Bool);

/// One matrix of a batch, or the only one.
fn nth<T: Element>(view: View<'_, T>, batch: usize) -> Result<View<'_, T>> {
    let layout: Layout = match view.layout().rank() {
        3 => view.layout().slice(0, Slice { start: batch, end: batch + 1, step: 1 })?.remove_axis(0)?,
        _ => *view.layout(),
    };
    View::new(view.data(), layout)
}
