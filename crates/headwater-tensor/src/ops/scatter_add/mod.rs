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
mod cuda;
mod plan;

pub use crate::ids::IdSlice;
pub use cuda::kernel_builds;
pub use plan::ScatterPlan;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::exec::{Placed, Side};
use crate::layout::Shape;
use crate::ops::copy::{pack_on_gpu, pack_on_host};
use crate::read::HostOperand;
use crate::tensor::Tensor;

/// The kernel's argument, passed by value; `HwScatter` in `scatter_add.cu` has the same fields in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields are named after what the plan and the layout call them")]
pub struct ScatterArg {
    pub groups: u64,
    pub columns: u64,
    pub target_rows: u64,
    pub count: u64,
    pub source_offset: u64,
    pub row_stride: u64,
    pub column_stride: u64,
}

/// A new tensor: `target` with the rows of `source` added to the rows that `ids` name. Everything behind the first axis is
/// one row. The ids are grouped on the host, so ids in GPU memory are waited for and bad ones are an error at once.
pub(crate) fn run(target: &Tensor, ids: &Tensor, source: &Tensor) -> Result<Tensor> {
    const OP: &str = "scatter_add";
    let (dtype, shape) = (target.dtype(), *target.shape());
    if source.dtype() != dtype {
        return Err(Error::WrongType { op: OP, expected: dtype, found: source.dtype() });
    }
    let source = source.reshape(&rows_and_columns(source.shape())?)?;
    check(dtype, source.shape(), ids.count(), &Shape::new(&rows_and_columns(&shape)?)?)?;
    let plan = plan_for(ids, shape[0])?;
    let placed = Placed::of(&[target, &source, ids])?;
    match &placed.side {
        Side::Cpu => placed.on_host(dtype, &shape, |out| {
            pack_on_host(target, out)?;
            cpu::run(&source.host_operand(dtype)?, &plan, out)
        }),
        Side::Gpu(gpu) => placed.on_gpu(gpu, dtype, &shape, |stream, out| {
            pack_on_gpu(stream, &target.gpu_operand(stream, dtype)?, out)?;
            cuda::run(stream, &source.gpu_operand(stream, dtype)?, &plan, out)
        }),
    }
}

fn plan_for(ids: &Tensor, target_rows: usize) -> Result<ScatterPlan> {
    let ids = ids.contiguous()?;
    let operand: HostOperand<'_> = ids.host_operand(ids.dtype())?;
    match ids.dtype() {
        DType::I32 => ScatterPlan::new(IdSlice::I32(operand.view()?.as_slice().unwrap_or_default()), target_rows),
        DType::I64 => ScatterPlan::new(IdSlice::I64(operand.view()?.as_slice().unwrap_or_default()), target_rows),
        found => Err(Error::IdType { op: "scatter_add", found }),
    }
}

/// The first axis, and all the others as one.
fn rows_and_columns(shape: &Shape) -> Result<[usize; 2]> {
    match shape.split_first() {
        Some((&rows, columns)) => Ok([rows, Shape::new(columns)?.count()?]),
        None => Err(Error::Shape { op: "scatter_add", expected: "at least one dimension", found: vec![] }),
    }
}

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
