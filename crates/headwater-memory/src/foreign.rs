//! Bytes that somebody else's value owns, kept alive and read in place.
//!
//! A `Vec`, a boxed slice or a mapped file is a fine home for an array; copying it only to own it would double its memory.
//! The owner is held, asked once where its bytes are, and never asked again: an owner that answers differently the second
//! time cannot confuse anyone.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use headwater_cuda::{Gpu, Span};

use crate::error::Result;
use crate::registry::lay_over_to_read;

/// Anything that owns bytes and lends them for as long as it lives.
pub type Owner = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Whether bytes have left the place where they were lent, which some owners do without asking. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Moved(Arc<AtomicBool>);

impl Moved {
    /// For whoever notices.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether somebody has.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Bytes in the memory of another value. Clones share it.
#[derive(Clone)]
pub struct Foreign {
    owner: Owner,
    start: NonNull<u8>,
    bytes: usize,
    moved: Option<Moved>,
}

// SAFETY: the pointer is a shared borrow of `owner`, which is itself Send and Sync.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// The bytes of `owner`, which is held from here on.
    #[must_use]
    pub fn new(owner: Owner) -> Self {
        let bytes = (*owner).as_ref();
        let (start, bytes) = (NonNull::from(bytes).cast(), bytes.len());
        Self { owner, start, bytes, moved: None }
    }

    /// As [`Foreign::new`], of an owner whose bytes may move, for whoever knows whether they did: registrations that were made
    /// of them are not used again after that.
    #[must_use]
    pub fn watched(owner: Owner, moved: Moved) -> Self {
        Self { moved: Some(moved), ..Self::new(owner) }
    }

    /// The bytes, where the owner has them.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `as_ref` lent these bytes for as long as the owner is borrowed. The owner is held by this value, only
        // ever borrowed shared, and the result does not outlive this value.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Some of the bytes; nothing when they are not all there.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Option<Self> {
        let part = self.as_slice().get(range)?;
        Some(Self { start: NonNull::from(part).cast(), bytes: part.len(), ..self.clone() })
    }

    /// Registers the bytes with the driver and returns what kernels read them through. Nothing is copied. The owner lent its bytes
    /// to be read: whoever would write there is refused.
    pub fn map_into(&self, gpu: &Gpu) -> Result<Span> {
        let keeper: Arc<dyn Any + Send + Sync> = Arc::new(self.owner.clone());
        // SAFETY: the owner keeps the range valid and is held as the keeper.
        unsafe { lay_over_to_read(gpu, self.start, self.bytes, keeper, self.moved.clone()) }
    }
}

impl AsRef<[u8]> for Foreign {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Foreign({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn bytes_are_read_in_place_and_outlive_the_callers_handle() {
        let owner: Arc<Vec<u8>> = Arc::new(vec![1, 2, 3]);
        let address = owner.as_ptr();
        let foreign = Foreign::new(owner);
        assert_eq!((foreign.as_slice().as_ptr(), foreign.as_slice()), (address, &[1, 2, 3][..]));
        assert!(Foreign::new(Arc::new(Vec::<u8>::new())).as_slice().is_empty());
        assert_eq!(foreign.part(1..3).unwrap().as_slice(), [2, 3]);
        assert!(foreign.part(2..4).is_none());
    }

    /// Lends another slice at every call, which is legal.
    struct Fickle(Vec<u8>, AtomicUsize);

    impl AsRef<[u8]> for Fickle {
        fn as_ref(&self) -> &[u8] {
            &self.0[..self.1.fetch_add(1, Ordering::Relaxed)]
        }
    }

    #[test]
    fn the_owner_is_asked_once() {
        let foreign = Foreign::new(Arc::new(Fickle(vec![9; 4], AtomicUsize::new(2))));
        assert_eq!(foreign.as_slice(), [9, 9]);
        assert_eq!(foreign.as_slice(), [9, 9]);
    }
}
