//! How many edges begin or end at each node, over all relations.

use std::sync::atomic::{AtomicU64, Ordering};

use headwater_tensor::parallel::{self, PIECE};

use super::NodeScores;
use crate::column::{Id, Ids};
use crate::graph::Graph;
use crate::topology::{Layout, Topology, index};

/// An end of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Where edges begin: out-degrees.
    Source,
    /// Where they end: in-degrees.
    Target,
}

/// The degree of every node at that end.
#[must_use]
pub fn degrees(graph: &Graph, end: End) -> NodeScores {
    let types = graph.schema().node_types();
    let mut found: NodeScores = types.iter().map(|node_type| vec![0; index(node_type.count)]).collect();
    for (relation, topology) in graph.schema().relations().iter().zip(graph.relations()) {
        let node_type = if end == End::Source { relation.source } else { relation.target };
        let owns_lists = (topology.layout() == Layout::Csr) == (end == End::Source);
        add_degrees(topology, owns_lists, &mut found[node_type]);
    }
    found
}

/// Adds the degrees of one relation, at the end that owns its lists or at the other.
pub(super) fn add_degrees(topology: &Topology, owns_lists: bool, degrees: &mut [u64]) {
    if owns_lists { add_lengths(topology, degrees) } else { add_seen(topology, degrees) }
}

fn add_lengths(topology: &Topology, degrees: &mut [u64]) {
    let offsets = topology.offsets().as_slice();
    parallel::for_parts(degrees, PIECE, &|start, degrees| {
        let lengths = offsets[start..].windows(2).map(|ends| ends[1].saturating_sub(ends[0]));
        degrees.iter_mut().zip(lengths).for_each(|(degree, length)| *degree += length);
    });
}

fn add_seen(topology: &Topology, degrees: &mut [u64]) {
    let counts: Vec<AtomicU64> = degrees.iter().map(|&degree| AtomicU64::new(degree)).collect();
    match topology.neighbours() {
        Ids::U32(ids) => count_each(ids, &counts),
        Ids::U64(ids) => count_each(ids, &counts),
    }
    parallel::for_parts(degrees, PIECE, &|start, degrees| {
        degrees.iter_mut().zip(&counts[start..]).for_each(|(degree, count)| *degree = count.load(Ordering::Relaxed));
    });
}

/// An id that no node has is not counted: arrays of a trusted file may hold one.
fn count_each<I: Id>(ids: &[I], counts: &[AtomicU64]) {
    parallel::for_ranges(ids.len(), PIECE, &|range| {
        for count in ids[range].iter().filter_map(|id| counts.get(index(id.wide()))) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
}
