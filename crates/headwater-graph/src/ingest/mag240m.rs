//! MAG240M's folder: `processed/TYPE/node_feat.npy` and so on, `processed/A___R___B/edge_index.npy`.
//!
//! Counts and splits lie in pickles, which are not read. Counts come from the arrays, from the user or, failing both, from
//! the largest id. Splits come from `split/train.npy` and so on or, failing that, from labels and years as the set's
//! authors made theirs: labelled papers until 2018 to learn from, of 2019 to choose by.

use std::path::{Path, PathBuf};

use super::arrays::{Array, Arrays};
use super::collected::{Collected, Edges, Found, Nodes, Sink, check_ends, implied_count, there};
use super::fault::Fault;
use super::labels::{Labels, Numbers, decide};
use super::npz::{edge_index, tell_others};
use super::ogb::position;
use super::options::{IngestOptions, LabelKind};
use crate::error::{Error, Result};

const LAST_TRAINING_YEAR: i64 = 2018;
const VALIDATION_YEAR: i64 = 2019;

/// Reads it.
pub fn read(root: &Path, options: &IngestOptions, sink: &Sink<'_>) -> Result<Collected> {
    let processed = root.join("processed");
    let folders = folders_of(&processed)?;
    let mut nodes: Vec<Nodes> = Vec::new();
    let mut relations = Vec::new();
    for (name, folder) in &folders {
        let words: Vec<&str> = name.split("___").collect();
        let [source, relation, target] = words[..] else { continue };
        let [from, to] = [source, target].map(|end| {
            let known = nodes.iter().position(|kind| kind.name == end);
            known.unwrap_or_else(|| {
                nodes.push(Nodes::new(end, 0));
                nodes.len() - 1
            })
        });
        sink.progress.begin(&format!("reading {name}"), 0);
        let arrays = Arrays::open(folder)?;
        tell_others(folder, arrays.names(), &["edge_index", "edge_feat"]);
        let edges = edge_index(arrays.array("edge_index")?)?;
        let mut edges = Edges::new(from, relation, to, Found::List(edges));
        if arrays.has("edge_feat") {
            edges.features(&words.join("__"), &arrays, "edge_feat", sink)?;
        }
        relations.push((edges, folder));
    }
    for (name, folder) in folders.iter().filter(|(name, _)| !name.contains("___")) {
        let at = position(&nodes, name, folder)?;
        nodes[at].count = count(folder)?;
    }
    count_by_edges(&mut nodes, &relations, options, &processed)?;
    for (name, folder) in folders.iter().filter(|(name, _)| !name.contains("___")) {
        let at = position(&nodes, name, folder)?;
        node_arrays(&mut nodes[at], folder, root, sink)?;
    }
    let mut checked = Vec::new();
    for (relation, folder) in relations {
        if let Found::List(edges) = &relation.edges {
            check_ends(edges, [&nodes[relation.source], &nodes[relation.target]], &folder.join("edge_index.npy"))?;
        }
        checked.push(relation);
    }
    Ok(Collected { nodes, relations: checked, ..Collected::default() })
}

/// Folders by name, in the order of their names.
fn folders_of(path: &Path) -> Result<Vec<(String, PathBuf)>> {
    let wrong = |error| Fault::Io(error).of(path);
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(path).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        if entry.path().is_dir() {
            folders.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
    }
    folders.sort();
    Ok(folders)
}

/// Rows of the first array of a node type.
fn count(folder: &Path) -> Result<u64> {
    let arrays = Arrays::open(folder)?;
    let first = arrays.first_of(&["node_feat", "node_label", "node_year"]);
    first.map_or(Ok(0), |name| Ok(arrays.array(name)?.rows()))
}

/// Types without arrays have as many nodes as the user says, or as their largest id asks for.
fn count_by_edges(
    nodes: &mut [Nodes],
    relations: &[(Edges, &PathBuf)],
    options: &IngestOptions,
    path: &Path,
) -> Result<()> {
    let edges = relations.iter().map(|(relation, _)| relation.edges.len()).sum();
    for (at, kind) in nodes.iter_mut().enumerate() {
        if let Some(count) = options.count_of(&kind.name, false) {
            kind.count = count;
        } else if kind.count == 0 {
            let ends = relations.iter().flat_map(|(relation, _)| match &relation.edges {
                Found::List(edges) => {
                    let source = (relation.source == at).then(|| edges.sources.max()).flatten();
                    [source, (relation.target == at).then(|| edges.targets.max()).flatten()]
                }
                Found::Lists(_) => [None, None],
            });
            kind.count = implied_count(ends.flatten().max(), edges, path)?;
            log::warn!(
                "{} {} nodes, by their largest id; --nodes {}=COUNT says otherwise",
                kind.count,
                kind.name,
                kind.name
            );
        }
    }
    Ok(())
}

fn node_arrays(nodes: &mut Nodes, folder: &Path, root: &Path, sink: &Sink<'_>) -> Result<()> {
    let arrays = Arrays::open(folder)?;
    tell_others(folder, arrays.names(), &["node_feat", "node_label", "node_year"]);
    if arrays.has("node_feat") {
        nodes.features(arrays.array("node_feat")?, sink)?;
    }
    let of = |name: &str| arrays.has(name).then(|| arrays.array(name)).transpose();
    let labels = of("node_label")?.map(classes).transpose()?;
    let years = of("node_year")?.map(|array| array.integers()).transpose()?;
    if let Some((labels, place)) = &labels {
        nodes.labels(1, Numbers::Whole(labels.clone()), place, folder, sink)?;
    }
    if let Some(years) = &years {
        nodes.times(years, folder, sink)?;
    }
    match (labels, years) {
        (Some((labels, _)), Some(years)) => splits(nodes, &labels, &years, root, sink),
        _ => Ok(()),
    }
}

type Placer = Box<dyn Fn(Fault, u64) -> Error>;

/// Classes, which the set's authors keep as floats.
fn classes(array: Array<'_>) -> Result<(Vec<i64>, Placer)> {
    let place: Placer = Box::new(array.placer());
    match decide(array.numbers()?, 1, LabelKind::Classes).map_err(|(at, fault)| place(fault, at))? {
        Labels::Classes(labels) | Labels::Answers(labels) => Ok((labels, place)),
        Labels::Values(_) => Ok((Vec::new(), place)),
    }
}

fn splits(nodes: &mut Nodes, labels: &[i64], years: &[i64], root: &Path, sink: &Sink<'_>) -> Result<()> {
    let names = ["train", "valid", "test"];
    let files = names.map(|name| there(root.join("split").join(format!("{name}.npy"))));
    if files.iter().any(Option::is_some) {
        for (name, path) in names.into_iter().zip(files) {
            if let Some(path) = path {
                let ids = Arrays::open(&path)?.array("edge_index")?.integers()?;
                nodes.split(name, &ids, &path, sink)?;
            }
        }
        return Ok(());
    }
    let labelled = |wanted: &dyn Fn(i64) -> bool| -> Vec<i64> {
        let both = (0..).zip(labels.iter().zip(years));
        both.filter(|(_, (label, year))| **label >= 0 && wanted(**year)).map(|(id, _)| id).collect()
    };
    nodes.split("train", &labelled(&|year| year <= LAST_TRAINING_YEAR), root, sink)?;
    nodes.split("valid", &labelled(&|year| year == VALIDATION_YEAR), root, sink)?;
    log::warn!(
        "{}: split_dict.pt is a pickle and is not read; train and valid come from labels and years. For other lists, \
         write split/train.npy, split/valid.npy and split/test.npy",
        root.display()
    );
    Ok(())
}
