//! Nodes that no edge touches, neither as source nor as target.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use headwater_memory::host_bytes_available;
use headwater_tensor::parallel::{self, PIECE};

use crate::column::{Id, Ids};
use crate::error::Result;
use crate::graph::Graph;
use crate::topology::{Layout, Topology, index};

/// How many nodes of each type have no edge of any relation. Takes a bit a node and reads every list.
pub fn isolated(graph: &Graph) -> Result<Vec<u64>> {
    let schema = graph.schema();
    let counts: Vec<u64> = schema.node_types().iter().map(|node_type| node_type.count).collect();
    check_room(&counts)?;
    let touched: Vec<Marks> = counts.iter().map(|count| Marks::new(*count)).collect();
    for (relation, topology) in schema.relations().iter().zip(graph.relations()) {
        let (rows, columns) = match topology.layout() {
            Layout::Csr => (relation.source, relation.target),
            Layout::Csc => (relation.target, relation.source),
        };
        mark_rows(topology, &touched[rows]);
        match topology.neighbours() {
            Ids::U32(ids) => mark(ids, &touched[columns]),
            Ids::U64(ids) => mark(ids, &touched[columns]),
        }
    }
    Ok(counts.iter().zip(&touched).map(|(count, marks)| count - marks.count()).collect())
}

fn mark<I: Id>(ids: &[I], touched: &Marks) {
    parallel::for_ranges(ids.len(), PIECE, &|range| ids[range].iter().for_each(|id| touched.set(id.wide())));
}

fn mark_rows(topology: &Topology, touched: &Marks) {
    let offsets = topology.offsets().as_slice();
    parallel::for_ranges(index(topology.rows()), PIECE, &|rows| {
        rows.filter(|row| offsets[row + 1] > offsets[*row]).for_each(|row| touched.set(row as u64));
    });
}

/// A file may claim any number of nodes; one that is not there must not take the memory that is.
fn check_room(counts: &[u64]) -> Result<()> {
    let bytes = counts.iter().fold(0u64, |sum, count| sum.saturating_add(count.div_ceil(8)));
    let (asked_bytes, free_bytes) = (index(bytes), host_bytes_available());
    if asked_bytes < free_bytes {
        return Ok(());
    }
    let why = "a bit for every node the schema has".to_owned();
    Err(headwater_memory::Error::Map { asked_bytes, free_bytes, why }.into())
}

/// A bit a node.
struct Marks {
    words: Vec<AtomicU64>,
    nodes: u64,
}

impl Marks {
    fn new(nodes: u64) -> Self {
        Self { words: (0..nodes.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(), nodes }
    }

    /// Ids that name no node are passed over: lists of a mapped file are not checked.
    fn set(&self, node: u64) {
        if node >= self.nodes {
            return;
        }
        let (word, bit) = (&self.words[index(node / 64)], 1 << (node % 64));
        // Hubs are met again and again; reading does not take the line from other cores.
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    fn count(&self) -> u64 {
        let ones = |word: &AtomicU64| u64::from(word.load(Relaxed).count_ones());
        parallel::sum(self.words.len(), PIECE, &|range| self.words[range].iter().map(ones).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, NodeType, Relation, Schema};

    fn graph(layout: Layout, neighbours: Vec<u32>) -> Graph {
        let node_types = [("a", 200), ("b", 3)].map(|(name, count)| NodeType { name: name.into(), count });
        let (source, target) = if layout == Layout::Csc { (0, 1) } else { (1, 0) };
        let relation = Relation { source, name: "to".into(), target };
        let schema = Schema::new(node_types.into(), vec![relation]).unwrap();
        let topology = Topology::trusted(layout, 200, vec![0u64, 2, 2, 3].into(), neighbours.into()).unwrap();
        Graph::new(schema, vec![topology]).unwrap()
    }

    #[test]
    fn nodes_at_either_end_are_not_alone() {
        for layout in [Layout::Csc, Layout::Csr] {
            assert_eq!(isolated(&graph(layout, vec![199, 0, 0])).unwrap(), [198, 1]);
            // An id out of range touches nobody.
            assert_eq!(isolated(&graph(layout, vec![199, 200, 0])).unwrap(), [198, 1]);
        }
    }

    #[test]
    fn nodes_that_are_only_claimed_take_no_memory() {
        let schema = Schema::new(vec![NodeType { name: "a".into(), count: u64::MAX }], vec![]).unwrap();
        let found = isolated(&Graph::new(schema, vec![]).unwrap());
        assert!(matches!(found, Err(Error::Memory(_))));
    }
}
