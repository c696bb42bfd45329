//! What can be wrong with a table of features, as data.

use std::path::PathBuf;

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
    /// A file could not be opened or read.
    #[error(transparent)]
    Io(#[from] headwater_memory::io::Error),
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
    /// A row that a table does not have.
    #[error("row {row} is asked for, but the table has {rows} rows")]
    Row {
        /// What was asked for.
        row: u64,
        /// What there is.
        rows: u64,
    },
    /// An id that a map has no row for.
    #[error("id {id} has no row in a map of {known} ids")]
    NoRow {
        /// What was asked for.
        id: u64,
        /// Ids of the map.
        known: u64,
    },
    /// A map that leads out of its table.
    #[error("the map sends id {id} to row {row}, but the table has {rows} rows")]
    MapRow {
        /// The first such id.
        id: u64,
        /// Where it is sent.
        row: u64,
        /// What there is.
        rows: u64,
    },
    /// An array that begins between two elements.
    #[error("{name} begins {off_bytes} bytes behind a multiple of its elements' {element_bytes}")]
    Alignment {
        /// Which array.
        name: &'static str,
        /// Bytes of an element.
        element_bytes: usize,
        /// How far it is off.
        off_bytes: u64,
    },
    /// A table that cannot do what is asked of it.
    #[error("the table {why}")]
    Table {
        /// Why not, and what would be right.
        why: &'static str,
    },
    /// Another process sent something else.
    #[error("the other process sent {found} instead of a table's {expected}")]
    Peer {
        /// What came.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// An output that is not as long as its rows.
    #[error("{rows} rows of {row_bytes} bytes do not fill an output of {bytes} bytes")]
    OutputBytes {
        /// Rows asked for.
        rows: usize,
        /// Bytes of each.
        row_bytes: usize,
        /// What the output has.
        bytes: usize,
    },
    /// A file that ends before its rows do.
    #[error("{} ends at byte {bytes}, but its rows go on to byte {need_bytes}", path.display())]
    ShortFile {
        /// The file.
        path: PathBuf,
        /// Where the rows that were asked for end.
        need_bytes: u64,
        /// Where the file ends.
        bytes: u64,
    },
    /// A file that the system would not let be handled.
    #[error("could not {what} {}: {why}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        why: std::io::Error,
    },
    /// A page that is not as it was when its checksum was made.
    #[error("the page at byte {offset} of {} does not have its checksum: the disk or a writer changed it", path.display())]
    BadPage {
        /// The file.
        path: PathBuf,
        /// Where the page begins.
        offset: u64,
    },
    /// Checksums of another file, or of another length of it.
    #[error("{} holds {found} bytes of checksums; the file has pages for {expected}: make them again", path.display())]
    PageSums {
        /// The file of checksums.
        path: PathBuf,
        /// What it has.
        found: u64,
        /// What it should have.
        expected: u64,
    },
    /// A file whose rows do not lie one behind the other.
    #[error("{} holds its array column by column; save it in row-major order", path.display())]
    RowOrder {
        /// The file.
        path: PathBuf,
    },
    /// A cache that holds nothing.
    #[error("a cache of {cache_bytes} bytes does not hold one unit of {unit_bytes} bytes")]
    SmallCache {
        /// What it was given.
        cache_bytes: u64,
        /// The least it can use.
        unit_bytes: usize,
    },
}
