//! The one call into the `gemm` crates, whose entries take raw pointers.
//!
//! Everything it is told about its operands comes from views, which have been proven to lie inside their slices.

use gemm_common::Parallelism;

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
    let product = Call { m, n, k, out_row_stride: columns, adds: false, parallelism: Parallelism::Rayon(0) };
    product.run(left.operand(), right.operand(), out);
    Ok(())
}

/// A matrix in a slice: element (i, j) lies at `i * row_stride + j * column_stride`.
#[derive(Debug, Clone, Copy)]
pub struct Strided<'a> {
    /// From the first element on.
    pub data: &'a [f32],
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Elements from a row to the next.
    pub row_stride: usize,
    /// Elements from a column to the next.
    pub column_stride: usize,
}

/// What becomes of what was in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// It is replaced.
    Replaced,
    /// The product is added to it.
    Kept,
}

impl<'a> Strided<'a> {
    /// Rows one after the other.
    #[must_use]
    pub fn packed(data: &'a [f32], rows: usize, columns: usize) -> Self {
        Self { data, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// Rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        let Self { data, rows, columns, row_stride, column_stride } = self;
        Self { data, rows: columns, columns: rows, row_stride: column_stride, column_stride: row_stride }
    }

    fn checked(self) -> Result<Operand<'a, f32>> {
        let dims = || vec![self.rows, self.columns];
        let last = |count: usize, stride: usize| (count.max(1) - 1).checked_mul(stride);
        let end = last(self.rows, self.row_stride).zip(last(self.columns, self.column_stride));
        let end = end.and_then(|(row, column)| row.checked_add(column));
        if self.rows > 0 && self.columns > 0 && end.is_none_or(|end| end >= self.data.len()) {
            return Err(Error::Shape { op: "matmul", expected: "a matrix inside its slice", found: dims() });
        }
        let signed = |stride: usize| isize::try_from(stride).map_err(|_| Error::TooLarge { dims: dims() });
        let strides = (signed(self.row_stride)?, signed(self.column_stride)?);
        Ok(Operand { data: self.data, row_stride: strides.0, column_stride: strides.1 })
    }
}

/// The product of two matrices of f32 on the calling thread, into rows that begin `out_row_stride` elements apart.
pub fn product_into(
    left: Strided<'_>,
    right: Strided<'_>,
    out: &mut [f32],
    out_row_stride: usize,
    before: Before,
) -> Result<()> {
    let (m, n, k) = (left.rows, right.columns, left.columns);
    let dims = |matrix: Strided<'_>| vec![matrix.rows, matrix.columns];
    if right.rows != k {
        return Err(Error::ShapeMismatch { op: "matmul", left: dims(left), right: dims(right) });
    }
    if m == 0 || n == 0 {
        return Ok(());
    }
    let end = (m - 1).checked_mul(out_row_stride).and_then(|last| last.checked_add(n));
    if end.is_none_or(|end| end > out.len()) || out_row_stride < n {
        return Err(Error::Shape { op: "matmul", expected: "an output with room for the product", found: vec![m, n] });
    }
    if k == 0 {
        let rows = out.chunks_mut(out_row_stride).take(m);
        rows.filter(|_| before == Before::Replaced).for_each(|row| row[..n].fill(0.0));
        return Ok(());
    }
    let (left, right) = (left.checked()?, right.checked()?);
    let out_row_stride = isize::try_from(out_row_stride).map_err(|_| Error::TooLarge { dims: vec![m, n] })?;
    Call { m, n, k, out_row_stride, adds: before == Before::Kept, parallelism: Parallelism::None }
        .run(left, right, out);
    Ok(())
}

/// Elements that were proven to lie in the slice with the strides and sizes they are used with.
#[derive(Clone, Copy)]
struct Operand<'a, T> {
    data: &'a [T],
    row_stride: isize,
    column_stride: isize,
}

impl<T> Operand<'_, T> {
    fn transposed(self) -> Self {
        Self { row_stride: self.column_stride, column_stride: self.row_stride, ..self }
    }
}

impl<'a, T> Matrix<'a, T> {
    fn operand(self) -> Operand<'a, T> {
        Operand { data: self.data, row_stride: self.row_stride, column_stride: self.column_stride }
    }
}

/// Sizes, none of them 0, and where rows of the output begin.
struct Call {
    m: usize,
    n: usize,
    k: usize,
    out_row_stride: isize,
    adds: bool,
    parallelism: Parallelism,
}

impl Call {
    #[expect(unsafe_code, reason = "the entries of the gemm crates take raw pointers")]
    fn run<T: Float>(self, left: Operand<'_, T>, right: Operand<'_, T>, out: &mut [T]) {
        // The kernels write columns: rows of the output are columns of the transposed product, right times left. An output of
        // one column is both, and stays as it is.
        let (mut rows, mut columns) = ((self.m, self.out_row_stride), (self.n, 1));
        let (mut left, mut right) = (left, right);
        if columns.1 < rows.1 {
            (rows, columns) = (columns, rows);
            (left, right) = (right.transposed(), left.transposed());
        }
        // SAFETY: both callers have compared sizes and strides with the slices: every element gemm reads lies in them, and
        // rows of the output lie in `out` without overlapping. `out` is borrowed for writing, and is read only when the
        // product is added to it. No stride is negative. The function is the one for T.
        unsafe {
            T::gemm()(
                rows.0,
                columns.0,
                self.k,
                out.as_mut_ptr(),
                columns.1,
                rows.1,
                self.adds,
                left.data.as_ptr(),
                left.column_stride,
                left.row_stride,
                right.data.as_ptr(),
                right.column_stride,
                right.row_stride,
                T::ONE,
                T::ONE,
                false,
                false,
                false,
                self.parallelism,
            );
        }
    }
}

/// What the gemm crates call `GemmTy`: sizes, the output and whether it is added to, both operands, two factors, whether each
/// matrix is conjugated, and how many threads. Strides are those of columns, then of rows.
type Gemm<T> = unsafe fn(
    usize,
    usize,
    usize,
    *mut T,
    isize,
    isize,
    bool,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    T,
    bool,
    bool,
    bool,
    Parallelism,
);

/// The types that are multiplied as they are.
pub(super) trait Float: Element {
    /// One.
    const ONE: Self;

    /// The product for this CPU.
    fn gemm() -> Gemm<Self>;
}

impl Float for f32 {
    const ONE: f32 = 1.0;

    fn gemm() -> Gemm<f32> {
        gemm_f32::gemm::f32::get_gemm_fn()
    }
}

impl Float for f64 {
    const ONE: f64 = 1.0;

    fn gemm() -> Gemm<f64> {
        gemm_f64::gemm::f64::get_gemm_fn()
    }
}
