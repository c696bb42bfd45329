//! A graph where a GPU reads it.

use headwater::cuda::{Gpu, Stream};
use headwater::graph::score::{Expected, Outgoing, expected_reads};
use headwater::graph::{Column, PlacedGraph, Storage, Wish};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;

use crate::array::Array;
use crate::column::wide;
use crate::cuda::gpu;
use crate::error::of_graph;
use crate::graph::Graph;
use crate::lender::{Lenders, look_around};
use crate::sampler::Wishes;
use crate::threads;

/// A graph where a GPU reads it: in GPU memory, or in pinned host memory.
#[pyclass(frozen, module = "headwater")]
pub struct DeviceGraph {
    pub placed: PlacedGraph,
    pub gpu: Gpu,
    /// Of what it reads in host memory.
    pub lenders: Lenders,
}

#[pymethods]
impl DeviceGraph {
    /// `storage` is `"cuda"`, `"zero-copy"`, or `"auto"` for GPU memory where there is room.
    #[new]
    #[pyo3(signature = (graph, device = 0, storage = "auto"))]
    fn new(py: Python<'_>, graph: &Graph, device: usize, storage: &str) -> PyResult<Self> {
        let gpu = gpu(device)?;
        let wish = match storage {
            "auto" => Wish::Auto,
            "cuda" => Wish::In(Storage::Cuda),
            "zero-copy" => Wish::In(Storage::ZeroCopy),
            other => {
                let why = format!("storage is {other:?}; it should be 'auto', 'cuda' or 'zero-copy'");
                return Err(PyValueError::new_err(why));
            }
        };
        graph.1.check(py, "graph")?;
        look_around(py)?;
        let placed = threads::run(py, || PlacedGraph::new(&graph.0, wish, Some(&gpu)))?.map_err(of_graph)?;
        if placed.storage() == Storage::Cpu {
            let why = "the graph has room neither in GPU memory nor in memory that can be pinned";
            return Err(PyMemoryError::new_err(why));
        }
        let lenders = if placed.storage() == Storage::ZeroCopy { graph.1.clone() } else { Lenders::default() };
        Ok(Self { placed, gpu, lenders })
    }

    /// Where it lies: `"cuda"` or `"zero-copy"`.
    #[getter]
    fn storage(&self) -> String {
        self.placed.storage().to_string()
    }

    /// The number of the GPU that reads it.
    #[getter]
    fn device(&self) -> usize {
        self.gpu.ordinal()
    }

    /// How often each node of each type will be read in an epoch, in units of 2^-20, when every node of `train` is a seed once.
    fn expected_reads(
        &self,
        py: Python<'_>,
        train: Vec<(usize, Bound<'_, PyAny>)>,
        batch: usize,
        fanouts: Vec<Vec<i64>>,
    ) -> PyResult<Vec<Array>> {
        self.lenders.check(py, "graph")?;
        let wishes = Wishes { fanouts, replace: false, disjoint: false, weighted: false, last: false, edge_ids: false };
        let options = wishes.options()?;
        let types = self.placed.graph().schema().node_types().len();
        let mut lists = vec![Column::from(Vec::<u64>::new()); types];
        for (at, nodes) in &train {
            let list =
                lists.get_mut(*at).ok_or_else(|| PyValueError::new_err(format!("there is no node type {at}")))?;
            *list = wide(nodes, "train")?;
        }
        let reads = threads::run(py, || {
            let train: Vec<&[u64]> = lists.iter().map(|list| &list[..]).collect();
            let outgoing = Outgoing::of_placed(&self.placed, &Stream::new(&self.gpu)?)?;
            expected_reads(&outgoing, &Expected { train: &train, batch, options: &options })
        })?;
        Ok(reads.map_err(of_graph)?.into_iter().map(Array::ids).collect())
    }

    fn __repr__(&self) -> String {
        format!("DeviceGraph({} edges in {} storage)", self.placed.graph().edges(), self.placed.storage())
    }
}
