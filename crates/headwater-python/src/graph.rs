//! Graphs made out of arrays of other libraries.

use headwater::graph::build::{BuildOptions, Coo, EdgeIds};
use headwater::graph::topology::RowOrder;
use headwater::graph::{self as core, Column, Ids, Layout, NodeType, Relation, Schema, Silent};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::column::{ids, times, weights, wide};
use crate::error::of_graph;
use crate::lender::Lenders;
use crate::threads;

/// Who is next to whom: the neighbour lists of one relation. Lists are the targets' (`csc`) or the sources' (`csr`).
#[pyclass(frozen, module = "headwater")]
#[derive(Clone)]
pub struct Topology(pub core::Topology, pub Lenders);

/// By its name.
pub fn layout(name: &str) -> PyResult<Layout> {
    match name.to_ascii_lowercase().as_str() {
        "csc" => Ok(Layout::Csc),
        "csr" => Ok(Layout::Csr),
        _ => Err(PyValueError::new_err(format!("layout is {name:?}; it should be 'csc' or 'csr'"))),
    }
}

/// What every edge may have: its id, weight and time, in the order of the edges; or the times of their neighbours.
type Own<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

struct Carried {
    edge_ids: Option<Ids>,
    weights: Option<Column<f32>>,
    times: Option<Column<i64>>,
    node_times: Option<Column<i64>>,
}

impl Carried {
    fn read(
        edge_ids: Own<'_, '_>,
        own_weights: Own<'_, '_>,
        own_times: Own<'_, '_>,
        node_times: Own<'_, '_>,
    ) -> PyResult<Self> {
        Ok(Self {
            edge_ids: edge_ids.map(|array| ids(array, "edge_ids")).transpose()?,
            weights: own_weights.map(|array| weights(array, "weights")).transpose()?,
            times: own_times.map(|array| times(array, "times")).transpose()?,
            node_times: node_times.map(|array| times(array, "node_times")).transpose()?,
        })
    }
}

#[pymethods]
impl Topology {
    /// Sorts edges into lists, in parallel. Edges of a row keep their order, or take that of their times.
    #[staticmethod]
    #[pyo3(signature = (sources, targets, source_count, target_count, layout = "csc", *, edge_ids = None, weights = None, times = None, node_times = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn from_coo(
        py: Python<'_>,
        sources: &Bound<'_, PyAny>,
        targets: &Bound<'_, PyAny>,
        source_count: u64,
        target_count: u64,
        layout: &str,
        edge_ids: Own<'_, '_>,
        weights: Own<'_, '_>,
        times: Own<'_, '_>,
        node_times: Own<'_, '_>,
    ) -> PyResult<Self> {
        let layout = self::layout(layout)?;
        let Carried { edge_ids, weights, times, node_times } = Carried::read(edge_ids, weights, times, node_times)?;
        let (sources, targets) = (ids(sources, "edge_index[0]")?, ids(targets, "edge_index[1]")?);
        let edges = Coo { sources, targets, source_count, target_count, edge_ids, weights, times };
        let made = threads::run(py, || {
            let options = BuildOptions { layout, edge_ids: EdgeIds::Kept };
            // Samplers read here and there, which large pages make cheap.
            in_time(edges.build(options, &Silent)?, node_times.as_deref())?.with_ids_implied().in_memory()
        })?;
        made.map(|made| Self(made, Lenders::default())).map_err(of_graph)
    }

    /// Over lists that are there already. They are read where they lie.
    #[staticmethod]
    #[pyo3(signature = (offsets, neighbours, columns, layout = "csc", *, edge_ids = None, weights = None, times = None, node_times = None, is_sorted = false))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn from_lists(
        py: Python<'_>,
        offsets: &Bound<'_, PyAny>,
        neighbours: &Bound<'_, PyAny>,
        columns: u64,
        layout: &str,
        edge_ids: Own<'_, '_>,
        weights: Own<'_, '_>,
        times: Own<'_, '_>,
        node_times: Own<'_, '_>,
        is_sorted: bool,
    ) -> PyResult<Self> {
        let layout = self::layout(layout)?;
        let lenders = Lenders::of_all(&[
            ("offsets", Some(offsets)),
            ("neighbours", Some(neighbours)),
            ("edge_ids", edge_ids),
            ("weights", weights),
            ("times", times),
        ])?;
        let (offsets, neighbours) = (wide(offsets, "offsets")?, ids(neighbours, "neighbours")?);
        let carried = Carried::read(edge_ids, weights, times, node_times)?;
        let made = threads::run(py, || {
            let made = carried.onto(core::Topology::new(layout, columns, offsets, neighbours)?)?;
            if !is_sorted {
                return in_time(made, carried.node_times.as_deref());
            }
            let made = timed(made, carried.node_times.as_deref())?;
            Ok(if made.times().is_some() { made.with_order(RowOrder::Time) } else { made })
        })?;
        let made = made.map_err(of_graph)?;
        let lenders = lenders.only_over(&addresses(&made));
        Ok(Self(made, lenders))
    }

    /// Nodes that own lists.
    #[getter]
    fn rows(&self) -> u64 {
        self.0.rows()
    }

    /// How many edges there are.
    #[getter]
    fn edges(&self) -> u64 {
        self.0.edges()
    }

    /// Where each row's list begins, and after the last one where it ends.
    fn offsets(&self, py: Python<'_>) -> PyResult<Array> {
        self.1.check(py, "lists")?;
        Ok(Array::ids(self.0.offsets().to_vec()))
    }

    /// All lists, one after the other.
    fn neighbours(&self, py: Python<'_>) -> PyResult<Array> {
        self.1.check(py, "lists")?;
        Ok(Array::ids(self.0.neighbours().iter().collect()))
    }

    /// Where each edge stood in what the lists were made of.
    fn edge_ids(&self, py: Python<'_>) -> PyResult<Array> {
        self.1.check(py, "lists")?;
        let positions = 0..self.0.neighbours().len();
        Ok(Array::ids(positions.map(|at| self.0.edge_id(at)).collect()))
    }
}

impl Carried {
    /// Lists with what belongs to their edges.
    fn onto(&self, mut made: core::Topology) -> core::Result<core::Topology> {
        if let Some(ids) = &self.edge_ids {
            made = made.with_edge_ids(ids.clone())?;
        }
        if let Some(weights) = &self.weights {
            made = made.with_weights(weights.clone())?;
        }
        match &self.times {
            Some(times) => made.with_times(times.clone()),
            None => Ok(made),
        }
    }
}

/// Where the arrays of lists begin.
fn addresses(lists: &core::Topology) -> Vec<usize> {
    let ids = |ids: &Ids| match ids {
        Ids::U32(ids) => ids.as_ptr().addr(),
        Ids::U64(ids) => ids.as_ptr().addr(),
    };
    let mut found = vec![lists.offsets().as_ptr().addr(), ids(lists.neighbours())];
    found.extend(lists.edge_ids().map(ids));
    found.extend(lists.weights().map(|weights| weights.as_ptr().addr()));
    found.extend(lists.times().map(|times| times.as_ptr().addr()));
    found
}

/// With the times of neighbours, where there are some.
fn timed(made: core::Topology, node_times: Option<&[i64]>) -> core::Result<core::Topology> {
    match node_times {
        Some(node_times) => made.with_times_of_neighbours(node_times),
        None => Ok(made),
    }
}

/// Rows in the order of time, where there are times.
fn in_time(made: core::Topology, node_times: Option<&[i64]>) -> core::Result<core::Topology> {
    let timed = timed(made, node_times)?;
    if timed.times().is_some() { timed.sorted(RowOrder::Time, EdgeIds::Kept) } else { Ok(timed) }
}

/// A graph in host memory: node types with their counts, and relations between them.
#[pyclass(frozen, weakref, module = "headwater")]
pub struct Graph(pub core::Graph, pub Lenders);

#[pymethods]
impl Graph {
    /// `Graph([("node", 10)], [(0, "to", 0, topology)])`: types by name and count, relations by the positions of their ends.
    #[new]
    fn new(
        py: Python<'_>,
        node_types: Vec<(String, u64)>,
        relations: Vec<(usize, String, usize, Py<Topology>)>,
    ) -> PyResult<Self> {
        let types = node_types.into_iter().map(|(name, count)| NodeType { name, count }).collect();
        let ends = relations.iter().map(|(source, name, target, _)| Relation {
            source: *source,
            name: name.clone(),
            target: *target,
        });
        let schema = Schema::new(types, ends.collect()).map_err(of_graph)?;
        let lists = relations.iter().map(|(.., lists)| lists.get().0.clone()).collect();
        let mut lenders = Lenders::default();
        relations.iter().for_each(|(.., lists)| lenders.add(&lists.get().1));
        lenders.check(py, "lists")?;
        core::Graph::new(schema, lists).map(|made| Self(made, lenders)).map_err(of_graph)
    }

    /// Names and counts.
    #[getter]
    fn node_types(&self) -> Vec<(String, u64)> {
        self.0.schema().node_types().iter().map(|own| (own.name.clone(), own.count)).collect()
    }

    /// Nodes of all types.
    #[getter]
    fn nodes(&self) -> u64 {
        self.0.nodes()
    }

    /// Edges of all relations.
    #[getter]
    fn edges(&self) -> u64 {
        self.0.edges()
    }

    /// Bytes of all arrays.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn __repr__(&self) -> String {
        let schema = self.0.schema();
        let types: Vec<String> = schema.node_types().iter().map(|own| format!("{}: {}", own.name, own.count)).collect();
        let relations: Vec<String> = self
            .0
            .relations()
            .iter()
            .enumerate()
            .map(|(at, lists)| format!("{}: {}", schema.relation_name(at), lists.edges()))
            .collect();
        format!("Graph(nodes {{{}}}, edges {{{}}})", types.join(", "), relations.join(", "))
    }
}
