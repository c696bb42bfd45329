//! Arithmetic of aligned file ranges. Pure: direct I/O rules become numbers here, before any file is touched.

use super::error::Error;

/// A range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Window {
    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// An aligned window, and where the bytes that were asked for begin in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlignedWindow {
    /// What to read or write.
    pub window: Window,
    /// Bytes of the window before the first one asked for.
    pub head_bytes: u64,
}

/// The largest offset a file can have; the kernel's offsets are signed.
pub const MAX_OFFSET: u64 = i64::MAX as u64;

/// The smallest window that covers `len` bytes at `offset` and begins and ends on multiples of `alignment`.
///
/// A window may end beyond the end of the file; read it with [`AtEnd::Stop`](super::AtEnd::Stop).
pub fn aligned_window(offset: u64, len: u64, alignment: u64) -> Result<AlignedWindow, Error> {
    check_alignment(alignment)?;
    let mask = alignment - 1;
    let start = offset & !mask;
    // An empty range needs no bytes, wherever it lies.
    if len == 0 {
        return Ok(AlignedWindow { window: Window { offset: start, len: 0 }, head_bytes: offset - start });
    }
    let end = offset.checked_add(len).and_then(|end| end.checked_add(mask)).map(|end| end & !mask);
    match end {
        Some(end) if end <= MAX_OFFSET => {
            Ok(AlignedWindow { window: Window { offset: start, len: end - start }, head_bytes: offset - start })
        }
        _ => Err(Error::OutOfRange { offset, bytes: len }),
    }
}

/// Refuses an alignment that is not a power of two.
pub(super) fn check_alignment(alignment: u64) -> Result<(), Error> {
    if alignment.is_power_of_two() {
        return Ok(());
    }
    Err(Error::Config { field: "alignment", value: alignment, must_be: "a power of two" })
}

/// The largest multiple of `alignment`, a power of two, that is not above `value`.
pub(super) fn align_down(value: usize, alignment: usize) -> usize {
    value & !(alignment - 1)
}
