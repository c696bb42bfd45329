//! The gather by CPU and copy engine: threads collect rows into pinned memory while earlier rows are on their way.
//!
//! This is how a table that cannot be pinned is served, and the yardstick the papers start from.

use headwater_cuda::Stream;
use headwater_memory::{Buffer, Pinned};
use rayon::prelude::*;

use super::cpu::gather_block;
use super::cuda::{GpuGather, cut};
use super::{GatherError, IdSlice, IdType};
use crate::error::{Error, Result};
use crate::runtime::{staging_pool, unified_pool, with_threads};

/// Bytes gathered before a copy starts: large enough for the copy engine, small enough to overlap.
const CHUNK_BYTES: u64 = 4 << 20;

/// Gathers with CPU threads into `gather.out`.
pub(super) fn run(gather: &GpuGather<'_>) -> Result<()> {
    let table = gather.host_table.ok_or(GatherError::TableNotOnHost { variant: "cpu" })?;
    let fetched = HostIds::download(gather)?;
    let ids = fetched.slice()?;
    let copies = gather.stream.gpu().spare_stream()?;
    // Earlier work on the caller's stream may still use the output.
    copies.wait_for(gather.stream)?;
    let rows_per_chunk = (CHUNK_BYTES / gather.width_bytes).max(1);
    let count = gather.count();
    let chunks = count.div_ceil(rows_per_chunk);
    with_threads(gather.options.cpu_threads, || {
        (0..chunks).into_par_iter().try_for_each(|chunk| {
            let first = chunk * rows_per_chunk;
            let rows = rows_per_chunk.min(count - first);
            stage(gather, table, ids, &copies, first, rows)
        })
    })?;
    gather.stream.wait_for(&copies)?;
    Ok(())
}

fn stage(gather: &GpuGather<'_>, table: &[u8], ids: IdSlice<'_>, copies: &Stream, first: u64, rows: u64) -> Result<()> {
    let (width, from) = (index(gather.width_bytes)?, index(first)?);
    let bytes = index(rows)? * width;
    let mut staging = Buffer::<u8, Pinned>::from_lease(staging_pool(gather.stream.gpu())?.lease(bytes)?)?;
    gather_block(table, width, ids.part(from, index(rows)?), from, staging.as_mut_slice()?, true)?;
    let to = cut(gather.out, first * gather.width_bytes, rows * gather.width_bytes)?;
    // The lease returns to its pool when this copy has passed.
    copies.copy(staging.whole(), &to)?;
    Ok(())
}

/// A gather's ids in pinned memory, where the CPU can read them.
struct HostIds {
    bytes: Buffer<u8, Pinned>,
    id_type: IdType,
}

impl HostIds {
    fn download(gather: &GpuGather<'_>) -> Result<Self> {
        let wanted = cut(gather.ids, 0, gather.count() * gather.id_type.size_bytes() as u64)?;
        let bytes = Buffer::from_lease(unified_pool(gather.stream.gpu())?.lease(wanted.bytes())?)?;
        gather.stream.copy(&wanted, bytes.whole())?;
        Ok(Self { bytes, id_type: gather.id_type })
    }

    /// The ids, once they have arrived.
    fn slice(&self) -> Result<IdSlice<'_>> {
        let bytes = self.bytes.as_slice()?;
        Ok(match self.id_type {
            IdType::U32 => IdSlice::U32(bytemuck::cast_slice(bytes)),
            IdType::U64 => IdSlice::U64(bytemuck::cast_slice(bytes)),
            IdType::I32 => IdSlice::I32(bytemuck::cast_slice(bytes)),
            IdType::I64 => IdSlice::I64(bytemuck::cast_slice(bytes)),
        })
    }
}

/// Sizes of things that are in memory fit an index.
pub(super) fn index(value: u64) -> Result<usize> {
    usize::try_from(value).map_err(|_| Error::TooLarge { dims: vec![usize::MAX] })
}
