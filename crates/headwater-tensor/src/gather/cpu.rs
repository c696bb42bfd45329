//! The gather on CPU threads: the readable version, and the one that ships.
//!
//! Rows are copied in small blocks handed out dynamically, because threads of a busy machine do not run at one speed.
//! The next rows are asked for while one is copied: scattered rows are as fast as many lines can be under way, which is
//! about half as fast as a plain copy. Outputs that no cache holds go around it.

use headwater_memory::{prefetch_element, stream_copy, stream_fence};
use rayon::prelude::*;

use super::{GatherError, IdSlice};

/// Bytes ahead of the copy that are asked for: more lines than a core can have under way, and few enough to stay.
const AHEAD_BYTES: usize = 4 << 10;
/// Narrow rows are a line each, however narrow.
const MOST_ROWS_AHEAD: usize = 32;
/// Output bytes one task fills.
const TASK_BYTES: usize = 1 << 20;
/// Outputs above this do not fit a cache, so their stores go around it. Smaller ones are there for who reads them next.
const STREAM_FROM_BYTES: usize = 64 << 20;
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
    let rows_ahead = (AHEAD_BYTES / width_bytes.max(1)).clamp(1, MOST_ROWS_AHEAD);
    for (i, to) in out.chunks_exact_mut(width_bytes.max(1)).enumerate() {
        if let Some(ahead) = ids.row(i + rows_ahead).and_then(|row| row_of(table, width_bytes, row)) {
            (0..ahead.len()).step_by(LINE_BYTES).for_each(|at| prefetch_element(ahead, at));
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
