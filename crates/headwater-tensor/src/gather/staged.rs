//! The gather by CPU and copy engine: threads collect rows into pinned memory while earlier rows are on their way.
//!
//! This is how a table that cannot be pinned is served, and the yardstick that the papers start from.

use std::sync::atomic::{AtomicUsize, Ordering};

use headwater_cuda::{Event, Span, Stream};
use headwater_memory::{Buffer, Pinned};

use super::courier::Courier;
use super::cuda::{GpuGather, cut};
use super::{GatherError, IdSlice, IdType, check_sizes};
use crate::error::{Error, Result};
use crate::runtime::{unified_pool, with_threads};

/// Bytes gathered before a copy starts: large enough for the copy engine, small enough to overlap.
const CHUNK_BYTES: usize = 2 << 20;

/// Gathers with CPU threads into `gather.out`.
pub(super) fn run(gather: &GpuGather<'_>) -> Result<()> {
    let table = gather.host_table.ok_or(GatherError::TableNotOnHost { variant: "cpu" })?;
    let fetched = HostIds::download(gather)?;
    let (stream, ids, out) = (gather.stream, fetched.slice()?, gather.out);
    let staged = StagedGather { stream, table, width_bytes: index(gather.width_bytes)?, ids, out };
    staged.run(gather.options.cpu_threads)
}

/// A gather from memory that only the CPU reaches into memory of the GPU.
#[derive(Debug, Clone, Copy)]
pub struct StagedGather<'a> {
    /// In whose order it is done.
    pub stream: &'a Stream,
    /// The table.
    pub table: &'a [u8],
    /// Bytes a row.
    pub width_bytes: usize,
    /// The ids.
    pub ids: IdSlice<'a>,
    /// As many rows as ids.
    pub out: &'a Span,
}

impl StagedGather<'_> {
    /// Gathers with `threads` CPU threads, all there are when zero, and returns when the last copy is queued.
    pub fn run(&self, threads: usize) -> Result<()> {
        let rows = (self.table.len() / self.width_bytes.max(1)) as u64;
        let (count, out_bytes) = (self.ids.len() as u64, self.out.bytes() as u64);
        check_sizes(self.table.len() as u64, rows, self.width_bytes as u64, count, out_bytes)?;
        // Earlier work on the caller's stream may still use the output.
        let begun = self.stream.record()?;
        let next = AtomicUsize::new(0);
        let brought = with_threads(threads, || rayon::broadcast(|_| self.bring(&begun, &next)));
        brought.into_iter().fold(Ok(()), Result::and)
    }

    /// One thread's part: chunk after chunk, whoever is free takes the next.
    fn bring(&self, begun: &Event, next: &AtomicUsize) -> Result<()> {
        let rows_per_chunk = (CHUNK_BYTES / self.width_bytes).max(1);
        let mut courier = Courier::new(self.stream.gpu(), rows_per_chunk * self.width_bytes)?;
        courier.stream.wait(begun)?;
        let brought = self.bring_chunks(rows_per_chunk, next, &mut courier);
        // Also after an error: what was queued must not meet what the caller does next with the output.
        self.stream.wait_for(&courier.stream)?;
        brought
    }

    fn bring_chunks(&self, rows_per_chunk: usize, next: &AtomicUsize, courier: &mut Courier) -> Result<()> {
        loop {
            let first = next.fetch_add(rows_per_chunk, Ordering::Relaxed);
            if first >= self.ids.len() {
                return Ok(());
            }
            let ids = self.ids.part(first, rows_per_chunk);
            let (at, bytes) = (first * self.width_bytes, ids.len() * self.width_bytes);
            let to = cut(self.out, at as u64, bytes as u64)?;
            courier.bring(self.table, self.width_bytes, ids, first, &to)?;
        }
    }
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
    #[expect(unsafe_code, reason = "a copy brought them into memory that kernels reach")]
    pub fn slice(&self) -> Result<IdSlice<'_>> {
        // SAFETY: the copy that brings them was queued before this was made, and nothing else gets the buffer.
        let bytes = unsafe { self.bytes.as_slice() }?;
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
