//! Features that are mostly zeros, held as what they have besides zeros.
//!
//! Words of documents take gigabytes as rows and megabytes like this, so a layer reads them all at once where rows would go
//! through memory in many chunks.

use headwater_compile::cpu::fast::SparseRows;

use crate::error::Result;
use crate::features::{Fetched, MOST_FILLED, Reader};
use crate::network::InputPlan;

/// Rows that are read at a time. The first of them tell whether it is worth while.
const PIECE: u64 = 1024;
/// Bytes of an element: its column and its value.
const ELEMENT_BYTES: u64 = 8;

/// All features, where they are mostly zeros, of one width and in memory, and where the others take at most so many bytes.
pub(crate) fn sparse_features(reader: &Reader<'_>, most_bytes: u64) -> Result<Option<SparseRows>> {
    let InputPlan::Together { width } = reader.plan else { return Ok(None) };
    if !reader.task.features.iter().flatten().all(headwater_feature::HostTable::is_in_memory) {
        return Ok(None);
    }
    let counts = reader.task.node_counts();
    let mut all = SparseRows::empty(width);
    for (of_type, count) in counts.iter().enumerate() {
        for first in (0..count.div_ceil(PIECE)).map(|piece| piece * PIECE) {
            let mut ids: Vec<Vec<u64>> = vec![Vec::new(); counts.len()];
            ids[of_type] = (first..(first + PIECE).min(*count)).collect();
            let lists: Vec<&[u64]> = ids.iter().map(Vec::as_slice).collect();
            let found = reader.copied(&lists, &mut |len| vec![0.0; len])?;
            let Some(Some(Fetched::Copied(rows))) = found.first() else { return Ok(None) };
            let Some(piece) = SparseRows::of(rows, width, MOST_FILLED) else { return Ok(None) };
            // Other rows are checked when they are read.
            reader.check(&found, &lists)?;
            all.append(&piece);
            if ELEMENT_BYTES * all.count() as u64 > most_bytes {
                return Ok(None);
            }
        }
    }
    Ok(Some(all))
}
