//! Compiled layers run by a GPU, on memory of torch's and on its stream.
//!
//! As on the CPU a run keeps none of the caller's memory. Tables that say where it lay are kept for the next one.

use std::sync::Arc;

use headwater::compile::call::{DevicePlan as Compiled, Direction};
use headwater::compile::cuda::{CallMemory, DeviceGraph, LEAST_CAPABILITY, Precision, StepKey};
use headwater::cuda::{Gpu, Span};
use headwater::graph::random::Key;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::cuda::{NamedStream, at, gpu, raise_faults, stream};
use crate::device_layer_graph::{AnyGraph, Made};
use crate::error::of_compile;

/// Kernels of a layer, forward and backward, for a GPU.
#[pyclass(frozen, module = "headwater")]
pub struct DevicePlan {
    plan: Arc<Compiled>,
    gpu: Gpu,
}

#[pymethods]
impl DevicePlan {
    /// Names of what the way back reads.
    #[getter]
    fn backward_reads(&self) -> Vec<String> {
        self.plan.backward_reads().into_iter().map(str::to_owned).collect()
    }

    /// The kernels for a graph, which is brought to the GPU if it was not there.
    fn placed(&self, py: Python<'_>, graph: AnyGraph<'_>, stream: NamedStream) -> PyResult<PlacedPlan> {
        let stream = self::stream(&self.gpu, stream)?;
        let (graph, made) = graph.on_gpu(py, &self.gpu, &stream, &self.plan.tables())?;
        Ok(PlacedPlan { plan: Arc::clone(&self.plan), gpu: self.gpu.clone(), graph, made })
    }
}

/// An address in GPU memory and how many bytes lie there.
type Memory = (usize, usize);
/// Names of what a direction reads and makes, those that it makes with how many numbers, and the bytes that it needs besides.
type Needs = (Vec<String>, Vec<(String, usize)>, usize);

/// Kernels of a layer for a graph: all that calls with it share.
#[pyclass(frozen, module = "headwater")]
pub struct PlacedPlan {
    plan: Arc<Compiled>,
    gpu: Gpu,
    graph: Arc<DeviceGraph>,
    made: Option<Arc<Made>>,
}

#[pymethods]
impl PlacedPlan {
    /// Names of what a direction reads and makes, those that it makes with how many numbers, and bytes that it needs besides
    /// while it runs.
    fn needs(&self, backward: bool) -> Needs {
        let direction = direction(backward);
        let takes = self.plan.takes(direction).into_iter().map(str::to_owned).collect();
        let made = self.plan.makes(direction, &self.graph).into_iter().map(|(name, count)| (name.to_owned(), count));
        (takes, made.collect(), self.plan.temporary_bytes(direction, &self.graph))
    }

    /// Queues a direction over memory of what it reads and makes, in the order of `needs`. `seed` is the same for both directions
    /// of a call; where there is a `key`, that is the address of 64 bits which are drawn on the GPU instead. Torch keeps the
    /// memory until the stream is past this.
    #[expect(clippy::too_many_arguments, reason = "what a run is made of")]
    fn _queue(
        &self,
        py: Python<'_>,
        backward: bool,
        memory: Vec<Memory>,
        temporaries: Memory,
        seed: u64,
        key: Option<usize>,
        stream: NamedStream,
    ) -> PyResult<()> {
        let stream = self::stream(&self.gpu, stream)?;
        if let Some(made) = &self.made {
            made.before(&stream)?;
        }
        let span = |(address, bytes): Memory| at(&self.gpu, address, bytes);
        let given: Vec<Span> = memory.into_iter().map(span).collect();
        let (temporaries, key) = (span(temporaries), key.map(|address| span((address, size_of::<u64>()))));
        let key = key.as_ref().map_or(StepKey::Told(Key::new(seed)), StepKey::Lies);
        let memory = CallMemory { given: &given, temporaries: &temporaries, key };
        let queued = py.detach(|| self.plan.queue(direction(backward), &stream, &self.graph, memory));
        queued.map_err(|why| of_compile(why, ""))?;
        raise_faults(&stream)
    }

    /// How calls of a direction went: places that are kept, calls at a new place, calls at a known one, and those that were one
    /// launch.
    fn repeats(&self, backward: bool) -> Option<(usize, u64, u64, u64)> {
        let counts = self.plan.repeats(direction(backward))?;
        Some((counts.kept, counts.bound, counts.repeated, counts.launched_as_one))
    }
}

impl DevicePlan {
    /// Kernels for a GPU by its number.
    pub fn new(
        ordinal: usize,
        precision: &str,
        make: impl FnOnce(&Gpu, Precision) -> PyResult<Arc<Compiled>>,
    ) -> PyResult<Self> {
        let gpu = gpu(ordinal)?;
        let ((major, minor), (least, and)) = (gpu.facts().compute_capability, LEAST_CAPABILITY);
        if (major, minor) < LEAST_CAPABILITY {
            let name = &gpu.facts().name;
            let why =
                format!("{name} has compute capability {major}.{minor}; compiled layers need {least}.{and} or newer");
            return Err(PyRuntimeError::new_err(why));
        }
        let precision = match precision {
            "highest" => Precision::Tf32x3,
            // Torch's own products on a GPU are the same for both.
            "high" | "medium" => Precision::Tf32,
            other => return Err(PyValueError::new_err(format!("{other:?} is no precision of torch's for products"))),
        };
        Ok(Self { plan: make(&gpu, precision)?, gpu })
    }

    /// Whether a graph has everything that its kernels ask for.
    pub fn is_served_by(&self, graph: &AnyGraph<'_>) -> bool {
        graph.serves(&self.plan.tables())
    }
}

fn direction(backward: bool) -> Direction {
    if backward { Direction::Backward } else { Direction::Forward }
}
