//! How far one request has got, and what to do after each answer of the kernel. Pure, and shared by all engines.
//!
//! The kernel may move fewer bytes than asked, be interrupted, or refuse. Direct I/O adds a rule: a transfer can
//! only go on from an aligned byte, so after an odd short transfer the last, partial block is moved again. A read
//! that then brings nothing new has met the end of the file.

use rustix::io::Errno;

use super::align::align_down;
use super::request::Op;

/// The most the kernel moves in one call.
pub(super) const KERNEL_MAX_BYTES: usize = 0x7fff_f000;

/// Retries without any progress before the answer is taken as final.
const MAX_RETRIES: u32 = 1000;

/// State of one request.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    op: Op,
    asked_bytes: usize,
    done_bytes: usize,
    granule_bytes: usize,
    retries: u32,
}

/// What one answer of the kernel means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Everything is moved.
    Finished,
    /// Go on with the rest; the kernel moved what it was asked to.
    Continue,
    /// Go on with the rest; the kernel moved less than it was asked to.
    Short,
    /// Ask again: interrupted, or short of resources for now.
    Retry,
    /// A read met the end of the file.
    End,
    /// A write moved nothing.
    Stuck,
    /// The kernel refused.
    Failed(Errno),
}

impl Progress {
    /// A request of `asked_bytes` that may only go on from multiples of `granule_bytes`, a power of two.
    pub(super) fn new(op: Op, asked_bytes: usize, granule_bytes: usize) -> Self {
        Self { op, asked_bytes, done_bytes: 0, granule_bytes, retries: 0 }
    }

    /// Bytes moved so far.
    pub(super) fn done_bytes(&self) -> usize {
        self.done_bytes
    }

    /// Bytes asked for.
    pub(super) fn asked_bytes(&self) -> usize {
        self.asked_bytes
    }

    /// Where the next step begins, and how many bytes it may move.
    pub(super) fn next_step(&self, max_step_bytes: usize) -> (usize, usize) {
        let from = align_down(self.done_bytes, self.granule_bytes);
        let most = align_down(max_step_bytes.min(KERNEL_MAX_BYTES), self.granule_bytes).max(self.granule_bytes);
        (from, most.min(self.asked_bytes - from))
    }

    /// Takes the answer to a step of `step_bytes`.
    pub(super) fn advance(&mut self, from: usize, step_bytes: usize, answer: Result<usize, Errno>) -> Verdict {
        let moved = match answer {
            Ok(moved) => moved.min(step_bytes),
            Err(errno) => return self.refused(errno),
        };
        let reached = from + moved;
        if reached >= self.asked_bytes {
            self.done_bytes = self.asked_bytes;
            return Verdict::Finished;
        }
        if reached <= self.done_bytes {
            return if self.op == Op::Read { Verdict::End } else { Verdict::Stuck };
        }
        self.done_bytes = reached;
        self.retries = 0;
        if moved == step_bytes { Verdict::Continue } else { Verdict::Short }
    }

    fn refused(&mut self, errno: Errno) -> Verdict {
        let passing = matches!(errno, Errno::INTR | Errno::AGAIN);
        self.retries += 1;
        if passing && self.retries <= MAX_RETRIES { Verdict::Retry } else { Verdict::Failed(errno) }
    }
}
