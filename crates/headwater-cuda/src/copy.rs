//! Moving and filling bytes on a stream.
//!
//! Copies between spans are asynchronous. Copies from and to ordinary slices are not: the driver stages pageable memory,
//! and these functions return only when the slice is no longer needed, so that its borrow is honest.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::span::Span;
use crate::stream::Stream;

impl Stream {
    /// Copies `from` into `to`, which must be as long.
    pub fn copy(&self, from: &Span, to: &Span) -> Result<()> {
        same_length("copy", from.bytes(), to.bytes())?;
        writable(to)?;
        let queued = self.copy_raw(from.pointer(), to.pointer(), to.bytes(), from.seams().chain(to.seams()));
        self.note_use([from, to].into_iter());
        queued
    }

    /// Copies an ordinary slice to the GPU and returns when the slice has been read.
    pub fn upload(&self, from: &[u8], to: &Span) -> Result<()> {
        same_length("upload", from.len(), to.bytes())?;
        writable(to)?;
        let queued = self.copy_raw(from.as_ptr().expose_provenance() as u64, to.pointer(), to.bytes(), to.seams());
        self.note_use([to].into_iter());
        // The slice may be in use even when a later part was refused.
        self.finish().and(queued)
    }

    /// Copies from the GPU into an ordinary slice and returns when it is there.
    pub fn download(&self, from: &Span, to: &mut [u8]) -> Result<()> {
        same_length("download", from.bytes(), to.len())?;
        let queued = self.copy_raw(from.pointer(), to.as_mut_ptr().expose_provenance() as u64, to.len(), from.seams());
        self.note_use([from].into_iter());
        self.finish().and(queued)?;
        self.take_fault()
    }

    /// Sets every byte.
    pub fn fill(&self, to: &Span, value: u8) -> Result<()> {
        writable(to)?;
        let driver = self.gpu().bind()?;
        let queued = parts(to.bytes(), to.seams()).try_for_each(|part| {
            // SAFETY: the span is live memory of this length, borrowed until its use is noted.
            let code =
                unsafe { (driver.cuMemsetD8Async)(to.pointer() + part.start as u64, value, part.len(), self.raw()) };
            driver.check("cuMemsetD8Async", code)
        });
        self.note_use([to].into_iter());
        queued
    }

    fn copy_raw(&self, from: u64, to: u64, bytes: usize, seams: impl Iterator<Item = usize>) -> Result<()> {
        let driver = self.gpu().bind()?;
        for part in parts(bytes, seams) {
            let (from, to) = (from + part.start as u64, to + part.start as u64);
            // SAFETY: both ranges are `bytes` long: spans by construction, slices checked by the callers, which also
            // keep them alive until the copy is done.
            driver.check("cuMemcpyAsync", unsafe { (driver.cuMemcpyAsync)(to, from, part.len(), self.raw()) })?;
        }
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        let driver = self.gpu().bind()?;
        // SAFETY: the handle is live.
        driver.check("cuStreamSynchronize", unsafe { (driver.cuStreamSynchronize)(self.raw()) })
    }
}

/// `0..bytes` cut at the seams: the driver refuses a range that begins in one registration and ends in another.
fn parts(bytes: usize, seams: impl Iterator<Item = usize>) -> impl Iterator<Item = Range<usize>> {
    let mut cuts: Vec<usize> = seams.chain([0, bytes]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let ends: Vec<usize> = cuts.iter().skip(1).copied().collect();
    cuts.into_iter().zip(ends).map(|(start, end)| start..end)
}

fn writable(to: &Span) -> Result<()> {
    if !to.allocation().is_read_only() {
        return Ok(());
    }
    Err(Error::Unsupported { what: "writing", why: "the memory is mapped into the GPU for reading".into() })
}

fn same_length(what: &'static str, from: usize, to: usize) -> Result<()> {
    if from == to {
        return Ok(());
    }
    Err(Error::Unsupported { what, why: format!("the source has {from} bytes and the destination {to}") })
}
