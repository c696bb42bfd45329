//! One member's share of an array in host memory, ready to be sent to it.

use bytemuck::Pod;

use super::Interleave;
use crate::topology::index;

/// The blocks that belong to `member`, one after the other.
pub fn share<'a, T: Pod>(all: &'a [T], rule: Interleave, member: usize) -> impl Iterator<Item = &'a [T]> + use<'a, T> {
    all.chunks(index(rule.block_len())).skip(member).step_by(rule.members())
}
