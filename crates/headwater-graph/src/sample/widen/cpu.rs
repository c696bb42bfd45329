//! Numbers made wider by the CPU.

use std::ops::Range;

/// The numbers of all pieces, one behind the other.
#[must_use]
pub fn widen(from: &[u32], pieces: &[Range<usize>]) -> Vec<i64> {
    pieces.iter().flat_map(|piece| &from[piece.clone()]).map(|number| i64::from(*number)).collect()
}
