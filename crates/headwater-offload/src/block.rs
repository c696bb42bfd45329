//! What may happen to a block, as one pure function.
//!
//! ```text
//! Queued -Start-> Draining -Drained-> Hosted -Write-> Writing -Written-> Mirrored -Evict-> Stored
//!                                        ^---Cancel, WriteFailed---'        ^               | Read
//!                                                                           '---ReadDone-- Reading
//! ```
//! A block that is released while a disk has its memory is `Leaving` until the disk gives it back; otherwise it is gone at once.

/// Where the copy of a block is that others may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// Nothing has moved: the copy waits for host memory.
    Queued,
    /// The copy to host memory is under way. Who reads host memory behind it, in the order of streams, finds the bytes.
    Draining,
    /// In host memory.
    Hosted,
    /// In host memory that a disk is reading.
    Writing,
    /// In host memory and on disk.
    Mirrored,
    /// On disk alone.
    Stored,
    /// On disk, and on its way to host memory.
    Reading,
    /// What the disk gave back was not what it was given.
    Failed,
    /// Nobody wants it, but a disk still has its memory.
    Leaving,
    /// Forgotten.
    Gone,
}

/// What happens to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockEvent {
    /// There is host memory for it.
    Start,
    /// Its copy to host memory is over.
    Drained,
    /// A disk takes it.
    Write,
    /// A disk has it.
    Written,
    /// A disk has not taken it.
    WriteFailed,
    /// It is taken back from a disk that had not begun with it.
    Cancel,
    /// Its host memory goes to others.
    Evict,
    /// A disk is asked for it.
    Read,
    /// A disk has given it back, and its checksums are right.
    ReadDone,
    /// A disk has not given it back.
    ReadFailed,
    /// A disk has its memory and will never answer.
    Lost,
    /// Nobody wants it any more.
    Release,
}

impl BlockState {
    /// All of them, for tests.
    pub const ALL: [Self; 10] = [
        Self::Queued,
        Self::Draining,
        Self::Hosted,
        Self::Writing,
        Self::Mirrored,
        Self::Stored,
        Self::Reading,
        Self::Failed,
        Self::Leaving,
        Self::Gone,
    ];

    /// The state after `event`, or `None` when that cannot happen to a block in this one.
    #[must_use]
    pub fn after(self, event: BlockEvent) -> Option<Self> {
        use BlockEvent as E;
        Some(match (self, event) {
            (Self::Queued, E::Start) => Self::Draining,
            (Self::Draining, E::Drained) | (Self::Writing, E::Cancel | E::WriteFailed) => Self::Hosted,
            (Self::Hosted, E::Write) => Self::Writing,
            (Self::Writing, E::Written) | (Self::Reading, E::ReadDone) => Self::Mirrored,
            (Self::Mirrored, E::Evict) | (Self::Reading, E::Cancel) => Self::Stored,
            (Self::Stored, E::Read) => Self::Reading,
            (Self::Reading, E::ReadFailed | E::Lost) | (Self::Writing, E::Lost) => Self::Failed,
            (Self::Writing | Self::Reading, E::Release) => Self::Leaving,
            (Self::Leaving, E::Written | E::WriteFailed | E::ReadDone | E::ReadFailed | E::Lost | E::Cancel) => {
                Self::Gone
            }
            (Self::Leaving | Self::Gone, E::Release) => return None,
            (_, E::Release) => Self::Gone,
            _ => return None,
        })
    }

    /// Whether its bytes are in host memory that a copy to the device may read, in the order of streams.
    #[must_use]
    pub fn is_in_host_memory(self) -> bool {
        matches!(self, Self::Draining | Self::Hosted | Self::Mirrored)
    }

    /// Whether a disk has memory of it.
    #[must_use]
    pub fn is_with_disk(self) -> bool {
        matches!(self, Self::Writing | Self::Reading | Self::Leaving)
    }
}
