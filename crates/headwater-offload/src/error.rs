//! What can go wrong with blocks, as data.

use std::path::PathBuf;
use std::sync::Arc;

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a block could not leave, or could not come back. Clones share their cause.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The GPU layer refused.
    #[error(transparent)]
    Cuda(#[from] headwater_cuda::Error),
    /// Host memory could not be had.
    #[error(transparent)]
    Memory(#[from] headwater_memory::Error),
    /// A file could not be made, written or read.
    #[error(transparent)]
    Io(Arc<headwater_memory::io::Error>),
    /// A folder that files of activations should not lie in.
    #[error("{} cannot hold activations: {why}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A disk has less room than it is to reserve at the start.
    #[error("{} cannot hold activations: {needed} bytes are needed there and {free} are free ({why})", path.display())]
    DiskFull {
        /// The folder.
        path: PathBuf,
        /// Bytes that this folder's file reserves.
        needed: u64,
        /// Bytes that the file system has left for this user; a quota may leave less.
        free: u64,
        /// What the system said.
        why: Arc<headwater_memory::io::Error>,
    },
    /// A block could not be read from its disk, twice.
    #[error("a block of {bytes} bytes (block {block}) cannot be read back: {why}")]
    Unreadable {
        /// The block's number.
        block: u64,
        /// Length of the block in bytes.
        bytes: usize,
        /// What the disk said.
        why: Arc<headwater_memory::io::Error>,
    },
    /// Bytes that came back from a disk are not those that were written.
    #[error(
        "a block of {bytes} bytes (block {block}) was damaged on disk: bytes {from} to {to} of it, at offset {offset} of a file in {}, have checksum {got:08x} \
         instead of {wanted:08x}, also when they are read again",
        path.display()
    )]
    Damaged {
        /// The block's number.
        block: u64,
        /// Length of the block in bytes.
        bytes: usize,
        /// First byte of the block.
        from: usize,
        /// One past the last.
        to: usize,
        /// The folder of the file without a name.
        path: PathBuf,
        /// Where in the file.
        offset: u64,
        /// The checksum when it was written.
        wanted: u32,
        /// The checksum now.
        got: u32,
    },
    /// A disk kept memory that it was given.
    #[error("block {block} is lost: the disk has not answered for it ({why})")]
    Lost {
        /// The block's number.
        block: u64,
        /// What is known.
        why: String,
    },
    /// A number that names no block, or one that was released.
    #[error("there is no block {block}")]
    NoBlock {
        /// The number that was given.
        block: u64,
    },
    /// A block whose bytes have not left yet: whoever stored it still has them.
    #[error("block {block} has not left the device")]
    NotLeft {
        /// The block's number.
        block: u64,
    },
    /// Host memory that a plan relied on and that is not there.
    #[error("there is no host memory for {bytes} bytes that should leave the device: {disk}")]
    NoRoom {
        /// What should have left.
        bytes: usize,
        /// Why no disk makes room.
        disk: String,
    },
    /// Memory of another length than the block's.
    #[error("block {block} has {bytes} bytes, the memory {got}")]
    Length {
        /// The block's number.
        block: u64,
        /// Its bytes.
        bytes: usize,
        /// Bytes of the memory.
        got: usize,
    },
    /// A setting that makes no sense.
    #[error("{field} is {value}: {must_be}")]
    Setting {
        /// Name of the setting.
        field: &'static str,
        /// What it was.
        value: u64,
        /// What it should be.
        must_be: &'static str,
    },
    /// The threads that keep disks busy could not be started, or do not answer.
    #[error("the threads of the disks: {why}")]
    Thread {
        /// What is known.
        why: String,
    },
    /// A process that was forked from the one that made the offloader.
    #[error("process {own} was forked from process {made_by}, whose offloader it cannot use")]
    Forked {
        /// This process.
        own: u32,
        /// The one that made it.
        made_by: u32,
    },
}

impl From<headwater_memory::io::Error> for Error {
    fn from(why: headwater_memory::io::Error) -> Self {
        Self::Io(Arc::new(why))
    }
}
