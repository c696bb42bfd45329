//! GPUs, streams and device memory, as torch and others name them: a number, a handle, a tensor.
//!
//! Work goes to the stream that the caller has at hand, and results into tensors of the caller's own. So the library that
//! made them knows when their memory is free, and nothing of it lies in a second pool.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ops::{Deref, RangeInclusive};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use headwater::cuda::{Allocation, Gpu, PassingStream, Span, Stream};
use headwater::memory::LentHost;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::dlpack::Taken;
use crate::dtype::Dtype;
use crate::error::of_cuda;

/// The process that opened a GPU first; 0 before.
static OPENED_BY: AtomicU32 = AtomicU32::new(0);

/// A GPU by its number. The driver does not survive a fork, so a forked process is told instead of left hanging.
pub fn gpu(ordinal: usize) -> PyResult<Gpu> {
    check_not_forked()?;
    let gpu = Gpu::open(ordinal).map_err(of_cuda)?;
    let _ = OPENED_BY.compare_exchange(0, std::process::id(), Ordering::Relaxed, Ordering::Relaxed);
    Ok(gpu)
}

/// Fails in a process that was forked from one that uses a GPU.
pub fn check_not_forked() -> PyResult<()> {
    let (by, own) = (OPENED_BY.load(Ordering::Relaxed), std::process::id());
    if by == 0 || by == own {
        return Ok(());
    }
    let why = format!(
        "process {own} was forked from process {by}, which uses the GPU already; CUDA does not survive a fork: start \
         processes with the 'spawn' method"
    );
    Err(PyRuntimeError::new_err(why))
}

/// How many GPUs there are; none where there is no driver.
#[pyfunction]
pub fn gpu_count() -> usize {
    Gpu::count().unwrap_or(0)
}

/// Free and total bytes of a GPU's memory.
#[pyfunction]
pub fn gpu_memory(device: usize) -> PyResult<(usize, usize)> {
    let memory = gpu(device)?.memory().map_err(of_cuda)?;
    Ok((memory.free_bytes, memory.total_bytes))
}

/// Waits for a stream, and raises what its kernels met: an id that is none is an IndexError.
#[pyfunction]
pub fn synchronize(py: Python<'_>, device: usize, stream: NamedStream) -> PyResult<()> {
    let stream = self::stream(&gpu(device)?, stream)?;
    py.detach(|| stream.synchronize()).map_err(of_cuda)
}

/// Raises what kernels of a stream met so far. Others of the same call may be about to say the same, so they are waited for.
pub fn raise_faults(stream: &Stream) -> PyResult<()> {
    stream.take_fault().map_err(|why| {
        let _ = stream.synchronize();
        of_cuda(why)
    })
}

/// Handles of streams that are never destroyed, beyond those that every program has.
static LASTING: RwLock<BTreeSet<usize>> = RwLock::new(BTreeSet::new());
/// The legacy default stream by two names, and that of each thread.
const DEFAULT_STREAMS: RangeInclusive<usize> = 0..=2;

/// Tells of a stream that is never destroyed, as those of torch's pool. Its handle names it from then on.
#[pyfunction]
pub fn _lasting_stream(handle: usize) {
    LASTING.write().unwrap_or_else(PoisonError::into_inner).insert(handle);
}

/// A stream as callers name it. The driver follows any number as if it were a stream, so a number alone is believed only where
/// it is known; whoever has an object of a stream keeps it alive for the length of the call.
#[derive(Debug, Clone, Copy)]
pub enum NamedStream {
    /// Never destroyed.
    Lasting(usize),
    /// There for the length of a call.
    Passing(usize),
}

impl NamedStream {
    fn is_lasting(handle: usize) -> bool {
        DEFAULT_STREAMS.contains(&handle) || LASTING.read().unwrap_or_else(PoisonError::into_inner).contains(&handle)
    }
}

impl<'py> FromPyObject<'_, 'py> for NamedStream {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyInt>() {
            let known = object.extract::<usize>().ok().filter(|handle| Self::is_lasting(*handle));
            return known.map(Self::Lasting).ok_or_else(|| no_stream(&object));
        }
        // torch's streams, and whoever follows CUDA's protocol for Python.
        let handle: usize = match object.getattr("cuda_stream") {
            Ok(handle) => handle.extract()?,
            Err(_) => {
                let protocol = object.getattr("__cuda_stream__").map_err(|_| no_stream(&object))?;
                let (_version, handle): (usize, usize) = protocol.call0()?.extract()?;
                handle
            }
        };
        Ok(if Self::is_lasting(handle) { Self::Lasting(handle) } else { Self::Passing(handle) })
    }
}

fn no_stream(object: &Borrowed<'_, '_, PyAny>) -> PyErr {
    let shown = object.repr().map_or_else(|_| "something".to_owned(), |repr| repr.to_string());
    PyValueError::new_err(format!(
        "stream is {shown}; it should be 0 for the default stream, or an object of a stream such as torch.cuda.current_stream() \
         or one that has __cuda_stream__"
    ))
}

/// A stream for the length of a call.
pub enum CallStream {
    Lasting(Stream),
    Passing(PassingStream),
}

impl Deref for CallStream {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        match self {
            Self::Lasting(stream) => stream,
            Self::Passing(stream) => stream,
        }
    }
}

/// The stream that a caller named.
pub fn stream(gpu: &Gpu, named: NamedStream) -> PyResult<CallStream> {
    check_not_forked()?;
    let raw = std::ptr::with_exposed_provenance_mut;
    match named {
        // SAFETY: the default streams, and those that were said to be never destroyed.
        NamedStream::Lasting(handle) => unsafe { Stream::foreign(gpu, raw(handle)) }.map(CallStream::Lasting),
        // SAFETY: the object that had the handle is an argument of the call, and so held by its caller until that returns.
        NamedStream::Passing(handle) => unsafe { PassingStream::new(gpu, raw(handle)) }.map(CallStream::Passing),
    }
    .map_err(of_cuda)
}

/// Device memory of a caller's tensor, with its elements' kind and its shape.
pub struct OnGpu {
    pub span: Span,
    pub shape: Vec<usize>,
    pub dtype: Dtype,
}

/// A tensor that lies with `gpu`. `name` is what errors call it.
pub fn on_gpu(array: &Bound<'_, PyAny>, gpu: &Gpu, name: &str) -> PyResult<OnGpu> {
    let taken = Taken::new(array, name)?;
    if taken.gpu() != Some(gpu.ordinal()) && !(taken.is_on_host() && is_emulated()) {
        let found = taken.gpu().map_or_else(|| "the CPU".to_owned(), |other| format!("cuda:{other}"));
        let why = format!("{name} lies with {found}; it should lie with cuda:{}", gpu.ordinal());
        return Err(PyValueError::new_err(why));
    }
    let (shape, dtype, (pointer, bytes)) = (taken.shape.clone(), taken.dtype, taken.range());
    // SAFETY: the lender promises so many bytes there and is held; it orders what it does with them by streams.
    let memory = unsafe { Allocation::lent(gpu, pointer, bytes, Arc::new(taken)) };
    Ok(OnGpu { span: Span::whole(memory), shape, dtype })
}

/// Device memory at an address that Headwater's own Python passes on: `data_ptr()` of a tensor that it has looked at. Asking
/// tensors for more than that takes longer than the work on them.
pub fn at(gpu: &Gpu, address: usize, bytes: usize) -> Span {
    // SAFETY: `gpu.py`, `autograd.py`, `layer_graph.py` and `offload.py` of `python/headwater` alone call this, with tensors of this GPU and of
    // this length that torch keeps until the stream is past the work that is queued here.
    Span::whole(unsafe { Allocation::lent(gpu, address as u64, bytes, Arc::new(())) })
}

/// Host memory at an address that `offload.py` passes on: bytes of a tensor that it holds until they have left, or that it has just made.
pub fn host_at(address: usize, bytes: usize) -> LentHost {
    let start = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).unwrap_or(NonNull::dangling());
    // SAFETY: torch's tensors are initialised memory, of this length, and held meanwhile. An address of 0 has no bytes.
    unsafe { LentHost::new(start, if address == 0 { 0 } else { bytes }) }
}

/// Whether tests run on the emulator, whose devices read the host's memory.
pub fn is_emulated() -> bool {
    std::env::var_os("HEADWATER_EMULATOR").is_some()
}
