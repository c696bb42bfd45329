//! The one call into the `gemm` crate, whose entry takes raw pointers.
//!
//! Everything it is told about its operands comes from views, which have been proven to lie inside their slices.

use gemm::Parallelism;

use super::MatmulSizes;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::layout::Shape;
use crate::view::{View, check_output};

/// A two-dimensional view with strides as `gemm` wants them.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a, T> {
    data: &'a [T],
    shape: Shape,
    row_stride: isize,
    column_stride: isize,
}

impl<'a, T: Element> Matrix<'a, T> {
    /// A view of two dimensions. The slice kept begins at the first element and ends with the last.
    pub(super) fn new(view: View<'a, T>) -> Result<Matrix<'a, T>> {
        let layout = view.layout();
        let &[row_stride, column_stride] = layout.strides() else {
            return Err(Error::Shape { op: "matmul", expected: "two dimensions", found: layout.shape().to_vec() });
        };
        let data = if layout.count() == 0 { &[] } else { &view.data()[layout.offset()..layout.end()] };
        let signed =
            |stride: usize| isize::try_from(stride).map_err(|_| Error::TooLarge { dims: layout.shape().to_vec() });
        // A stride along an axis of size one or less leads nowhere and may be any number.
        let used = |axis: usize, stride: usize| if layout.shape()[axis] > 1 { stride } else { 0 };
        Ok(Matrix {
            data,
            shape: *layout.shape(),
            row_stride: signed(used(0, row_stride))?,
            column_stride: signed(used(1, column_stride))?,
        })
    }
}

/// `out = left x right` for types `gemm` knows.
#[expect(unsafe_code, reason = "the only entry of the gemm crate takes raw pointers")]
pub(super) fn multiply<T: Float>(
    left: Matrix<'_, T>,
    right: Matrix<'_, T>,
    sizes: MatmulSizes,
    out: &mut [T],
) -> Result<()> {
    let MatmulSizes { m, n, k, .. } = sizes;
    let fits = left.shape[..] == [m, k] && right.shape[..] == [k, n];
    if !fits {
        return Err(Error::ShapeMismatch { op: "matmul", left: left.shape.to_vec(), right: right.shape.to_vec() });
    }
    check_output(out, Shape::new(&[m, n])?.count()?)?;
    if out.is_empty() || k == 0 {
        out.fill(T::default());
        return Ok(());
    }
    let columns = isize::try_from(n).map_err(|_| Error::TooLarge { dims: vec![m, n] })?;
    // SAFETY: `Matrix::new` keeps the slice from the first to the last element of a view, so with these sizes, compared
    // above, and these strides every element gemm reads lies in it. `out` has exactly `m * n` elements with strides
    // (n, 1), is borrowed for writing, and is not read because `read_dst` is false. T is f32 or f64: `Float` is closed.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            columns,
            false,
            left.data.as_ptr(),
            left.column_stride,
            left.row_stride,
            right.data.as_ptr(),
            right.column_stride,
            right.row_stride,
            T::default(),
            T::ONE,
            false,
            false,
            false,
            Parallelism::Rayon(0),
        );
    }
    Ok(())
}

/// The types `gemm` multiplies as they are. Anything else would make it panic.
pub(super) trait Float: Element {
    /// One.
    const ONE: Self;
}

impl Float for f32 {
    const ONE: f32 = 1.0;
}

impl Float for f64 {
    const ONE: f64 = 1.0;
}
