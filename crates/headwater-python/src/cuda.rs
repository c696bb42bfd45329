//! GPUs, streams and device memory, as torch and others name them: a number, a handle, a tensor.
//!
//! Work goes to the stream that the caller has at hand, and results into tensors of the caller's own. So the library that
//! made them knows when their memory is free, and nothing of it lies in a second pool.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use headwater::cuda::{Allocation, Gpu, Span, Stream};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::dlpack::{Lent, Taken};
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
pub fn synchronize(py: Python<'_>, device: usize, stream: usize) -> PyResult<()> {
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

/// The stream that has this handle. 0 is the default one.
pub fn stream(gpu: &Gpu, handle: usize) -> PyResult<Stream> {
    check_not_forked()?;
    // SAFETY: handles come from torch, which never destroys the streams of its pool. One that is none is refused by the driver
    // at the first call.
    unsafe { Stream::foreign(gpu, std::ptr::with_exposed_provenance_mut(handle)) }.map_err(of_cuda)
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
    // SAFETY: `gpu.py`, `autograd.py` and `layer_graph.py` of `python/headwater` alone call this, with tensors of this GPU and of
    // this length that torch keeps until the stream is past the work that is queued here.
    Span::whole(unsafe { Allocation::lent(gpu, address as u64, bytes, Arc::new(())) })
}

/// Host memory that was pinned by its owner, which GPUs read at the address that the CPU has.
pub fn pinned(gpu: &Gpu, lent: Lent) -> Span {
    let (pointer, bytes) = lent.range();
    // SAFETY: the lender promises so many pinned bytes there and is held.
    Span::whole(unsafe { Allocation::lent(gpu, pointer, bytes, Arc::new(lent)) })
}

/// Whether tests run on the emulator, whose devices read the host's memory.
pub fn is_emulated() -> bool {
    std::env::var_os("HEADWATER_EMULATOR").is_some()
}
