//! Host memory of somebody else, to be copied out of and into.

use std::ptr::NonNull;

/// A range of ordinary host memory that its owner lends. Bytes are copied and never referred to: the owner may look at them, too.
#[derive(Debug)]
pub struct LentHost {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address; who lends it has promised that any thread may copy there.
unsafe impl Send for LentHost {}

impl LentHost {
    /// `bytes` from `start` on.
    ///
    /// # Safety
    /// As long as the result lives, the range is initialised memory that any thread may read and write, and nobody else writes it while
    /// a copy is made.
    #[must_use]
    pub unsafe fn new(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies bytes from `at` on into `to`. False, and nothing is copied, when they are not all there.
    #[must_use]
    pub fn copy_to(&self, at: usize, to: &mut [u8]) -> bool {
        let is_there = self.has(at, to.len());
        if is_there {
            // SAFETY: inside the range, which is readable, and `to` is borrowed alone.
            unsafe { std::ptr::copy(self.start.as_ptr().add(at), to.as_mut_ptr(), to.len()) };
        }
        is_there
    }

    /// Copies `from` to `at`. False, and nothing is copied, when there is no such room.
    #[must_use]
    pub fn copy_from(&self, at: usize, from: &[u8]) -> bool {
        let is_there = self.has(at, from.len());
        if is_there {
            // SAFETY: inside the range, which is writable.
            unsafe { std::ptr::copy(from.as_ptr(), self.start.as_ptr().add(at), from.len()) };
        }
        is_there
    }

    fn has(&self, at: usize, bytes: usize) -> bool {
        at.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }
}
