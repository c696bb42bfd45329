//! `table[ids]`: the row gather for tensors.
//!
//! Everything behind the table's first axis is one row; the result has the shape of the ids followed by that of a row. A
//! table the GPU reaches is read by the GPU in place. A unified table that could not be pinned is gathered by the CPU in
//! pieces that are copied over. As in torch, a table in GPU memory may be indexed by ids on the CPU.

use headwater_cuda::{Span, Stream};

use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::exec::{Placed, Side, output_bytes};
use crate::gather::{GatherOptions, GpuGather, IdSlice, IdType, StagedGather, Variant, gather_host};
use crate::layout::Shape;
use crate::placement::Operand;
use crate::read::HostOperand;
use crate::tensor::Tensor;

const OP: &str = "index";

/// Gathers rows.
pub(crate) fn run(table: &Tensor, ids: &Tensor, options: GatherOptions) -> Result<Tensor> {
    let id_type = id_type(ids.dtype())?;
    let Some((&rows, row)) = table.shape().split_first() else {
        return Err(Error::Shape { op: OP, expected: "a table with at least one dimension", found: vec![] });
    };
    let width_bytes = output_bytes(table.dtype(), &Shape::new(row)?)?;
    let shape = Shape::new(&[ids.shape(), row].concat())?;
    let placed = place(table, ids)?;
    if shape.count()? == 0 {
        return Tensor::zeros(&shape, table.dtype(), placed.output);
    }
    let (table, ids) = (table.contiguous()?, ids.contiguous()?);
    match &placed.side {
        Side::Cpu => placed.on_host(table.dtype(), &shape, |out| on_cpu(&table, &ids, width_bytes, out)),
        Side::Gpu(gpu) => placed.on_gpu(gpu, table.dtype(), &shape, |stream, out| {
            if table.storage().span().is_none() {
                return staged(stream, &table, &ids, width_bytes, out, options.cpu_threads);
            }
            let from = table.gpu_operand(stream, table.dtype())?.packed()?;
            let wanted = ids.gpu_operand(stream, ids.dtype())?.packed()?;
            let (Some(from), Some(wanted)) = (from, wanted) else { return Ok(()) };
            let host_table = if uses_threads(&options) { host_bytes(&table)? } else { None };
            let (rows, width_bytes) = (rows as u64, width_bytes as u64);
            let gather =
                GpuGather { stream, table: &from, host_table, rows, width_bytes, ids: &wanted, id_type, out, options };
            gather.run().map(|_| ())
        }),
    }
}

fn id_type(dtype: DType) -> Result<IdType> {
    match dtype {
        DType::I32 => Ok(IdType::I32),
        DType::I64 => Ok(IdType::I64),
        found => Err(Error::IdType { op: OP, found }),
    }
}

fn place(table: &Tensor, ids: &Tensor) -> Result<Placed> {
    match (table.device(), ids.device()) {
        (Device::Cuda(ordinal), Device::Cpu) => Placed::for_operands(&[Operand::Cuda(ordinal)]),
        _ => Placed::of(&[table, ids]),
    }
}

/// Whether the CPU may read the table. Only then is it worth waiting until the GPU is done with it.
fn uses_threads(options: &GatherOptions) -> bool {
    match options.variant {
        Variant::Cpu | Variant::Hybrid => true,
        Variant::Auto => options.cpu_threads > 0,
        Variant::Naive | Variant::Shift | Variant::Aligned | Variant::Sorted => false,
    }
}

fn host_bytes(table: &Tensor) -> Result<Option<&[u8]>> {
    let (start, length) = table.reach();
    Ok(table.storage().host_slice()?.map(|bytes| &bytes[start..start + length]))
}

/// Gathers on the CPU. Both tensors are packed.
fn on_cpu(table: &Tensor, ids: &Tensor, width_bytes: usize, out: &mut [u8]) -> Result<()> {
    let (operand, table) = (ids.host_operand(ids.dtype())?, table.host_operand(table.dtype())?);
    Ok(gather_host(table.packed_bytes()?.unwrap_or_default(), width_bytes, id_slice(ids.dtype(), &operand)?, out)?)
}

/// Gathers on the CPU into memory of the GPU.
fn staged(stream: &Stream, table: &Tensor, ids: &Tensor, width_bytes: usize, out: &Span, threads: usize) -> Result<()> {
    let ids = ids.to(Device::Cpu)?;
    let (operand, table) = (ids.host_operand(ids.dtype())?, table.host_operand(table.dtype())?);
    let (table, ids) = (table.packed_bytes()?.unwrap_or_default(), id_slice(ids.dtype(), &operand)?);
    StagedGather { stream, table, width_bytes, ids, out }.run(threads)
}

fn id_slice<'a>(dtype: DType, operand: &'a HostOperand<'_>) -> Result<IdSlice<'a>> {
    Ok(match dtype {
        DType::I32 => IdSlice::I32(packed(operand)?),
        _ => IdSlice::I64(packed(operand)?),
    })
}

fn packed<'a, T: Element>(operand: &'a HostOperand<'_>) -> Result<&'a [T]> {
    Ok(operand.view()?.as_slice().unwrap_or_default())
}
