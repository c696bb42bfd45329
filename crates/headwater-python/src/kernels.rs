//! Compiled layers run on arrays of other libraries, where they lie and without the GIL.
//!
//! A run keeps nothing: what the backward pass reads is handed to the caller, who gives it back. Memory of temporaries stays
//! from run to run. This is the CPU's side; `device_kernels.rs` is that of GPUs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use headwater::compile::adjacency::Adjacency;
use headwater::compile::call::{Arrays, Plan as Compiled};
use headwater::compile::cpu::fast::{Run, Workspace};
use headwater::compile::cuda::{DeviceGraph, Table};
use headwater::compile::inter::Domain;
use headwater::compile::pass::Statistics;
use headwater::graph::random::Key;
use headwater::train::blocks::{Held, SelfLoops, edge_order, of_lists};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::dlpack::Lent;
use crate::dtype::Dtype;
use crate::error::{of_compile, of_train};
use crate::graph::{Graph, Topology};
use crate::threads;

/// A graph as layers take it.
#[pyclass(frozen, module = "headwater")]
pub struct LayerGraph {
    adjacency: Adjacency,
    statistics: Statistics,
    /// Which edge of the caller's each one is; `None` where some are not the caller's.
    order: Option<Vec<u64>>,
    /// What GPUs have of it, by their numbers.
    on_gpus: Mutex<Vec<(usize, Arc<DeviceGraph>)>>,
}

/// Types of the ends of a relation, and its lists.
type Relation = (usize, usize, Py<Topology>);
/// A node type and how many nodes it has.
type NamedType = (String, u64);
/// A relation with its name between the types of its ends.
type NamedRelation = (usize, String, usize, Topology);

#[pymethods]
impl LayerGraph {
    /// How many nodes of each type are read and how many of those are written, and relations between them.
    #[new]
    fn new(
        py: Python<'_>,
        sources: Vec<usize>,
        targets: Vec<usize>,
        relations: Vec<Relation>,
        self_loops: &str,
    ) -> PyResult<Self> {
        let loops = loops_named(self_loops)?;
        relations.iter().try_for_each(|(.., lists)| lists.get().1.check(py, "lists"))?;
        let held: Vec<Held<'_>> =
            relations.iter().map(|(source, target, lists)| (*source, *target, &lists.get().0)).collect();
        let made = threads::run(py, || {
            let order = if loops.drops() { None } else { edge_order(&held)? };
            let adjacency = of_lists(&sources, &targets, &held, loops)?;
            // With them go the pairs that every plan asks for.
            let statistics = Statistics::of(&adjacency);
            Ok((adjacency, statistics, order))
        })?;
        let (adjacency, statistics, order) = made.map_err(of_train)?;
        Ok(Self { adjacency, statistics, order, on_gpus: Mutex::default() })
    }

    /// Types by name and count, and relations by the positions of their ends: what a graph was made of.
    #[staticmethod]
    fn parts(graph: &Graph) -> (Vec<NamedType>, Vec<NamedRelation>) {
        let schema = graph.0.schema();
        let types = schema.node_types().iter().map(|own| (own.name.clone(), own.count)).collect();
        let lists = schema.relations().iter().zip(graph.0.relations());
        let relations = lists
            .map(|(own, lists)| (own.source, own.name.clone(), own.target, Topology(lists.clone(), graph.1.clone())))
            .collect();
        (types, relations)
    }

    /// Rows of a kind: `node.src`, `node.dst`, `edge`, `etype` or another of the compiler's.
    fn rows(&self, kind: &str) -> PyResult<usize> {
        Ok(self.adjacency.rows(domain_named(kind)?))
    }

    /// Which edge of the caller's each one is. `None` where edges were added or dropped, or have ids that are no positions.
    fn edge_order(&self) -> Option<Array> {
        self.order.as_ref().map(|order| Array::ids(order.clone()))
    }
}

impl LayerGraph {
    pub fn adjacency(&self) -> &Adjacency {
        &self.adjacency
    }

    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// What a GPU has of it, if that is all that these programs ask for.
    pub fn on_gpu(&self, gpu: usize, tables: &[&Table]) -> Option<Arc<DeviceGraph>> {
        let serves = |(ordinal, own): &&(usize, Arc<DeviceGraph>)| {
            *ordinal == gpu && tables.iter().all(|table| own.serves(table))
        };
        let known = self.on_gpus.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(serves).map(|(_, own)| Arc::clone(own))
    }

    /// Keeps it for the next run. Layers of a network ask for the same.
    pub fn keep_on_gpu(&self, gpu: usize, placed: Arc<DeviceGraph>) {
        self.on_gpus.lock().unwrap_or_else(PoisonError::into_inner).push((gpu, placed));
    }
}

/// What becomes of edges from nodes to themselves, by its name.
pub fn loops_named(name: &str) -> PyResult<SelfLoops> {
    let found = SelfLoops::ALL.into_iter().find(|loops| loops.to_string() == name);
    found.ok_or_else(|| {
        PyValueError::new_err(format!("self_loops is {name:?}; it should be as they are, added or dropped"))
    })
}

/// The domain that is called so.
pub fn domain_named(kind: &str) -> PyResult<Domain> {
    let found = Domain::ALL.into_iter().find(|domain| domain.to_string() == kind);
    found.ok_or_else(|| PyValueError::new_err(format!("there are no rows of kind {kind:?}")))
}

/// Kernels of a layer, forward and backward.
#[pyclass(frozen, module = "headwater")]
pub struct Plan(pub Arc<Compiled>);

/// Arrays by name.
type Named<'py> = HashMap<String, Bound<'py, PyAny>>;

#[pymethods]
impl Plan {
    /// Names of what `backward` reads.
    #[getter]
    fn backward_reads(&self) -> Vec<String> {
        self.0.backward_reads().into_iter().map(str::to_owned).collect()
    }

    /// From inputs and weights to `out`, and to what `backward` reads besides. All are flat.
    fn forward(
        &self,
        py: Python<'_>,
        graph: &LayerGraph,
        arrays: Named<'_>,
        seed: u64,
    ) -> PyResult<HashMap<String, Array>> {
        run(py, graph, &arrays, seed, |run, given, workspace| self.0.forward(run, given, workspace))
    }

    /// From what it reads to gradients, by names such as `d.x`. All are flat. `seed` is that of the forward run.
    fn backward(
        &self,
        py: Python<'_>,
        graph: &LayerGraph,
        arrays: Named<'_>,
        seed: u64,
    ) -> PyResult<HashMap<String, Array>> {
        run(py, graph, &arrays, seed, |run, given, workspace| self.0.backward(run, given, workspace))
    }
}

/// Memory of temporaries that no run uses.
static WORKSPACES: Mutex<Vec<Workspace>> = Mutex::new(Vec::new());
/// How many are kept at most: runs that threads make together.
const MOST_WORKSPACES: usize = 4;

/// Arrays as kernels find them.
type Find<'a, 'g> = &'a dyn Fn(&str) -> Option<&'g [f32]>;

fn run(
    py: Python<'_>,
    graph: &LayerGraph,
    arrays: &Named<'_>,
    seed: u64,
    kernels: impl for<'g> FnOnce(Run<'_>, Find<'_, 'g>, &mut Workspace) -> headwater::compile::Result<Arrays> + Send,
) -> PyResult<HashMap<String, Array>> {
    let lent: HashMap<String, Lent> =
        arrays.iter().map(|(name, array)| Ok((name.clone(), floats(array, name)?))).collect::<PyResult<_>>()?;
    let mut workspace = kept().pop().unwrap_or_default();
    let step = Run { graph: &graph.adjacency, step: Key::new(seed) };
    let find = |name: &str| bytemuck::try_cast_slice(lent.get(name)?.as_ref()).ok();
    let done = threads::run(py, || kernels(step, &find, &mut workspace))?;
    let mut kept = kept();
    if kept.len() < MOST_WORKSPACES {
        kept.push(workspace);
    }
    drop(kept);
    let done = done.map_err(|why| of_compile(why, ""))?;
    Ok(done.into_iter().map(|(name, values)| (name, Array::new(values, Dtype::F32))).collect())
}

/// Locked with the GIL and for a moment, so that nobody forks meanwhile.
fn kept() -> std::sync::MutexGuard<'static, Vec<Workspace>> {
    WORKSPACES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn floats(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Lent> {
    let lent = Lent::new(array, name)?;
    if lent.dtype == Dtype::F32 {
        return Ok(lent);
    }
    Err(PyValueError::new_err(format!("{name} has elements of {:?}; it should have float32", lent.dtype)))
}
