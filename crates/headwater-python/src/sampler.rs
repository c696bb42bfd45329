//! Neighbourhoods, drawn without the GIL.

use std::sync::Arc;

use headwater::graph::Column;
use headwater::graph::sample::{
    Bias, EdgeIds, Fanout, NeighbourSampler, Recency, Replacement, Sample as Drawn, SampleOptions, Seeds, Trees,
    batch_key, induced_subgraph,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::column::{times, wide};
use crate::dtype::Dtype;
use crate::error::of_graph;
use crate::graph::Graph;
use crate::lender::Lenders;
use crate::threads;

/// Draws neighbourhoods on CPU threads. The same seeds under the same key give the same sample.
#[pyclass(frozen, module = "headwater")]
pub struct Sampler {
    sampler: NeighbourSampler,
    types: usize,
    lenders: Lenders,
}

/// What is asked of a sampler, on the CPU or on a GPU, in Python's words.
pub struct Wishes {
    pub fanouts: Vec<Vec<i64>>,
    pub replace: bool,
    pub disjoint: bool,
    pub weighted: bool,
    pub last: bool,
    pub edge_ids: bool,
}

impl Wishes {
    /// In the core's words.
    pub fn options(&self) -> PyResult<SampleOptions> {
        let hop = |numbers: &Vec<i64>| numbers.iter().map(|number| Fanout::from_number(*number)).collect();
        let fanouts = self.fanouts.iter().map(hop).collect::<headwater::graph::Result<_>>().map_err(of_graph)?;
        Ok(SampleOptions {
            fanouts,
            bias: if self.weighted { Bias::Weights } else { Bias::Uniform },
            recency: if self.last { Recency::Last } else { Recency::Any },
            replacement: if self.replace { Replacement::With } else { Replacement::Without },
            trees: if self.disjoint { Trees::Disjoint } else { Trees::Shared },
            edge_ids: if self.edge_ids { EdgeIds::Kept } else { EdgeIds::Dropped },
        })
    }
}

/// Nodes of one type that a sample begins at: its position, their ids, their times.
pub type SeedArrays<'py> = (usize, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);
/// A run's seed, an epoch and a batch.
pub type Numbers = (u64, u64, u64);

#[pymethods]
impl Sampler {
    /// `fanouts` has a list a hop, with one number for all relations or one for each; -1 takes every neighbour.
    #[new]
    #[pyo3(signature = (graph, fanouts, *, replace = false, disjoint = false, weighted = false, last = false, edge_ids = true))]
    #[expect(clippy::fn_params_excessive_bools, clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        py: Python<'_>,
        graph: &Graph,
        fanouts: Vec<Vec<i64>>,
        replace: bool,
        disjoint: bool,
        weighted: bool,
        last: bool,
        edge_ids: bool,
    ) -> PyResult<Self> {
        let wishes = Wishes { fanouts, replace, disjoint, weighted, last, edge_ids };
        graph.1.check(py, "graph")?;
        let sampler = NeighbourSampler::new(graph.0.clone(), wishes.options()?).map_err(of_graph)?;
        Ok(Self { sampler, types: graph.0.schema().node_types().len(), lenders: graph.1.clone() })
    }

    /// The neighbourhood of seeds of some types, drawn under the numbers of its batch.
    fn sample(&self, py: Python<'_>, seeds: Vec<SeedArrays<'_>>, numbers: Numbers) -> PyResult<Sample> {
        self.lenders.check(py, "graph")?;
        let held = held(self.types, &seeds)?;
        let drawn = threads::run(py, || self.draw(&held, numbers))?;
        drawn.map(|found| Sample(Arc::new(found))).map_err(of_graph)
    }

    /// As `sample`, with every edge among the nodes that were found.
    fn sample_induced(&self, py: Python<'_>, seeds: Vec<SeedArrays<'_>>, numbers: Numbers) -> PyResult<Sample> {
        self.lenders.check(py, "graph")?;
        let held = held(self.types, &seeds)?;
        let drawn = threads::run(py, || {
            let drawn = self.draw(&held, numbers)?;
            let nodes: Vec<&[u64]> = drawn.nodes.iter().map(|nodes| &nodes.ids[..]).collect();
            induced_subgraph(self.sampler.graph(), &nodes)
        })?;
        drawn.map(|found| Sample(Arc::new(found.sample))).map_err(of_graph)
    }
}

/// Seeds of a type, with their arrays.
pub struct Held {
    node_type: usize,
    nodes: Column<u64>,
    times: Option<Column<i64>>,
}

impl Held {
    /// As the core takes them.
    pub fn seeds(&self) -> Seeds<'_> {
        Seeds { node_type: self.node_type, nodes: &self.nodes, times: self.times.as_deref() }
    }
}

/// The arrays of seeds, checked.
pub fn held(types: usize, seeds: &[SeedArrays<'_>]) -> PyResult<Vec<Held>> {
    let one = |(node_type, nodes, own_times): &SeedArrays<'_>| {
        if *node_type >= types {
            return Err(PyValueError::new_err(format!("there is no node type {node_type}; there are {types}")));
        }
        let own_times = own_times.as_ref().map(|array| times(array, "seed times")).transpose()?;
        Ok(Held { node_type: *node_type, nodes: wide(nodes, "seeds")?, times: own_times })
    };
    seeds.iter().map(one).collect()
}

impl Sampler {
    fn draw(&self, held: &[Held], (seed, epoch, batch): Numbers) -> headwater::graph::Result<Drawn> {
        let seeds: Vec<Seeds<'_>> = held.iter().map(Held::seeds).collect();
        self.sampler.sample_types(&seeds, batch_key(seed, epoch, batch))
    }
}

/// A sampled neighbourhood. Positions are types and relations of the graph.
#[pyclass(frozen, module = "headwater")]
pub struct Sample(Arc<Drawn>);

/// A list of a sample, seen where it lies.
struct Part {
    of: Arc<Drawn>,
    at: usize,
    list: fn(&Drawn, usize) -> &[u64],
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice((self.list)(&self.of, self.at))
    }
}

#[pymethods]
impl Sample {
    /// Ids of the nodes of a type; a position there is a node's local number.
    fn nodes(&self, node_type: usize) -> PyResult<Array> {
        self.of_type(node_type)?;
        Ok(self.part(node_type, |of, at| &of.nodes[at].ids))
    }

    /// With disjoint trees, the seed that each node of a type belongs to.
    fn trees(&self, py: Python<'_>, node_type: usize) -> PyResult<Option<Array>> {
        self.of_type(node_type)?.trees.as_ref().map(|trees| Array::numbers(py, trees)).transpose()
    }

    /// How many nodes of a type are seeds, and how many each hop added.
    fn nodes_per_hop(&self, node_type: usize) -> PyResult<Vec<usize>> {
        Ok(self.of_type(node_type)?.per_hop.clone())
    }

    /// Local numbers of the neighbours of a relation's edges, and below them of the nodes that asked for them.
    fn edges(&self, py: Python<'_>, relation: usize) -> PyResult<Array> {
        let own = self.of_relation(relation)?;
        Array::ends(py, &own.row, &own.col)
    }

    /// Ids of a relation's edges, when kept.
    fn edge_ids(&self, relation: usize) -> PyResult<Option<Array>> {
        let has_ids = self.of_relation(relation)?.ids.is_some();
        Ok(has_ids.then(|| self.part(relation, |of, at| of.edges[at].ids.as_deref().unwrap_or_default())))
    }

    /// How many edges of a relation each hop added.
    fn edges_per_hop(&self, relation: usize) -> PyResult<Vec<usize>> {
        Ok(self.of_relation(relation)?.per_hop.clone())
    }

    fn __repr__(&self) -> String {
        format!("Sample({} nodes, {} edges)", self.0.node_count(), self.0.edge_count())
    }
}

impl Sample {
    fn part(&self, at: usize, list: fn(&Drawn, usize) -> &[u64]) -> Array {
        let shape = vec![list(&self.0, at).len()];
        Array::over(Arc::new(Part { of: Arc::clone(&self.0), at, list }), shape, Dtype::I64)
    }

    fn of_type(&self, at: usize) -> PyResult<&headwater::graph::sample::TypeNodes> {
        self.0.nodes.get(at).ok_or_else(|| PyValueError::new_err(format!("there is no node type {at}")))
    }

    fn of_relation(&self, at: usize) -> PyResult<&headwater::graph::sample::RelationEdges> {
        self.0.edges.get(at).ok_or_else(|| PyValueError::new_err(format!("there is no relation {at}")))
    }
}
