//! The rows of a finer domain that belong to a row of a coarser one.

use std::borrow::Cow;

use super::{Adjacency, Map, lazily, number};
use crate::inter::{Domain, Path, Side};

/// Rows of a finer domain, row after row of a coarser one. Within a row they are in order.
#[derive(Debug, Clone)]
pub enum Members<'a> {
    /// All of them, to the one row there is.
    All(usize),
    /// Those between two starts.
    Between(Cow<'a, [usize]>),
    /// Those that are listed between two starts.
    Listed {
        /// Where each row's begin.
        starts: Cow<'a, [usize]>,
        /// All of them.
        rows: Cow<'a, [u32]>,
    },
}

impl Members<'_> {
    /// Calls `visit` with every row that belongs to `row`.
    pub fn visit(&self, row: usize, mut visit: impl FnMut(usize)) {
        match self {
            Self::All(count) => (0..*count).for_each(visit),
            Self::Between(starts) => (starts[row]..starts[row + 1]).for_each(visit),
            Self::Listed { starts, rows } => {
                rows[starts[row]..starts[row + 1]].iter().for_each(|row| visit(*row as usize));
            }
        }
    }

    /// How many belong to `row`.
    #[must_use]
    pub fn count(&self, row: usize) -> usize {
        match self {
            Self::All(count) => *count,
            Self::Between(starts) | Self::Listed { starts, .. } => starts[row + 1] - starts[row],
        }
    }
}

/// See [`Adjacency::members`].
pub(super) fn members(graph: &Adjacency, coarse: Domain, fine: Domain, path: Path) -> Option<Members<'_>> {
    use Domain::{Edge, Node, Pair};
    let map = graph.map(fine, coarse, path)?;
    Some(match (coarse, fine) {
        (Domain::Const, _) => Members::All(graph.rows(fine)),
        (Pair(Side::Dst), Edge) => Members::Between(Cow::Borrowed(&graph.pairs(Side::Dst).starts)),
        (Pair(Side::Src), Edge) => {
            let pairs = graph.pairs(Side::Src);
            Members::Listed { starts: Cow::Borrowed(&pairs.starts), rows: Cow::Borrowed(&pairs.edges) }
        }
        // With one relation the edges of a node are those of its pair.
        (Node(Side::Dst), Edge) if graph.rows(Domain::EdgeType) == 1 => {
            Members::Between(Cow::Borrowed(lazily::<Vec<usize>>(&graph.dst_starts, || {
                of_sorted(&graph.dst, graph.rows(coarse))
            })))
        }
        (Node(side), Edge) => {
            let (starts, rows) = lazily(&graph.node_edges[side as usize], || edges_of_nodes(graph, side));
            Members::Listed { starts: Cow::Borrowed(starts), rows: Cow::Borrowed(rows) }
        }
        // What is written is the first of what is read: one row each, and none for the others.
        (Node(Side::Src), Node(Side::Dst)) if graph.dst_is_src_prefix => {
            let written = graph.rows(fine);
            let starts = || (0..=graph.rows(coarse)).map(|row| row.min(written)).collect();
            Members::Between(Cow::Borrowed(lazily::<Vec<usize>>(&graph.written_starts, starts)))
        }
        _ => match map {
            Map::Stretches(starts) => Members::Between(Cow::Borrowed(starts)),
            map => by_counting(map, graph.rows(fine), graph.rows(coarse)),
        },
    })
}

/// Where each row's begin, of rows that lie in order.
fn of_sorted(row_of: &[u32], rows: usize) -> Vec<usize> {
    let mut starts = vec![0; rows + 1];
    row_of.iter().for_each(|row| starts[*row as usize + 1] += 1);
    (0..rows).for_each(|row| starts[row + 1] += starts[row]);
    starts
}

/// See [`Adjacency::edge_starts`].
pub(super) fn edge_starts(graph: &Adjacency, rows: Domain) -> Option<Cow<'_, [usize]>> {
    let map = graph.map(Domain::Edge, rows, Path::Only)?;
    if let Domain::Pair(side) = rows {
        return Some(Cow::Borrowed(&graph.pairs(side).starts));
    }
    let mut starts = vec![0; graph.rows(rows) + 1];
    (0..graph.rows(Domain::Edge)).for_each(|edge| starts[map.get(edge) + 1] += 1);
    (0..graph.rows(rows)).for_each(|row| starts[row + 1] += starts[row]);
    Some(Cow::Owned(starts))
}

/// Where each node's edges begin, and all of them: pair after pair.
fn edges_of_nodes(graph: &Adjacency, side: Side) -> (Vec<usize>, Vec<u32>) {
    let rows = graph.rows(Domain::Node(side));
    let (mut starts, mut all) = (Vec::with_capacity(rows + 1), Vec::with_capacity(graph.src.len()));
    let pairs = members(graph, Domain::Node(side), Domain::Pair(side), Path::Only);
    let edges = members(graph, Domain::Pair(side), Domain::Edge, Path::Only);
    let (Some(pairs), Some(edges)) = (pairs, edges) else { return (vec![0; rows + 1], all) };
    starts.push(0);
    for row in 0..rows {
        pairs.visit(row, |pair| edges.visit(pair, |edge| all.push(number(edge))));
        starts.push(all.len());
    }
    (starts, all)
}

fn by_counting(map: Map<'_>, fine: usize, coarse: usize) -> Members<'static> {
    let mut starts = vec![0; coarse + 1];
    (0..fine).for_each(|row| starts[map.get(row) + 1] += 1);
    (0..coarse).for_each(|row| starts[row + 1] += starts[row]);
    let mut next = starts.clone();
    let mut rows = vec![0; fine];
    for row in 0..fine {
        let place = &mut next[map.get(row)];
        rows[*place] = number(row);
        *place += 1;
    }
    Members::Listed { starts: Cow::Owned(starts), rows: Cow::Owned(rows) }
}
