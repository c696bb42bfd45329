//! What can go wrong between this process and the GPU, as data.
//!
//! An absent library or device is an ordinary value here, never a panic: most machines that build and test Headwater
//! have no GPU at all.

use crate::library::Missing;

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call did not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A shared library is not on this machine.
    #[error(transparent)]
    LibraryMissing(#[from] Missing),
    /// The driver is there but lacks a function this crate cannot do without.
    #[error("the CUDA driver is too old: version {have} lacks {symbol}; Headwater needs driver API {need} or newer")]
    DriverTooOld {
        /// The driver API version found, as major.minor.
        have: String,
        /// The oldest version that works.
        need: String,
        /// The first function that is missing, or the version check itself.
        symbol: &'static str,
    },
    /// The driver works, but no device answers to this number.
    #[error("there is no GPU {asked}: the driver sees {count} device(s)")]
    NoDevice {
        /// The ordinal asked for.
        asked: usize,
        /// How many devices there are.
        count: usize,
    },
    /// A driver call failed.
    #[error("{call} failed: {name} ({code}): {text}")]
    Driver {
        /// The driver function.
        call: &'static str,
        /// Its numeric result.
        code: i32,
        /// The driver's name for it.
        name: String,
        /// The driver's sentence for it.
        text: String,
    },
    /// Memory could not be had; the numbers say how far off it was.
    #[error("out of {what}: asked for {asked_bytes} bytes, {free_bytes} of {total_bytes} bytes are free")]
    OutOfMemory {
        /// Which memory: `device memory`, `pinned host memory`.
        what: &'static str,
        /// Bytes asked for.
        asked_bytes: usize,
        /// Bytes free when asked.
        free_bytes: usize,
        /// Bytes in all.
        total_bytes: usize,
    },
    /// A kernel's text was refused by the compiler.
    #[error("{source_name} does not compile for {arch}:\n{log}")]
    Compile {
        /// The file the text came from.
        source_name: String,
        /// The target, for example `sm_90`.
        arch: String,
        /// What the compiler said.
        log: String,
    },
    /// Arguments do not match the kernel's declaration. Nothing was launched.
    #[error("kernel {kernel}: {problem}")]
    Launch {
        /// The kernel's entry point.
        kernel: &'static str,
        /// What does not match.
        problem: LaunchProblem,
    },
    /// A kernel met a value it must not follow, reported at the next synchronisation of its stream.
    #[error("{}", fault_sentence(*code, *position, *value, *limit))]
    Fault {
        /// Which check failed; the kernels share a small list of codes in `prelude.cuh`.
        code: u32,
        /// Where in the input it stood.
        position: u64,
        /// The value itself.
        value: i64,
        /// The bound it broke.
        limit: u64,
    },
    /// The driver or the device does not offer this.
    #[error("{what} is not available: {why}")]
    Unsupported {
        /// The facility.
        what: &'static str,
        /// Why it is not there.
        why: String,
    },
    /// A file of the kernel cache, or the cache folder itself, could not be used.
    #[error("kernel cache {path}: {why}")]
    Cache {
        /// The file or folder.
        path: String,
        /// What the system said.
        why: String,
    },
    /// A cuBLAS call failed.
    #[error("{call} failed with cuBLAS status {status}")]
    Cublas {
        /// The function.
        call: &'static str,
        /// Its status.
        status: i32,
    },
}

impl Error {
    /// Whether this says that memory ran out, so that a caller can shrink and go on.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. } | Self::Driver { code: 2, .. })
    }

    /// Whether that was memory of the host.
    #[must_use]
    pub fn is_out_of_host_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory { what, .. } if what.contains("host"))
    }
}

/// How a launch's arguments miss the kernel's declaration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchProblem {
    /// Too many or too few arguments.
    #[error("takes {declared} arguments, got {given}")]
    Count {
        /// Declared.
        declared: usize,
        /// Given.
        given: usize,
    },
    /// An argument of another kind or type.
    #[error("argument `{name}` is declared {declared}, got {given}")]
    Type {
        /// The parameter.
        name: &'static str,
        /// Its declaration.
        declared: String,
        /// What was passed.
        given: String,
    },
    /// A buffer shorter than the kernel may reach.
    #[error("buffer `{name}` holds {have_bytes} bytes, the kernel may reach {need_bytes}")]
    Length {
        /// The parameter.
        name: &'static str,
        /// Bytes in the buffer.
        have_bytes: u64,
        /// Bytes the declaration says may be touched.
        need_bytes: u128,
    },
    /// A buffer that does not start where its elements must.
    #[error("buffer `{name}` starts {off_bytes} bytes after a multiple of its {element_bytes}-byte elements")]
    Alignment {
        /// The parameter.
        name: &'static str,
        /// Size of one element.
        element_bytes: u64,
        /// Distance to the last place where one may start.
        off_bytes: u64,
    },
    /// A length rule names something that is neither a parameter nor a define.
    #[error("the length of `{name}` depends on `{term}`, which is neither a value nor a define")]
    UnknownTerm {
        /// The parameter.
        name: &'static str,
        /// The unresolved word.
        term: &'static str,
    },
    /// Memory the GPU may only read, where the kernel writes.
    #[error("buffer `{name}` is mapped for reading, and the kernel writes it")]
    ReadOnly {
        /// The parameter.
        name: &'static str,
    },
    /// A grid or block size the device cannot run.
    #[error("grid of {blocks} blocks of {threads} threads cannot be launched")]
    Grid {
        /// Blocks.
        blocks: u32,
        /// Threads a block.
        threads: u32,
    },
    /// Memory of another GPU without peer access.
    #[error("buffer `{name}` lies in GPU {at}, the launch is on GPU {on}, and they are not peers")]
    Place {
        /// The parameter.
        name: &'static str,
        /// Where it lies.
        at: usize,
        /// Where the launch is.
        on: usize,
    },
}

/// The code kernels report for an id outside its table. The same number stands in `prelude.cuh` as a define.
pub const FAULT_ID_OUT_OF_RANGE: u32 = 1;

/// The code kernels report for more elements, or a larger sum, than there is room for. It stands in `prelude.cuh` too.
pub const FAULT_TOO_MANY: u32 = 2;

fn fault_sentence(code: u32, position: u64, value: i64, limit: u64) -> String {
    match code {
        FAULT_ID_OUT_OF_RANGE => {
            format!("id {value} at position {position} is out of range for a table of {limit} rows")
        }
        FAULT_TOO_MANY => format!("{value} elements on the GPU, where there is room for {limit}"),
        other => format!("a kernel reported fault {other} at position {position}: value {value}, limit {limit}"),
    }
}
