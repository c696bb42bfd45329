//! Named arrays into a graph: a homogeneous one, or triples of head, relation and tail.
//!
//! | what | names |
//! | --- | --- |
//! | edges | `edge_index` `[2, E]` or `[E, 2]`; `row` and `col`; `indptr` and `indices` (CSR); `colptr` and `row` (CSC) |
//! | triples | `head`, `rel`, `tail`, and `split` (0 train, 1 valid, 2 test) |
//! | features | `x`, `node_feat`, `features`; or sparse rows `x_indptr`, `x_indices`, `x_values`, `x_shape` |
//! | labels and splits | `y`, `labels`, `node_label`; `train_idx` (ids, or truth values), `train_mask` and so on |
//! | of edges and nodes | `edge_weight`, `edge_time`, `edge_attr`, `node_time`, `node_year`, `num_nodes` |

use std::path::Path;

use headwater_tensor::DType;
use headwater_tensor::npy::NpyType;

use super::arrays::{Array, Arrays, checked_ids, element, negative};
use super::collected::{Collected, Edges, Found, Nodes, Sink, implied_count};
use super::edges::{EdgeList, GrowingIds};
use super::fault::Fault;
use super::options::{IngestOptions, SparseFeatures};
use super::sparse;
use super::triples;
use crate::column::{Column, Ids};
use crate::error::Result;
use crate::topology::{Layout, Topology};

pub(super) const FEATURES: &[&str] = &["x", "node_feat", "features", "feat"];
pub(super) const LABELS: &[&str] = &["y", "labels", "label", "node_label"];
const SPARSE_FEATURES: &[&str] = &["x_indptr", "x_indices", "x_values", "x_shape"];
const WEIGHTS: &[&str] = &["edge_weight", "edge_weights", "weights"];
const EDGE_TIMES: &[&str] = &["edge_time", "edge_times", "time", "t"];
const EDGE_FEATURES: &[&str] = &["edge_attr", "edge_feat", "edge_features"];
const NODE_TIMES: &[&str] = &["node_time", "node_times", "node_year"];
const SPLITS: [(&str, &[&str], &[&str]); 3] = [
    ("train", &["train_idx", "train"], &["train_mask"]),
    ("valid", &["val_idx", "valid_idx", "valid", "val"], &["val_mask", "valid_mask"]),
    ("test", &["test_idx", "test"], &["test_mask"]),
];

/// Which arrays have the edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeArrays {
    /// Heads, relations and tails.
    Triples,
    /// Both ends in one array.
    Index,
    /// One array an end.
    RowAndColumn,
    /// Neighbour lists: offsets, neighbours, and which end owns them.
    Lists(&'static str, &'static str, Layout),
}

/// Decides from the names of arrays which of them have the edges.
pub fn edge_arrays(names: &[&str]) -> Option<EdgeArrays> {
    let has = |wanted: &[&str]| wanted.iter().all(|name| names.contains(name));
    if has(&["head", "rel", "tail"]) {
        Some(EdgeArrays::Triples)
    } else if has(&["edge_index"]) {
        Some(EdgeArrays::Index)
    } else if has(&["indptr", "indices"]) {
        Some(EdgeArrays::Lists("indptr", "indices", Layout::Csr))
    } else if has(&["colptr", "row"]) {
        Some(EdgeArrays::Lists("colptr", "row", Layout::Csc))
    } else if has(&["rowptr", "col"]) {
        Some(EdgeArrays::Lists("rowptr", "col", Layout::Csr))
    } else if has(&["row", "col"]) {
        Some(EdgeArrays::RowAndColumn)
    } else {
        None
    }
}

/// Reads them.
pub fn read(arrays: &Arrays, options: &IngestOptions, sink: &Sink<'_>) -> Result<Collected> {
    let Some(which) = edge_arrays(&arrays.names()) else {
        let what = "array with edges: edge_index, indptr and indices, row and col, or head, rel and tail".to_owned();
        return Err(Fault::Missing { what, there: arrays.names().join(", ") }.of(arrays.path()));
    };
    warn_of_others(arrays, which);
    if which == EdgeArrays::Triples {
        return triples::read(arrays, options, sink);
    }
    sink.progress.begin("edges", 0);
    let edges = match which {
        EdgeArrays::Lists(offsets, neighbours, layout) => lists(arrays, offsets, neighbours, layout, options)?,
        _ => Found::List(edge_list(arrays, which)?),
    };
    let count = match node_count(arrays, options, "node")? {
        Some(count) => count,
        None => match &edges {
            Found::List(list) => {
                implied_count(list.sources.max().max(list.targets.max()), list.len() as u64, arrays.path())?
            }
            Found::Lists(topology) => topology.rows(),
        },
    };
    let mut nodes = Nodes::new("node", count);
    node_arrays(&mut nodes, arrays, options, sink)?;
    let mut edges = Edges::new(0, "to", 0, edges);
    if let Some(name) = arrays.first_of(EDGE_FEATURES) {
        edges.features("node__to__node", arrays, name, sink)?;
    }
    Ok(Collected { nodes: vec![nodes], relations: vec![edges], ..Collected::default() })
}

/// Says which arrays nobody looks at.
fn warn_of_others(arrays: &Arrays, which: EdgeArrays) {
    tell_others(arrays.path(), arrays.names(), &taken(&arrays.names(), which));
}

/// Says which of these names, of arrays or of files, are not among those that are taken.
pub(super) fn tell_others<N: AsRef<str>>(path: &Path, names: Vec<N>, taken: &[&str]) {
    let others: Vec<&str> = names.iter().map(AsRef::as_ref).filter(|name| !taken.contains(name)).collect();
    if !others.is_empty() {
        log::warn!("{}: not taken in: {}", path.display(), others.join(", "));
    }
}

/// Which arrays are looked at. Of several with the same meaning it is the first.
fn taken(names: &[&str], which: EdgeArrays) -> Vec<&'static str> {
    let mut taken = match which {
        EdgeArrays::Triples => vec!["head", "rel", "tail", "split", "num_rels"],
        EdgeArrays::Index => vec!["edge_index"],
        EdgeArrays::RowAndColumn => vec!["row", "col"],
        EdgeArrays::Lists(offsets, neighbours, _) => vec![offsets, neighbours],
    };
    taken.push("num_nodes");
    let first = |list: &[&'static str]| list.iter().copied().find(|name| names.contains(name));
    match first(FEATURES) {
        Some(name) => taken.push(name),
        None => taken.extend(SPARSE_FEATURES),
    }
    // Statements are dealt out to their relations; nothing that belongs to them is.
    let of_edges = if which == EdgeArrays::Triples { [&[][..]; 3] } else { [WEIGHTS, EDGE_TIMES, EDGE_FEATURES] };
    taken.extend([LABELS, NODE_TIMES].into_iter().chain(of_edges).filter_map(first));
    taken.extend(SPLITS.iter().filter_map(|(_, lists, masks)| first(lists).or_else(|| first(masks))));
    taken
}

/// What the arrays or the user say about the number of nodes.
pub(super) fn node_count(arrays: &Arrays, options: &IngestOptions, of: &str) -> Result<Option<u64>> {
    if let Some(count) = options.count_of(of, true) {
        return Ok(Some(count));
    }
    if arrays.has("num_nodes") {
        return scalar(arrays, "num_nodes").map(Some);
    }
    if arrays.has("x_shape") {
        let shape = arrays.array("x_shape")?.integers()?;
        return Ok(shape.first().and_then(|rows| u64::try_from(*rows).ok()));
    }
    let masks = SPLITS.iter().flat_map(|(_, _, masks)| masks.iter());
    let of_nodes = FEATURES.iter().chain(LABELS).chain(NODE_TIMES).chain(masks);
    let found = of_nodes.copied().find(|name| arrays.has(name));
    found.map(|name| Ok(arrays.array(name)?.rows())).transpose()
}

/// A number that is alone in its array.
pub(super) fn scalar(arrays: &Arrays, name: &str) -> Result<u64> {
    let array = arrays.array(name)?;
    let wrong = array.wrong(Fault::Shape { found: array.shape().to_vec(), expected: "a single number from 0 on" });
    match array.integers()?[..] {
        [number] => u64::try_from(number).map_err(|_| wrong),
        _ => Err(wrong),
    }
}

/// Features, labels, times and splits, those that are there.
pub(super) fn node_arrays(nodes: &mut Nodes, arrays: &Arrays, options: &IngestOptions, sink: &Sink<'_>) -> Result<()> {
    if options.sparse_features != SparseFeatures::Dense && !arrays.has("x_indptr") {
        let why = "a form of sparse features is asked for, and there are none (x_indptr, x_indices, x_values, x_shape)";
        return Err(Fault::Refused(why.into()).of(arrays.path()));
    }
    if let Some(name) = arrays.first_of(FEATURES) {
        nodes.features(arrays.array(name)?, sink)?;
    } else if arrays.has("x_indptr") {
        sparse::features(nodes, arrays, options.sparse_features, sink)?;
    }
    if let Some(name) = arrays.first_of(LABELS) {
        labels(nodes, arrays.array(name)?, sink)?;
    }
    if let Some(name) = arrays.first_of(NODE_TIMES) {
        nodes.times(&arrays.array(name)?.expect_list(nodes.count, "nodes")?.integers()?, arrays.path(), sink)?;
    }
    for (what, names, masks) in SPLITS {
        if let Some(name) = arrays.first_of(names).or_else(|| arrays.first_of(masks)) {
            let ids = split(arrays.array(name)?, masks.contains(&name), nodes.count)?;
            nodes.split(what, &ids, arrays.path(), sink)?;
        }
    }
    Ok(())
}

/// Labels, a number or a row of numbers a node.
pub(super) fn labels(nodes: &mut Nodes, array: Array<'_>, sink: &Sink<'_>) -> Result<()> {
    let array = array.expect_rows(nodes.count, "nodes")?.expect_rows_packed()?;
    let (columns, path, place) = (array.shape().iter().skip(1).product(), array.path().to_owned(), array.placer());
    nodes.labels(columns, array.numbers()?, place, &path, sink)
}

/// The nodes of a split: a list of ids, or one truth value a node.
fn split(array: Array<'_>, is_mask: bool, nodes: u64) -> Result<Vec<i64>> {
    let length = array.rows();
    let array = array.expect_list(length, "nodes")?;
    if !is_mask && array.kind() != NpyType::Tensor(DType::Bool) {
        return array.integers();
    }
    let place = array.placer();
    let mask = array.expect_rows(nodes, "nodes")?.integers()?;
    match (0..).zip(&mask).find(|(_, chosen)| !matches!(chosen, 0 | 1)) {
        Some((at, value)) => {
            let expected = "0 or 1: the array is a mask, one truth value a node".to_owned();
            Err(place(Fault::Value { value: value.to_string(), expected }, at))
        }
        None => Ok((0..).zip(&mask).filter(|(_, chosen)| **chosen == 1).map(|(id, _)| id).collect()),
    }
}

fn edge_list(arrays: &Arrays, which: EdgeArrays) -> Result<EdgeList> {
    let mut edges = match which {
        EdgeArrays::RowAndColumn => EdgeList {
            sources: arrays.array("row")?.ids()?,
            targets: arrays.array("col")?.ids()?,
            ..EdgeList::default()
        },
        _ => edge_index(arrays.array("edge_index")?)?,
    };
    let (found, expected) = (edges.targets.len() as u64, edges.len() as u64);
    if found != expected {
        return Err(Fault::Length { found, expected, of: "in row".into() }.of(arrays.path()));
    }
    (edges.weights, edges.times) = weights_and_times(arrays, expected)?;
    Ok(edges)
}

/// Both ends of edges, `[2, E]` or `[E, 2]`.
pub(super) fn edge_index(array: Array<'_>) -> Result<EdgeList> {
    let (rows_are_ends, edges) = match *array.shape() {
        [2, edges] => (true, edges as u64),
        [edges, 2] => (false, edges as u64),
        _ => {
            let found = array.shape().to_vec();
            return Err(array.wrong(Fault::Shape { found, expected: "[2, edges] or [edges, 2]" }));
        }
    };
    // Ends of an edge are neighbours in memory when edges are rows, or when columns are packed.
    let interleaved = rows_are_ends == array.by_columns();
    let mut list = EdgeList::default();
    let place = array.placer();
    let mut ids = Vec::new();
    array.for_each_integer(|start, piece| {
        checked_ids(piece, &mut ids).map_err(|(at, value)| place(negative(value), start + at as u64))?;
        if interleaved {
            for (at, id) in (start..).zip(&ids) {
                if at % 2 == 0 { list.sources.push(*id) } else { list.targets.push(*id) }
            }
        } else {
            let left = usize::try_from(edges.saturating_sub(start)).unwrap_or(usize::MAX).min(ids.len());
            list.sources.extend(&ids[..left]);
            list.targets.extend(&ids[left..]);
        }
        Ok(())
    })?;
    Ok(list)
}

type EdgeValues = (Option<Vec<f32>>, Option<Vec<i64>>);

fn weights_and_times(arrays: &Arrays, edges: u64) -> Result<EdgeValues> {
    let of = |names: &[&'static str]| {
        let found = arrays.first_of(names);
        found.map(|name| arrays.array(name)?.expect_list(edges, "edges")).transpose()
    };
    Ok((of(WEIGHTS)?.map(weights).transpose()?, of(EDGE_TIMES)?.map(Array::integers).transpose()?))
}

fn weights(array: Array<'_>) -> Result<Vec<f32>> {
    let place = array.placer();
    let weights = array.floats()?;
    match (0..).zip(&weights).find(|(_, weight)| !(weight.is_finite() && **weight >= 0.0)) {
        Some((at, weight)) => {
            let expected = "a weight: a finite number, not negative".to_owned();
            Err(place(Fault::Value { value: weight.to_string(), expected }, at))
        }
        None => Ok(weights),
    }
}

fn lists(arrays: &Arrays, offsets: &str, neighbours: &str, layout: Layout, options: &IngestOptions) -> Result<Found> {
    let starts = match arrays.array(offsets)?.ids()? {
        GrowingIds::U32(starts) => starts.into_iter().map(u64::from).collect(),
        GrowingIds::U64(starts) => starts,
    };
    let ids = arrays.array(neighbours)?.ids()?;
    let edges = ids.len() as u64;
    let rows = (starts.len() as u64).saturating_sub(1);
    let columns = node_count(arrays, options, "node")?.unwrap_or(rows);
    let wrong = |error: crate::Error| Fault::Refused(error.to_string()).at(arrays.path(), element(offsets, 0, 0));
    let mut made = Topology::new(layout, columns, starts.into(), Ids::from(ids)).map_err(wrong)?;
    let (weights, times) = weights_and_times(arrays, edges)?;
    if let Some(weights) = weights {
        made = made.with_weights(Column::from(weights))?;
    }
    if let Some(times) = times {
        made = made.with_times(Column::from(times))?;
    }
    Ok(Found::Lists(made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_found_by_their_names() {
        for (names, expected) in [
            (&["x", "edge_index"][..], Some(EdgeArrays::Index)),
            (&["head", "rel", "tail", "split"], Some(EdgeArrays::Triples)),
            (&["indptr", "indices", "data"], Some(EdgeArrays::Lists("indptr", "indices", Layout::Csr))),
            (&["row", "colptr"], Some(EdgeArrays::Lists("colptr", "row", Layout::Csc))),
            (&["row", "col"], Some(EdgeArrays::RowAndColumn)),
            (&["x", "y"], None),
        ] {
            assert_eq!(edge_arrays(names), expected, "{names:?}");
        }
    }

    #[test]
    fn of_arrays_that_mean_the_same_one_is_taken() {
        let left = |names: &[&'static str]| -> Vec<&'static str> {
            let taken = taken(names, edge_arrays(names).unwrap());
            names.iter().copied().filter(|name| !taken.contains(name)).collect()
        };
        assert_eq!(left(&["edge_index", "x", "y", "edge_attr", "train_mask"]), [""; 0]);
        assert_eq!(left(&["edge_index", "x", "feat", "y", "labels", "split"]), ["feat", "labels", "split"]);
        assert_eq!(left(&["edge_index", "indptr", "train_idx", "train_mask"]), ["indptr", "train_mask"]);
        assert_eq!(left(&["head", "rel", "tail", "split", "edge_weight"]), ["edge_weight"]);
        assert_eq!(left(&["edge_index", "x", "x_indptr"]), ["x_indptr"]);
    }
}
