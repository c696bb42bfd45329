//! Graphs as kernels of layers find them on a GPU: brought there from the host, or made there out of edges that lie there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use headwater::compile::cuda::{DeviceBlock, DeviceGraph, Lists, Room, Table, Wants};
use headwater::compile::inter::Domain;
use headwater::compile::pass::Statistics;
use headwater::cuda::{Event, Gpu, Stream};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::cuda::{NamedStream, at, gpu, raise_faults, stream};
use crate::error::{faults, of_compile, of_cuda};
use crate::kernels::{LayerGraph, domain_named, loops_named};

/// One node type and one relation, whose edges lie on a GPU. Nothing about it comes to the host, so nothing is waited for.
#[pyclass(frozen, module = "headwater")]
pub struct DeviceLayerGraph {
    graph: Arc<DeviceGraph>,
    statistics: Statistics,
    gpu: usize,
    made: Arc<Made>,
    /// How many faults were told when it was made.
    faults: u64,
}

/// Behind the kernels that make a graph: it may be used on another stream.
pub struct Made {
    event: Event,
    has_passed: AtomicBool,
}

impl Made {
    /// Lets work on a stream begin when the graph is made. Work that somebody records cannot wait for work that they do not, so
    /// the host waits then.
    pub fn before(&self, stream: &Stream) -> PyResult<()> {
        if self.has_passed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let has_passed = if stream.is_recorded() {
            self.event.synchronize().map(|()| true)
        } else {
            self.event
                .has_passed()
                .and_then(|has_passed| if has_passed { Ok(true) } else { stream.wait(&self.event).map(|()| false) })
        };
        self.has_passed.fetch_or(has_passed.map_err(of_cuda)?, Ordering::Relaxed);
        Ok(())
    }
}

#[pymethods]
impl DeviceLayerGraph {
    /// Out of int32 tensors at these addresses: the source of each of `edges` edges, and its target, in order of targets.
    /// `written` are the first of `nodes`. Numbers that are no nodes are an IndexError of a later call on the stream.
    #[new]
    fn new(
        py: Python<'_>,
        lists: (usize, usize, usize),
        nodes: usize,
        written: usize,
        self_loops: &str,
        gpu: usize,
        stream: NamedStream,
    ) -> PyResult<Self> {
        let ((sources, targets, edges), device) = (lists, self::gpu(gpu)?);
        let (stream, self_loops) = (self::stream(&device, stream)?, loops_named(self_loops)?);
        let (sources, targets) = (at(&device, sources, 4 * edges), at(&device, targets, 4 * edges));
        let number = |count: usize| {
            let why = || PyValueError::new_err(format!("{count} are more than kernels count"));
            u32::try_from(count).map_err(|_| why())
        };
        let lists = Lists {
            sources: &sources,
            targets: &targets,
            edges: number(edges)?,
            src: number(nodes)?,
            dst: number(written)?,
        };
        let room = Room { src: nodes, dst: written, edges };
        let made = py.detach(|| {
            let block = DeviceBlock::new(&stream, room, Wants { by_source: true, self_loops })?;
            block.fill(&stream, &lists)?;
            Ok((DeviceGraph::of_block(&block), stream.record()?))
        });
        let (graph, made) = made.map_err(|why| of_compile(why, ""))?;
        raise_faults(&stream)?;
        let statistics = Statistics::of_one_relation(nodes, written, graph.room(Domain::Edge));
        let made = Arc::new(Made { event: made, has_passed: AtomicBool::new(false) });
        Ok(Self { graph: Arc::new(graph), statistics, gpu, made, faults: faults() })
    }

    /// Whether no fault of a kernel was told since it was made. One may have been about its edges, which are then none.
    #[getter]
    fn is_trusted(&self) -> bool {
        self.faults == faults()
    }

    /// Rows of a kind, as `LayerGraph.rows` has them; of edges with loops the most that there can be.
    fn rows(&self, kind: &str) -> PyResult<usize> {
        Ok(self.graph.room(domain_named(kind)?))
    }
}

/// A graph that a call is made with.
pub enum AnyGraph<'py> {
    /// Of the host.
    Host(PyRef<'py, LayerGraph>),
    /// Of a GPU.
    Device(PyRef<'py, DeviceLayerGraph>),
}

impl<'py> FromPyObject<'_, 'py> for AnyGraph<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.cast::<DeviceLayerGraph>() {
            Ok(graph) => Ok(Self::Device(graph.to_owned().borrow())),
            Err(_) => Ok(Self::Host(object.extract()?)),
        }
    }
}

/// A graph on a GPU, and what its use waits for.
pub type OnGpu = (Arc<DeviceGraph>, Option<Arc<Made>>);

impl AnyGraph<'_> {
    /// Rows that it is compiled for.
    pub fn statistics(&self) -> &Statistics {
        match self {
            Self::Host(graph) => graph.statistics(),
            Self::Device(graph) => &graph.statistics,
        }
    }

    /// Rows of a domain.
    pub fn rows(&self, domain: Domain) -> usize {
        match self {
            Self::Host(graph) => graph.adjacency().rows(domain),
            Self::Device(graph) => graph.graph.room(domain),
        }
    }

    /// Whether kernels that ask for these find them.
    pub fn serves(&self, tables: &[&Table]) -> bool {
        match self {
            Self::Host(_) => true,
            Self::Device(graph) => tables.iter().all(|table| graph.graph.serves(table)),
        }
    }

    /// It on a GPU, brought there if it was not.
    pub fn on_gpu(&self, py: Python<'_>, gpu: &Gpu, stream: &Stream, tables: &[&Table]) -> PyResult<OnGpu> {
        let graph = match self {
            Self::Device(graph) if graph.gpu == gpu.ordinal() => {
                return Ok((Arc::clone(&graph.graph), Some(Arc::clone(&graph.made))));
            }
            Self::Device(graph) => {
                let why = format!("the graph lies with cuda:{}; it should lie with cuda:{}", graph.gpu, gpu.ordinal());
                return Err(PyValueError::new_err(why));
            }
            Self::Host(graph) => graph,
        };
        if let Some(found) = graph.on_gpu(gpu.ordinal(), tables) {
            return Ok((found, None));
        }
        if stream.is_recorded() {
            // The copy would become a part of somebody's graph.
            let why = "the stream is being recorded, and the graph was not used on this GPU before; call the layer with it once \
                       before it is recorded";
            return Err(PyRuntimeError::new_err(why));
        }
        let adjacency = graph.adjacency();
        let made = py.detach(|| DeviceGraph::of(stream, adjacency, tables));
        let made = Arc::new(made.map_err(|why| of_compile(why, ""))?);
        graph.keep_on_gpu(gpu.ordinal(), Arc::clone(&made));
        Ok((made, None))
    }
}
