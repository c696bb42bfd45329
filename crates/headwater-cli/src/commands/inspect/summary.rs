//! The figures of a dataset, as data.

use std::collections::BTreeMap;
use std::path::Path;

use headwater::graph::dataset::{Array, NodeEntry, RelationEntry, Split};
use headwater::graph::{Dataset, Degrees, Layout, isolated};
use serde::Serialize;

/// A dataset in figures.
#[derive(Debug, Serialize)]
pub struct Summary {
    pub name: String,
    pub origin: String,
    pub version: String,
    pub layout: Layout,
    pub files: usize,
    pub bytes: u64,
    /// Whether every file was read and found to be what was written.
    pub verified: bool,
    pub nodes: Vec<Nodes>,
    pub relations: Vec<Edges>,
    /// Edges to predict, by split.
    pub links: BTreeMap<&'static str, usize>,
}

/// The nodes of a type.
#[derive(Debug, Serialize)]
pub struct Nodes {
    pub name: String,
    pub count: u64,
    /// Nodes that no edge touches, when every file was read.
    pub isolated: Option<u64>,
    pub features: Option<Stored>,
    pub labels: Option<Stored>,
    pub classes: Option<u64>,
    pub times: Option<Stored>,
    pub original_ids: Option<Stored>,
    /// Nodes in each split.
    pub splits: BTreeMap<&'static str, usize>,
}

/// The edges of a relation.
#[derive(Debug, Serialize)]
pub struct Edges {
    pub source: String,
    pub name: String,
    pub target: String,
    pub edges: u64,
    pub id_bits: usize,
    /// What an edge has besides its ends: `edge_ids`, `weights`, `times`, `labels`, `features`.
    pub with: Vec<&'static str>,
    pub bytes: u64,
    pub degrees: Degrees,
}

/// An array in its file.
#[derive(Debug, Serialize)]
pub struct Stored {
    pub file: String,
    pub dtype: &'static str,
    pub shape: Vec<usize>,
    pub bytes: usize,
}

impl Summary {
    /// Counts what is not in the manifest.
    pub fn of(dataset: &Dataset, verified: bool) -> anyhow::Result<Self> {
        let manifest = dataset.manifest();
        let mut isolated = if verified { isolated(&dataset.graph()?)? } else { Vec::new() }.into_iter();
        let edges = manifest.relations.iter().enumerate().map(|(at, entry)| Edges::of(dataset, at, entry));
        let links = |split: Split| Some((split.name(), rows(dataset, &manifest.links.get(split)?.triples)?));
        Ok(Self {
            name: manifest.name.clone(),
            origin: manifest.origin.clone(),
            version: manifest.version.clone(),
            layout: manifest.layout,
            files: manifest.files.len(),
            bytes: manifest.bytes(),
            verified,
            nodes: manifest.nodes.iter().map(|entry| Nodes::of(dataset, entry, isolated.next())).collect(),
            relations: edges.collect::<anyhow::Result<_>>()?,
            links: Split::ALL.into_iter().filter_map(links).collect(),
        })
    }
}

impl Nodes {
    fn of(dataset: &Dataset, entry: &NodeEntry, isolated: Option<u64>) -> Self {
        let files = &entry.files;
        let stored = |file: &Option<String>| file.as_ref().and_then(|file| dataset.array(file)).map(Stored::of);
        let split = |split: Split| Some((split.name(), rows(dataset, files.splits.get(split)?)?));
        Self {
            name: entry.name.clone(),
            count: entry.count,
            isolated,
            features: stored(&files.features),
            labels: stored(&files.labels),
            classes: files.classes,
            times: stored(&files.times),
            original_ids: stored(&files.original_ids),
            splits: Split::ALL.into_iter().filter_map(split).collect(),
        }
    }
}

impl Edges {
    fn of(dataset: &Dataset, at: usize, entry: &RelationEntry) -> anyhow::Result<Self> {
        let topology = dataset.topology(at)?;
        let files = &entry.files;
        let optional = [
            ("edge_ids", &files.edge_ids),
            ("weights", &files.weights),
            ("times", &files.times),
            ("labels", &files.labels),
            ("features", &files.features),
        ];
        Ok(Self {
            source: entry.source.clone(),
            name: entry.name.clone(),
            target: entry.target.clone(),
            edges: entry.edges,
            id_bits: 8 * topology.neighbours().id_bytes(),
            with: optional.into_iter().filter(|(_, file)| file.is_some()).map(|(name, _)| name).collect(),
            bytes: topology.bytes(),
            degrees: Degrees::of(&topology),
        })
    }
}

impl Stored {
    fn of(array: &Array) -> Self {
        let file = array.path().file_name().unwrap_or(Path::new("").as_os_str()).to_string_lossy().into_owned();
        let bytes = array.data().as_slice().len();
        Self { file, dtype: array.kind().name(), shape: array.shape().to_vec(), bytes }
    }
}

fn rows(dataset: &Dataset, file: &str) -> Option<usize> {
    dataset.array(file)?.shape().first().copied()
}
