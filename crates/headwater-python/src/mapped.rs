//! Host memory that a GPU reads and writes where it lies, seen as a tensor of that GPU.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater::cuda::{Allocation, Gpu, Span};
use headwater::memory::{Foreign, Lease, Pool, PoolConfig, Tier, host_bytes_available, pinned_arena};
use headwater::tensor::placement::{Compute, Operand, place_on};
use headwater::tensor::{Affinity, Device};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::cuda::{gpu, is_emulated};
use crate::dlpack::{self, Lent};
use crate::dtype::Dtype;
use crate::error::{of_cuda, of_memory};
use crate::lender::{Lenders, look_around};

/// A tensor in host memory, for a GPU: `torch.from_dlpack(m)` is a tensor of that GPU over the same memory.
#[pyclass(frozen, module = "headwater")]
pub struct Mapped {
    memory: Arc<Memory>,
    shape: Vec<usize>,
    dtype: Dtype,
}

/// Memory that others queue work on without a word.
struct Memory {
    span: Span,
    gpu: Gpu,
    /// Whether a GPU was shown it.
    is_seen: AtomicBool,
    /// Where it comes from a pool.
    _lease: Option<Lease>,
}

impl Memory {
    fn new(span: Span, gpu: Gpu) -> Arc<Self> {
        Arc::new(Self { span, gpu, is_seen: AtomicBool::new(false), _lease: None })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Whoever read it on the GPU may have been dropped before its work is done, and the registration ends here.
        if self.is_seen.load(Ordering::Acquire) {
            let _ = self.gpu.synchronize();
        }
    }
}

#[pymethods]
impl Mapped {
    /// Registers the memory of a tensor in host memory, which is held. Memory that is pinned already is taken as it is.
    #[new]
    #[pyo3(signature = (array, device = 0))]
    fn new(py: Python<'_>, array: &Bound<'_, PyAny>, device: usize) -> PyResult<Self> {
        let gpu = gpu(device)?;
        let lent = Lent::new(array, "array")?;
        let (shape, dtype) = (lent.shape.clone(), lent.dtype);
        look_around(py)?;
        let bytes = match Lenders::of(array, "array")?.moved() {
            Some(moved) => Foreign::watched(Arc::new(lent), moved),
            None => Foreign::new(Arc::new(lent)),
        };
        let span = py.detach(|| bytes.map_into(&gpu)).map_err(of_memory)?;
        Ok(Self { memory: Memory::new(span, gpu), shape, dtype })
    }

    #[pyo3(signature = (**wishes))]
    fn __dlpack__<'py>(&self, py: Python<'py>, wishes: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        dlpack::check_shared(wishes, self.__dlpack_device__())?;
        let owner: Arc<Memory> = Arc::clone(&self.memory);
        owner.is_seen.store(true, Ordering::Release);
        let lease = dlpack::Lease { owner, address: self.memory.span.pointer(), device: self.__dlpack_device__() };
        dlpack::lend(py, lease, &self.shape, self.dtype)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        if is_emulated() {
            return (dlpack::HOST, 0);
        }
        (dlpack::CUDA, i32::try_from(self.memory.gpu.ordinal()).unwrap_or(0))
    }
}

/// Bytes that the driver moves between CPU and GPU by itself. They take advice.
#[pyclass(frozen, module = "headwater")]
pub struct ManagedMemory {
    memory: Arc<Memory>,
}

#[pymethods]
impl ManagedMemory {
    #[new]
    #[pyo3(signature = (bytes, device = 0))]
    fn new(bytes: usize, device: usize) -> PyResult<Self> {
        let gpu = gpu(device)?;
        let span = Span::whole(Allocation::managed(&gpu, bytes).map_err(of_cuda)?);
        Ok(Self { memory: Memory::new(span, gpu) })
    }

    /// Where it begins.
    #[getter]
    fn address(&self) -> u64 {
        self.memory.span.pointer()
    }

    /// The number of the GPU it was made for.
    #[getter]
    fn device(&self) -> usize {
        self.memory.gpu.ordinal()
    }

    /// The same bytes as a GPU sees them.
    fn mapped(&self) -> Mapped {
        Mapped { memory: Arc::clone(&self.memory), shape: vec![self.memory.span.bytes()], dtype: Dtype::U8 }
    }

    /// Passes a hint, by the driver's number for it, about a GPU, or the CPU as -1.
    fn advise(&self, advice: i32, device: i32) -> PyResult<()> {
        self.memory.span.allocation().advise(advice, device).map_err(of_cuda)
    }

    #[pyo3(signature = (**wishes))]
    fn __dlpack__<'py>(&self, py: Python<'py>, wishes: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        dlpack::check_shared(wishes, self.__dlpack_device__())?;
        let owner: Arc<Memory> = Arc::clone(&self.memory);
        let lease = dlpack::Lease { owner, address: self.memory.span.pointer(), device: self.__dlpack_device__() };
        dlpack::lend(py, lease, &[self.memory.span.bytes()], Dtype::U8)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (dlpack::HOST, 0)
    }
}

/// Pinned bytes for results, which go back to a pool when the last tensor over them is gone.
#[pyclass(frozen, module = "headwater")]
pub struct PinnedMemory {
    memory: Arc<Memory>,
    bytes: usize,
}

/// Pools by the numbers of their GPUs. Looked up with the GIL, which whoever forks holds too.
static POOLS: Mutex<BTreeMap<usize, Pool>> = Mutex::new(BTreeMap::new());
/// The part of host memory that results may keep pinned.
const KEPT_SHARE: usize = 8;

fn pool(gpu: &Gpu) -> Pool {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let limit_bytes = host_bytes_available() / KEPT_SHARE;
    let config = PoolConfig { name: "results", tier: Tier::Pinned, limit_bytes, patience: Duration::ZERO };
    pools.entry(gpu.ordinal()).or_insert_with(|| Pool::new(gpu, config)).clone()
}

#[pymethods]
impl PinnedMemory {
    #[new]
    #[pyo3(signature = (bytes, device = 0))]
    fn new(py: Python<'_>, bytes: usize, device: usize) -> PyResult<Self> {
        look_around(py)?;
        let gpu = gpu(device)?;
        let pool = pool(&gpu);
        let (span, lease) = py
            .detach(|| match pool.lease(bytes) {
                Ok(lease) => Ok((lease.span().clone(), Some(lease))),
                // What the pool may not hold is pinned for this once.
                Err(_) => pinned_arena(&gpu, bytes).map(|span| (span, None)),
            })
            .map_err(of_memory)?;
        let memory = Memory { span, gpu, is_seen: AtomicBool::new(false), _lease: lease };
        Ok(Self { memory: Arc::new(memory), bytes })
    }

    /// How many were served from kept memory, how many had to pin some, and how many bytes are held.
    #[staticmethod]
    #[pyo3(signature = (device = 0))]
    fn usage(device: usize) -> PyResult<(u64, u64, usize)> {
        let usage = pool(&gpu(device)?).usage();
        Ok((usage.hits, usage.misses, usage.held_bytes))
    }

    /// Where it begins, for the CPU.
    #[getter]
    fn address(&self) -> usize {
        self.memory.span.host_pointer().map_or(0, |start| start.addr().get())
    }

    /// The number of the GPU it was made for.
    #[getter]
    fn device(&self) -> usize {
        self.memory.gpu.ordinal()
    }

    /// The same bytes as a GPU sees them.
    fn mapped(&self) -> Mapped {
        Mapped { memory: Arc::clone(&self.memory), shape: vec![self.bytes], dtype: Dtype::U8 }
    }

    #[pyo3(signature = (**wishes))]
    fn __dlpack__<'py>(&self, py: Python<'py>, wishes: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        dlpack::check_shared(wishes, self.__dlpack_device__())?;
        let lease = dlpack::Lease {
            owner: Arc::clone(&self.memory) as Arc<_>,
            address: self.address() as u64,
            device: self.__dlpack_device__(),
        };
        dlpack::lend(py, lease, &[self.bytes], Dtype::U8)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (dlpack::HOST, 0)
    }
}

/// Who computes an operator and where its result goes, by the placement table. Operands and places are named as in
/// `cpu`, `scalar`, `cuda:0`, `unified:gpu`, `unified:host`.
#[pyfunction]
pub fn placement(operands: Vec<String>, current: usize) -> PyResult<(String, String)> {
    let operands = operands.iter().map(|name| operand(name)).collect::<PyResult<Vec<_>>>()?;
    let placed = place_on(&operands, current).map_err(|why| PyRuntimeError::new_err(why.to_string()))?;
    let side = match placed.compute {
        Compute::Cpu => "cpu".to_owned(),
        Compute::Cuda(at) => format!("cuda:{at}"),
    };
    let output = match placed.output {
        Device::Cpu => "cpu".to_owned(),
        Device::Cuda(at) => format!("cuda:{at}"),
        Device::Unified { affinity: Affinity::Gpu } => "unified:gpu".to_owned(),
        Device::Unified { affinity: Affinity::Host } => "unified:host".to_owned(),
    };
    Ok((side, output))
}

fn operand(name: &str) -> PyResult<Operand> {
    let unknown = || PyValueError::new_err(format!("{name:?} is no kind of operand"));
    Ok(match name {
        "cpu" => Operand::Cpu,
        "scalar" => Operand::CpuScalar,
        "unified:gpu" => Operand::Unified(Affinity::Gpu),
        "unified:host" => Operand::Unified(Affinity::Host),
        other => {
            let number = other.strip_prefix("cuda:").and_then(|number| number.parse().ok());
            Operand::Cuda(number.ok_or_else(unknown)?)
        }
    })
}
