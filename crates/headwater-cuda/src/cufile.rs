//! cuFile: files read and written straight from GPU memory (GPUDirect Storage), where the machine really does that.
//!
//! Without a kernel module or PCI peer-to-peer DMA, cuFile falls back to host memory and says nothing ("compatibility mode"). Here
//! that counts as not available: the mode is switched off before the library is opened, and what cannot be done then is refused.
//!
//! Reads and writes are ordered with no stream. Who calls them has waited for the work that fills or reads the memory.

use std::ffi::{c_int, c_longlong, c_uint, c_void};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::library::{CUFILE, Library};
use crate::span::Span;

/// The library, open for this process, with direct transfers alone.
#[derive(Debug)]
pub struct CuFile {
    table: Table,
    route: String,
}

/// A file that cuFile knows.
#[derive(Debug)]
pub struct DirectFile {
    cufile: Arc<CuFile>,
    handle: *mut c_void,
}

// SAFETY: cuFile's handles may be used from any thread, by several at once.
unsafe impl Send for DirectFile {}
// SAFETY: as above.
unsafe impl Sync for DirectFile {}

/// GPU memory that cuFile may read and write, as long as this is held.
#[derive(Debug)]
pub struct DirectMemory {
    cufile: Arc<CuFile>,
    memory: Span,
}

/// `CUfileError_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Status {
    code: c_int,
    driver_code: c_int,
}

/// `CUfileDescr_t`, of a file descriptor.
#[repr(C)]
struct Descriptor {
    kind: c_int,
    fd: u64,
    operations: *const c_void,
}

/// `CUfileDrvProps_t`.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
struct Properties {
    major: c_uint,
    minor: c_uint,
    poll_threshold: usize,
    most_direct_io: usize,
    status_flags: c_uint,
    control_flags: c_uint,
    features: c_uint,
    cache: c_uint,
    buffer_cache: c_uint,
    pinned: c_uint,
    batch: c_uint,
    batch_timeout: c_uint,
    /// Newer versions may write more.
    _room: [u64; 16],
}

const _: () = assert!(size_of::<Descriptor>() == 24 && std::mem::offset_of!(Properties, features) == 32);

type SetBool = unsafe extern "C" fn(c_int, bool) -> Status;
type GetBool = unsafe extern "C" fn(c_int, *mut bool) -> Status;

#[derive(Debug)]
struct Table {
    register_file: unsafe extern "C" fn(*mut *mut c_void, *mut Descriptor) -> Status,
    forget_file: unsafe extern "C" fn(*mut c_void),
    register_memory: unsafe extern "C" fn(*const c_void, usize, c_int) -> Status,
    forget_memory: unsafe extern "C" fn(*const c_void) -> Status,
    read: Transfer,
    write: Transfer,
    /// Never unloaded: it has threads, and its driver stays open.
    _library: ManuallyDrop<Library>,
}

/// `cuFileRead` and `cuFileWrite`, whose pointers differ by `const` alone.
type Transfer = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_longlong, c_longlong) -> isize;

const ALLOW_COMPATIBILITY: c_int = 1;
const FORCE_COMPATIBILITY: c_int = 2;
const USE_PEER_TO_PEER: c_int = 7;
const ALREADY_OPEN: c_int = 5026;
const IN_CUDA: c_int = 5011;
/// Bits of the properties.
const COMPATIBILITY_BIT: c_uint = 1 << 1;
const PEER_TO_PEER_BIT: c_uint = 1 << 11;

impl CuFile {
    /// Opens the library, or says why files cannot be read and written straight from the memory of `gpu`.
    pub fn open(gpu: &Gpu) -> Result<Arc<Self>> {
        gpu.bind()?;
        let library = CUFILE.load()?;
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the type it is given to is the function's type in cuFile's documentation.
                unsafe { library.handle.get($name) }.map(|symbol| *symbol)
            };
        }
        let lacks = |error: libloading::Error| unavailable(format!("{}: {error}", library.path.display()));
        let open: unsafe extern "C" fn() -> Status = symbol!(b"cuFileDriverOpen").map_err(lacks)?;
        let ask: unsafe extern "C" fn(*mut Properties) -> Status =
            symbol!(b"cuFileDriverGetProperties").map_err(lacks)?;
        let (set, get): (Option<SetBool>, Option<GetBool>) =
            (symbol!(b"cuFileSetParameterBool").ok(), symbol!(b"cuFileGetParameterBool").ok());
        let table = Table {
            register_file: symbol!(b"cuFileHandleRegister").map_err(lacks)?,
            forget_file: symbol!(b"cuFileHandleDeregister").map_err(lacks)?,
            register_memory: symbol!(b"cuFileBufRegister").map_err(lacks)?,
            forget_memory: symbol!(b"cuFileBufDeregister").map_err(lacks)?,
            read: symbol!(b"cuFileRead").map_err(lacks)?,
            write: symbol!(b"cuFileWrite").map_err(lacks)?,
            _library: ManuallyDrop::new(library),
        };
        let before = [ALLOW_COMPATIBILITY, FORCE_COMPATIBILITY, USE_PEER_TO_PEER]
            .map(|parameter| (parameter, get.and_then(|get| asked(get, parameter))));
        // SAFETY: both are passed by value. Refused where the library is open or does not know one: what it says then is asked for below.
        let put = |parameter, value| set.map(|set| unsafe { set(parameter, value) });
        for (parameter, _) in before {
            put(parameter, parameter == USE_PEER_TO_PEER);
        }
        // Others in the process may want the library with the mode that it had.
        let as_before = |why: String| {
            for (parameter, value) in before {
                value.map(|value| put(parameter, value));
            }
            unavailable(why)
        };
        // SAFETY: takes nothing; the context is current.
        match unsafe { open() } {
            Status { code: 0 | ALREADY_OPEN, .. } => {}
            status => return Err(as_before(status.words("cuFileDriverOpen"))),
        }
        let mut properties = Properties::default();
        // SAFETY: writes one structure, which has room for more than is known of.
        let status = unsafe { ask(&raw mut properties) };
        if status.code != 0 {
            return Err(unavailable(status.words("cuFileDriverGetProperties")));
        }
        let route = properties.route(get.and_then(allows_compatibility)).map_err(|why| unavailable(why.to_owned()))?;
        Ok(Arc::new(Self { table, route }))
    }

    /// By which way bytes go.
    #[must_use]
    pub fn route(&self) -> &str {
        &self.route
    }

    /// Makes a file known that was opened for direct I/O. Refused where its file system or disk has no direct way to a GPU.
    pub fn register_file(self: &Arc<Self>, file: BorrowedFd<'_>) -> Result<DirectFile> {
        const FILE_DESCRIPTOR: c_int = 1;
        let fd = u64::from(file.as_raw_fd().cast_unsigned());
        let mut descriptor = Descriptor { kind: FILE_DESCRIPTOR, fd, operations: std::ptr::null() };
        let mut handle = std::ptr::null_mut();
        // SAFETY: reads one descriptor and writes one handle.
        let status = unsafe { (self.table.register_file)(&raw mut handle, &raw mut descriptor) };
        if status.code != 0 {
            return Err(unavailable(status.words("cuFileHandleRegister")));
        }
        Ok(DirectFile { cufile: Arc::clone(self), handle })
    }

    /// Makes memory known, once and for as long as that is held.
    pub fn register_memory(self: &Arc<Self>, memory: Span) -> Result<DirectMemory> {
        memory.allocation().gpu().bind()?;
        // SAFETY: the span is device memory that the value holds.
        let status = unsafe { (self.table.register_memory)(address(&memory), memory.bytes(), 0) };
        if status.code != 0 {
            return Err(unavailable(status.words("cuFileBufRegister")));
        }
        Ok(DirectMemory { cufile: Arc::clone(self), memory })
    }
}

impl DirectFile {
    /// Reads from a file into the beginning of memory; fewer bytes than asked for at its end, and now and then. The caller has waited
    /// for all work that uses the memory.
    pub fn read(&self, offset: u64, to: &DirectMemory, at: usize, bytes: usize) -> io::Result<usize> {
        self.transfer(self.cufile.table.read, offset, to, at..at.saturating_add(bytes))
    }

    /// Writes part of memory to a file, like [`DirectFile::read`].
    pub fn write(&self, offset: u64, from: &DirectMemory, at: usize, bytes: usize) -> io::Result<usize> {
        self.transfer(self.cufile.table.write, offset, from, at..at.saturating_add(bytes))
    }

    fn transfer(
        &self,
        call: Transfer,
        offset: u64,
        memory: &DirectMemory,
        part: std::ops::Range<usize>,
    ) -> io::Result<usize> {
        let outside = || io::Error::from(io::ErrorKind::InvalidInput);
        if part.end > memory.memory.bytes() {
            return Err(outside());
        }
        let offset = c_longlong::try_from(offset).map_err(|_| outside())?;
        let start = c_longlong::try_from(part.start).map_err(|_| outside())?;
        memory.memory.allocation().gpu().bind().map_err(io::Error::other)?;
        // SAFETY: the file and the memory are registered as long as both are held, and the part is inside the memory.
        let moved = unsafe { call(self.handle, address(&memory.memory).cast_mut(), part.len(), offset, start) };
        match usize::try_from(moved) {
            Ok(moved) => Ok(moved),
            Err(_) if moved == -1 => Err(io::Error::last_os_error()),
            Err(_) => {
                let code = c_int::try_from(-moved).unwrap_or(0);
                Err(io::Error::other(Status { code, driver_code: 0 }.words("cuFile")))
            }
        }
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and goes once.
        unsafe { (self.cufile.table.forget_file)(self.handle) }
    }
}

impl DirectMemory {
    /// The memory.
    #[must_use]
    pub fn span(&self) -> &Span {
        &self.memory
    }
}

impl Drop for DirectMemory {
    fn drop(&mut self) {
        if self.memory.allocation().gpu().bind().is_ok() {
            // SAFETY: registered once, and the memory is still there.
            unsafe { (self.cufile.table.forget_memory)(address(&self.memory)) };
        }
    }
}

impl Properties {
    /// The way that bytes go, or why that is not straight to the GPU.
    fn route(&self, allows_compatibility: Option<bool>) -> std::result::Result<String, &'static str> {
        if allows_compatibility.unwrap_or(self.control_flags & COMPATIBILITY_BIT != 0) {
            return Err("cuFile may fall back to host memory (allow_compat_mode) and was opened before this could be \
                        switched off: start with CUFILE_ALLOW_COMPAT_MODE=false");
        }
        if self.major > 0 || self.minor > 0 {
            return Ok(format!("nvidia-fs {}.{}", self.major, self.minor));
        }
        if self.status_flags & PEER_TO_PEER_BIT != 0 {
            return Ok("PCI peer-to-peer DMA".to_owned());
        }
        Err("the kernel module nvidia-fs is not loaded, and there is no PCI peer-to-peer DMA to NVMe disks")
    }
}

impl Status {
    fn words(self, call: &str) -> String {
        let Self { code, driver_code } = self;
        let what = match code {
            5001 => "the driver is not open",
            5004 => "versions of the library and of nvidia-fs do not fit",
            5005 => "the version of nvidia-fs cannot be read",
            5007 => "the platform is not supported",
            5008 => "the file system or disk has no direct way to a GPU",
            5009 => "the GPU is not supported",
            5010 => "nvidia-fs reported an error",
            IN_CUDA => return format!("{call}: CUDA error {driver_code} (cuFile error {code})"),
            5018 => "the type of file is not supported",
            5020 => "the file is not open for direct I/O",
            5025 => "permission denied",
            5033 => "nvidia-fs could not be set up",
            5034 => "direct I/O is switched off",
            5036 => "GPU memory could not be pinned for a disk",
            _ => return format!("{call}: cuFile error {code}"),
        };
        format!("{call}: {what} (cuFile error {code})")
    }
}

/// What the library says now; none where it does not answer.
fn allows_compatibility(get: GetBool) -> Option<bool> {
    Some(asked(get, ALLOW_COMPATIBILITY)? || asked(get, FORCE_COMPATIBILITY)?)
}

fn asked(get: GetBool, parameter: c_int) -> Option<bool> {
    let mut answer = false;
    // SAFETY: writes one byte.
    let status = unsafe { get(parameter, &raw mut answer) };
    (status.code == 0).then_some(answer)
}

fn address(memory: &Span) -> *const c_void {
    std::ptr::with_exposed_provenance(usize::try_from(memory.pointer()).unwrap_or(0))
}

fn unavailable(why: String) -> Error {
    Error::Unsupported { what: "GPUDirect Storage", why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_through_host_memory_is_none() {
        let loaded = Properties { major: 2, minor: 25, ..Properties::default() };
        assert_eq!(loaded.route(Some(false)).as_deref(), Ok("nvidia-fs 2.25"));
        assert!(loaded.route(Some(true)).unwrap_err().contains("allow_compat_mode"));
        // Libraries that cannot be asked say it in a flag.
        assert_eq!(loaded.route(None).as_deref(), Ok("nvidia-fs 2.25"));
        let may_fall_back = Properties { control_flags: COMPATIBILITY_BIT, ..loaded };
        assert!(may_fall_back.route(None).is_err());
        assert!(may_fall_back.route(Some(false)).is_ok(), "the newer answer counts");
        let direct = Properties { status_flags: PEER_TO_PEER_BIT, ..Properties::default() };
        assert_eq!(direct.route(Some(false)).as_deref(), Ok("PCI peer-to-peer DMA"));
        assert!(Properties::default().route(Some(false)).unwrap_err().contains("nvidia-fs is not loaded"));
    }
}
