//! Layer texts for torch's autograd: read, given sizes by the arrays of a call, and compiled when they meet a graph.
//!
//! What runs them is in `kernels.rs`. `python/headwater/compile.py` binds a caller's arguments and keeps what the backward pass
//! reads.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use headwater::compile::call::{Bound as BoundText, Level, Plan as Compiled, Text, Wish};
use headwater::compile::cuda::{Tuning, chosen, modelled, tuned};
use headwater::compile::front::{self, Arguments, Declared, OptionValue, Signature};
use headwater::compile::inter::Domain;
use headwater::compile::pass::{Optimisations, Statistics};
use headwater::train::network::{Beginning, first_values};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::device_kernels::DevicePlan;
use crate::device_layer_graph::AnyGraph;
use crate::dtype::Dtype;
use crate::error::of_compile;
use crate::kernels::{LayerGraph, Plan};
use crate::threads;

/// The text of a layer. `name` is what errors call it: the file that it stands in, with as many lines before it as there.
#[pyclass(frozen, module = "headwater")]
pub struct Layer {
    name: String,
    text: String,
    signature: Signature,
    /// Optimisations that it is compiled without.
    without: BTreeSet<String>,
    /// How schedules of a GPU's kernels are chosen.
    tuning: Tuning,
}

/// What the text knows when it is read.
#[derive(FromPyObject, IntoPyObject)]
enum Known {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
}

impl From<Known> for OptionValue {
    fn from(known: Known) -> Self {
        match known {
            Known::Bool(is_on) => Self::Bool(is_on),
            Known::Int(number) => Self::Int(number),
            Known::Float(number) => Self::Float(number),
            Known::Text(text) => Self::Text(text),
        }
    }
}

impl From<&OptionValue> for Known {
    fn from(value: &OptionValue) -> Self {
        match value {
            OptionValue::Bool(is_on) => Self::Bool(*is_on),
            OptionValue::Int(number) => Self::Int(*number),
            OptionValue::Float(number) => Self::Float(*number),
            OptionValue::Text(text) => Self::Text(text.clone()),
        }
    }
}

/// A name, what kind of rows it has, and the extents of one as they are written.
type Written = (String, String, Vec<String>);

#[pymethods]
impl Layer {
    #[new]
    fn new(name: String, text: String, without: Vec<String>, tune: &str) -> PyResult<Self> {
        let signature = front::signature(&name, &text).map_err(|why| of_compile(why, &text))?;
        let tuning = tuning_of(&without, tune)?;
        Ok(Self { name, text, signature, without: without.into_iter().collect(), tuning })
    }

    /// The layer's name.
    #[getter]
    fn name(&self) -> &str {
        &self.signature.layer
    }

    /// Names of what it takes behind the graph, in their order.
    #[getter]
    fn parameters(&self) -> Vec<String> {
        self.signature.parameters.clone()
    }

    /// Rows that are given at every call.
    #[getter]
    fn inputs(&self) -> Vec<Written> {
        self.signature.inputs.iter().map(written).collect()
    }

    /// What is learnt.
    #[getter]
    fn weights(&self) -> Vec<Written> {
        self.signature.weights.iter().map(written).collect()
    }

    /// Names of sizes.
    #[getter]
    fn sizes(&self) -> Vec<String> {
        self.signature.sizes.clone()
    }

    /// Options and their defaults.
    #[getter]
    fn options(&self) -> Vec<(String, Known)> {
        self.signature.options.iter().map(|option| (option.name.clone(), (&option.default).into())).collect()
    }

    /// The layer for one kind of call. `rows` has the extents of a row of each array, `gradients` those whose gradients are
    /// wanted.
    fn bind(
        &self,
        rows: BTreeMap<String, Vec<usize>>,
        sizes: BTreeMap<String, usize>,
        options: HashMap<String, Known>,
        gradients: BTreeSet<String>,
        training: bool,
    ) -> PyResult<BoundLayer> {
        let options = options.into_iter().map(|(name, value)| (name, value.into())).collect();
        let text = Text { name: &self.name, text: &self.text };
        let wish = Wish { gradients, training, without: self.without.clone() };
        let made = BoundText::new(text, &rows, Arguments { sizes, options }, &wish);
        let bound = made.map_err(|why| of_compile(why, &self.text))?;
        Ok(BoundLayer { bound: Arc::new(bound), model: self.signature.layer.clone(), tuning: self.tuning })
    }
}

/// How schedules are chosen, if all names are known.
fn tuning_of(without: &[String], tune: &str) -> PyResult<Tuning> {
    Optimisations::ALL.without(without).map_err(|why| of_compile(why, ""))?;
    tune.parse().map_err(|why| of_compile(why, ""))
}

/// Refuses names of optimisations and ways to tune that do not exist, where no text is there yet.
#[pyfunction]
pub fn check_compiled_with(without: Vec<String>, tune: &str) -> PyResult<()> {
    tuning_of(&without, tune).map(|_| ())
}

fn written(declared: &Declared) -> Written {
    (declared.name.clone(), declared.domain.to_string(), declared.sizes.clone())
}

/// Names of everything that compiled layers may be left without.
#[pyfunction]
pub fn optimisations() -> Vec<&'static str> {
    Optimisations::SWITCHES.map(|(name, _)| name).to_vec()
}

/// The text of a layer that comes with Headwater.
#[pyfunction]
pub fn builtin_layer(name: &str) -> PyResult<&'static str> {
    let names = || front::BUILTIN.map(|(name, _)| name).join(", ");
    let refused = || PyValueError::new_err(format!("there is no built-in layer {name:?}; there are {}", names()));
    front::builtin(name).ok_or_else(refused)
}

/// A layer for one kind of call. It is compiled when it meets a graph.
#[pyclass(frozen, module = "headwater")]
pub struct BoundLayer {
    bound: Arc<BoundText>,
    /// By whose rules weights begin.
    model: String,
    /// How schedules of a GPU's kernels are chosen.
    tuning: Tuning,
}

#[pymethods]
impl BoundLayer {
    /// What becomes of edges from nodes to themselves: "as they are", "added" or "dropped".
    #[getter]
    fn self_loops(&self) -> String {
        self.bound.self_loops().to_string()
    }

    /// Whether a run draws random numbers.
    #[getter]
    fn has_dropout(&self) -> bool {
        self.bound.has_dropout()
    }

    /// How many plans there are.
    #[getter]
    fn plan_count(&self) -> usize {
        self.bound.plan_count()
    }

    /// Extents of a row of the output.
    #[getter]
    fn out_row(&self) -> Vec<usize> {
        self.bound.out_row()
    }

    /// Names of the arrays that it takes.
    #[getter]
    fn taken(&self) -> Vec<String> {
        self.bound.taken().iter().map(|taken| taken.name.clone()).collect()
    }

    /// Kernels for arrays of these shapes on a graph.
    fn plan(&self, py: Python<'_>, graph: &LayerGraph, shapes: BTreeMap<String, Vec<usize>>) -> PyResult<Plan> {
        self.bound.check(&|domain| graph.adjacency().rows(domain), &shapes).map_err(|why| of_compile(why, ""))?;
        Ok(Plan(self.compiled(py, graph.statistics())?))
    }

    /// The same for a GPU by its number, with products as exact as torch's own are: "highest", "high" or "medium". `None` where
    /// the graph was made on the GPU and lacks what the layer asks for, or what kernels are timed on: one of the host has it.
    fn device_plan(
        &self,
        py: Python<'_>,
        graph: AnyGraph<'_>,
        shapes: BTreeMap<String, Vec<usize>>,
        gpu: usize,
        precision: &str,
    ) -> PyResult<Option<DevicePlan>> {
        self.bound.check(&|domain| graph.rows(domain), &shapes).map_err(|why| of_compile(why, ""))?;
        let statistics = *graph.statistics();
        let adjacency = match &graph {
            AnyGraph::Host(graph) => Some(graph.adjacency()),
            // Kernels are timed on a graph of the host.
            AnyGraph::Device(_) if self.tuning == Tuning::Measure => return Ok(None),
            AnyGraph::Device(_) => None,
        };
        let made = DevicePlan::new(gpu, precision, |device, precision| {
            let tune = |program| match (adjacency, self.tuning) {
                (Some(adjacency), tuning) => tuned(program, tuning, device, adjacency, precision),
                (None, Tuning::Model) => modelled(program, device, &statistics),
                (None, tuning) => Ok(chosen(program, tuning)),
            };
            // Plans are looked up with the GIL, which whoever forks holds too: nobody forks while they are locked.
            self.bound.device_plan(&statistics, precision, &tune, |make| {
                threads::run(py, make)?.map_err(|why| of_compile(why, ""))
            })
        })?;
        Ok(Some(made).filter(|made| made.is_served_by(&graph)))
    }

    /// What it is compiled to for the CPU, for a graph or for one that is often taken.
    #[pyo3(signature = (graph = None, level = "all"))]
    fn explain(&self, py: Python<'_>, graph: Option<AnyGraph<'_>>, level: &str) -> PyResult<String> {
        let Some((_, level)) = Level::NAMED.into_iter().find(|(name, _)| *name == level) else {
            let names = Level::NAMED.map(|(name, _)| name).join(", ");
            return Err(PyValueError::new_err(format!("level is {level:?}; it should be one of {names}")));
        };
        let statistics = graph.map_or(Statistics::FB15K_237, |graph| *graph.statistics());
        Ok(self.compiled(py, &statistics)?.explain(level))
    }

    /// What the weights begin with: name, shape and values of each. `counts` has the rows of domains by their names.
    fn first_weights(
        &self,
        py: Python<'_>,
        counts: HashMap<String, usize>,
        seed: u64,
    ) -> PyResult<Vec<(String, Vec<usize>, Array)>> {
        let rows = |domain: Domain| match domain {
            Domain::Const => Some(1),
            _ => counts.get(&domain.to_string()).copied(),
        };
        let weights = self.bound.taken().iter().filter(|taken| taken.is_weight);
        let mut shapes = BTreeMap::new();
        for taken in weights {
            let Some(count) = rows(taken.domain) else {
                let why = format!(
                    "{} has a row for each {}, and nobody says how many there are; give module() a graph or the number",
                    taken.name, taken.domain
                );
                return Err(PyValueError::new_err(why));
            };
            let count = Some(count).filter(|_| taken.domain != Domain::Const);
            shapes.insert(taken.name.clone(), count.into_iter().chain(taken.row.iter().copied()).collect());
        }
        let layer = Beginning { model: &self.model, program: self.bound.program(), options: self.bound.options() };
        let found = threads::run(py, || first_values(layer, &|domain| rows(domain).unwrap_or(0), seed))?;
        let shaped = |array: headwater::train::Array| {
            let shape: Vec<usize> = shapes.remove(&array.name).unwrap_or_default();
            (array.name, shape, Array::new(array.values, Dtype::F32))
        };
        Ok(found.into_iter().map(shaped).collect())
    }
}

impl BoundLayer {
    /// Kernels for the CPU. Plans are looked up with the GIL; only compiling runs without it.
    fn compiled(&self, py: Python<'_>, statistics: &Statistics) -> PyResult<Arc<Compiled>> {
        self.bound.plan(statistics, |make| threads::run(py, make)?.map_err(|why| of_compile(why, "")))
    }
}
