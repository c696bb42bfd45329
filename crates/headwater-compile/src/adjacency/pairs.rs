//! Pairs of a node and an edge type that has an edge there, numbered edge type after edge type and by node within one.

use super::number;

/// The pairs of one side.
#[derive(Debug)]
pub(super) struct Pairs {
    /// The node of each pair.
    pub nodes: Vec<u32>,
    /// Where the pairs of each edge type begin.
    pub types: Vec<usize>,
    /// The pair of each edge.
    pub of_edge: Vec<u32>,
    /// Where the edges of each pair begin in `edges`, or among all edges where that is empty.
    pub starts: Vec<usize>,
    /// Edges pair after pair; empty where they lie so already.
    pub edges: Vec<u32>,
    /// 0, 1, 2 and so on: each edge type as a stretch of its own.
    pub each_type: Vec<usize>,
}

impl Pairs {
    /// Of edges that lie by node within each edge type.
    pub fn of_sorted(node_of_edge: &[u32], edge_types: &[usize]) -> Self {
        let mut found = Self::empty(edge_types);
        for stretch in edge_types.windows(2) {
            let mut last = None;
            for (at, node) in (stretch[0]..stretch[1]).zip(&node_of_edge[stretch[0]..stretch[1]]) {
                if last != Some(node) {
                    found.nodes.push(*node);
                    found.starts.push(at);
                    last = Some(node);
                }
                found.of_edge.push(number(found.nodes.len() - 1));
            }
            found.types.push(found.nodes.len());
        }
        found.starts.push(node_of_edge.len());
        found
    }

    /// Of edges in any order: a counting sort an edge type, which touches only nodes that have an edge.
    pub fn of_any(node_of_edge: &[u32], edge_types: &[usize], nodes: usize) -> Self {
        let mut found = Self::empty(edge_types);
        found.of_edge = vec![0; node_of_edge.len()];
        found.edges = vec![0; node_of_edge.len()];
        let mut counts = vec![0u32; nodes];
        for stretch in edge_types.windows(2) {
            found.add_type(stretch[0], &node_of_edge[stretch[0]..stretch[1]], &mut counts);
            found.types.push(found.nodes.len());
        }
        found.starts.push(node_of_edge.len());
        found
    }

    fn empty(edge_types: &[usize]) -> Self {
        Self {
            nodes: Vec::new(),
            types: vec![0],
            of_edge: Vec::new(),
            starts: Vec::new(),
            edges: Vec::new(),
            each_type: (0..edge_types.len()).collect(),
        }
    }

    /// Adds the pairs of one edge type, whose edges begin at `first`. `counts` is zero for every node before and after.
    fn add_type(&mut self, first: usize, nodes: &[u32], counts: &mut [u32]) {
        let mut met: Vec<u32> = Vec::new();
        for node in nodes {
            let count = &mut counts[*node as usize];
            if *count == 0 {
                met.push(*node);
            }
            *count += 1;
        }
        sort(&mut met, nodes.len(), counts);
        let mut at = first;
        for node in &met {
            self.nodes.push(*node);
            self.starts.push(at);
            let count = &mut counts[*node as usize];
            at += *count as usize;
            // From here on: where the node's next edge goes, counted from the type's first.
            *count = number(at - first) - *count;
        }
        let first_pair = self.starts.len() - met.len();
        for (edge, node) in nodes.iter().enumerate() {
            let place = &mut counts[*node as usize];
            self.edges[first + *place as usize] = number(first + edge);
            *place += 1;
        }
        for pair in first_pair..self.starts.len() {
            let end = self.starts.get(pair + 1).copied().unwrap_or(first + nodes.len());
            for place in self.starts[pair]..end {
                self.of_edge[self.edges[place] as usize] = number(pair);
            }
        }
        met.iter().for_each(|node| counts[*node as usize] = 0);
    }
}

/// Ascending: by looking at every node where most of them are met, else by comparing.
fn sort(met: &mut Vec<u32>, edges: usize, counts: &[u32]) {
    if edges.max(met.len()) * 4 > counts.len() {
        met.clear();
        met.extend((0..counts.len()).filter(|node| counts[*node] > 0).map(number));
    } else {
        met.sort_unstable();
    }
}
