//! Where datasets come from: made up out of a seed, or read from what others wrote.

use std::path::PathBuf;

use headwater::graph::generate::{Like, Names, Planted, Recipe, Rmat, Skew};
use headwater::graph::ingest::text::{Asked, ColumnName, Delimiter};
use headwater::graph::ingest::{
    Format, IdKind, Ingest, IngestOptions, LabelKind, NodeCount, Reverse, SparseFeatures, TypedFile,
};
use headwater::graph::order::LeaveOut;
use headwater::graph::{Result, Silent};
use headwater::memory::host_bytes_available;
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;

use crate::dataset::RawDataset;
use crate::error::of_graph;
use crate::graph::layout as layout_of;
use crate::{threads, warnings};

/// A power-law graph as Graph500 draws it.
#[pyfunction]
#[pyo3(signature = (path, *, nodes_log2 = 20, edges_per_node = 16, features = 0, classes = 0, even = false, simple = false, by_rank = false, seed = 1))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub fn generate_rmat(
    py: Python<'_>,
    path: PathBuf,
    nodes_log2: u32,
    edges_per_node: u64,
    features: u64,
    classes: u64,
    even: bool,
    simple: bool,
    by_rank: bool,
    seed: u64,
) -> PyResult<RawDataset> {
    let asked = Rmat {
        nodes_log2,
        edges_per_node,
        features,
        classes,
        skew: if even { Skew::EVEN } else { Skew::GRAPH500 },
        names: if by_rank { Names::ByRank } else { Names::Shuffled },
        leave_out: LeaveOut { self_loops: simple, repeats: simple },
        seed,
    };
    make(py, asked.recipe(), path)
}

/// Communities with features and labels that a graph network can learn.
#[pyfunction]
#[pyo3(signature = (path, *, nodes = 10_000, edges_per_node = 10, classes = 8, features = 64, homophily = 0.7, separation = 1.0, seed = 1))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub fn generate_planted(
    py: Python<'_>,
    path: PathBuf,
    nodes: u64,
    edges_per_node: u64,
    classes: u64,
    features: u64,
    homophily: f64,
    separation: f32,
    seed: u64,
) -> PyResult<RawDataset> {
    let asked = Planted { nodes, edges_per_node, classes, features, homophily, separation, seed, ..Planted::default() };
    make(py, asked.recipe(), path)
}

/// The shape of a published dataset.
#[pyfunction]
#[pyo3(signature = (name, path, *, scale = 1.0, seed = 1))]
pub fn generate_like(py: Python<'_>, name: String, path: PathBuf, scale: f64, seed: u64) -> PyResult<RawDataset> {
    make(py, Like { name, scale, seed }.recipe(), path)
}

/// The datasets whose shapes are known.
#[pyfunction]
pub fn shapes() -> Vec<&'static str> {
    Like::NAMES.to_vec()
}

fn make(py: Python<'_>, recipe: Result<Recipe>, path: PathBuf) -> PyResult<RawDataset> {
    let recipe = recipe.map_err(of_graph)?;
    let (needed, available) = (recipe.plan().peak_bytes, host_bytes_available() as u64);
    if needed > available {
        let why = format!("{} takes {needed} bytes of memory; {available} are available", recipe.origin);
        return Err(PyMemoryError::new_err(why));
    }
    let made = threads::run(py, || {
        recipe.write(&path, &Silent)?;
        RawDataset::written(&path)
    })?;
    made.map_err(of_graph)
}

/// How an edge list is written; what is not said is found out.
#[derive(FromPyObject, Default)]
#[pyo3(from_item_all)]
pub struct Text {
    delimiter: Option<String>,
    header: Option<bool>,
    source_column: Option<String>,
    target_column: Option<String>,
    weight_column: Option<String>,
    time_column: Option<String>,
    relation_column: Option<String>,
    source_type_column: Option<String>,
    target_type_column: Option<String>,
}

/// A dataset out of what others wrote: edge lists as text, arrays of NumPy, folders of OGB.
#[pyfunction]
#[pyo3(signature = (source, path, *, format, name, layout, reverse, nodes, sparse_features, labels, edges, ids, text))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub fn ingest(
    py: Python<'_>,
    source: Option<PathBuf>,
    path: PathBuf,
    format: Option<String>,
    name: Option<String>,
    layout: &str,
    reverse: bool,
    nodes: Vec<(Option<String>, u64)>,
    sparse_features: &str,
    labels: &str,
    edges: Vec<(String, String, String, PathBuf)>,
    ids: &str,
    text: Text,
) -> PyResult<RawDataset> {
    let formats = Format::ALL.map(|format| (format.name(), format));
    let edge_list = |(source, relation, target, path)| TypedFile { source, relation, target, path };
    let options = IngestOptions {
        format: format.map(|name| chosen("format", &name, &formats)).transpose()?,
        name,
        layout: layout_of(layout)?,
        text: text.asked()?,
        ids: chosen("ids", ids, &IDS)?,
        edges: edges.into_iter().map(edge_list).collect(),
        nodes: nodes.into_iter().map(|(of, count)| NodeCount { of, count }).collect(),
        reverse: if reverse { Reverse::Add } else { Reverse::None },
        sparse_features: chosen("sparse_features", sparse_features, &SPARSE)?,
        labels: chosen("labels", labels, &LABELS)?,
    };
    let made = threads::run(py, || {
        Ingest::read(source.as_deref(), &path, options, &Silent)?.build(&Silent)?;
        RawDataset::written(&path)
    })?;
    // What was guessed or left out.
    warnings::pass_on(py)?;
    made.map_err(of_graph)
}

const IDS: [(&str, IdKind); 4] =
    [("auto", IdKind::Auto), ("dense", IdKind::Dense), ("integer", IdKind::Integer), ("string", IdKind::String)];
const LABELS: [(&str, LabelKind); 3] =
    [("auto", LabelKind::Auto), ("classes", LabelKind::Classes), ("values", LabelKind::Values)];
const SPARSE: [(&str, SparseFeatures); 3] =
    [("dense", SparseFeatures::Dense), ("half", SparseFeatures::Half), ("skip", SparseFeatures::Skip)];

/// One of a few, by its name.
pub fn chosen<T: Copy>(field: &str, name: &str, all: &[(&str, T)]) -> PyResult<T> {
    let found = all.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
    let known = || all.iter().map(|(own, _)| *own).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| PyValueError::new_err(format!("{field} is {name:?}; it should be one of {}", known())))
}

impl Text {
    fn asked(self) -> PyResult<Asked> {
        // A number is a place, anything else a name.
        let column = |text: Option<String>| text.map(|text| text.parse().unwrap_or(ColumnName::Name(text)));
        Ok(Asked {
            delimiter: self.delimiter.as_deref().map(delimiter).transpose()?,
            header: self.header,
            source: column(self.source_column),
            target: column(self.target_column),
            weight: column(self.weight_column),
            time: column(self.time_column),
            source_type: column(self.source_type_column),
            relation: column(self.relation_column),
            target_type: column(self.target_type_column),
        })
    }
}

fn delimiter(text: &str) -> PyResult<Delimiter> {
    match (text, text.as_bytes()) {
        ("tab", _) => Ok(Delimiter::Byte(b'\t')),
        ("comma", _) => Ok(Delimiter::Byte(b',')),
        ("spaces" | " ", _) => Ok(Delimiter::Spaces),
        (_, [byte]) if !matches!(byte, b'"' | b'\n' | b'\r') => Ok(Delimiter::Byte(*byte)),
        _ => {
            let why = format!("delimiter is {text:?}; it should be one character, or one of tab, comma, spaces");
            Err(PyValueError::new_err(why))
        }
    }
}
