//! Datasets: folders on disk, or arrays of other libraries under the same names.
//!
//! Arrays of a folder are handed out over mappings of their own that copy what is written: whoever writes to a tensor changes
//! neither the file nor what Headwater reads. Arrays of others are handed back as they lie.

use std::path::PathBuf;
use std::sync::Arc;

use headwater::graph::dataset::{Array as Stored, Dataset as Core, EdgeArrays, NodeArrays, Split};
use headwater::graph::{Ids, Layout, Silent};
use headwater::memory::Foreign;
use headwater::tensor::npy::NpyType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::array::Array;
use crate::column::{list, wide};
use crate::dlpack::Lent;
use crate::dtype::Dtype;
use crate::error::of_graph;
use crate::graph::{Graph, Topology};
use crate::lender::Lenders;
use crate::threads;

/// A dataset by positions of its types and relations; `headwater.Dataset` has names for them.
#[pyclass(frozen, module = "headwater")]
pub struct RawDataset {
    pub core: Core,
    lenders: Lenders,
}

type Given<'py> = Option<Bound<'py, PyAny>>;
/// Of a node type: features, labels, the number of classes, times, and lists of nodes for the three splits.
type GivenNodes<'py> = (Given<'py>, Given<'py>, Option<u64>, Given<'py>, [Given<'py>; 3]);
/// Of a relation: features and labels.
type GivenEdges<'py> = (Given<'py>, Given<'py>);

#[pymethods]
impl RawDataset {
    /// Opens a folder. Nothing is read but the manifest, the headers of files and small files, unless all is to be verified.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, verify: bool) -> PyResult<Self> {
        let open = || if verify { Core::open_verified(&path, &Silent) } else { Core::open(&path) };
        let core = threads::run(py, open)?.map_err(of_graph)?;
        Ok(Self { core, lenders: Lenders::default() })
    }

    /// Edges to predict of a split, one row each: source, position of the relation, target; where there are some.
    fn links(&self, split: &str) -> PyResult<Option<Array>> {
        let found = Split::ALL.into_iter().find(|own| own.name() == split).ok_or_else(|| unknown(split))?;
        let files = self.core.manifest().links.get(found);
        let most = self.core.schema().node_types().iter().map(|own| own.count).max();
        self.shared(files.map(|files| &files.triples), most)
    }

    /// Over a graph and arrays of others, which are read where they lie.
    #[staticmethod]
    fn in_memory(
        py: Python<'_>,
        name: &str,
        graph: &Graph,
        nodes: Vec<GivenNodes<'_>>,
        edges: Vec<GivenEdges<'_>>,
    ) -> PyResult<Self> {
        let mut lenders = graph.1.clone();
        lenders.check(py, "graph")?;
        let nodes = nodes.iter().map(|own| stored_nodes(own, &mut lenders)).collect::<PyResult<Vec<_>>>()?;
        let edges = edges.iter().map(|own| stored_edges(own, &mut lenders)).collect::<PyResult<Vec<_>>>()?;
        let core = threads::run(py, || Core::in_memory(name, &graph.0, nodes, edges))?.map_err(of_graph)?;
        Ok(Self { core, lenders })
    }

    /// Writes all of it into a new folder.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.check_lenders(py)?;
        threads::run(py, || self.core.save(&path, &Silent))?.map_err(of_graph)
    }

    /// Reads every file and compares checksums.
    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        self.check_lenders(py)?;
        threads::run(py, || self.core.verify(&Silent))?.map_err(of_graph)
    }

    /// Fails when memory of others that it was made over is not there any more.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.check_lenders(py)
    }

    /// The folder, where there is one.
    #[getter]
    fn path(&self) -> Option<PathBuf> {
        (!self.core.is_held()).then(|| self.core.folder().to_owned())
    }

    #[getter]
    fn name(&self) -> &str {
        &self.core.manifest().name
    }

    #[getter]
    fn origin(&self) -> &str {
        &self.core.manifest().origin
    }

    #[getter]
    fn layout(&self) -> &'static str {
        match self.core.manifest().layout {
            Layout::Csc => "csc",
            Layout::Csr => "csr",
        }
    }

    /// Bytes of all arrays, with their headers where they are files.
    #[getter]
    fn bytes(&self) -> u64 {
        self.core.manifest().bytes()
    }

    /// Names and counts.
    #[getter]
    fn node_types(&self) -> Vec<(String, u64)> {
        self.core.schema().node_types().iter().map(|own| (own.name.clone(), own.count)).collect()
    }

    /// Source type, name, target type and number of edges.
    #[getter]
    fn relations(&self) -> Vec<(String, String, String, u64)> {
        let all = self.core.manifest().relations.iter();
        all.map(|own| (own.source.clone(), own.name.clone(), own.target.clone(), own.edges)).collect()
    }

    /// Labels of a type are below this, where they are classes.
    fn classes(&self, node_type: usize) -> Option<u64> {
        self.core.manifest().nodes.get(node_type)?.files.classes
    }

    fn graph(&self, py: Python<'_>) -> PyResult<Graph> {
        self.check_lenders(py)?;
        self.core.graph().map(|made| Graph(made, self.lenders.clone())).map_err(of_graph)
    }

    fn topology(&self, py: Python<'_>, relation: usize) -> PyResult<Topology> {
        self.check_relation(relation)?;
        self.check_lenders(py)?;
        self.core.topology(relation).map(|made| Topology(made, self.lenders.clone())).map_err(of_graph)
    }

    /// Both ends of every edge of a relation, in the order of its lists.
    fn edges(&self, py: Python<'_>, relation: usize) -> PyResult<Array> {
        self.check_relation(relation)?;
        self.check_lenders(py)?;
        let ends = threads::run(py, || {
            let coo = self.core.topology(relation)?.to_coo();
            let mut ends = vec![0i64; 2 * coo.sources.len()];
            let (sources, targets) = ends.split_at_mut(coo.sources.len());
            widen(&coo.sources, sources);
            widen(&coo.targets, targets);
            Ok(ends)
        })?;
        let ends = ends.map_err(of_graph)?;
        let shape = vec![2, ends.len() / 2];
        Ok(Array::new(ends, Dtype::I64).shaped(shape))
    }

    /// `features`, `labels`, `times`, `train`, `valid` or `test` of a node type, where it has them.
    fn of_nodes(&self, py: Python<'_>, node_type: usize, what: &str) -> PyResult<Option<Array>> {
        self.check_lenders(py)?;
        let Some(entry) = self.core.manifest().nodes.get(node_type) else {
            return Err(PyValueError::new_err(format!("there is no node type {node_type}")));
        };
        let files = &entry.files;
        match what {
            "features" => self.shared(files.features.as_ref(), None),
            "labels" => self.shared(files.labels.as_ref(), None),
            "times" => self.shared(files.times.as_ref(), None),
            _ => match Split::ALL.into_iter().find(|split| split.name() == what) {
                Some(split) => self.shared(files.splits.get(split), Some(entry.count)),
                None => Err(unknown(what)),
            },
        }
    }

    /// `offsets`, `neighbours`, `edge_ids`, `weights`, `times`, `labels` or `features` of a relation, where it has them.
    fn of_edges(&self, py: Python<'_>, relation: usize, what: &str) -> PyResult<Option<Array>> {
        self.check_relation(relation)?;
        self.check_lenders(py)?;
        let (entry, ends) = (&self.core.manifest().relations[relation], &self.core.schema().relations()[relation]);
        let nodes = |at: usize| self.core.schema().node_types()[at].count;
        let files = &entry.files;
        match what {
            "offsets" => self.shared(Some(&files.offsets), Some(entry.edges)),
            "neighbours" => self.shared(Some(&files.neighbours), Some(nodes(ends.source).max(nodes(ends.target)))),
            "edge_ids" => self.shared(files.edge_ids.as_ref(), Some(entry.edges)),
            "weights" => self.shared(files.weights.as_ref(), None),
            "times" => self.shared(files.times.as_ref(), None),
            "labels" => self.shared(files.labels.as_ref(), None),
            "features" => self.shared(files.features.as_ref(), None),
            _ => Err(unknown(what)),
        }
    }

    /// What a node was called where the dataset came from.
    fn original_id(&self, node_type: usize, node: u64) -> PyResult<Option<String>> {
        self.core.original_id(node_type, node).map_err(of_graph)
    }
}

impl RawDataset {
    /// One that was just written.
    pub fn written(path: &std::path::Path) -> headwater::graph::Result<Self> {
        Ok(Self { core: Core::open(path)?, lenders: Lenders::default() })
    }

    /// Fails when memory of others that it was made over is not there any more.
    pub fn check_lenders(&self, py: Python<'_>) -> PyResult<()> {
        self.lenders.check(py, "dataset")
    }

    /// An array for others. `ids_below` says that it holds ids, which torch wants signed: those that do not fit are widened.
    fn shared(&self, file: Option<&String>, ids_below: Option<u64>) -> PyResult<Option<Array>> {
        let Some(stored) = file.and_then(|file| self.core.array(file)) else { return Ok(None) };
        let dtype = Dtype::of_typestr(stored.kind().descr(), "array")?;
        let dtype = match (dtype, ids_below) {
            (Dtype::U64, Some(_)) => Dtype::I64,
            (Dtype::U32, Some(limit)) if limit <= 1 << 31 => Dtype::I32,
            (Dtype::U32, Some(_)) => {
                let ids = stored.ids().map_err(of_graph)?.iter().collect();
                return Ok(Some(Array::ids(ids).shaped(stored.shape().to_vec())));
            }
            (dtype, _) => dtype,
        };
        let data = stored.for_writers().map_err(of_graph)?;
        let is_read_only = stored.is_held() && self.lenders.is_read_only(data.as_slice());
        Ok(Some(Array::over(Arc::new(data), stored.shape().to_vec(), dtype).for_readers(is_read_only)))
    }

    fn check_relation(&self, at: usize) -> PyResult<()> {
        let relations = self.core.schema().relations().len();
        let why = || PyValueError::new_err(format!("there is no relation {at}; there are {relations}"));
        if at < relations { Ok(()) } else { Err(why()) }
    }
}

fn unknown(what: &str) -> PyErr {
    PyValueError::new_err(format!("there are no arrays called {what:?}"))
}

/// Ids as torch indexes with.
fn widen(ids: &Ids, to: &mut [i64]) {
    match ids {
        Ids::U32(ids) => to.par_iter_mut().zip(&ids[..]).for_each(|(to, id)| *to = i64::from(*id)),
        Ids::U64(ids) => to.par_iter_mut().zip(&ids[..]).for_each(|(to, id)| *to = id.cast_signed()),
    }
}

fn stored_nodes(given: &GivenNodes<'_>, held: &mut Lenders) -> PyResult<NodeArrays> {
    let (features, labels, classes, times, [train, valid, test]) = given;
    Ok(NodeArrays {
        features: rows(features, "features", held)?,
        labels: rows(labels, "labels", held)?,
        classes: *classes,
        times: times.as_ref().map(|times| stored_times(times, held)).transpose()?,
        splits: [split(train, "train", held)?, split(valid, "valid", held)?, split(test, "test", held)?],
    })
}

fn stored_edges((features, labels): &GivenEdges<'_>, held: &mut Lenders) -> PyResult<EdgeArrays> {
    Ok(EdgeArrays { features: rows(features, "edge_features", held)?, labels: rows(labels, "edge_labels", held)? })
}

/// Notes who lends memory that is read where it lies.
fn note(held: &mut Lenders, array: &Bound<'_, PyAny>, name: &str, bytes: &Foreign) -> PyResult<()> {
    held.add(&Lenders::of(array, name)?.only_over(&[bytes.as_slice().as_ptr().addr()]));
    Ok(())
}

/// Rows where they lie.
fn rows(array: &Given<'_>, name: &str, held: &mut Lenders) -> PyResult<Option<Stored>> {
    let Some(array) = array else { return Ok(None) };
    let lent = Lent::new(array, name)?;
    let (kind, shape) = (lent.dtype.in_files(name)?, lent.shape.clone());
    let bytes = Foreign::new(Arc::new(lent));
    note(held, array, name, &bytes)?;
    Stored::held(name, kind, &shape, bytes).map(Some).map_err(of_graph)
}

fn stored_times(array: &Bound<'_, PyAny>, held: &mut Lenders) -> PyResult<Stored> {
    let times = crate::column::times(array, "times")?;
    note(held, array, "times", times.foreign())?;
    let kind = Dtype::I64.in_files("times")?;
    Stored::held("times", kind, &[times.len()], times.foreign().clone()).map_err(of_graph)
}

/// Ids where they lie, or those that a mask marks.
fn split(array: &Given<'_>, name: &'static str, held: &mut Lenders) -> PyResult<Option<Stored>> {
    let Some(array) = array else { return Ok(None) };
    let (bytes, dtype) = list(array, name)?;
    let ids = if dtype == Dtype::Bool {
        let marked = bytes.as_slice().iter().zip(0u64..).filter(|(mark, _)| **mark != 0);
        marked.map(|(_, node)| node).collect::<Vec<u64>>().into()
    } else {
        // As they are, so that a negative one is out of range and named.
        wide(array, name)?
    };
    note(held, array, name, ids.foreign())?;
    Stored::held(name, NpyType::U64, &[ids.len()], ids.foreign().clone()).map(Some).map_err(of_graph)
}
