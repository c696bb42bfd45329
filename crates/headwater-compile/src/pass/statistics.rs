//! What passes know of the graph: how many rows each domain has.

use headwater_graph::{Graph, Layout, Topology};
use rayon::prelude::*;

use super::select::Shared;
use crate::adjacency::Adjacency;
use crate::inter::{Domain, Side};

/// Rows of every domain, of one graph or of a typical block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// Node types.
    pub node_types: f64,
    /// Edge types.
    pub edge_types: f64,
    /// Nodes that are read.
    pub sources: f64,
    /// Nodes that are written.
    pub destinations: f64,
    /// Pairs of a source and an edge type.
    pub source_pairs: f64,
    /// Pairs of a destination and an edge type.
    pub destination_pairs: f64,
    /// Edges.
    pub edges: f64,
    /// Runs of source pairs: those of one edge type whose nodes lie within the same `RUN_NODES` neighbours.
    pub source_runs: f64,
    /// Runs of destination pairs.
    pub destination_runs: f64,
    /// The share of the numbers of the input `x` that are not 0. Where it is small, rows are kept as those alone.
    pub filled: f64,
}

/// Neighbouring nodes whose pairs of one edge type are a run.
pub const RUN_NODES: usize = 384;

/// What becomes of pairs that are nearly as many as edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// Values are computed once an edge.
    Left,
    /// Values are computed once a pair.
    Taken,
}

/// Pairs per edge up to which an index costs less than the rows it saves.
const FEW_PAIRS: f64 = 0.9;
/// Pairs per edge up to which it may: what is made of a row decides.
const MOST_PAIRS: f64 = 0.99;

impl Statistics {
    /// FB15k-237 with an inverse of every relation: what is taken for a graph where none is given.
    pub const FB15K_237: Self = Self {
        node_types: 1.0,
        edge_types: 474.0,
        sources: 14_541.0,
        destinations: 14_541.0,
        source_pairs: 161_940.0,
        destination_pairs: 161_940.0,
        edges: 620_232.0,
        source_runs: 18_000.0,
        destination_runs: 18_000.0,
        filled: 1.0,
    };

    /// Of a graph.
    #[must_use]
    pub fn of(graph: &Adjacency) -> Self {
        let rows = |domain: Domain| graph.rows(domain) as f64;
        Self {
            node_types: rows(Domain::NodeType),
            edge_types: rows(Domain::EdgeType),
            sources: rows(Domain::Node(Side::Src)),
            destinations: rows(Domain::Node(Side::Dst)),
            source_pairs: rows(Domain::Pair(Side::Src)),
            destination_pairs: rows(Domain::Pair(Side::Dst)),
            edges: rows(Domain::Edge),
            source_runs: graph.pair_runs(Side::Src, RUN_NODES) as f64,
            destination_runs: graph.pair_runs(Side::Dst, RUN_NODES) as f64,
            filled: 1.0,
        }
    }

    /// Of a whole graph, all of whose nodes are written.
    #[must_use]
    pub fn of_graph(graph: &Graph) -> Self {
        let (mut source_pairs, mut destination_pairs) = (Pairs::default(), Pairs::default());
        for relation in graph.relations() {
            let is_owner: Vec<bool> =
                (0..relation.rows()).into_par_iter().map(|row| relation.degree(row) > 0).collect();
            let (owners, neighbours) = (Pairs::of(&is_owner), Pairs::of(&is_neighbour(relation)));
            let (sources, destinations) = match relation.layout() {
                Layout::Csc => (neighbours, owners),
                Layout::Csr => (owners, neighbours),
            };
            source_pairs.add(sources);
            destination_pairs.add(destinations);
        }
        let nodes = graph.nodes() as f64;
        Self {
            node_types: graph.schema().node_types().len() as f64,
            edge_types: graph.relations().len() as f64,
            sources: nodes,
            destinations: nodes,
            source_pairs: source_pairs.count as f64,
            destination_pairs: destination_pairs.count as f64,
            edges: graph.edges() as f64,
            source_runs: source_pairs.runs as f64,
            destination_runs: destination_pairs.runs as f64,
            filled: 1.0,
        }
    }

    /// Of one node type and one relation, of which no more is known. Pairs are taken for as many as edges: an index of them
    /// would save nothing.
    #[must_use]
    pub fn of_one_relation(sources: usize, destinations: usize, edges: usize) -> Self {
        let edges = edges as f64;
        Self {
            node_types: 1.0,
            edge_types: 1.0,
            sources: sources as f64,
            destinations: destinations as f64,
            source_pairs: edges,
            destination_pairs: edges,
            edges,
            source_runs: edges,
            destination_runs: edges,
            filled: 1.0,
        }
    }

    /// With an input `x` of which this share is not 0.
    #[must_use]
    pub fn with_filled(self, filled: f64) -> Self {
        Self { filled, ..self }
    }

    /// With an edge from every written node to itself, in one relation.
    #[must_use]
    pub fn with_self_loops(self) -> Self {
        let pairs = |pairs: f64, nodes: f64| pairs.max(nodes);
        Self {
            edges: self.edges + self.destinations,
            source_pairs: pairs(self.source_pairs, self.destinations),
            destination_pairs: pairs(self.destination_pairs, self.destinations),
            ..self
        }
    }

    /// Rows of a domain.
    #[must_use]
    pub fn rows(&self, domain: Domain) -> f64 {
        match domain {
            Domain::Const => 1.0,
            Domain::NodeType => self.node_types,
            Domain::EdgeType => self.edge_types,
            Domain::Node(Side::Src) => self.sources,
            Domain::Node(Side::Dst) => self.destinations,
            Domain::Pair(Side::Src) => self.source_pairs,
            Domain::Pair(Side::Dst) => self.destination_pairs,
            Domain::Edge => self.edges,
        }
    }

    /// Runs of rows of one type whose nodes lie beside each other: those of pairs, and of nodes themselves.
    #[must_use]
    pub fn runs(&self, domain: Domain) -> f64 {
        match domain {
            Domain::Pair(Side::Src) => self.source_runs,
            Domain::Pair(Side::Dst) => self.destination_runs,
            Domain::Node(_) => (self.rows(domain) / RUN_NODES as f64).ceil(),
            _ => self.rows(domain),
        }
    }

    /// Whether what is compiled for one is right for the other: the same types, and rows of about the same number.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let is_near = |one: f64, two: f64| one.max(two) <= MOST_DIFFERENCE * one.min(two).max(1.0);
        let of_rows = |domain: &Domain| {
            let (one, two) = (self.rows(*domain), other.rows(*domain));
            if domain.is_type() { (one - two).abs() < 0.5 } else { is_near(one, two) }
        };
        let of_runs = |side: Side| is_near(self.runs(Domain::Pair(side)), other.runs(Domain::Pair(side)));
        Domain::ALL.iter().all(of_rows) && [Side::Src, Side::Dst].into_iter().all(of_runs)
    }

    /// Whether values are computed once a pair instead of once an edge, where pairs that are nearly as many as edges are taken or not.
    #[must_use]
    pub fn takes_pairs(&self, pairs: Domain, close: Close) -> bool {
        self.rows(pairs) < self.edges * if close == Close::Taken { MOST_PAIRS } else { FEW_PAIRS }
    }

    /// What may become of pairs that are nearly as many as edges; one of both where there are none.
    #[must_use]
    pub fn close_pairs(&self) -> &'static [Close] {
        let is_close = |pairs: Domain| self.takes_pairs(pairs, Close::Taken) != self.takes_pairs(pairs, Close::Left);
        let has_close = [Side::Src, Side::Dst].into_iter().any(|side| is_close(Domain::Pair(side)));
        if has_close { &[Close::Left, Close::Taken] } else { &[Close::Left] }
    }

    /// Which rows are better read once than with every finer row that reads them.
    #[must_use]
    pub fn shared(&self) -> Shared {
        let (pairs, nodes) = (self.destination_pairs, self.destinations);
        Shared {
            pairs_by_edges: self.edges >= SHARED_BY * pairs,
            nodes_by_edges: self.edges >= SHARED_BY * nodes,
            nodes_by_pairs: pairs >= SHARED_BY * nodes,
            least_numbers: LINE,
        }
    }
}

/// Finer rows that read the same row, on average, from which on it is better read once.
const SHARED_BY: f64 = 3.0;

/// Numbers of 32 bytes, which memory is read in.
const LINE: usize = 8;

/// Rows of two graphs may differ by this factor, and what pays for one pays for the other.
const MOST_DIFFERENCE: f64 = 4.0;

/// Nodes with an edge of one relation, and runs of them.
#[derive(Debug, Clone, Copy, Default)]
struct Pairs {
    count: usize,
    runs: usize,
}

impl Pairs {
    /// Those of nodes that have an edge.
    fn of(has_edge: &[bool]) -> Self {
        let in_run = |nodes: &[bool]| nodes.iter().filter(|has_edge| **has_edge).count();
        let each = has_edge.par_chunks(RUN_NODES).map(|nodes| (in_run(nodes), usize::from(in_run(nodes) > 0)));
        let (count, runs) = each.reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        Self { count, runs }
    }

    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.runs += other.runs;
    }
}

/// Which nodes a relation's lists have.
fn is_neighbour(relation: &Topology) -> Vec<bool> {
    let mut is_met = vec![false; usize::try_from(relation.columns()).unwrap_or(0)];
    for id in relation.neighbours().iter() {
        if let Some(is_met) = usize::try_from(id).ok().and_then(|id| is_met.get_mut(id)) {
            *is_met = true;
        }
    }
    is_met
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_are_alike_by_types_and_by_about_their_rows() {
        let one = Statistics::FB15K_237;
        let with = |edges: f64, edge_types: f64| Statistics { edges, edge_types, ..one };
        assert!(one.is_like(&one));
        assert!(one.is_like(&with(4.0 * one.edges, one.edge_types)) && with(one.edges / 4.0, 474.0).is_like(&one));
        assert!(!one.is_like(&with(4.1 * one.edges, one.edge_types)) && !with(one.edges / 4.1, 474.0).is_like(&one));
        assert!(!one.is_like(&with(one.edges, 473.0)), "weights have a row a type");
        let shuffled = Statistics { source_runs: 5.0 * one.source_runs, ..one };
        assert!(!one.is_like(&shuffled), "runs decide, too");
        let (empty, small) = (with(0.0, 474.0), with(3.0, 474.0));
        assert!(empty.is_like(&small) && !empty.is_like(&one));
    }
}
