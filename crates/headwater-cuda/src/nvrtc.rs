//! NVRTC: kernel text to machine code at run time, so that one binary serves every GPU and needs no toolkit to build.

use std::ffi::{CString, c_char, c_int};
use std::path::Path;
use std::ptr::null;
use std::sync::OnceLock;

use libloading::os::unix::{Library as Handle, RTLD_GLOBAL, RTLD_NOW};

use crate::error::{Error, Result};
use crate::library::{Library, NVRTC};

type Program = *mut std::ffi::c_void;

/// The few functions we call.
struct Nvrtc {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    image_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    image: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    _libraries: (Option<Handle>, Library),
}

/// The compiler's version, as major.minor.
pub(crate) fn version() -> Result<String> {
    let nvrtc = Nvrtc::get()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two integers.
    unsafe { (nvrtc.version)(&raw mut major, &raw mut minor) };
    Ok(format!("{major}.{minor}"))
}

/// Where the compiler was found.
pub(crate) fn path() -> Result<std::path::PathBuf> {
    Nvrtc::get().map(|nvrtc| nvrtc._libraries.1.path.clone())
}

/// What every text is compiled with.
pub(crate) const LANGUAGE: [&str; 2] = ["--std=c++17", "-default-device"];

/// Compiles `text` to a CUBIN for `arch`.
pub(crate) fn compile(name: &str, text: &str, options: &[String], arch: &str) -> Result<Vec<u8>> {
    let nvrtc = Nvrtc::get()?;
    let refuse = |log: String| Error::Compile {
        source_name: name.to_owned(),
        arch: arch.to_owned(),
        log: log.trim().to_owned(),
    };
    let c_text = CString::new(text).map_err(|_| refuse("the text contains a zero byte".into()))?;
    let c_name = CString::new(name).map_err(|_| refuse("the name contains a zero byte".into()))?;
    let options = std::iter::once(format!("--gpu-architecture={arch}")).chain(options.iter().cloned());
    let options: Vec<CString> = options.filter_map(|option| CString::new(option).ok()).collect();
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program = std::ptr::null_mut();
    // SAFETY: the strings outlive the calls; no headers are passed.
    unsafe {
        if (nvrtc.create)(&raw mut program, c_text.as_ptr(), c_name.as_ptr(), 0, null(), null()) != 0 {
            return Err(refuse("nvrtcCreateProgram failed".into()));
        }
        let count = c_int::try_from(pointers.len()).unwrap_or(0);
        let compiled = (nvrtc.compile)(program, count, pointers.as_ptr()) == 0;
        let outcome = if compiled {
            fetch(program, nvrtc.image_size, nvrtc.image).ok_or_else(|| refuse("no machine code came back".into()))
        } else {
            let log = fetch(program, nvrtc.log_size, nvrtc.log).unwrap_or_default();
            Err(refuse(String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned()))
        };
        (nvrtc.destroy)(&raw mut program);
        outcome
    }
}

/// Reads one of a program's results: ask for the size, then for the bytes.
///
/// # Safety
/// `program` is live and the two functions belong together.
unsafe fn fetch(
    program: Program,
    size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    get: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
) -> Option<Vec<u8>> {
    let mut length = 0;
    // SAFETY: the first call writes one integer, the second as many bytes as it named.
    unsafe {
        if size(program, &raw mut length) != 0 {
            return None;
        }
        let mut bytes = vec![0u8; length];
        (get(program, bytes.as_mut_ptr().cast()) == 0).then_some(bytes)
    }
}

impl Nvrtc {
    fn get() -> Result<&'static Self> {
        static TABLE: OnceLock<Result<Nvrtc>> = OnceLock::new();
        TABLE.get_or_init(Self::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Self> {
        let library = NVRTC.load()?;
        let builtins = preload_builtins(&library.path);
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the field's type is the function's type in NVRTC's documentation.
                *unsafe { library.handle.get($name) }.map_err(|error| Error::Unsupported {
                    what: "NVRTC",
                    why: format!("{}: {error}", library.path.display()),
                })?
            };
        }
        Ok(Self {
            version: symbol!(b"nvrtcVersion"),
            create: symbol!(b"nvrtcCreateProgram"),
            compile: symbol!(b"nvrtcCompileProgram"),
            image_size: symbol!(b"nvrtcGetCUBINSize"),
            image: symbol!(b"nvrtcGetCUBIN"),
            log_size: symbol!(b"nvrtcGetProgramLogSize"),
            log: symbol!(b"nvrtcGetProgramLog"),
            destroy: symbol!(b"nvrtcDestroyProgram"),
            _libraries: (builtins, library),
        })
    }
}

/// NVRTC opens its builtins by bare name, which fails when it lies in a folder the loader does not know, as in a wheel.
fn preload_builtins(nvrtc: &Path) -> Option<Handle> {
    let folder = nvrtc.parent()?;
    let entry = std::fs::read_dir(folder).ok()?.flatten().find(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with("libnvrtc-builtins.so")
    })?;
    // SAFETY: a data library of NVIDIA's without initialisers of note.
    unsafe { Handle::open(Some(entry.path()), RTLD_NOW | RTLD_GLOBAL) }.ok()
}
