//! The crate's one error type: the numbers that were wrong, and what would have been right.

use std::path::PathBuf;

use crate::device::Device;
use crate::dtype::DType;
use crate::layout::MAX_DIMS;
use crate::npy::NpyError;
use crate::placement::PlacementError;

/// What can go wrong with arrays that are described, read or computed with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device name that does not exist.
    #[error("unknown device {text:?}: use cpu, cuda, cuda:N, unified, unified:gpu or unified:host")]
    UnknownDevice {
        /// What was given.
        text: String,
    },
    /// The GPU layer refused.
    #[error(transparent)]
    Cuda(#[from] headwater_cuda::Error),
    /// Memory could not be had.
    #[error(transparent)]
    Memory(#[from] headwater_memory::Error),
    /// A gather was refused.
    #[error(transparent)]
    Gather(#[from] crate::gather::GatherError),
    /// Operands that cannot be computed together.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// A `.npy` header that cannot be used.
    #[error(transparent)]
    Npy(#[from] NpyError),
    /// A `.npy` file that cannot be used.
    #[error("{}: {source}", path.display())]
    NpyFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: NpyError,
    },
    /// A file could not be opened or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// An array could not be written.
    #[error("writing an array: {source}")]
    Write {
        /// What the system said.
        source: std::io::Error,
    },
    /// More dimensions than an array may have.
    #[error("{rank} dimensions are more than the {MAX_DIMS} an array may have")]
    TooManyDims {
        /// How many were asked for.
        rank: usize,
    },
    /// An element count or an index above what this machine can address.
    #[error("shape {dims:?} has more elements than this machine can address")]
    TooLarge {
        /// The dimensions.
        dims: Vec<usize>,
    },
    /// Lists that must be equally long are not.
    #[error("{what}: expected {expected} entries, found {found}")]
    Length {
        /// Which list.
        what: &'static str,
        /// How long it must be.
        expected: usize,
        /// How long it is.
        found: usize,
    },
    /// A view that reaches past the end of its storage.
    #[error("a view that ends at element {end} does not lie inside a storage of {storage} elements")]
    OutOfStorage {
        /// One past the last element the view reaches.
        end: usize,
        /// Elements in the storage.
        storage: usize,
    },
    /// An axis that the array does not have.
    #[error("axis {axis} does not exist in an array of {rank} dimensions")]
    NoSuchAxis {
        /// The axis.
        axis: usize,
        /// How many there are.
        rank: usize,
    },
    /// Axes that are not a permutation.
    #[error("axes {axes:?} are not a permutation of 0..{rank}")]
    NotAPermutation {
        /// What was given.
        axes: Vec<usize>,
        /// How many axes there are.
        rank: usize,
    },
    /// A slice that leaves its axis, runs backwards or does not move.
    #[error("slice {start}..{end} with step {step} does not lie inside an axis of length {length}")]
    BadSlice {
        /// First index.
        start: usize,
        /// One past the last index.
        end: usize,
        /// Distance between indices.
        step: usize,
        /// Length of the axis.
        length: usize,
    },
    /// Shapes that do not broadcast together.
    #[error(
        "shapes {left:?} and {right:?} do not broadcast: axis {axis} of the result is {left_size} and {right_size}"
    )]
    Broadcast {
        /// One shape.
        left: Vec<usize>,
        /// The other.
        right: Vec<usize>,
        /// The axis of the result where they differ.
        axis: usize,
        /// The size one shape has there.
        left_size: usize,
        /// The size the other has there.
        right_size: usize,
    },
    /// A new shape with another number of elements.
    #[error("shape {from:?} has {from_count} elements and cannot become {to:?} with {to_count}")]
    Reshape {
        /// The present shape.
        from: Vec<usize>,
        /// Its elements.
        from_count: usize,
        /// The shape asked for.
        to: Vec<usize>,
        /// Its elements.
        to_count: usize,
    },
    /// A shape that an operator cannot take.
    #[error("{op}: expected {expected}, found shape {found:?}")]
    Shape {
        /// The operator.
        op: &'static str,
        /// What it takes, in words.
        expected: &'static str,
        /// What it was given.
        found: Vec<usize>,
    },
    /// Shapes that must agree and do not.
    #[error("{op}: shapes {left:?} and {right:?} do not fit together")]
    ShapeMismatch {
        /// The operator.
        op: &'static str,
        /// One shape.
        left: Vec<usize>,
        /// The other.
        right: Vec<usize>,
    },
    /// An element type that an operator does not take.
    #[error("{op} is not defined for {dtype}")]
    Unsupported {
        /// The operator.
        op: &'static str,
        /// The element type.
        dtype: DType,
    },
    /// A reduction with no value for no elements.
    #[error("{op} over axis {axis} of shape {shape:?}: the axis is empty and {op} of nothing has no value")]
    EmptyAxis {
        /// The operator.
        op: &'static str,
        /// The axis.
        axis: usize,
        /// The shape of the input.
        shape: Vec<usize>,
    },
    /// A row number that the target does not have.
    #[error("ids[{position}] is {id}, which is not a row of a target with {rows} rows")]
    BadId {
        /// Where in the list.
        position: usize,
        /// The id. Wide enough for every id type.
        id: i128,
        /// Rows of the target.
        rows: usize,
    },
    /// Two element types where one is needed.
    #[error("{op}: expected {expected}, found {found}; cast it first")]
    WrongType {
        /// What was asked.
        op: &'static str,
        /// The type that would be right.
        expected: DType,
        /// The type there is.
        found: DType,
    },
    /// Ids of a type that does not count.
    #[error("{op}: ids are int32 or int64, found {found}")]
    IdType {
        /// The operator.
        op: &'static str,
        /// The type there is.
        found: DType,
    },
    /// Bytes that do not begin where an element may.
    #[error("{dtype} needs an address that is a multiple of {}; the memory begins at {address:#x}", dtype.size_bytes())]
    Misaligned {
        /// The element type.
        dtype: DType,
        /// Where the bytes begin.
        address: usize,
    },
    /// A question only unified tensors answer.
    #[error("{op} is for unified tensors; this one lies on {device}")]
    NotUnified {
        /// What was asked.
        op: &'static str,
        /// Where the tensor lies.
        device: Device,
    },
    /// Advice about memory that the driver does not move.
    #[error("mem_advise needs managed memory, and this unified tensor is pinned; make a managed copy with to_managed")]
    NotManaged,
    /// Advice about a place the driver does not know.
    #[error("mem_advise is about cpu or cuda:N, not {device}")]
    AdviceDevice {
        /// What was given.
        device: Device,
    },
    /// A slice of a tensor that is not one slice of host memory.
    #[error("as_slice: a tensor of shape {shape:?} on {device} does not lie packed in host memory; use to_vec")]
    NotASlice {
        /// Its shape.
        shape: Vec<usize>,
        /// Where it lies.
        device: Device,
    },
    /// A range that has no length.
    #[error("arange from {start} to {end} by {step} is not a finite range")]
    BadRange {
        /// First value.
        start: f64,
        /// End, not included.
        end: f64,
        /// Step.
        step: f64,
    },
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
