//! What a network is compiled for, without the graph as its layers would take it.
//!
//! A network that is trained on samples never runs on the whole graph. How many rows each domain would have there follows
//! from the lists, and parameters that have a row a type need no more than the types.

use headwater_compile::adjacency::Adjacency;
use headwater_compile::pass::Statistics;
use headwater_graph::Graph;
use headwater_tensor::parallel;

use super::lists::each_source;
use super::node_set::NodeSet;
use crate::blocks::{Lists, SelfLoops, adjacency};
use crate::error::Result;

/// Targets that one thread takes at a time.
const PART: u64 = 1 << 14;

/// As if the whole graph were taken apart.
pub(crate) fn statistics(graph: &Graph, loops: SelfLoops) -> Statistics {
    let counts: Vec<u64> = graph.schema().node_types().iter().map(|node_type| node_type.count).collect();
    let nodes = counts.iter().sum::<u64>() as f64;
    let (mut edges, mut source_pairs, mut destination_pairs) = (0, 0, 0);
    for at in 0..graph.relations().len() {
        let found = relation(graph, at, &counts, loops);
        edges += found[0];
        source_pairs += found[1];
        destination_pairs += found[2];
    }
    Statistics {
        filled: 1.0,
        node_types: counts.len() as f64,
        edge_types: graph.relations().len() as f64,
        sources: nodes,
        destinations: nodes,
        source_pairs: source_pairs as f64,
        destination_pairs: destination_pairs as f64,
        edges: edges as f64,
        // Nothing here runs on a GPU, which alone asks for them.
        source_runs: source_pairs as f64,
        destination_runs: destination_pairs as f64,
    }
}

/// Edges, sources and targets of a relation.
fn relation(graph: &Graph, at: usize, counts: &[u64], loops: SelfLoops) -> [u64; 3] {
    let (ends, lists) = (&graph.schema().relations()[at], &graph.relations()[at]);
    let may_loop = ends.source == ends.target;
    let (drops, adds) = (loops.drops() && may_loop, loops.adds() && may_loop);
    let seen = NodeSet::empty(&[counts[ends.source]]);
    let part = |first: u64| {
        let mut found = [0; 3];
        for target in first..(first + PART).min(counts[ends.target]) {
            let mut edges = 0;
            let mut see = |source: u64| {
                edges += 1;
                found[1] += u64::from(seen.insert(0, source));
            };
            // An edge to itself that is there already is not added again.
            each_source(lists, target, |source| {
                if !(drops && source == target) {
                    see(source)
                }
            });
            if adds {
                see(target);
            }
            found[0] += edges;
            found[2] += u64::from(edges > 0);
        }
        found
    };
    let firsts: Vec<u64> = (0..counts[ends.target].div_ceil(PART)).map(|part| part * PART).collect();
    let sum = |a: [u64; 3], b: [u64; 3]| std::array::from_fn(|at| a[at] + b[at]);
    parallel::collect(firsts.len(), |at| part(firsts[at])).into_iter().fold([0; 3], sum)
}

/// A graph with all types and without edges.
pub(crate) fn skeleton(graph: &Graph) -> Result<Adjacency> {
    let nodes = vec![1; graph.schema().node_types().len()];
    let relations = graph.schema().relations().iter();
    let empty = |src_type, dst_type| Lists { src_type, dst_type, offsets: vec![0; 2], sources: Vec::new() };
    let lists: Vec<Lists> = relations.map(|relation| empty(relation.source, relation.target)).collect();
    adjacency(&nodes, &nodes, &lists)
}
