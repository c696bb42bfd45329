//! Which files a manifest uses for what, and what each of them must be: a pure check, for writers and readers alike.
//!
//! What is not checked here cannot be wrong later: a graph, a feature table or a split made from a manifest that passed
//! has arrays of the right type, rank and length.

use std::path::Path;

use super::manifest::{EdgeFiles, FileEntry, LinkFiles, Manifest, NodeFiles, Split, Splits};
use super::names::is_file_name;
use crate::error::{Error, Result};
use crate::topology::Layout;

const IDS: &[&str] = &["uint32", "uint64"];
const INTEGERS: &[&str] = &["uint32", "uint64", "int32", "int64"];
const ANY: &[&str] = &[];
/// Linux maps 65,530 ranges for a process, and others want some of them too.
const MOST_FILES: usize = 60_000;

/// Checks names, types and shapes. `path` is the manifest, for messages.
pub(super) fn check(manifest: &Manifest, path: &Path) -> Result<()> {
    let wrong = |why: String| Error::Manifest { path: path.to_owned(), why };
    if let Some(name) = manifest.files.keys().find(|name| !is_file_name(name)) {
        return Err(wrong(format!("{name:?} is no plain file name that ends in .npy")));
    }
    if manifest.files.len() > MOST_FILES {
        return Err(wrong(format!(
            "names {} files; a process can map no more than {MOST_FILES}",
            manifest.files.len()
        )));
    }
    let schema = manifest.schema()?;
    for node in &manifest.nodes {
        for role in node_roles(&node.files, node.count) {
            role.check(manifest).map_err(|why| wrong(format!("node type {:?}: {why}", node.name)))?;
        }
    }
    for (relation, ends) in manifest.relations.iter().zip(schema.relations()) {
        let rows = match manifest.layout {
            Layout::Csr => ends.source,
            Layout::Csc => ends.target,
        };
        for role in edge_roles(&relation.files, schema.node_types()[rows].count, relation.edges) {
            role.check(manifest).map_err(|why| wrong(format!("relation {:?}: {why}", relation.name)))?;
        }
    }
    for split in Split::ALL {
        let Some(links) = manifest.links.get(split) else { continue };
        let triples = manifest.files.get(&links.triples).and_then(|file| file.shape.first().copied()).unwrap_or(0);
        for role in link_roles(links, triples) {
            role.check(manifest).map_err(|why| wrong(format!("{} links: {why}", split.name())))?;
        }
    }
    Ok(())
}

/// Applies `change` to every name that stands for an array.
pub(super) fn rename_nodes(files: &mut NodeFiles, change: &mut dyn FnMut(&mut String) -> Result<()>) -> Result<()> {
    let NodeFiles { features, labels, classes: _, times, original_ids, original_id_offsets, first_numbers, splits } =
        files;
    let Splits { train, valid, test } = splits;
    [features, labels, times, original_ids, original_id_offsets, first_numbers, train, valid, test]
        .into_iter()
        .flatten()
        .try_for_each(change)
}

/// As [`rename_nodes`], for a relation.
pub(super) fn rename_edges(files: &mut EdgeFiles, change: &mut dyn FnMut(&mut String) -> Result<()>) -> Result<()> {
    let EdgeFiles { offsets, neighbours, edge_ids, weights, times, labels, features, order: _ } = files;
    change(offsets)?;
    change(neighbours)?;
    [edge_ids, weights, times, labels, features].into_iter().flatten().try_for_each(change)
}

/// As [`rename_nodes`], for edges to predict.
pub(super) fn rename_links(files: &mut LinkFiles, change: &mut dyn FnMut(&mut String) -> Result<()>) -> Result<()> {
    let LinkFiles { triples, labels, other_sources, other_targets } = files;
    change(triples)?;
    [labels, other_sources, other_targets].into_iter().flatten().try_for_each(change)
}

/// What a file is used for and what it must be.
struct Role<'a> {
    what: &'static str,
    file: &'a String,
    dtypes: &'static [&'static str],
    dims: Dims,
}

/// What a shape must be.
#[derive(Debug, Clone, Copy)]
enum Dims {
    /// A list of so many.
    List(Option<u64>),
    /// So many rows of anything, or a list.
    Rows(u64),
    /// Rows of so many columns, or of any number.
    Table(u64, Option<u64>),
}

fn node_roles(files: &NodeFiles, count: u64) -> Vec<Role<'_>> {
    let named = files.original_id_offsets.is_some();
    let (id_types, ids): (&[&str], _) =
        if named { (&["uint8"], Dims::List(None)) } else { (INTEGERS, Dims::List(Some(count))) };
    let split = |split| (split, files.splits.get(split), INTEGERS, Dims::List(None));
    let splits = Split::ALL.map(split).map(|(split, file, dtypes, dims)| (split.name(), file, dtypes, dims));
    [
        ("features", files.features.as_ref(), ANY, Dims::Rows(count)),
        ("labels", files.labels.as_ref(), ANY, Dims::Rows(count)),
        ("times", files.times.as_ref(), &["int64"][..], Dims::List(Some(count))),
        ("original_ids", files.original_ids.as_ref(), id_types, ids),
        ("original_id_offsets", files.original_id_offsets.as_ref(), &["uint64"], Dims::List(count.checked_add(1))),
        ("first_numbers", files.first_numbers.as_ref(), IDS, Dims::List(Some(count))),
    ]
    .into_iter()
    .chain(splits)
    .filter_map(|(what, file, dtypes, dims)| Some(Role { what, file: file?, dtypes, dims }))
    .collect()
}

fn edge_roles(files: &EdgeFiles, rows: u64, edges: u64) -> Vec<Role<'_>> {
    [
        ("offsets", Some(&files.offsets), &["uint64"][..], Dims::List(Some(rows.saturating_add(1)))),
        ("neighbours", Some(&files.neighbours), IDS, Dims::List(Some(edges))),
        ("edge_ids", files.edge_ids.as_ref(), IDS, Dims::List(Some(edges))),
        ("weights", files.weights.as_ref(), &["float32"], Dims::List(Some(edges))),
        ("times", files.times.as_ref(), &["int64"], Dims::List(Some(edges))),
        ("labels", files.labels.as_ref(), ANY, Dims::Rows(edges)),
        ("features", files.features.as_ref(), ANY, Dims::Rows(edges)),
    ]
    .into_iter()
    .filter_map(|(what, file, dtypes, dims)| Some(Role { what, file: file?, dtypes, dims }))
    .collect()
}

fn link_roles(files: &LinkFiles, links: u64) -> Vec<Role<'_>> {
    [
        ("triples", Some(&files.triples), INTEGERS, Dims::Table(links, Some(3))),
        ("labels", files.labels.as_ref(), ANY, Dims::Rows(links)),
        ("other_sources", files.other_sources.as_ref(), INTEGERS, Dims::Table(links, None)),
        ("other_targets", files.other_targets.as_ref(), INTEGERS, Dims::Table(links, None)),
    ]
    .into_iter()
    .filter_map(|(what, file, dtypes, dims)| Some(Role { what, file: file?, dtypes, dims }))
    .collect()
}

impl Role<'_> {
    fn check(&self, manifest: &Manifest) -> std::result::Result<(), String> {
        let Self { what, file, dtypes, dims } = self;
        let Some(FileEntry { dtype, shape, .. }) = manifest.files.get(*file) else {
            return Err(format!("{what} is in {file:?}, which is not among the files"));
        };
        if !dtypes.is_empty() && !dtypes.contains(&dtype.as_str()) {
            return Err(format!("{what} in {file:?} is {dtype}; expected {}", dtypes.join(" or ")));
        }
        if dims.allow(shape) { Ok(()) } else { Err(format!("{what} in {file:?} has shape {shape:?}; expected {dims}")) }
    }
}

impl Dims {
    fn allow(self, shape: &[u64]) -> bool {
        match (self, shape) {
            (Self::List(wanted), [length]) => wanted.is_none_or(|wanted| wanted == *length),
            (Self::Rows(wanted), [rows, ..]) => wanted == *rows,
            (Self::Table(wanted, columns), [rows, found]) => {
                wanted == *rows && columns.is_none_or(|columns| columns == *found)
            }
            _ => false,
        }
    }
}

impl std::fmt::Display for Dims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::List(Some(length)) => write!(f, "[{length}]"),
            Self::List(None) => write!(f, "one dimension"),
            Self::Rows(rows) => write!(f, "[{rows}, ...]"),
            Self::Table(rows, Some(columns)) => write!(f, "[{rows}, {columns}]"),
            Self::Table(rows, None) => write!(f, "[{rows}, any]"),
        }
    }
}
