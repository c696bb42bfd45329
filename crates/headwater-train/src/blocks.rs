//! Graphs and samples as layers take them.

pub mod scales;

use headwater_compile::adjacency::{Adjacency, RelationEdges};
use headwater_graph::Graph;
use headwater_graph::sample::{Block, Sample};

use crate::error::Result;
use crate::network::Extras;

/// Whether every node gets an edge to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelfLoops {
    /// It does, as its last.
    Added,
    /// It does not.
    AsTheyAre,
}

/// One relation with lists of its own.
pub(crate) struct Lists {
    pub src_type: usize,
    pub dst_type: usize,
    pub offsets: Vec<usize>,
    pub sources: Vec<u32>,
}

/// A whole graph, whose lists are by target.
#[expect(clippy::cast_possible_truncation, reason = "more than 2^32 nodes are refused by the graph that is made")]
pub fn whole(graph: &Graph, loops: SelfLoops) -> Result<Adjacency> {
    let counts: Vec<usize> = graph.schema().node_types().iter().map(|node_type| node_type.count as usize).collect();
    let mut lists = Vec::new();
    for (relation, topology) in graph.schema().relations().iter().zip(graph.relations()) {
        let offsets = topology.offsets().as_slice().iter().map(|offset| *offset as usize).collect();
        let sources = topology.neighbours().iter().map(|node| node as u32).collect();
        lists.push(Lists { src_type: relation.source, dst_type: relation.target, offsets, sources }.with(loops));
    }
    adjacency(&counts, &counts, &lists)
}

/// The block that one layer of a sample runs on.
pub fn of_sample(graph: &Graph, sample: &Sample, block: &Block, loops: SelfLoops) -> Result<Adjacency> {
    let mut lists = Vec::new();
    for (at, relation) in graph.schema().relations().iter().enumerate() {
        let edges = &sample.edges[at];
        let range = block.edges[at].clone();
        let targets = block.targets[relation.target];
        // Nodes are expanded in the order of their numbers, so edges lie by target already.
        let mut offsets = vec![0usize; targets + 1];
        edges.col[range.clone()].iter().for_each(|target| offsets[*target as usize + 1] += 1);
        (0..targets).for_each(|target| offsets[target + 1] += offsets[target]);
        let sources = edges.row[range].to_vec();
        lists.push(Lists { src_type: relation.source, dst_type: relation.target, offsets, sources }.with(loops));
    }
    adjacency(&block.sources, &block.targets, &lists)
}

impl Lists {
    /// The same with edges of nodes to themselves, where both ends are of one type.
    pub fn with(self, loops: SelfLoops) -> Self {
        if loops == SelfLoops::AsTheyAre || self.src_type != self.dst_type {
            return self;
        }
        let targets = self.offsets.len() - 1;
        let (mut offsets, mut sources) = (vec![0], Vec::with_capacity(self.sources.len() + targets));
        for (target, own) in (0u32..).zip(self.offsets.windows(2)) {
            // One that is there already is not added again.
            sources.extend(self.sources[own[0]..own[1]].iter().copied().filter(|source| *source != target));
            sources.push(target);
            offsets.push(sources.len());
        }
        Self { offsets, sources, ..self }
    }
}

/// A graph of these relations.
pub(crate) fn adjacency(src: &[usize], dst: &[usize], lists: &[Lists]) -> Result<Adjacency> {
    let relations: Vec<RelationEdges<'_>> = lists
        .iter()
        .map(|lists| RelationEdges {
            src_type: lists.src_type,
            dst_type: lists.dst_type,
            offsets: &lists.offsets,
            sources: &lists.sources,
        })
        .collect();
    Ok(Adjacency::new(src, dst, &relations)?)
}

/// In-degrees of nodes, all relations together, plus one for the node itself.
#[must_use]
pub fn degrees(graph: &Graph) -> Vec<Vec<f32>> {
    let mut found: Vec<Vec<f32>> = graph
        .schema()
        .node_types()
        .iter()
        .map(|node_type| vec![1.0; usize::try_from(node_type.count).unwrap_or(0)])
        .collect();
    for (relation, topology) in graph.schema().relations().iter().zip(graph.relations()) {
        for (degree, list) in found[relation.target].iter_mut().zip(topology.offsets().as_slice().windows(2)) {
            *degree += (list[1] - list[0]) as f32;
        }
    }
    found
}

/// The scales of a graph convolution: `1 / sqrt(d)` of both ends and `1 / d`, where d is the degree in the whole graph. Where a
/// block has only some of a node's edges, those count for all of them.
#[must_use]
pub fn scales(sources: &[f32], targets: &[f32], block: &Adjacency) -> Extras {
    use headwater_compile::inter::{Domain, Path, Side};
    let members = block.members(Domain::Node(Side::Dst), Domain::Edge, Path::Only);
    let found = |target: usize| members.as_ref().map_or(0, |members| members.count(target)) as f32;
    let whole = |target: usize, degree: f32| {
        let (all, found) = (degree - 1.0, found(target));
        if found > 0.0 { all / found } else { 1.0 }
    };
    let of_targets = targets.iter().enumerate().map(|(at, degree)| whole(at, *degree) / degree.sqrt());
    [
        ("src_scale", sources.iter().map(|degree| 1.0 / degree.sqrt()).collect::<Vec<f32>>()),
        ("dst_scale", of_targets.collect()),
        ("self_scale", targets.iter().map(|degree| 1.0 / degree).collect()),
    ]
    .into_iter()
    .map(|(name, values)| (name.to_owned(), values))
    .collect()
}
