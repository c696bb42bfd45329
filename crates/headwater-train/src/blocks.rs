//! Graphs and samples as layers take them.

pub mod scales;

use std::borrow::Cow;

pub use headwater_compile::adjacency::SelfLoops;
use headwater_compile::adjacency::{Adjacency, RelationEdges};
use headwater_graph::sample::{Block, Sample};
use headwater_graph::{Graph, Layout, Silent, Topology};
use rayon::prelude::*;

use crate::error::Result;
use crate::network::Extras;

/// Nodes whose edges one thread looks at, at least.
const NODES_TOGETHER: usize = 1 << 12;

/// One relation with lists of its own.
pub(crate) struct Lists {
    pub src_type: usize,
    pub dst_type: usize,
    pub offsets: Vec<usize>,
    pub sources: Vec<u32>,
}

/// One relation as it is held: the types of its ends, and its lists.
pub type Held<'a> = (usize, usize, &'a Topology);

/// A whole graph.
pub fn whole(graph: &Graph, loops: SelfLoops) -> Result<Adjacency> {
    let counts: Vec<usize> = graph.schema().node_types().iter().map(|node_type| count(node_type.count)).collect();
    let relations: Vec<Held<'_>> = graph
        .schema()
        .relations()
        .iter()
        .zip(graph.relations())
        .map(|(relation, topology)| (relation.source, relation.target, topology))
        .collect();
    of_lists(&counts, &counts, &relations, loops)
}

/// Relations between nodes of some types. `sources` and `targets` are how many of each type are read and written; written ones
/// are the first of those that are read. Lists of sources are turned, which sorts them.
#[expect(clippy::cast_possible_truncation, reason = "more than 2^32 nodes are refused by the graph that is made")]
pub fn of_lists(sources: &[usize], targets: &[usize], relations: &[Held<'_>], loops: SelfLoops) -> Result<Adjacency> {
    let mut lists = Vec::new();
    for &(src_type, dst_type, topology) in relations {
        let topology = by_target(topology)?;
        let offsets = topology.offsets().as_slice().iter().map(|offset| count(*offset)).collect();
        let sources = topology.neighbours().iter().map(|node| node as u32).collect();
        lists.push(Lists { src_type, dst_type, offsets, sources }.with(loops));
    }
    adjacency(sources, targets, &lists)
}

/// Which edge of the relations, counted through them by their ids, each edge of [`of_lists`] is. `None` where ids are not the
/// positions of edges.
pub fn edge_order(relations: &[Held<'_>]) -> Result<Option<Vec<u64>>> {
    let (mut found, mut first) = (Vec::new(), 0);
    for (.., topology) in relations {
        let (topology, edges) = (by_target(topology)?, topology.edges());
        for at in 0..count(edges) {
            let id = topology.edge_id(at);
            if id >= edges {
                return Ok(None);
            }
            found.push(first + id);
        }
        first += edges;
    }
    Ok(Some(found))
}

fn by_target(topology: &Topology) -> Result<Cow<'_, Topology>> {
    Ok(match topology.layout() {
        Layout::Csc => Cow::Borrowed(topology),
        Layout::Csr => Cow::Owned(topology.transposed(&Silent)?),
    })
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
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
    /// The same with or without edges of nodes to themselves, where both ends are of one type.
    pub fn with(self, loops: SelfLoops) -> Self {
        if !loops.drops() || self.src_type != self.dst_type {
            return self;
        }
        let targets = self.offsets.len() - 1;
        let (mut offsets, mut sources) = (vec![0], Vec::with_capacity(self.sources.len() + targets));
        for (target, own) in (0u32..).zip(self.offsets.windows(2)) {
            // One that is there already is not added again.
            sources.extend(self.sources[own[0]..own[1]].iter().copied().filter(|source| *source != target));
            sources.extend(loops.adds().then_some(target));
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

/// In-degrees of nodes, all relations together. Edges of a node to itself do not count, however many there are; the node itself
/// counts once.
#[must_use]
pub fn degrees(graph: &Graph) -> Vec<Vec<f32>> {
    let mut found: Vec<Vec<f32>> = graph
        .schema()
        .node_types()
        .iter()
        .map(|node_type| vec![1.0; usize::try_from(node_type.count).unwrap_or(0)])
        .collect();
    for (relation, topology) in graph.schema().relations().iter().zip(graph.relations()) {
        let (offsets, neighbours) = (topology.offsets().as_slice(), topology.neighbours());
        let may_loop = relation.source == relation.target;
        let degrees = found[relation.target].par_iter_mut().zip(offsets.par_windows(2)).enumerate();
        degrees.with_min_len(NODES_TOGETHER).for_each(|(node, (degree, list))| {
            let own = count(list[0])..count(list[1]);
            let is_loop = |at: &usize| neighbours.at(*at) == node as u64;
            let loops = if may_loop { own.clone().filter(is_loop).count() } else { 0 };
            *degree += (own.len() - loops) as f32;
        });
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

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_compile::inter::{Domain, Path, Side};
    use headwater_graph::build::{BuildOptions, Coo, EdgeIds};
    use headwater_graph::{Column, Ids, Schema};

    /// Edges 1 to 0, 2 to 1, 0 to 1 and 0 to 0.
    fn topology(layout: Layout) -> Topology {
        let ids = |all: [u64; 4]| Ids::U64(Column::from(all.to_vec()));
        let edges = Coo::new(ids([1, 2, 0, 0]), ids([0, 1, 1, 0]), 3, 2);
        edges.build(BuildOptions { layout, edge_ids: EdgeIds::Kept }, &Silent).unwrap()
    }

    fn edges(graph: &Adjacency) -> Vec<(usize, usize)> {
        let [src, dst] = [Side::Src, Side::Dst].map(|side| graph.map(Domain::Edge, Domain::Node(side), Path::Only));
        let end = |map: &Option<headwater_compile::adjacency::Map<'_>>, edge| map.map_or(9, |map| map.get(edge));
        (0..graph.rows(Domain::Edge)).map(|edge| (end(&src, edge), end(&dst, edge))).collect()
    }

    #[test]
    fn lists_are_a_graph_whoever_owns_them() {
        let given = [(1, 0), (2, 1), (0, 1), (0, 0)];
        for layout in [Layout::Csc, Layout::Csr] {
            let topology = topology(layout);
            let relations = [(0, 0, &topology), (0, 0, &topology)];
            let graph = of_lists(&[3], &[2], &relations, SelfLoops::AsTheyAre).unwrap();
            let order = edge_order(&relations).unwrap().unwrap();
            let wanted: Vec<(usize, usize)> = order.iter().map(|edge| given[count(*edge) % 4]).collect();
            assert_eq!(edges(&graph), wanted, "{layout:?}");
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..8).collect::<Vec<_>>());
        }
        let topology = topology(Layout::Csc);
        let with = |loops| edges(&of_lists(&[3], &[2], &[(0, 0, &topology)], loops).unwrap());
        assert_eq!(with(SelfLoops::Added), [(1, 0), (0, 0), (2, 1), (0, 1), (1, 1)]);
        assert_eq!(with(SelfLoops::Dropped), [(1, 0), (2, 1), (0, 1)]);
        let far = topology.with_edge_ids(Ids::U64(Column::from(vec![0, 1, 2, 7]))).unwrap();
        assert_eq!(edge_order(&[(0, 0, &far)]).unwrap(), None);
    }

    /// As PyG's GCNConv: edges 0 to 1, 1 to 0 and 0 to 0, once or twice, are a neighbour and oneself for both nodes.
    #[test]
    fn every_node_counts_itself_once() {
        for loops in 0..3 {
            let ids = |first: [u64; 2]| {
                let all: Vec<u64> = first.into_iter().chain(std::iter::repeat_n(0, loops)).collect();
                Ids::U64(Column::from(all))
            };
            let options = BuildOptions { layout: Layout::Csc, edge_ids: EdgeIds::Dropped };
            let lists = Coo::new(ids([0, 1]), ids([1, 0]), 2, 2).build(options, &Silent).unwrap();
            let graph = Graph::new(Schema::homogeneous(2), vec![lists]).unwrap();
            assert_eq!(degrees(&graph), [vec![2.0, 2.0]], "{loops} loops");
            let seen = whole(&graph, SelfLoops::Dropped).unwrap();
            assert_eq!(edges(&seen), [(1, 0), (0, 1)], "{loops} loops");
            let made = scales(&[2.0; 2], &[2.0; 2], &seen);
            assert!(made["self_scale"].iter().all(|scale| (scale - 0.5).abs() < 1e-6), "{made:?}");
            assert!(made["dst_scale"].iter().all(|scale| (scale - 0.5f32.sqrt()).abs() < 1e-6), "{made:?}");
        }
    }
}
