//! Neighbourhoods drawn by a GPU, the same ones that the CPU draws. They are written into tensors of the caller's.

use headwater::cuda::{Gpu, Span, Stream};
use headwater::graph::sample::{DeviceSample as Drawn, GpuNeighbourSampler, GpuSubgraphs, Seeds, batch_key};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::cuda::{CallStream, NamedStream, at, on_gpu, stream};
use crate::device_graph::DeviceGraph;
use crate::dtype::Dtype;
use crate::error::of_graph;
use crate::lender::Lenders;
use crate::sampler::{Held, Numbers, SeedArrays, Wishes, held};

/// Draws neighbourhoods on a GPU. The same seeds under the same key give the sample that `Sampler` gives.
#[pyclass(frozen, module = "headwater")]
pub struct DeviceSampler {
    sampler: GpuNeighbourSampler,
    subgraphs: GpuSubgraphs,
    types: usize,
    gpu: Gpu,
    lenders: Lenders,
}

#[pymethods]
impl DeviceSampler {
    /// As `Sampler`, on a graph that a GPU reads.
    #[new]
    #[pyo3(signature = (graph, fanouts, *, replace = false, disjoint = false, weighted = false, last = false, edge_ids = true))]
    #[expect(clippy::fn_params_excessive_bools, reason = "keywords of Python")]
    fn new(
        graph: &DeviceGraph,
        fanouts: Vec<Vec<i64>>,
        replace: bool,
        disjoint: bool,
        weighted: bool,
        last: bool,
        edge_ids: bool,
    ) -> PyResult<Self> {
        let wishes = Wishes { fanouts, replace, disjoint, weighted, last, edge_ids };
        let sampler = GpuNeighbourSampler::new(graph.placed.clone(), wishes.options()?).map_err(of_graph)?;
        let subgraphs = GpuSubgraphs::new(graph.placed.clone(), 0).map_err(of_graph)?;
        let types = graph.placed.graph().schema().node_types().len();
        Ok(Self { sampler, subgraphs, types, gpu: graph.gpu.clone(), lenders: graph.lenders.clone() })
    }

    /// The neighbourhood of seeds of some types in host memory, drawn on a stream under the numbers of its batch. Returns when
    /// it is there.
    fn sample(
        &self,
        py: Python<'_>,
        seeds: Vec<SeedArrays<'_>>,
        numbers: Numbers,
        stream: NamedStream,
    ) -> PyResult<DeviceSample> {
        self.lenders.check(py, "graph")?;
        let (held, stream) = (held(self.types, &seeds)?, self::stream(&self.gpu, stream)?);
        let drawn = py.detach(|| self.draw(&stream, &held, numbers)).map_err(of_graph)?;
        Ok(DeviceSample(drawn))
    }

    /// As `sample`, with every edge among the nodes that were found.
    fn sample_induced(
        &self,
        py: Python<'_>,
        seeds: Vec<SeedArrays<'_>>,
        numbers: Numbers,
        stream: NamedStream,
    ) -> PyResult<DeviceSample> {
        self.lenders.check(py, "graph")?;
        let (held, stream) = (held(self.types, &seeds)?, self::stream(&self.gpu, stream)?);
        let drawn = py.detach(|| {
            let nodes = self.draw(&stream, &held, numbers)?.node_ids()?;
            let nodes: Vec<&[u64]> = nodes.iter().map(|ids| &ids[..]).collect();
            self.subgraphs.induced(&stream, &nodes)
        });
        Ok(DeviceSample(drawn.map_err(of_graph)?.sample))
    }
}

impl DeviceSampler {
    fn draw(&self, stream: &Stream, held: &[Held], numbers: Numbers) -> headwater::graph::Result<Drawn> {
        let seeds: Vec<Seeds<'_>> = held.iter().map(Held::seeds).collect();
        let (seed, epoch, batch) = numbers;
        self.sampler.sample_types(stream, &seeds, batch_key(seed, epoch, batch))
    }
}

/// A sampled neighbourhood in GPU memory. Positions are types and relations of the graph.
#[pyclass(frozen, module = "headwater")]
pub struct DeviceSample(Drawn);

#[pymethods]
impl DeviceSample {
    /// How many nodes of a type there are.
    fn node_count(&self, node_type: usize) -> PyResult<usize> {
        self.0.node_count(node_type).map_err(of_graph)
    }

    /// How many edges of a relation there are.
    fn edge_count(&self, relation: usize) -> PyResult<usize> {
        self.0.edge_count(relation).map_err(of_graph)
    }

    /// How many nodes of a type are seeds, and how many each hop added.
    fn nodes_per_hop(&self, node_type: usize) -> PyResult<Vec<usize>> {
        self.node_count(node_type)?;
        Ok(self.0.nodes[node_type].per_hop.clone())
    }

    /// How many edges of a relation each hop added.
    fn edges_per_hop(&self, relation: usize) -> PyResult<Vec<usize>> {
        self.edge_count(relation)?;
        Ok(self.0.segments[relation].iter().map(ExactSizeIterator::len).collect())
    }

    /// Queues the ids of a type's nodes into an int64 tensor.
    fn nodes_into(&self, node_type: usize, out: &Bound<'_, PyAny>, stream: NamedStream) -> PyResult<()> {
        let (out, stream) = self.target(out, &[self.node_count(node_type)?], stream)?;
        self.0.nodes_into(&stream, node_type, &out).map_err(of_graph)
    }

    /// With disjoint trees, queues the seed that each node of a type belongs to; whether there are trees.
    fn trees_into(&self, node_type: usize, out: &Bound<'_, PyAny>, stream: NamedStream) -> PyResult<bool> {
        let (out, stream) = self.target(out, &[self.node_count(node_type)?], stream)?;
        self.0.trees_into(&stream, node_type, &out).map_err(of_graph)
    }

    /// Queues local numbers of the neighbours of a relation's edges, and below them of the nodes that asked for them.
    fn edges_into(&self, relation: usize, out: &Bound<'_, PyAny>, stream: NamedStream) -> PyResult<()> {
        let (out, stream) = self.target(out, &[2, self.edge_count(relation)?], stream)?;
        self.0.ends_into(&stream, relation, &out).map_err(of_graph)
    }

    /// Queues the ids of a relation's edges; whether they were kept.
    fn edge_ids_into(&self, relation: usize, out: &Bound<'_, PyAny>, stream: NamedStream) -> PyResult<bool> {
        let (out, stream) = self.target(out, &[self.edge_count(relation)?], stream)?;
        self.0.edge_ids_into(&stream, relation, &out).map_err(of_graph)
    }

    /// Queues nodes, edges and ids of edges of a graph of one type into int64 tensors at these addresses.
    fn _write(&self, py: Python<'_>, nodes: usize, edges: usize, edge_ids: usize, stream: NamedStream) -> PyResult<()> {
        let gpu = self.0.stream().gpu();
        let (stream, node_count, edge_count) = (self::stream(gpu, stream)?, self.node_count(0)?, self.edge_count(0)?);
        let (nodes, ends) = (at(gpu, nodes, 8 * node_count), at(gpu, edges, 16 * edge_count));
        let edge_ids = at(gpu, edge_ids, 8 * edge_count);
        py.detach(|| self.0.columns_into(&stream, &nodes, &ends, &edge_ids)).map_err(of_graph)
    }

    fn __repr__(&self) -> String {
        let nodes: usize = self.0.nodes.iter().map(|own| own.ids.bytes() / 8).sum();
        format!("DeviceSample({nodes} nodes, {} edges)", self.0.row.bytes() / 4)
    }
}

impl DeviceSample {
    /// A tensor of the caller's and its stream.
    fn target(&self, out: &Bound<'_, PyAny>, shape: &[usize], named: NamedStream) -> PyResult<(Span, CallStream)> {
        let gpu = self.0.stream().gpu();
        let out = on_gpu(out, gpu, "out")?;
        if out.shape != shape || out.dtype != Dtype::I64 {
            let why = format!("out is {:?} of {:?}; it should be {shape:?} of I64", out.shape, out.dtype);
            return Err(PyValueError::new_err(why));
        }
        Ok((out.span, stream(gpu, named)?))
    }
}
