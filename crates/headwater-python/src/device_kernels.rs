//! Compiled layers run by a GPU, on memory of torch's and on its stream.
//!
//! As on the CPU a run keeps nothing.

use std::collections::HashMap;
use std::sync::Arc;

use headwater::compile::call::{DevicePlan as Compiled, Direction};
use headwater::compile::cuda::{LEAST_CAPABILITY, Precision};
use headwater::cuda::{Gpu, Span};
use headwater::graph::random::Key;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::cuda::{NamedStream, at, gpu, raise_faults, stream};
use crate::device_layer_graph::AnyGraph;
use crate::error::of_compile;

/// Kernels of a layer, forward and backward, for a GPU.
#[pyclass(frozen, module = "headwater")]
pub struct DevicePlan {
    plan: Arc<Compiled>,
    gpu: Gpu,
}

/// An address in GPU memory and how many bytes lie there.
type Memory = (usize, usize);
/// What a direction makes, with how many numbers, and the bytes that it needs besides.
type Needs = (Vec<(String, usize)>, usize);

#[pymethods]
impl DevicePlan {
    /// Names of what `backward` reads.
    #[getter]
    fn backward_reads(&self) -> Vec<String> {
        self.plan.backward_reads().into_iter().map(str::to_owned).collect()
    }

    /// What a direction makes on a graph, with how many numbers, and bytes that it needs besides while it runs.
    fn needs(&self, py: Python<'_>, graph: AnyGraph<'_>, backward: bool, stream: NamedStream) -> PyResult<Needs> {
        let (stream, direction) = (self::stream(&self.gpu, stream)?, direction(backward));
        let placed = graph.on_gpu(py, &self.gpu, &stream, &self.plan.tables())?;
        let made = self.plan.makes(direction, &placed).into_iter().map(|(name, count)| (name.to_owned(), count));
        Ok((made.collect(), self.plan.temporary_bytes(direction, &placed)))
    }

    /// Queues a direction out of memory by name and into it. `seed` is the same for both directions of a call. Torch keeps the
    /// memory until the stream is past this.
    #[expect(clippy::too_many_arguments, reason = "what a run is made of")]
    fn _queue(
        &self,
        py: Python<'_>,
        graph: AnyGraph<'_>,
        backward: bool,
        memory: HashMap<String, Memory>,
        temporaries: Memory,
        seed: u64,
        stream: NamedStream,
    ) -> PyResult<()> {
        let (stream, direction) = (self::stream(&self.gpu, stream)?, direction(backward));
        let placed = graph.on_gpu(py, &self.gpu, &stream, &self.plan.tables())?;
        let span = |(address, bytes): Memory| at(&self.gpu, address, bytes);
        let spans: HashMap<String, Span> = memory.into_iter().map(|(name, own)| (name, span(own))).collect();
        let (own, find) = ((&span(temporaries), Key::new(seed)), |name: &str| spans.get(name).cloned());
        let queued = py.detach(|| self.plan.queue(direction, &stream, &placed, own, &find));
        queued.map_err(|why| of_compile(why, ""))?;
        raise_faults(&stream)
    }
}

impl DevicePlan {
    /// Kernels for a GPU by its number.
    pub fn new(
        ordinal: usize,
        precision: &str,
        make: impl FnOnce(Precision) -> PyResult<Arc<Compiled>>,
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
        Ok(Self { plan: make(precision)?, gpu })
    }

    /// Whether a graph has everything that its kernels ask for.
    pub fn is_served_by(&self, graph: &AnyGraph<'_>) -> bool {
        graph.serves(&self.plan.tables())
    }
}

fn direction(backward: bool) -> Direction {
    if backward { Direction::Backward } else { Direction::Forward }
}
