//! An array spread over the memories of several GPUs, block by block in turn.
//!
//! A graph too large for one GPU may fit all of them together. Consecutive blocks of 2^n elements go to consecutive
//! members, so that every member holds, and serves, an equal share of any stretch, hubs included; a block of one element is
//! the finest interleaving, a block of a few lines keeps short neighbour lists in one place. Any GPU of the group reads any
//! element: `at` says where it lies, here and, as `hw_interleaved`, in `interleave.cuh`.
//!
//! A member may be named twice: then one GPU holds two shares, which is how the addressing is tested without a group.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

pub use cpu::Spread;
pub(crate) use cuda::HEADER;
pub use cuda::{Interleaved, kernel_builds};

/// Members of a group at most: the GPUs that one switch connects.
pub const MOST_MEMBERS: usize = 8;

/// How positions are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interleave {
    members: u64,
    block_log2: u32,
}

/// Where an element lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Whose memory.
    pub member: usize,
    /// Elements from its beginning.
    pub offset: u64,
}

impl Interleave {
    /// Blocks of 2^`block_log2` elements over `members` members; nothing when there are none, or too many.
    #[must_use]
    pub fn new(members: usize, block_log2: u32) -> Option<Self> {
        let fits = (1..=MOST_MEMBERS).contains(&members) && block_log2 < 32;
        fits.then_some(Self { members: members as u64, block_log2 })
    }

    /// Where the element at `position` lies.
    #[must_use]
    pub fn at(self, position: u64) -> Place {
        let (block, inside) = (position >> self.block_log2, position & ((1 << self.block_log2) - 1));
        let member = crate::topology::index(block % self.members);
        Place { member, offset: (block / self.members) << self.block_log2 | inside }
    }

    /// The element that lies at `place`.
    #[must_use]
    pub fn position(self, place: Place) -> u64 {
        let (block, inside) = (place.offset >> self.block_log2, place.offset & ((1 << self.block_log2) - 1));
        ((block * self.members + place.member as u64) << self.block_log2) | inside
    }

    /// Elements each member has room for when there are `count` in all. The last blocks may be missing or short.
    #[must_use]
    pub fn share_len(self, count: u64) -> u64 {
        count.div_ceil(1 << self.block_log2).div_ceil(self.members) << self.block_log2
    }

    /// Members of the group.
    #[must_use]
    pub fn members(self) -> usize {
        crate::topology::index(self.members)
    }

    /// Elements a block.
    #[must_use]
    pub fn block_len(self) -> u64 {
        1 << self.block_log2
    }
}
