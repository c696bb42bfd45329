//! File I/O below the pools: bounded, asynchronous reads and writes of buffers that the engine owns while they move.
//!
//! An [`Engine`] moves bytes with io_uring, with a pool of `pread`/`pwrite` threads where io_uring is forbidden,
//! or in memory with injected faults. A caller opens a [`Queue`] on it, submits [`Request`]s and collects
//! [`Completion`]s in any order. Buffers go in by value and come back in the completion, failed ones too, so safe
//! code cannot free or touch memory the kernel is still using.
//!
//! Deciding is apart from doing: [`align`] and [`merge`] turn row reads into aligned windows, and the rules for
//! short transfers and retries are a pure function that all three engines share.

pub mod align;
mod buffer;
mod counters;
mod dispatch;
mod engine;
mod error;
mod file;
mod job;
pub mod merge;
mod progress;
mod queue;
pub mod ram;
mod request;
mod threads;
mod uring;

#[cfg(test)]
mod tests;

pub use buffer::{AlignedBuffer, IoBuffer, PAGE_BYTES, checksum};
pub use counters::Counts;
pub use engine::{Choice, Engine, EngineConfig, EngineKind};
pub use error::{Error, Place};
pub use file::{Access, Alignment, Direct, FileOptions, IoFile};
pub use queue::Queue;
pub use request::{AtEnd, Completion, Op, Rejected, Request, Ticket};
