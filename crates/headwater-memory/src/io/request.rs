//! What callers say and hear: requests, tickets, completions.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::align::MAX_OFFSET;
use super::buffer::IoBuffer;
use super::error::{Error, Place};
use super::file::IoFile;

/// One read or write of a span of a buffer.
#[derive(Debug)]
pub struct Request<B> {
    /// The file; kept open until the request completes.
    pub file: Arc<IoFile>,
    /// Read or write.
    pub op: Op,
    /// Where in the file.
    pub offset: u64,
    /// The memory; comes back in the completion.
    pub buffer: B,
    /// The bytes of the buffer that take part.
    pub span: Range<usize>,
    /// What a read does at the end of the file.
    pub at_end: AtEnd,
    /// The caller's own mark, handed back in the completion.
    pub tag: u64,
}

/// Direction of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// From the file to the buffer.
    Read,
    /// From the buffer to the file.
    Write,
}

/// What a read does when the file ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AtEnd {
    /// Fail with [`Error::EndOfFile`].
    #[default]
    Fail,
    /// Complete with the bytes there are. For aligned windows that reach beyond the file.
    Stop,
}

/// Names a request in flight. Unique within an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// A finished request, successful or not.
#[derive(Debug)]
#[must_use = "a completion carries the result and the buffer"]
pub struct Completion<B> {
    /// What `submit` returned.
    pub ticket: Ticket,
    /// The caller's own mark.
    pub tag: u64,
    /// Read or write.
    pub op: Op,
    /// The memory, whatever the result.
    pub buffer: B,
    /// Bytes moved, or why not all of them were.
    pub result: Result<usize, Error>,
}

/// A request that was not taken, with its buffer. An error whatever the buffer's type is.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct Rejected<B> {
    /// The request as it was given.
    pub request: Request<B>,
    /// Why.
    pub error: Error,
}

impl<B: IoBuffer> Request<B> {
    /// A read that fills the whole buffer.
    pub fn read(file: &Arc<IoFile>, offset: u64, buffer: B) -> Self {
        Self::whole(file, Op::Read, offset, buffer)
    }

    /// A write of the whole buffer.
    pub fn write(file: &Arc<IoFile>, offset: u64, buffer: B) -> Self {
        Self::whole(file, Op::Write, offset, buffer)
    }

    /// The same request for a span of the buffer.
    #[must_use]
    pub fn span(mut self, span: Range<usize>) -> Self {
        self.span = span;
        self
    }

    /// The same request with the caller's mark.
    #[must_use]
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// The same request with a choice for the end of the file.
    #[must_use]
    pub fn at_end(mut self, at_end: AtEnd) -> Self {
        self.at_end = at_end;
        self
    }

    fn whole(file: &Arc<IoFile>, op: Op, offset: u64, buffer: B) -> Self {
        let span = 0..buffer.len_bytes();
        Self { file: Arc::clone(file), op, offset, buffer, span, at_end: AtEnd::Fail, tag: 0 }
    }

    /// Checks bounds and alignment; what passes can be given to the kernel.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        let Range { start, end } = self.span;
        let buffer_bytes = self.buffer.len_bytes();
        if start > end || end > buffer_bytes {
            return Err(Error::OutsideBuffer { start, end, buffer_bytes });
        }
        let bytes = (end - start) as u64;
        if self.offset.checked_add(bytes).is_none_or(|end| end > MAX_OFFSET) {
            return Err(Error::OutOfRange { offset: self.offset, bytes });
        }
        self.check_alignment(end - start)
    }

    fn check_alignment(&mut self, len: usize) -> Result<(), Error> {
        let need = self.file.alignment();
        let address = self.buffer.start().addr() + self.span.start;
        let granule = need.offset_bytes as u64;
        let aligned = self.offset.is_multiple_of(granule)
            && len.is_multiple_of(need.offset_bytes)
            && address.is_multiple_of(need.memory_bytes);
        if aligned || len == 0 {
            return Ok(());
        }
        let at = Place {
            op: self.op,
            path: self.file.path().to_owned(),
            offset: self.offset,
            asked_bytes: len,
            done_bytes: 0,
        };
        Err(Error::Misaligned { at, address, offset_bytes: need.offset_bytes, memory_bytes: need.memory_bytes })
    }
}

impl<B> Completion<B> {
    /// The buffer and the bytes moved, or the error; on error the buffer is dropped.
    pub fn into_result(self) -> Result<(B, usize), Error> {
        let bytes = self.result?;
        Ok((self.buffer, bytes))
    }
}

impl<B> fmt::Debug for Rejected<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<B> From<Box<Rejected<B>>> for Error {
    fn from(rejected: Box<Rejected<B>>) -> Self {
        rejected.error
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}
