//! What can be wrong with a graph, as data.

use std::path::PathBuf;

use crate::ingest::fault::{Fault, Place};
use crate::topology::Layout;

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a graph could not be made, read or sampled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The GPU layer refused.
    #[error(transparent)]
    Cuda(#[from] headwater_cuda::Error),
    /// Memory could not be had.
    #[error(transparent)]
    Memory(#[from] headwater_memory::Error),
    /// An array could not be handled.
    #[error(transparent)]
    Tensor(#[from] headwater_tensor::Error),
    /// The system refused something that a file or a folder is needed for.
    #[error("cannot {action} {}: {why}", path.display())]
    File {
        /// What was tried: `write`, `read`, `create`.
        action: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// What the system said.
        why: std::io::Error,
    },
    /// A dataset that cannot be written as it is described or where it should go.
    #[error("{}: {why}", path.display())]
    DatasetFolder {
        /// The folder or the file in it.
        path: PathBuf,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A manifest that is not one.
    #[error("{}: {why}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A dataset of a later format.
    #[error("{}: format version {found} is not read here; this program reads {known}", path.display())]
    DatasetVersion {
        /// The manifest.
        path: PathBuf,
        /// The version it names.
        found: String,
        /// What is read.
        known: &'static str,
    },
    /// An array's file that is not what the manifest says, or not what its role asks for.
    #[error("{}: {what} is {found}; expected {expected}", path.display())]
    ArrayFile {
        /// The file.
        path: PathBuf,
        /// `shape`, `element type`, `length` or `checksum`.
        what: &'static str,
        /// What it is.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// Bytes that are no array of the wanted type.
    #[error("{name}: {bytes} bytes are no array of {element_bytes}-byte elements: {why}")]
    Bytes {
        /// Which array.
        name: &'static str,
        /// Its length in bytes.
        bytes: usize,
        /// Bytes of an element.
        element_bytes: usize,
        /// What is wrong.
        why: String,
    },
    /// Two arrays that belong together have different lengths.
    #[error("{name} has {found} elements, but {expected} belong to {of}")]
    Length {
        /// The array.
        name: &'static str,
        /// Its length.
        found: u64,
        /// What it should be.
        expected: u64,
        /// What it belongs to.
        of: &'static str,
    },
    /// Offsets that do not begin at zero.
    #[error("the offsets begin at {first}, not at 0")]
    FirstOffset {
        /// The first of them.
        first: u64,
    },
    /// Offsets that fall.
    #[error("the offsets fall from {before} to {after} at row {row}")]
    FallingOffsets {
        /// The row whose list would have a negative length.
        row: u64,
        /// Its start.
        before: u64,
        /// Its end.
        after: u64,
    },
    /// An id that names no node.
    #[error("{name}[{position}] is {id}, but there are only {limit} of them")]
    IdOutOfRange {
        /// Which array.
        name: &'static str,
        /// Where in it.
        position: u64,
        /// The id.
        id: u64,
        /// Ids are below this.
        limit: u64,
    },
    /// Work that needs more memory than there is.
    #[error("{what} takes {needed_bytes} bytes of memory; {free_bytes} are free")]
    Room {
        /// What was asked for.
        what: &'static str,
        /// Bytes it takes.
        needed_bytes: u64,
        /// Bytes the system says are free.
        free_bytes: u64,
    },
    /// A setting that cannot be followed.
    #[error("{name} is {value}; it should be {expected}")]
    Setting {
        /// Which setting.
        name: &'static str,
        /// What was given.
        value: String,
        /// What would be right.
        expected: String,
    },
    /// Numbers that are no permutation.
    #[error("no permutation of {count}: {id} stands there {times} times")]
    NotPermutation {
        /// The first number that does not stand there once.
        id: u64,
        /// How often it does.
        times: u64,
        /// How many numbers there are.
        count: u64,
    },
    /// A score that cannot be compared.
    #[error("score {position} is not a number")]
    BadScore {
        /// Where.
        position: u64,
    },
    /// Rows to be ordered by time whose edges have none.
    #[error("the edges have no times to be ordered by; give them times, or take those of their neighbours")]
    NoTimes,
    /// A weight that is no weight.
    #[error("weight {weight} at position {position}: weights are finite and not negative")]
    BadWeight {
        /// Where.
        position: u64,
        /// The weight.
        weight: f32,
    },
    /// A node type or relation that is not in the schema.
    #[error("there is no {kind} {name:?}; there are: {known}")]
    Unknown {
        /// `node type` or `relation`.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A name that stands twice in a schema.
    #[error("{kind} {name:?} stands twice in the schema")]
    Twice {
        /// `node type` or `relation`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A topology that does not fit its relation.
    #[error("relation {relation}: the topology has {found} {what}, the schema says {expected}")]
    Shape {
        /// Which relation.
        relation: String,
        /// `rows` or `columns`.
        what: &'static str,
        /// What the topology has.
        found: u64,
        /// What the node type has.
        expected: u64,
    },
    /// Relations of one graph that are stored in different layouts.
    #[error("relation {relation} is stored as {found:?}, the others as {expected:?}")]
    MixedLayouts {
        /// Which relation.
        relation: String,
        /// Its layout.
        found: Layout,
        /// That of the first one.
        expected: Layout,
    },
    /// A fan-out that is neither a count nor -1.
    #[error("fan-out {number}: a fan-out is a count up to {most}, or -1 for all neighbours", most = u32::MAX)]
    Fanout {
        /// What was asked for.
        number: i64,
    },
    /// Options that exclude each other.
    #[error("{why}")]
    Options {
        /// Which, and why.
        why: &'static str,
    },
    /// Temporal sampling of rows that are not ordered by time.
    #[error("relation {relation} has times, but its rows are not in the order of time: sort them first")]
    RowsNotInTime {
        /// Which relation.
        relation: String,
    },
    /// Weighted sampling of a relation without weights.
    #[error("relation {relation} has no weights")]
    NoWeights {
        /// Which relation.
        relation: String,
    },
    /// More disjoint trees than can be told apart.
    #[error("{trees} disjoint trees of {nodes} nodes are more than 64 bits can number")]
    TooManyTrees {
        /// Nodes of the largest type.
        nodes: u64,
        /// Trees asked for.
        trees: u64,
    },
    /// A hop that does not fit into what is left of host memory.
    #[error("a hop would draw {edges} edges with replacement, which take {bytes} bytes; {free_bytes} are left")]
    HopTooLarge {
        /// Edges that the hop draws at most.
        edges: u64,
        /// Host memory that they would take.
        bytes: u64,
        /// Host memory that is free.
        free_bytes: u64,
    },
    /// A sample with more nodes than local numbers.
    #[error("the sample has more than 2^32 nodes of one type")]
    SampleTooLarge,
    /// A parameter outside its range.
    #[error("{name} is {value}: {expected}")]
    Parameter {
        /// Which.
        name: &'static str,
        /// What was given.
        value: f64,
        /// What would be right.
        expected: &'static str,
    },
    /// Negatives of a relation that has no pairs to draw from.
    #[error("relation {relation} has a node type without nodes: there are no pairs to draw negatives from")]
    NoPairs {
        /// Which relation.
        relation: String,
    },
    /// A source that cannot be taken in.
    #[error("{}{place}: {fault}", path.display())]
    Source {
        /// The file or folder.
        path: PathBuf,
        /// Where in it.
        place: Place,
        /// What is wrong there.
        fault: Box<Fault>,
    },
}
