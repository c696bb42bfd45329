//! The gather on CPU threads: the readable version, and the one that ships.
//!
//! Rows are copied in small blocks handed out dynamically, because threads of a busy machine do not run at one speed.
//! The next rows are prefetched while one is copied, and large outputs bypass the cache.

use headwater_memory::{prefetch, stream_copy, stream_fence};
use rayon::prelude::*;

use super::{GatherError, IdSlice};

/// Rows ahead of the copy that are prefetched.
const PREFETCH_ROWS: usize = 16;
/// Output bytes one task fills.
const TASK_BYTES: usize = 1 << 20;
/// Outputs above this do not fit a cache, so their stores go around it.
const STREAM_FROM_BYTES: usize = 8 << 20;
const LINE_BYTES: usize = 64;

/// Fills `out` with `table[ids]` on the current thread pool.
pub fn gather(table: &[u8], width_bytes: usize, ids: IdSlice<'_>, out: &mut [u8]) -> Result<(), GatherError> {
    let rows_per_task = (TASK_BYTES / width_bytes.max(1)).max(1);
    let around_cache = out.len() >= STREAM_FROM_BYTES;
    let tasks = out.par_chunks_mut(rows_per_task * width_bytes.max(1)).enumerate();
    tasks.try_for_each(|(task, out)| {
        let ids = ids.part(task * rows_per_task, out.len() / width_bytes.max(1));
        gather_block(table, width_bytes, ids, task * rows_per_task, out, around_cache)
    })
}

/// Fills `out` on this thread. `first` is the position of the first id, for messages.
pub fn gather_block(
    table: &[u8],
    width_bytes: usize,
    ids: IdSlice<'_>,
    first: usize,
    out: &mut [u8],
    around_cache: bool,
) -> Result<(), GatherError> {
    let rows = table.len() / width_bytes.max(1);
    for (i, to) in out.chunks_exact_mut(width_bytes.max(1)).enumerate() {
        if let Some(ahead) = ids.row(i + PREFETCH_ROWS).and_then(|row| row_of(table, width_bytes, row)) {
            ahead.chunks(LINE_BYTES).for_each(prefetch);
        }
        let id = ids.row(i).unwrap_or(u64::MAX);
        let from = row_of(table, width_bytes, id).ok_or_else(|| GatherError::IdOutOfRange {
            position: (first + i) as u64,
            id: ids.as_written(i),
            rows: rows as u64,
        })?;
        if around_cache { stream_copy(to, from) } else { to.copy_from_slice(from) }
    }
    if around_cache {
        stream_fence();
    }
    Ok(())
}

fn row_of(table: &[u8], width_bytes: usize, row: u64) -> Option<&[u8]> {
    let start = usize::try_from(row).ok()?.checked_mul(width_bytes)?;
    table.get(start..start.checked_add(width_bytes)?)
}
