//! What can go wrong with memory, as data.

use std::time::Duration;

use crate::tier::Tier;

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why memory could not be had, kept or shared.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The GPU layer refused.
    #[error(transparent)]
    Cuda(#[from] headwater_cuda::Error),
    /// Host memory could not be mapped.
    #[error("cannot map {asked_bytes} bytes of host memory ({free_bytes} bytes available): {why}")]
    Map {
        /// Bytes asked for.
        asked_bytes: usize,
        /// Bytes the system says are available.
        free_bytes: usize,
        /// What the system said.
        why: String,
    },
    /// Host memory could not be registered with the GPU driver.
    #[error(
        "cannot pin {asked_bytes} bytes at {address:#x}: {free_bytes} bytes of host memory available, {limit}: {why}"
    )]
    Register {
        /// Where the range starts.
        address: usize,
        /// Bytes asked for.
        asked_bytes: usize,
        /// Bytes the system says are available.
        free_bytes: usize,
        /// The limit that stopped it, in words.
        limit: String,
        /// What the driver said.
        why: String,
    },
    /// A bounded pool has nothing left.
    #[error(
        "pool {pool} is exhausted: asked for {asked_bytes} bytes, {used_bytes} of {limit_bytes} bytes are leased or in flight (waited {waited:?})"
    )]
    PoolExhausted {
        /// The pool's name.
        pool: &'static str,
        /// Bytes asked for.
        asked_bytes: usize,
        /// Bytes leased or still used by the GPU.
        used_bytes: usize,
        /// The pool's bound.
        limit_bytes: usize,
        /// How long it waited for something to come back.
        waited: Duration,
    },
    /// Memory could not be shared with another process.
    #[error("cannot share memory with another process: {what}: {why}")]
    Share {
        /// The step that failed.
        what: &'static str,
        /// What the system said.
        why: String,
    },
    /// A lease of one memory where another was wanted.
    #[error("the lease is {got} memory, the buffer must be in {wanted} memory")]
    WrongTier {
        /// What the buffer's type says.
        wanted: Tier,
        /// What the pool holds.
        got: Tier,
    },
    /// A size that overflows or does not divide into elements.
    #[error("{bytes} bytes do not hold a whole number of {element_bytes}-byte elements at this address")]
    Misfit {
        /// Length.
        bytes: usize,
        /// Size of one element.
        element_bytes: usize,
    },
    /// A number of elements whose bytes do not fit an address.
    #[error("{elements} elements of {element_bytes} bytes exceed the address space")]
    TooLarge {
        /// Elements asked for.
        elements: usize,
        /// Size of one element.
        element_bytes: usize,
    },
}

impl Error {
    /// Whether this says that memory ran out, so that a caller can shrink and go on.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Cuda(error) => error.is_out_of_memory(),
            Self::Map { .. } | Self::Register { .. } | Self::PoolExhausted { .. } => true,
            _ => false,
        }
    }

    /// Whether that was host memory, or host memory that can be pinned: giving up GPU memory would not help.
    #[must_use]
    pub fn is_out_of_host_memory(&self) -> bool {
        match self {
            Self::Cuda(error) => error.is_out_of_host_memory(),
            _ => self.is_out_of_memory(),
        }
    }
}
