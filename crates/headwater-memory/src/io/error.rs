//! What can go wrong when bytes move between memory and files.
//!
//! Every variant of a failed transfer carries a [`Place`], because "no space left on device" without the file and
//! the offset is no help. Out of space, end of file and a failing device are variants of their own: callers react
//! differently to each of them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::engine::EngineKind;
use super::request::{Op, Ticket};

/// A failed file operation, or a request the engine would not take.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be opened, sized, preallocated or synced.
    #[error("{what} {}: {source}", path.display())]
    File {
        /// What was tried, as a verb: "open", "preallocate".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file system, or the user's quota on it, is full.
    #[error("no space: {at}: {source}")]
    NoSpace {
        /// The transfer that failed.
        at: Place,
        /// What the system said.
        source: io::Error,
    },
    /// The file ended before the read was satisfied.
    #[error("end of file: {at}")]
    EndOfFile {
        /// The transfer that failed.
        at: Place,
    },
    /// The device reported an error.
    #[error("device error: {at}: {source}")]
    Device {
        /// The transfer that failed.
        at: Place,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused the transfer for another reason.
    #[error("{at}: {source}")]
    Os {
        /// The transfer that failed.
        at: Place,
        /// What the system said.
        source: io::Error,
    },
    /// The system accepted a write again and again without taking any byte.
    #[error("no progress: {at}")]
    NoProgress {
        /// The transfer that failed.
        at: Place,
    },
    /// A request to a file opened for direct I/O is not aligned as the file asks.
    #[error(
        "misaligned: {at}, buffer address {address:#x}: offset and length must be multiples of {offset_bytes}, \
         the address of {memory_bytes}"
    )]
    Misaligned {
        /// The refused transfer.
        at: Place,
        /// Address of the first byte in memory.
        address: usize,
        /// What offset and length must be a multiple of.
        offset_bytes: usize,
        /// What the address must be a multiple of.
        memory_bytes: usize,
    },
    /// The bytes asked for do not lie inside the buffer.
    #[error("bytes {start}..{end} are not inside a buffer of {buffer_bytes}")]
    OutsideBuffer {
        /// First byte asked for.
        start: usize,
        /// One past the last byte asked for.
        end: usize,
        /// Length of the buffer.
        buffer_bytes: usize,
    },
    /// Offset plus length is more than a file can hold.
    #[error("{bytes} bytes at offset {offset} end beyond the largest file")]
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        bytes: u64,
    },
    /// The queue holds as many requests as it may; collect completions first.
    #[error("{capacity} requests are in flight or not collected, the most this queue holds")]
    TooManyInFlight {
        /// The bound given to the queue's constructor.
        capacity: usize,
    },
    /// Nothing happened in time. The requests stay in flight.
    #[error("no answer from the {kind} engine in {waited:?}")]
    TimedOut {
        /// The engine waited for.
        kind: EngineKind,
        /// How long the caller waited.
        waited: Duration,
    },
    /// The engine was dropped or died.
    #[error("the I/O engine is closed: {reason}")]
    Closed {
        /// Why.
        reason: Arc<str>,
    },
    /// The ticket is not of this queue, or its completion was collected already.
    #[error("{ticket:?} is not in flight in this queue")]
    UnknownTicket {
        /// The ticket waited for.
        ticket: Ticket,
    },
    /// The engine asked for cannot be had on this machine.
    #[error("the {kind} engine is not available: {reason}")]
    Unavailable {
        /// The engine asked for.
        kind: EngineKind,
        /// Why it cannot be had.
        reason: String,
    },
    /// A number in a configuration makes no sense.
    #[error("{field} is {value}, but must be {must_be}")]
    Config {
        /// The field.
        field: &'static str,
        /// What it was.
        value: u64,
        /// What would be right.
        must_be: &'static str,
    },
    /// A buffer could not be allocated.
    #[error("cannot allocate an I/O buffer of {bytes} bytes")]
    Allocate {
        /// Bytes asked for.
        bytes: usize,
    },
}

/// Which transfer failed, and how far it got.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{op} of {asked_bytes} bytes at offset {offset} of {} ({done_bytes} done)", path.display())]
pub struct Place {
    /// Read or write.
    pub op: Op,
    /// The file.
    pub path: PathBuf,
    /// Where in the file the request begins.
    pub offset: u64,
    /// Bytes the request asked for.
    pub asked_bytes: usize,
    /// Bytes moved before the failure.
    pub done_bytes: usize,
}

impl Error {
    /// The error for what was answered to a transfer, by the system or by a library that made it.
    pub fn of_transfer(at: Place, source: io::Error) -> Self {
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC | Errno::DQUOT) => Self::NoSpace { at, source },
            Some(Errno::IO) => Self::Device { at, source },
            _ => Self::Os { at, source },
        }
    }

    pub(super) fn from_errno(at: Place, errno: Errno) -> Self {
        Self::of_transfer(at, errno.into())
    }

    pub(super) fn closed(reason: &Arc<str>) -> Self {
        Self::Closed { reason: Arc::clone(reason) }
    }
}
