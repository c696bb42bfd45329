//! Which nodes each layer must compute for the last one to compute the nodes that are asked for.

use headwater_graph::Graph;
use headwater_tensor::parallel;

use super::lists::{each_source, into_type};
use super::node_set::NodeSet;

/// Where all but one in so many nodes are needed, the others cost less than leaving them out.
const MOST: u64 = 32;
/// Nodes that one thread takes at a time.
const PART: usize = 1024;

/// The nodes of every layer, first layer first: those that are asked for, and before them always the nodes of the layer behind
/// with all their neighbours.
pub(super) fn needed(graph: &Graph, counts: &[u64], asked: &[Vec<u64>], layers: usize) -> Vec<NodeSet> {
    let all: u64 = counts.iter().sum();
    let mut found = vec![NodeSet::of(counts, asked)];
    for _ in 1..layers {
        let next = with_neighbours(graph, &found[found.len() - 1]);
        let is_most = next.len() >= all - all / MOST;
        // A layer of all nodes gives its rows in their order: nothing is renumbered, and nothing is copied.
        found.push(if is_most { NodeSet::full(counts) } else { next });
    }
    found.reverse();
    found
}

fn with_neighbours(graph: &Graph, nodes: &NodeSet) -> NodeSet {
    let all = nodes.copied();
    let targets: Vec<(usize, u64)> = nodes.all().collect();
    parallel::for_ranges(targets.len(), PART, &|range| {
        for (of_type, node) in &targets[range] {
            for (source, lists) in into_type(graph, *of_type) {
                each_source(lists, *node, |neighbour| _ = all.insert(source, neighbour));
            }
        }
    });
    all
}
