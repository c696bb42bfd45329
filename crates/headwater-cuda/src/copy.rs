//! Moving and filling bytes on a stream.
//!
//! Copies between spans are asynchronous. Copies from and to ordinary slices are not: the driver stages pageable memory,
//! and these functions return only when the slice is no longer needed, so that its borrow is honest.

use crate::error::{Error, Result};
use crate::span::Span;
use crate::stream::Stream;

impl Stream {
    /// Copies `from` into `to`, which must be as long.
    pub fn copy(&self, from: &Span, to: &Span) -> Result<()> {
        same_length("copy", from.bytes(), to.bytes())?;
        self.note_use([from, to].into_iter());
        self.copy_raw(from.pointer(), to.pointer(), to.bytes())
    }

    /// Copies an ordinary slice to the GPU and returns when the slice has been read.
    pub fn upload(&self, from: &[u8], to: &Span) -> Result<()> {
        same_length("upload", from.len(), to.bytes())?;
        self.note_use([to].into_iter());
        self.copy_raw(from.as_ptr().expose_provenance() as u64, to.pointer(), to.bytes())?;
        self.finish()
    }

    /// Copies from the GPU into an ordinary slice and returns when it is there.
    pub fn download(&self, from: &Span, to: &mut [u8]) -> Result<()> {
        same_length("download", from.bytes(), to.len())?;
        self.note_use([from].into_iter());
        self.copy_raw(from.pointer(), to.as_mut_ptr().expose_provenance() as u64, to.len())?;
        self.finish()?;
        self.take_fault()
    }

    /// Sets every byte.
    pub fn fill(&self, to: &Span, value: u8) -> Result<()> {
        let driver = self.gpu().bind()?;
        self.note_use([to].into_iter());
        if to.bytes() == 0 {
            return Ok(());
        }
        // SAFETY: the span is live memory of this length and stays so: its use was noted.
        let code = unsafe { (driver.cuMemsetD8Async)(to.pointer(), value, to.bytes(), self.raw()) };
        driver.check("cuMemsetD8Async", code)
    }

    fn copy_raw(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        let driver = self.gpu().bind()?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both ranges are `bytes` long: spans by construction, slices checked by the callers, which also keep
        // them alive until the copy is done.
        driver.check("cuMemcpyAsync", unsafe { (driver.cuMemcpyAsync)(to, from, bytes, self.raw()) })
    }

    fn finish(&self) -> Result<()> {
        let driver = self.gpu().bind()?;
        // SAFETY: the handle is live.
        driver.check("cuStreamSynchronize", unsafe { (driver.cuStreamSynchronize)(self.raw()) })
    }
}

fn same_length(what: &'static str, from: usize, to: usize) -> Result<()> {
    if from == to {
        return Ok(());
    }
    Err(Error::Unsupported { what, why: format!("the source has {from} bytes and the destination {to}") })
}
