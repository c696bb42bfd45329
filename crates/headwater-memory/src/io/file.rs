//! A file opened for large transfers: past the page cache where the file system allows it, and saying so.
//!
//! Direct I/O is switched on after opening, not with the open call: a file system that refuses it would otherwise
//! leave a created file behind and an error. What the file asks of offsets and addresses comes from the kernel
//! when it tells (`statx`, since Linux 6.1), else 4096 serves every device in use.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self, AtFlags, FallocateFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::buffer::PAGE_BYTES;
use super::error::Error;
use super::job::Step;
use super::ram::{RamFile, RamOptions};
use super::request::Op;

/// A file that engines read and write. Shared by `Arc`; closed when the last request on it is done.
#[derive(Debug)]
pub struct IoFile {
    path: PathBuf,
    backing: Backing,
    alignment: Alignment,
    buffered: Option<String>,
    reserved: bool,
}

#[derive(Debug)]
enum Backing {
    Os(OwnedFd),
    Ram(RamFile),
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileOptions {
    /// What may be done with it, and whether it must exist.
    pub access: Access,
    /// Whether to pass the page cache by.
    pub direct: Direct,
    /// Reserve this many bytes, so that later writes inside them find room. 0 for none.
    pub preallocate_bytes: u64,
}

/// What may be done with a file, and whether it must exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Read an existing file.
    #[default]
    Read,
    /// Read and write an existing file.
    ReadWrite,
    /// Read and write, creating the file if need be and keeping what it holds.
    Create,
    /// Read and write a file that must not exist yet.
    CreateNew,
    /// Read and write, creating the file if need be and emptying it.
    Truncate,
}

/// Whether transfers pass the page cache by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direct {
    /// Where the file system allows it.
    #[default]
    Prefer,
    /// Or fail.
    Require,
    /// Never.
    Never,
}

/// What requests on a file must be multiples of; powers of two, 1 for buffered files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    /// The address in memory.
    pub memory_bytes: usize,
    /// Offset and length.
    pub offset_bytes: usize,
}

impl IoFile {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> Result<Self, Error> {
        let path = path.as_ref();
        let flags = options.access.flags() | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let fd = fs::open(path, flags, mode).map_err(|errno| file_error("open", path, errno))?;
        Self::prepare(fd, path.to_owned(), options)
    }

    /// Opens a nameless file in `folder`, gone when it is closed, a killed process included. Read and write,
    /// whatever the options say of access.
    pub fn temporary(folder: impl AsRef<Path>, options: &FileOptions) -> Result<Self, Error> {
        let folder = folder.as_ref();
        let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = match fs::open(folder, flags, Mode::from_raw_mode(0o600)) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => open_unlinked(folder),
            other => other,
        };
        let fd = fd.map_err(|errno| file_error("open a temporary file in", folder, errno))?;
        Self::prepare(fd, folder.join("(temporary)"), options)
    }

    /// A file that lies in memory, with the name it has in errors.
    pub fn ram(name: impl Into<PathBuf>, options: &RamOptions) -> Result<Self, Error> {
        super::align::check_alignment(options.alignment_bytes as u64)?;
        let alignment = Alignment { memory_bytes: options.alignment_bytes, offset_bytes: options.alignment_bytes };
        let backing = Backing::Ram(RamFile::new(options));
        Ok(Self { path: name.into(), backing, alignment, buffered: None, reserved: false })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether transfers pass the page cache by.
    pub fn is_direct(&self) -> bool {
        matches!(self.backing, Backing::Os(_)) && self.buffered.is_none()
    }

    /// Why transfers go through the page cache, when they do.
    pub fn buffered_reason(&self) -> Option<&str> {
        self.buffered.as_deref()
    }

    /// What offsets, lengths and addresses must be multiples of.
    pub fn alignment(&self) -> Alignment {
        self.alignment
    }

    /// Whether the last preallocation really reserved blocks; else the file is only that long.
    pub fn is_reserved(&self) -> bool {
        self.reserved
    }

    /// The file's length now.
    pub fn len_bytes(&self) -> Result<u64, Error> {
        match &self.backing {
            Backing::Os(fd) => {
                let stat = fs::fstat(fd).map_err(|errno| file_error("stat", &self.path, errno))?;
                Ok(u64::try_from(stat.st_size).unwrap_or(0))
            }
            Backing::Ram(ram) => Ok(ram.len_bytes()),
        }
    }

    /// Cuts or extends the file. Direct writes come in whole blocks; this gives a file its true length after them.
    pub fn set_len(&self, bytes: u64) -> Result<(), Error> {
        let done = match &self.backing {
            Backing::Os(fd) => fs::ftruncate(fd, bytes),
            Backing::Ram(ram) => ram.set_len(bytes),
        };
        done.map_err(|errno| file_error("resize", &self.path, errno))
    }

    /// Reserves blocks for the first `bytes`, so that writes there find room; false where the file system cannot and the file was
    /// only made that long.
    pub fn reserve(&self, bytes: u64) -> Result<bool, Error> {
        let done = match &self.backing {
            Backing::Os(fd) => reserve(fd, bytes),
            Backing::Ram(ram) => ram.set_len(bytes).map(|()| true),
        };
        done.map_err(|errno| file_error("preallocate", &self.path, errno))
    }

    /// Waits until what was written is on the device.
    pub fn sync_data(&self) -> Result<(), Error> {
        match &self.backing {
            Backing::Os(fd) => fs::fdatasync(fd).map_err(|errno| file_error("sync", &self.path, errno)),
            Backing::Ram(_) => Ok(()),
        }
    }

    /// The descriptor, for libraries that transfer by themselves; none for a file that lies in memory.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.backing {
            Backing::Os(fd) => Some(fd.as_fd()),
            Backing::Ram(_) => None,
        }
    }

    /// One blocking transfer; may move less than asked.
    ///
    /// # Safety
    ///
    /// `step` must describe memory that is initialised and nobody else's for the length of the call.
    pub(super) unsafe fn transfer(&self, step: &Step) -> Result<usize, Errno> {
        match step.op {
            Op::Read => {
                // SAFETY: the caller owns these initialised bytes for the length of the call.
                let bytes = unsafe { std::slice::from_raw_parts_mut(step.start, step.len) };
                match &self.backing {
                    Backing::Os(fd) => rustix::io::pread(fd, bytes, step.offset),
                    Backing::Ram(ram) => ram.read(bytes, step.offset),
                }
            }
            Op::Write => {
                // SAFETY: the caller owns these initialised bytes for the length of the call.
                let bytes = unsafe { std::slice::from_raw_parts(step.start, step.len) };
                match &self.backing {
                    Backing::Os(fd) => rustix::io::pwrite(fd, bytes, step.offset),
                    Backing::Ram(ram) => ram.write(bytes, step.offset),
                }
            }
        }
    }

    fn prepare(fd: OwnedFd, path: PathBuf, options: &FileOptions) -> Result<Self, Error> {
        let direct = match options.direct {
            Direct::Never => Err((Errno::OPNOTSUPP, "not asked for".to_owned())),
            Direct::Prefer | Direct::Require => make_direct(&fd),
        };
        let (alignment, buffered) = match direct {
            Ok(alignment) => (alignment, None),
            Err((errno, _)) if options.direct == Direct::Require => {
                return Err(file_error("use direct I/O on", &path, errno));
            }
            Err((_, reason)) => (Alignment { memory_bytes: 1, offset_bytes: 1 }, Some(reason)),
        };
        let reserved = options.preallocate_bytes > 0
            && reserve(&fd, options.preallocate_bytes).map_err(|errno| file_error("preallocate", &path, errno))?;
        Ok(Self { path, backing: Backing::Os(fd), alignment, buffered, reserved })
    }
}

impl Access {
    fn flags(self) -> OFlags {
        match self {
            Self::Read => OFlags::RDONLY,
            Self::ReadWrite => OFlags::RDWR,
            Self::Create => OFlags::RDWR | OFlags::CREATE,
            Self::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            Self::Truncate => OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC,
        }
    }
}

/// Switches direct I/O on and asks for its rules.
fn make_direct(fd: &OwnedFd) -> Result<Alignment, (Errno, String)> {
    let refused = |errno: Errno| (errno, format!("direct I/O refused: {errno}"));
    let flags = fs::fcntl_getfl(fd).map_err(refused)?;
    fs::fcntl_setfl(fd, flags | OFlags::DIRECT).map_err(refused)?;
    let Ok(stat) = fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return Ok(Alignment { memory_bytes: PAGE_BYTES, offset_bytes: PAGE_BYTES });
    };
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(Alignment { memory_bytes: PAGE_BYTES, offset_bytes: PAGE_BYTES });
    }
    if stat.stx_dio_offset_align == 0 {
        fs::fcntl_setfl(fd, flags).map_err(refused)?;
        return Err((Errno::OPNOTSUPP, "the file system has no direct I/O for this file".to_owned()));
    }
    let bytes = |align: u32| usize::try_from(align).ok().filter(|align| align.is_power_of_two());
    Ok(Alignment {
        memory_bytes: bytes(stat.stx_dio_mem_align).unwrap_or(PAGE_BYTES),
        offset_bytes: bytes(stat.stx_dio_offset_align).unwrap_or(PAGE_BYTES),
    })
}

/// Reserves blocks; false where the file system cannot and the file was only made that long.
fn reserve(fd: &OwnedFd, bytes: u64) -> Result<bool, Errno> {
    match fs::fallocate(fd, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP) => {
            let now = u64::try_from(fs::fstat(fd)?.st_size).unwrap_or(0);
            if now < bytes {
                fs::ftruncate(fd, bytes)?;
            }
            Ok(false)
        }
        Err(errno) => Err(errno),
    }
}

/// For file systems without nameless files: a name of its own, removed at once.
fn open_unlinked(folder: &Path) -> Result<OwnedFd, Errno> {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    loop {
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".headwater-{}-{serial}", process::id()));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match fs::open(&path, flags, Mode::from_raw_mode(0o600)) {
            Ok(fd) => return fs::unlink(&path).map(|()| fd),
            // Left behind by an earlier process of this number.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn file_error(what: &'static str, path: &Path, errno: Errno) -> Error {
    Error::File { what, path: path.to_owned(), source: errno.into() }
}
