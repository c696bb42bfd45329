//! What can be wrong with a table of features, as data.

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a table could not be planned, made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The GPU layer refused.
    #[error(transparent)]
    Cuda(#[from] headwater_cuda::Error),
    /// Memory could not be had, or a file could not be read.
    #[error(transparent)]
    Memory(#[from] headwater_memory::Error),
    /// An array could not be handled.
    #[error(transparent)]
    Tensor(#[from] headwater_tensor::Error),
    /// Rows that no tier has room for.
    #[error(
        "{rows} rows of {row_bytes} bytes find no room: {device_bytes} bytes are for them in GPU memory and {host_bytes} in \
         host memory, and there is no disk tier"
    )]
    NoRoom {
        /// Rows that are left over.
        rows: u64,
        /// Bytes of each.
        row_bytes: u64,
        /// Room in all GPUs of a group.
        device_bytes: u64,
        /// Room in host memory.
        host_bytes: u64,
    },
    /// A budget larger than the memory it is taken from.
    #[error("a budget of {asked_bytes} bytes of {memory} is more than the {bytes} bytes there are")]
    Budget {
        /// `GPU memory` or `host memory`.
        memory: &'static str,
        /// What was asked for.
        asked_bytes: u64,
        /// What there is.
        bytes: u64,
    },
    /// A number outside its range.
    #[error("{name} is {value}; expected {expected}")]
    Parameter {
        /// Which number.
        name: &'static str,
        /// What it is.
        value: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// A stream of a GPU that the table was not placed for.
    #[error("the table was placed for GPU {expected}; the stream belongs to GPU {found}")]
    OtherGpu {
        /// The stream's.
        found: usize,
        /// The table's.
        expected: usize,
    },
    /// Elements that no table holds.
    #[error("features of type {found} cannot be stored; expected float32, float16 or bfloat16")]
    ElementType {
        /// What they are.
        found: &'static str,
    },
    /// An array of another length.
    #[error("{name} has {found} bytes; expected {expected}")]
    Bytes {
        /// Which array.
        name: &'static str,
        /// Its length.
        found: u64,
        /// What it should be.
        expected: u64,
    },
    /// A group that names a GPU which is not there, or one twice.
    #[error("group {group} names GPU {ordinal}, {why}")]
    Group {
        /// Position of the group.
        group: usize,
        /// The GPU.
        ordinal: usize,
        /// What is wrong with it.
        why: &'static str,
    },
}
