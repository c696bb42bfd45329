//! A request inside an engine: its place in the file, its progress, and the buffer it keeps alive.
//!
//! A job answers exactly once. Dropping it answers too, so no path through an engine, a panic included, can leave a
//! caller waiting. The one exception is a buffer the kernel may still be using: [`Job::lose`] forgets it.

use std::sync::Arc;

use rustix::io::Errno;

use super::counters::Counters;
use super::error::{Error, Place};
use super::file::IoFile;
use super::progress::{Progress, Verdict};
use super::request::{AtEnd, Op};

/// The way back to the queue that submitted a job.
///
/// One implementor, and a trait all the same: it hides the buffer's type, so that one engine serves queues of
/// different buffers.
pub(super) trait Flight: Send {
    /// Address of the buffer's first byte.
    fn start(&mut self) -> *mut u8;
    /// Hands buffer and result to the queue; no result means the engine closed first.
    fn land(self: Box<Self>, result: Option<Result<usize, Error>>);
    /// Tells the queue that buffer and result are gone, and leaks the buffer.
    fn lose(self: Box<Self>);
}

pub(super) struct Job {
    pub(super) file: Arc<IoFile>,
    offset: u64,
    span_start: usize,
    at_end: AtEnd,
    op: Op,
    progress: Progress,
    result: Option<Result<usize, Error>>,
    flight: Option<Box<dyn Flight>>,
}

/// One call into the kernel. The memory is the job's, valid while the job is alive and not answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) op: Op,
    pub(super) start: *mut u8,
    pub(super) len: usize,
    pub(super) offset: u64,
    from: usize,
}

/// Whether a job needs another step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Again,
    Done,
}

/// What a job is made of.
pub(super) struct Parts {
    pub(super) file: Arc<IoFile>,
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) span: std::ops::Range<usize>,
    pub(super) at_end: AtEnd,
    pub(super) flight: Box<dyn Flight>,
}

impl Job {
    /// A job from a checked request. One without bytes is done already.
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { file, op, offset, span, at_end, flight } = parts;
        let progress = Progress::new(op, span.len(), file.alignment().offset_bytes);
        let result = span.is_empty().then_some(Ok(0));
        Self { file, offset, span_start: span.start, at_end, op, progress, result, flight: Some(flight) }
    }

    pub(super) fn is_done(&self) -> bool {
        self.result.is_some()
    }

    /// The next call to make.
    pub(super) fn step(&mut self, max_step_bytes: usize) -> Step {
        let (from, len) = self.progress.next_step(max_step_bytes);
        let base = self.flight.as_mut().map_or(std::ptr::null_mut(), |flight| flight.start());
        let start = base.wrapping_add(self.span_start + from);
        Step { op: self.op, start, len, offset: self.offset + from as u64, from }
    }

    /// Takes the kernel's answer to `step`.
    pub(super) fn advance(&mut self, step: &Step, answer: Result<usize, Errno>, counters: &Counters) -> Turn {
        let before = self.progress.done_bytes();
        let verdict = self.progress.advance(step.from, step.len, answer);
        let moved = self.progress.done_bytes() - before;
        match self.op {
            Op::Read => counters.read(moved),
            Op::Write => counters.written(moved),
        }
        let result = match verdict {
            Verdict::Continue => return Turn::Again,
            Verdict::Short => {
                counters.fell_short();
                return Turn::Again;
            }
            Verdict::Retry => {
                counters.retried();
                return Turn::Again;
            }
            Verdict::Finished => Ok(self.progress.done_bytes()),
            Verdict::End if self.at_end == AtEnd::Stop => Ok(self.progress.done_bytes()),
            Verdict::End => Err(Error::EndOfFile { at: self.place() }),
            Verdict::Stuck => Err(Error::NoProgress { at: self.place() }),
            Verdict::Failed(errno) => Err(Error::from_errno(self.place(), errno)),
        };
        self.result = Some(result);
        Turn::Done
    }

    /// Gives the result to the queue.
    pub(super) fn deliver(self) {
        drop(self);
    }

    /// Answers without giving the buffer back, for when the kernel may still be using it.
    pub(super) fn lose(mut self) {
        if let Some(flight) = self.flight.take() {
            flight.lose();
        }
    }

    fn place(&self) -> Place {
        Place {
            op: self.op,
            path: self.file.path().to_owned(),
            offset: self.offset,
            asked_bytes: self.progress.asked_bytes(),
            done_bytes: self.progress.done_bytes(),
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(flight) = self.flight.take() {
            flight.land(self.result.take());
        }
    }
}
