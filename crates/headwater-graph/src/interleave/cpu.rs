//! One member's share of an array in host memory, piece by piece on its way there.

use super::{Interleave, Place};
use crate::topology::index;

/// An array's bytes, and how it is spread.
#[derive(Debug, Clone, Copy)]
pub struct Spread<'a> {
    /// All elements.
    pub bytes: &'a [u8],
    /// Bytes of one.
    pub element_bytes: usize,
    /// Where each goes.
    pub rule: Interleave,
}

impl Spread<'_> {
    /// Writes a member's elements from `place` on, as many as `part` has room for; zeros behind the last.
    pub fn read(&self, mut place: Place, mut part: &mut [u8]) {
        while !part.is_empty() {
            // What is left of this block lies in one piece.
            let run = self.rule.block_len() - place.offset % self.rule.block_len();
            let (now, later) = part.split_at_mut(index(run).saturating_mul(self.element_bytes).min(part.len()));
            let from = index(self.rule.position(place)).saturating_mul(self.element_bytes);
            let source = self.bytes.get(from..).unwrap_or_default();
            let (whole, missing) = now.split_at_mut(source.len().min(now.len()));
            whole.copy_from_slice(&source[..whole.len()]);
            missing.fill(0);
            place.offset += run;
            part = later;
        }
    }
}
