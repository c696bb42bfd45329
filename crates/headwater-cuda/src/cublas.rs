//! cuBLAS, when it is there: plain dense products.

use std::collections::VecDeque;
use std::ffi::{c_int, c_longlong, c_void};
use std::sync::{Mutex, OnceLock};

use crate::error::{Error, Result};
use crate::gpu::lock;
use crate::library::{CUBLAS, Library};
use crate::span::{Allocation, Span};
use crate::stream::Stream;

/// Without a workspace of our own cuBLAS allocates during the call, which breaks graph capture and reproducibility.
const WORKSPACE_BYTES: usize = 32 << 20;

/// The element type of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum GemmType {
    F32,
    /// Elements of float32, of which tensor cores keep 11 bits.
    Tf32,
    F64,
    F16,
    BF16,
}

/// One operand of a row-major product: where it is and how it lies.
#[derive(Debug, Clone)]
pub struct GemmOperand {
    /// The elements, from the first one on.
    pub span: Span,
    /// Elements from one row to the next.
    pub row_stride: usize,
    /// Whether the matrix is stored transposed.
    pub transposed: bool,
    /// Elements from one matrix of the batch to the next.
    pub batch_stride: usize,
}

/// A batch of products `c = a · b`, with `c` of `rows` × `columns` and `inner` terms in each sum.
#[derive(Debug, Clone)]
pub struct Gemm {
    /// Element type of all three.
    pub element: GemmType,
    /// Rows of `c`.
    pub rows: usize,
    /// Columns of `c`.
    pub columns: usize,
    /// Terms in each sum.
    pub inner: usize,
    /// Products.
    pub batch: usize,
    /// Left operand.
    pub a: GemmOperand,
    /// Right operand.
    pub b: GemmOperand,
    /// Result, never transposed.
    pub c: GemmOperand,
}

type Handle = *mut c_void;

struct Cublas {
    create: unsafe extern "C" fn(*mut Handle) -> c_int,
    set_stream: unsafe extern "C" fn(Handle, *mut c_void) -> c_int,
    set_workspace: unsafe extern "C" fn(Handle, *mut c_void, usize) -> c_int,
    gemm: GemmFunction,
    _library: Library,
}

type GemmFunction = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    *const c_void,
    c_int,
    c_int,
    c_longlong,
    *const c_void,
    c_int,
    c_int,
    c_longlong,
    *const c_void,
    *mut c_void,
    c_int,
    c_int,
    c_longlong,
    c_int,
    c_int,
    c_int,
) -> c_int;

/// A handle for one GPU. cuBLAS handles are not safe to share, so the lock is held for the length of a call.
struct OpenHandle {
    raw: Handle,
    /// One for each stream: products of two streams run at the same time and must not share it. The oldest goes first.
    workspaces: VecDeque<(usize, Span)>,
}

// SAFETY: the handle is used under a lock, by one thread at a time.
unsafe impl Send for OpenHandle {}

/// Whether cuBLAS can be used on this machine; the error says where it was looked for.
pub fn cublas_available() -> Result<()> {
    Cublas::get().map(|_| ())
}

impl Gemm {
    /// Queues the product. Sums are in float64 for float64 and in float32 for all others; float32 is never taken for TF32.
    pub fn run(&self, stream: &Stream) -> Result<()> {
        static OPEN: OnceLock<Mutex<Vec<(usize, OpenHandle)>>> = OnceLock::new();
        let cublas = Cublas::get()?;
        self.check()?;
        let gpu = stream.gpu();
        let _current = gpu.bind()?;
        let mut open = lock(OPEN.get_or_init(Mutex::default));
        if !open.iter().any(|(ordinal, _)| *ordinal == gpu.ordinal()) {
            open.push((gpu.ordinal(), OpenHandle::new(cublas)?));
        }
        let Some((_, handle)) = open.iter_mut().find(|(ordinal, _)| *ordinal == gpu.ordinal()) else { return Ok(()) };
        let workspace = handle.workspace_of(stream)?;
        // SAFETY: the handle is live and locked; the workspace is held until its use is noted.
        unsafe {
            status("cublasSetStream", (cublas.set_stream)(handle.raw, stream.raw().cast()))?;
            let workspace = std::ptr::with_exposed_provenance_mut(to_usize(workspace.pointer()));
            status("cublasSetWorkspace", (cublas.set_workspace)(handle.raw, workspace, WORKSPACE_BYTES))?;
        }
        let launched = stream.launch_traced(&|| "cuBLAS".to_owned(), || self.call(cublas, handle.raw));
        // After queueing, as for every launch.
        stream.note_use([&self.a.span, &self.b.span, &self.c.span, &workspace].into_iter());
        launched
    }

    /// cuBLAS thinks in columns: the row-major product a·b is its column-major product b·a.
    fn call(&self, cublas: &Cublas, handle: Handle) -> Result<()> {
        const COMPUTE_32F: c_int = 68;
        const COMPUTE_64F: c_int = 70;
        const COMPUTE_32F_FAST_TF32: c_int = 77;
        const DEFAULT_ALGORITHM: c_int = -1;
        let data = match self.element {
            GemmType::F32 | GemmType::Tf32 => 0,
            GemmType::F64 => 1,
            GemmType::F16 => 2,
            GemmType::BF16 => 14,
        };
        let (one32, zero32, one64, zero64) = (1f32, 0f32, 1f64, 0f64);
        let (compute, one, zero): (c_int, *const c_void, *const c_void) = match self.element {
            GemmType::F64 => (COMPUTE_64F, (&raw const one64).cast(), (&raw const zero64).cast()),
            GemmType::Tf32 => (COMPUTE_32F_FAST_TF32, (&raw const one32).cast(), (&raw const zero32).cast()),
            _ => (COMPUTE_32F, (&raw const one32).cast(), (&raw const zero32).cast()),
        };
        let at = |operand: &GemmOperand| std::ptr::with_exposed_provenance_mut(to_usize(operand.span.pointer()));
        let (a, b, c) = (&self.a, &self.b, &self.c);
        // SAFETY: `check` proved that every operand holds what these sizes and strides reach; the caller notes the uses.
        let code = unsafe {
            (cublas.gemm)(
                handle,
                c_int::from(b.transposed),
                c_int::from(a.transposed),
                int(self.columns)?,
                int(self.rows)?,
                int(self.inner)?,
                one,
                at(b),
                data,
                int(b.row_stride)?,
                long(b.batch_stride)?,
                at(a),
                data,
                int(a.row_stride)?,
                long(a.batch_stride)?,
                zero,
                at(c),
                data,
                int(c.row_stride)?,
                long(c.batch_stride)?,
                int(self.batch)?,
                compute,
                DEFAULT_ALGORITHM,
            )
        };
        status("cublasGemmStridedBatchedEx", code)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let size = match self.element {
            GemmType::F64 => 8,
            GemmType::F32 | GemmType::Tf32 => 4,
            GemmType::F16 | GemmType::BF16 => 2,
        };
        // Where the bytes lie that an operand's shape reaches.
        let reach = |operand: &GemmOperand, rows: usize, columns: usize| {
            let (rows, columns) = if operand.transposed { (columns, rows) } else { (rows, columns) };
            let last = rows.checked_sub(1)?.checked_mul(operand.row_stride)?.checked_add(columns)?;
            let all = self.batch.checked_sub(1)?.checked_mul(operand.batch_stride)?.checked_add(last)?;
            let bytes = all.checked_mul(size).filter(|bytes| *bytes <= operand.span.bytes())?;
            let start = operand.span.pointer();
            (operand.row_stride >= columns).then(|| start..start + bytes as u64)
        };
        let reached = reach(&self.a, self.rows, self.inner).zip(reach(&self.b, self.inner, self.columns)).zip(reach(
            &self.c,
            self.rows,
            self.columns,
        ));
        let Some(((a, b), c)) = reached else { return Err(refused("an operand is shorter than its shape")) };
        if [&a, &b, &c].into_iter().any(|range| range.start % size as u64 != 0) {
            return Err(refused("an operand begins between two elements"));
        }
        if [a, b].iter().any(|read| read.start < c.end && c.start < read.end) {
            return Err(refused("the result lies over an operand"));
        }
        if self.c.transposed || !self.results_are_apart() {
            return Err(refused("results of the batch lie over each other"));
        }
        if self.c.span.allocation().is_read_only() {
            return Err(refused("the result's memory is mapped into the GPU for reading"));
        }
        Ok(())
    }

    /// Whether no two products of the batch write one element: they lie behind each other, or beside each other in wider rows.
    fn results_are_apart(&self) -> bool {
        let GemmOperand { row_stride, batch_stride, .. } = self.c;
        let length = (self.rows.saturating_sub(1)).saturating_mul(row_stride).saturating_add(self.columns);
        let width = (self.batch.saturating_sub(1)).saturating_mul(batch_stride).saturating_add(self.columns);
        let is_beside = batch_stride >= self.columns && (self.rows <= 1 || width <= row_stride);
        self.batch <= 1 || batch_stride >= length || is_beside
    }
}

fn refused(why: &str) -> Error {
    Error::Unsupported { what: "a product", why: why.to_owned() }
}

impl OpenHandle {
    fn new(cublas: &Cublas) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the context is current.
        status("cublasCreate", unsafe { (cublas.create)(&raw mut raw) })?;
        Ok(Self { raw, workspaces: VecDeque::new() })
    }

    fn workspace_of(&mut self, stream: &Stream) -> Result<Span> {
        /// Programs use a handful of streams; more of them pay for the allocation again.
        const MOST: usize = 8;
        let key = stream.raw().addr();
        if let Some((_, workspace)) = self.workspaces.iter().find(|(known, _)| *known == key) {
            return Ok(workspace.clone());
        }
        let workspace = Span::whole(Allocation::shareable(stream.gpu(), WORKSPACE_BYTES)?);
        self.workspaces.push_back((key, workspace.clone()));
        if self.workspaces.len() > MOST {
            self.workspaces.pop_front();
        }
        Ok(workspace)
    }
}

impl Cublas {
    fn get() -> Result<&'static Self> {
        static TABLE: OnceLock<Result<Cublas>> = OnceLock::new();
        TABLE.get_or_init(Self::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Self> {
        let library = CUBLAS.load()?;
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the field's type is the function's type in cuBLAS's documentation.
                *unsafe { library.handle.get($name) }.map_err(|error| Error::Unsupported {
                    what: "cuBLAS",
                    why: format!("{}: {error}", library.path.display()),
                })?
            };
        }
        Ok(Self {
            create: symbol!(b"cublasCreate_v2"),
            set_stream: symbol!(b"cublasSetStream_v2"),
            set_workspace: symbol!(b"cublasSetWorkspace_v2"),
            gemm: symbol!(b"cublasGemmStridedBatchedEx"),
            _library: library,
        })
    }
}

fn status(call: &'static str, status: c_int) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(Error::Cublas { call, status }) }
}

fn int(value: usize) -> Result<c_int> {
    c_int::try_from(value).map_err(|_| Error::Unsupported { what: "a product", why: format!("{value} exceeds 2^31") })
}

fn long(value: usize) -> Result<c_longlong> {
    c_longlong::try_from(value)
        .map_err(|_| Error::Unsupported { what: "a product", why: format!("{value} exceeds 2^63") })
}

fn to_usize(pointer: u64) -> usize {
    usize::try_from(pointer).unwrap_or(usize::MAX)
}
