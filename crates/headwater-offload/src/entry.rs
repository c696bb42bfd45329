//! What the table knows of each block, and of each copy that is under way.

use crate::block::BlockState;
use crate::disk::Unit;
use crate::error::Error;
use crate::lane::{CopyMarks, Lane};

/// What is known of one block.
pub(crate) struct BlockEntry<L: Lane> {
    pub bytes: usize,
    pub state: BlockState,
    pub slots: Vec<L::Slot>,
    /// They are beyond the limit.
    pub is_overdrawn: bool,
    /// Where it lies on disk, with the checksum of each piece.
    pub places: Vec<(Unit, u32)>,
    /// The end of the copy to host memory.
    pub left: Option<L::Mark>,
    /// Its memory on the device, and when that is ready, until the copy begins.
    pub source: Option<(L::Memory, L::Mark)>,
    /// It was read, or is, for somebody who has not come yet.
    pub is_awaited: bool,
    /// It was loaded: it will be the last to be needed again.
    pub was_loaded: bool,
    pub fault: Option<Error>,
}

/// A copy to host memory that is not over.
pub(crate) struct Draining<L: Lane> {
    pub block: u64,
    pub bytes: usize,
    pub copied: CopyMarks<L::Mark>,
    /// Its memory on the device was given up in the order of a stream.
    pub is_followed: bool,
}

impl<L: Lane> BlockEntry<L> {
    /// A block that waits for host memory.
    pub fn new(bytes: usize, source: (L::Memory, L::Mark)) -> Self {
        Self {
            bytes,
            state: BlockState::Queued,
            slots: Vec::new(),
            is_overdrawn: false,
            places: Vec::new(),
            left: None,
            source: Some(source),
            is_awaited: false,
            was_loaded: false,
            fault: None,
        }
    }
}
