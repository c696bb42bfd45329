//! What a sampler returns: one subgraph in local numbers, which is also a list of blocks.

use std::ops::Range;

/// The nodes of one type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeNodes {
    /// Their ids in the graph; a position here is a node's local number.
    pub ids: Vec<u64>,
    /// With disjoint trees, the seed each belongs to.
    pub trees: Option<Vec<u32>>,
    /// How many are seeds, and how many each hop added.
    pub per_hop: Vec<usize>,
}

/// The edges of one relation, hop after hop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RelationEdges {
    /// Local numbers of the neighbours.
    pub row: Vec<u32>,
    /// Local numbers of the nodes that asked for them.
    pub col: Vec<u32>,
    /// The edges' ids in the graph, when kept.
    pub ids: Option<Vec<u64>>,
    /// How many each hop added.
    pub per_hop: Vec<usize>,
}

/// A sampled neighbourhood.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// Nodes, one entry a type.
    pub nodes: Vec<TypeNodes>,
    /// Edges, one entry a relation.
    pub edges: Vec<RelationEdges>,
}

/// What one layer reads: a prefix of the sample's nodes and edges. The first layer reads everything, the last one only
/// what the first hop found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// For every type, how many nodes the layer reads.
    pub sources: Vec<usize>,
    /// For every type, how many nodes the layer writes: the first of those it reads.
    pub targets: Vec<usize>,
    /// For every relation, which edges it uses.
    pub edges: Vec<Range<usize>>,
}

impl Sample {
    /// Hops that were taken.
    #[must_use]
    pub fn hops(&self) -> usize {
        self.nodes.first().map_or(0, |nodes| nodes.per_hop.len().saturating_sub(1))
    }

    /// Nodes of all types.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.iter().map(|nodes| nodes.ids.len()).sum()
    }

    /// Edges of all relations.
    #[must_use]
    pub fn edge_count(&self) -> usize {
        self.edges.iter().map(|edges| edges.row.len()).sum()
    }

    /// One block a layer, the one that runs first at the front.
    #[must_use]
    pub fn blocks(&self) -> Vec<Block> {
        let within = |per_hop: &[usize], hops: usize| per_hop.iter().take(hops).sum::<usize>();
        let nodes = |hops: usize| self.nodes.iter().map(|nodes| within(&nodes.per_hop, hops)).collect();
        let block = |hops: usize| Block {
            sources: nodes(hops + 1),
            targets: nodes(hops),
            edges: self.edges.iter().map(|edges| 0..within(&edges.per_hop, hops)).collect(),
        };
        (1..=self.hops()).rev().map(block).collect()
    }
}
