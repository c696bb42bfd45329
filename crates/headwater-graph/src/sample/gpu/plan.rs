//! How much room a batch needs, from numbers.
//!
//! What a batch finds is known only when it is done, and nobody waits for the host inside it. So every buffer is as
//! long as its contents could become: a hop gives at most the frontier times the fan-out, and at most every edge once
//! a tree. Where such a bound is larger than one is willing to allocate, the hop gets less, and a batch that runs into
//! that is run again with more: samples are pure, so the second run finds what the first would have.

use super::super::options::{Bias, Fanout, Replacement, SampleOptions, Trees};

/// What a plan needs to know of a relation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    /// The type whose nodes own lists.
    pub asking: usize,
    /// The type of their neighbours.
    pub found: usize,
    pub edges: u64,
}

/// Numbers of a batch before it runs.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    /// Nodes of each type.
    pub type_nodes: &'a [u64],
    pub relations: &'a [Ends],
    pub options: &'a SampleOptions,
    /// Seeds of each type.
    pub seeds: &'a [u64],
    /// A hop gets room for no more edges and no more items than this.
    pub most_edges: u64,
}

/// Lengths of a batch's buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Items of each hop: frontier nodes times the relations that leave them.
    pub items: Vec<u64>,
    /// Edges of each hop.
    pub edges: Vec<u64>,
    /// Whether a hop got less room than it could need.
    pub is_cut: bool,
    /// Nodes of each type.
    pub nodes: Vec<u64>,
}

impl Plan {
    pub fn new(asked: &Asked<'_>) -> Self {
        let hops = asked.options.fanouts.len();
        let mut plan = Self { items: Vec::new(), edges: Vec::new(), is_cut: false, nodes: asked.seeds.to_vec() };
        let mut frontier = asked.seeds.to_vec();
        for hop in 0..hops {
            frontier = plan.add_hop(asked, hop, &frontier);
        }
        plan
    }

    /// Adds a hop and returns how many nodes of each type it may find.
    fn add_hop(&mut self, asked: &Asked<'_>, hop: usize, frontier: &[u64]) -> Vec<u64> {
        let trees = asked.trees();
        let mut into = vec![0u64; frontier.len()];
        let (mut items, mut edges) = (0u64, 0u64);
        for (at, ends) in asked.relations.iter().enumerate() {
            if !is_followed(asked.options, hop, at, ends) {
                continue;
            }
            let rows = frontier[ends.asking];
            // A node stands in a frontier once a tree, except seeds that were given twice.
            let copies = if trees.is_none() && hop == 0 { rows } else { trees.unwrap_or(1) };
            let bound = bound(asked.options, asked.options.fanout(hop, at), rows, ends.edges.saturating_mul(copies));
            items = items.saturating_add(rows);
            edges = edges.saturating_add(bound);
            into[ends.found] = into[ends.found].saturating_add(bound);
        }
        self.is_cut |= edges.max(items) > asked.most_edges;
        let edges = edges.min(asked.most_edges);
        self.items.push(items.min(asked.most_edges));
        self.edges.push(edges);
        for (at, bound) in into.iter_mut().enumerate() {
            let there_are = asked.type_nodes[at].saturating_mul(trees.unwrap_or(1));
            *bound = (*bound).min(edges).min(there_are);
            self.nodes[at] = self.nodes[at].saturating_add(*bound).min(asked.seeds[at].saturating_add(there_are));
        }
        into
    }

    /// Nodes of all types.
    pub fn all_nodes(&self) -> u64 {
        self.nodes.iter().fold(0, |sum, &nodes| sum.saturating_add(nodes))
    }

    /// Edges of all hops.
    pub fn all_edges(&self) -> u64 {
        self.edges.iter().fold(0, |sum, &edges| sum.saturating_add(edges))
    }
}

impl Asked<'_> {
    /// How many trees there are, when they are disjoint.
    pub fn trees(&self) -> Option<u64> {
        (self.options.trees == Trees::Disjoint).then(|| self.seeds.iter().sum())
    }
}

/// Whether a hop looks at a relation at all.
pub(super) fn is_followed(options: &SampleOptions, hop: usize, at: usize, ends: &Ends) -> bool {
    options.fanout(hop, at) != Fanout::Most(0) && ends.edges > 0
}

/// The most edges that `rows` rows give when there are `edges` to give.
fn bound(options: &SampleOptions, fanout: Fanout, rows: u64, edges: u64) -> u64 {
    match fanout {
        Fanout::All if rows == 0 => 0,
        Fanout::All => edges,
        Fanout::Most(most) if options.replacement == Replacement::With => rows.saturating_mul(u64::from(most)),
        Fanout::Most(most) => rows.saturating_mul(u64::from(most)).min(edges),
    }
}

/// Lanes that work on one row of a hop: enough for its largest fan-out, at most a warp.
pub(super) fn lanes(options: &SampleOptions, hop: usize, relations: usize) -> u64 {
    let most = (0..relations).map(|at| match options.fanout(hop, at) {
        Fanout::All => WARP,
        Fanout::Most(most) => u64::from(most).min(WARP),
    });
    match options.bias {
        // Lanes go through the row together, whatever the fan-out.
        Bias::Weights => WARP,
        Bias::Uniform => most.max().unwrap_or(1).next_power_of_two(),
    }
}

/// Whether some row is drawn in several rounds, which look at the positions of earlier rounds.
pub(super) fn draws_in_rounds(options: &SampleOptions) -> bool {
    options.fanouts.iter().flatten().any(|fanout| matches!(fanout, Fanout::Most(most) if u64::from(*most) > WARP))
}

/// Lanes of a warp.
const WARP: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(options: &SampleOptions, seeds: &[u64], most_edges: u64) -> Plan {
        let relations = [Ends { asking: 0, found: 0, edges: 1000 }, Ends { asking: 0, found: 1, edges: 30 }];
        let type_nodes = &[100, 10];
        Plan::new(&Asked { type_nodes, relations: &relations, options, seeds, most_edges })
    }

    #[test]
    fn rooms_are_bounds_of_every_kind() {
        let options = SampleOptions::fanouts(&[5, 4, -1]).unwrap();
        let shared = plan(&options, &[8, 0], u64::MAX);
        // Eight seeds give 40 edges a relation, for they may be one node; 40 nodes give 160 and all 30; 100 give all.
        assert_eq!(shared.items, [16, 80, 200]);
        assert_eq!(shared.edges, [80, 190, 1030]);
        assert_eq!(shared.nodes, [8 + 100, 10]);
        assert!(!shared.is_cut);
        let cut = plan(&options, &[8, 0], 100);
        assert_eq!((cut.edges, cut.is_cut), (vec![80, 100, 100], true));
        let disjoint = plan(&SampleOptions { trees: Trees::Disjoint, ..options }, &[8, 0], u64::MAX);
        assert_eq!(disjoint.edges, [80, 320, 8 * 1030]);
        assert_eq!(plan(&SampleOptions::fanouts(&[0]).unwrap(), &[8, 0], 9).items, [0]);
    }

    #[test]
    fn groups_are_as_wide_as_the_widest_row() {
        let options = |numbers: &[i64]| SampleOptions::fanouts(numbers).unwrap();
        for (number, wanted) in [(0, 1), (1, 1), (5, 8), (16, 16), (17, 32), (900, 32), (-1, 32)] {
            assert_eq!(lanes(&options(&[number]), 0, 2), wanted, "{number}");
        }
        assert!(draws_in_rounds(&options(&[2, 33])) && !draws_in_rounds(&options(&[-1, 32])));
    }
}
