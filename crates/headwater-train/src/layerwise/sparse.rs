//! Features that are mostly zeros, held as what they have besides zeros.
//!
//! Words of documents take gigabytes as rows and megabytes like this, so a layer reads them all at once where rows would go
//! through memory in many chunks.

use headwater_compile::cpu::fast::SparseRows;

use super::{MOST_FILLED, normalise};
use crate::error::Result;
use crate::task::Task;

/// Rows that are read at a time. The first of them tell whether it is worth while.
const PIECE: u64 = 1024;
/// Bytes of an element: its column and its value.
const ELEMENT_BYTES: u64 = 8;

/// All features, where they are mostly zeros and in memory, and where the others take at most so many bytes.
pub(crate) fn sparse_features(task: &Task, is_normalised: bool, most_bytes: u64) -> Result<Option<SparseRows>> {
    let Some(width) = task.width.filter(|_| task.features.iter().all(|table| table.is_in_memory())) else {
        return Ok(None);
    };
    let counts = task.node_counts();
    let mut all = SparseRows { width, starts: vec![0], columns: Vec::new(), values: Vec::new() };
    for (of_type, count) in counts.iter().enumerate() {
        for first in (0..count.div_ceil(PIECE)).map(|piece| piece * PIECE) {
            let mut ids: Vec<Vec<u64>> = vec![Vec::new(); counts.len()];
            ids[of_type] = (first..(first + PIECE).min(*count)).collect();
            let mut rows = vec![0.0; ids[of_type].len() * width];
            task.gather(&ids.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut rows)?;
            if is_normalised {
                normalise(&mut rows, width);
            }
            let Some(piece) = SparseRows::of(&rows, width, MOST_FILLED) else { return Ok(None) };
            append(&mut all, &piece);
            if ELEMENT_BYTES * all.values.len() as u64 > most_bytes {
                return Ok(None);
            }
        }
    }
    Ok(Some(all))
}

/// Some of the rows, in this order.
pub(super) fn rows_of(all: &SparseRows, rows: impl Iterator<Item = usize>) -> SparseRows {
    let mut found = SparseRows { width: all.width, starts: vec![0], columns: Vec::new(), values: Vec::new() };
    for row in rows {
        let own = all.starts[row]..all.starts[row + 1];
        found.columns.extend_from_slice(&all.columns[own.clone()]);
        found.values.extend_from_slice(&all.values[own]);
        found.starts.push(found.columns.len());
    }
    found
}

fn append(all: &mut SparseRows, piece: &SparseRows) {
    let before = all.columns.len();
    all.columns.extend_from_slice(&piece.columns);
    all.values.extend_from_slice(&piece.values);
    all.starts.extend(piece.starts[1..].iter().map(|start| before + start));
}
