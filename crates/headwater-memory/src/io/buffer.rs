//! Memory that can be in flight: the [`IoBuffer`] contract and the engine's own page-aligned buffer.
//!
//! The kernel writes into a buffer long after the submitting call returned. So a buffer is moved into the engine
//! and moved out again when the kernel is done, and its bytes must not move when its handle does. The trait is
//! unsafe because only its implementor can promise that; pinned leases of a pool implement it elsewhere.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

use super::error::Error;

/// Alignment of [`AlignedBuffer`], enough for direct I/O on every common device.
pub const PAGE_BYTES: usize = 4096;

/// Memory an engine may hand to the kernel.
///
/// # Safety
///
/// From when the value is given to an engine until it is dropped or given back, the implementor promises that
/// - `start` returns the same address however often the value is moved, and so does `len_bytes` its length;
/// - `len_bytes` bytes from there are initialised, readable and writable from any thread;
/// - nobody else reads or writes them, the GPU included;
/// - forgetting the value keeps the memory valid for the rest of the process.
pub unsafe trait IoBuffer: Send + 'static {
    /// Address of the first byte.
    fn start(&mut self) -> *mut u8;
    /// Length in bytes.
    fn len_bytes(&self) -> usize;
}

/// The CRC-32 of the bytes of a buffer in `span`; `None` when that leaves the buffer.
pub fn checksum<B: IoBuffer>(buffer: &mut B, span: Range<usize>) -> Option<u32> {
    let length = span.end.checked_sub(span.start).filter(|_| span.end <= buffer.len_bytes())?;
    let mut sum = crc32fast::Hasher::new();
    if length > 0 {
        // SAFETY: the implementor has so many initialised bytes there, and the borrow keeps everybody else away.
        sum.update(unsafe { std::slice::from_raw_parts(buffer.start().add(span.start), length) });
    }
    Some(sum.finalize())
}

/// Zeroed memory on a page boundary, owned.
pub struct AlignedBuffer {
    start: NonNull<u8>,
    layout: Layout,
}

impl AlignedBuffer {
    /// Allocates `len_bytes` zeroes.
    pub fn new(len_bytes: usize) -> Result<Self, Error> {
        let failed = Error::Allocate { bytes: len_bytes };
        let Ok(layout) = Layout::from_size_align(len_bytes, PAGE_BYTES) else { return Err(failed) };
        let start = match len_bytes {
            // No memory, but an aligned address.
            0 => std::ptr::without_provenance_mut(PAGE_BYTES),
            // SAFETY: the layout has a size above zero.
            _ => unsafe { alloc_zeroed(layout) },
        };
        NonNull::new(start).map(|start| Self { start, layout }).ok_or(failed)
    }

    /// Allocates a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Result<Self, Error> {
        let mut buffer = Self::new(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(buffer)
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: `new` allocated `start` with this layout, and this value alone owns it.
            unsafe { dealloc(self.start.as_ptr(), self.layout) }
        }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `new` made `size` initialised bytes at `start`; they live as long as this value.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the borrow of this value is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.layout.size())
    }
}

// SAFETY: this value alone owns its allocation, like a boxed slice.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuffer {}

// SAFETY: the bytes are a zeroed heap allocation that this value alone owns; moving the value moves a pointer,
// and forgetting it leaks the allocation.
unsafe impl IoBuffer for AlignedBuffer {
    fn start(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn len_bytes(&self) -> usize {
        self.layout.size()
    }
}

// SAFETY: the box only forwards to a value whose implementor made the same promise.
unsafe impl IoBuffer for Box<dyn IoBuffer> {
    fn start(&mut self) -> *mut u8 {
        (**self).start()
    }

    fn len_bytes(&self) -> usize {
        (**self).len_bytes()
    }
}
