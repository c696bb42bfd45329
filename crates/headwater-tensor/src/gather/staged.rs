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
use crate::runtime::{staging_pool, with_threads};

/// Bytes gathered before a copy starts: large enough for the copy engine, small enough to overlap.
const CHUNK_BYTES: u64 = 4 << 20;

/// Gathers with CPU threads into `gather.out`.
pub(super) fn run(gather: &GpuGather<'_>) -> Result<()> {
    let table = gather.host_table.ok_or(GatherError::TableNotOnHost { variant: "cpu" })?;
    let ids = HostIds::download(gather)?;
    let copies = Stream::new(gather.stream.gpu())?;
    // Earlier work on the caller's stream may still use the output.
    copies.wait_for(gather.stream)?;
    let rows_per_chunk = (CHUNK_BYTES / gather.width_bytes).max(1);
    let count = gather.count();
    let chunks = count.div_ceil(rows_per_chunk);
    with_threads(gather.options.cpu_threads, || {
        (0..chunks).into_par_iter().try_for_each(|chunk| {
            let first = chunk * rows_per_chunk;
            let rows = rows_per_chunk.min(count - first);
            stage(gather, table, &ids, &copies, first, rows)
        })
    })?;
    gather.stream.wait_for(&copies)?;
    Ok(())
}

fn stage(gather: &GpuGather<'_>, table: &[u8], ids: &HostIds, copies: &Stream, first: u64, rows: u64) -> Result<()> {
    let (width, from) = (index(gather.width_bytes)?, index(first)?);
    let bytes = index(rows)? * width;
    let mut staging = Buffer::<u8, Pinned>::from_lease(staging_pool(gather.stream.gpu())?.lease(bytes)?)?;
    gather_block(table, width, ids.slice().part(from, index(rows)?), from, staging.as_mut_slice()?, true)?;
    let to = cut(gather.out, first * gather.width_bytes, rows * gather.width_bytes)?;
    // The lease returns to its pool when this copy has passed.
    copies.copy(staging.whole(), &to)?;
    Ok(())
}

/// A gather's ids, where the CPU can read them.
pub(super) enum HostIds {
    U32(Vec<u32>),
    U64(Vec<u64>),
    I32(Vec<i32>),
    I64(Vec<i64>),
}

impl HostIds {
    fn download(gather: &GpuGather<'_>) -> Result<Self> {
        fn fetch<T: bytemuck::Pod>(gather: &GpuGather<'_>) -> Result<Vec<T>> {
            let mut ids = vec![T::zeroed(); index(gather.count())?];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut ids);
            let whole = cut(gather.ids, 0, bytes.len() as u64)?;
            gather.stream.download(&whole, bytes)?;
            Ok(ids)
        }
        Ok(match gather.id_type {
            IdType::U32 => Self::U32(fetch(gather)?),
            IdType::U64 => Self::U64(fetch(gather)?),
            IdType::I32 => Self::I32(fetch(gather)?),
            IdType::I64 => Self::I64(fetch(gather)?),
        })
    }

    fn slice(&self) -> IdSlice<'_> {
        match self {
            Self::U32(ids) => IdSlice::U32(ids),
            Self::U64(ids) => IdSlice::U64(ids),
            Self::I32(ids) => IdSlice::I32(ids),
            Self::I64(ids) => IdSlice::I64(ids),
        }
    }
}

/// Sizes of things that are in memory fit an index.
pub(super) fn index(value: u64) -> Result<usize> {
    usize::try_from(value).map_err(|_| Error::TooLarge { dims: vec![usize::MAX] })
}
