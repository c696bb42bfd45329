//! The gather by CPU and copy engine: threads collect rows into pinned memory while earlier rows are on their way.
//!
//! This is the yardstick that the papers start from.

use std::sync::atomic::{AtomicU64, Ordering};

use headwater_memory::{Buffer, Pinned};

use super::courier::Courier;
use super::cuda::{GpuGather, cut};
use super::{GatherError, IdSlice, IdType};
use crate::error::{Error, Result};
use crate::runtime::{unified_pool, with_threads};

/// Bytes gathered before a copy starts: large enough for the copy engine, small enough to overlap.
const CHUNK_BYTES: u64 = 2 << 20;

/// Gathers with CPU threads into `gather.out`.
pub(super) fn run(gather: &GpuGather<'_>) -> Result<()> {
    let table = gather.host_table.ok_or(GatherError::TableNotOnHost { variant: "cpu" })?;
    let fetched = HostIds::download(gather)?;
    let ids = fetched.slice()?;
    // Earlier work on the caller's stream may still use the output.
    let begun = gather.stream.record()?;
    let next = AtomicU64::new(0);
    let brought = with_threads(gather.options.cpu_threads, || {
        rayon::broadcast(|_| {
            let mut courier = Courier::new(gather.stream.gpu(), index(rows_per_chunk(gather) * gather.width_bytes)?)?;
            courier.stream.wait(&begun)?;
            let brought = bring_chunks(gather, table, ids, &next, &mut courier);
            // Also after an error: what was queued must not meet what the caller does next with the output.
            gather.stream.wait_for(&courier.stream)?;
            brought
        })
    });
    brought.into_iter().fold(Ok(()), Result::and)
}

fn bring_chunks(
    gather: &GpuGather<'_>,
    table: &[u8],
    ids: IdSlice<'_>,
    next: &AtomicU64,
    courier: &mut Courier,
) -> Result<()> {
    let (rows_per_chunk, width) = (rows_per_chunk(gather), gather.width_bytes);
    loop {
        let first = next.fetch_add(rows_per_chunk, Ordering::Relaxed);
        if first >= gather.count() {
            return Ok(());
        }
        let rows = rows_per_chunk.min(gather.count() - first);
        let to = cut(gather.out, first * width, rows * width)?;
        courier.bring(table, index(width)?, ids.part(index(first)?, index(rows)?), index(first)?, &to)?;
    }
}

fn rows_per_chunk(gather: &GpuGather<'_>) -> u64 {
    (CHUNK_BYTES / gather.width_bytes).max(1)
}

/// Ids in pinned memory, where the CPU can read them.
pub(super) struct HostIds {
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

    /// Ids already on their way into `bytes`.
    pub fn arriving(bytes: Buffer<u8, Pinned>, id_type: IdType) -> Self {
        Self { bytes, id_type }
    }

    /// The ids, once they have arrived.
    pub fn slice(&self) -> Result<IdSlice<'_>> {
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
