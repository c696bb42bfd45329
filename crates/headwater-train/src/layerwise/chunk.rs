//! The nodes of a layer in chunks: each a block with all edges of its targets, small enough for a budget of memory.
//!
//! Targets come first in a block, then the other nodes that are read, both by their ids, so that rows are gathered in the
//! order they lie in. The edges of a node keep their order, so sums over them are the same to the bit however nodes are cut.

use std::iter::Peekable;
use std::ops::Range;

use headwater_compile::adjacency::Adjacency;
use headwater_graph::Graph;
use headwater_tensor::parallel;

use super::lists::{each_source, into_type};
use super::node_set::{NodeSet, Ranked};
use crate::blocks::{Lists, SelfLoops, adjacency};
use crate::error::Result;

/// Bytes of an edge in a block, and of one in the lists it is made from.
const EDGE_BYTES: u64 = 16;
/// Part of the budget that is not worth looking for more targets.
const REST: u64 = 16;
/// Targets that one thread takes at a time.
const PART: usize = 1024;

/// What the rows of a layer take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// A node that is read.
    pub source_bytes: u64,
    /// A node that is written.
    pub target_bytes: u64,
    /// All of a block. One target is taken whatever it needs.
    pub most_bytes: u64,
}

/// A block and whose nodes it has.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Nodes that are read, of each type.
    pub nodes: Vec<Vec<u64>>,
    /// How many of them are written: the first.
    pub targets: Vec<usize>,
    pub graph: Adjacency,
}

/// What nodes are cut from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cutter<'a> {
    pub graph: &'a Graph,
    /// Nodes of each type.
    pub counts: &'a [u64],
    pub loops: SelfLoops,
    pub sizes: Sizes,
}

impl<'a> Cutter<'a> {
    /// Chunk after chunk of nodes that come type after type, each type by its ids.
    pub fn chunks(self, nodes: impl Iterator<Item = (usize, u64)> + 'a) -> impl Iterator<Item = Result<Chunk>> + 'a {
        let mut left = nodes.peekable();
        std::iter::from_fn(move || {
            left.peek()?;
            let (targets, read) = self.cut(&mut left);
            Some(self.block(targets, read))
        })
    }

    /// As many targets as fit, and all nodes that are read for them.
    fn cut(&self, left: &mut Peekable<impl Iterator<Item = (usize, u64)>>) -> (Vec<Vec<u64>>, NodeSet) {
        let (mut targets, read) = (vec![Vec::new(); self.counts.len()], NodeSet::empty(self.counts));
        let (mut used_bytes, most) = (0, self.sizes.most_bytes);
        loop {
            let step = self.step(left, most - used_bytes, used_bytes == 0);
            used_bytes += self.read_by(&step, &read);
            step.iter().for_each(|(of_type, node)| targets[*of_type].push(*node));
            if step.is_empty() || used_bytes >= most - most / REST {
                return (targets, read);
            }
        }
    }

    /// Targets that fit even if nothing they read is read yet. The first target of a chunk always does.
    fn step(
        &self,
        left: &mut Peekable<impl Iterator<Item = (usize, u64)>>,
        room_bytes: u64,
        is_first: bool,
    ) -> Vec<(usize, u64)> {
        let (graph, sizes) = (self.graph, self.sizes);
        let (mut step, mut bytes) = (Vec::new(), 0);
        loop {
            let mut fits = |(of_type, node): &(usize, u64)| {
                let edges: u64 = into_type(graph, *of_type).map(|(_, lists)| lists.degree(*node)).sum();
                let own = sizes.target_bytes + sizes.source_bytes;
                bytes += edges.saturating_mul(EDGE_BYTES + sizes.source_bytes) + own;
                bytes <= room_bytes
            };
            let is_forced = is_first && step.is_empty();
            match left.next_if(|target| fits(target) || is_forced) {
                Some(target) => step.push(target),
                None => return step,
            }
        }
    }

    /// Notes what targets read. The bytes they add.
    fn read_by(&self, targets: &[(usize, u64)], read: &NodeSet) -> u64 {
        let part = |range: Range<usize>| {
            let targets = &targets[range];
            let (mut sources, mut edges) = (0, 0);
            for (of_type, node) in targets {
                sources += u64::from(read.insert(*of_type, *node));
                for (source, lists) in into_type(self.graph, *of_type) {
                    edges += lists.degree(*node);
                    each_source(lists, *node, |neighbour| sources += u64::from(read.insert(source, neighbour)));
                }
            }
            edges * EDGE_BYTES + sources * self.sizes.source_bytes + targets.len() as u64 * self.sizes.target_bytes
        };
        parallel::sum(targets.len(), PART, &part)
    }

    fn block(&self, targets: Vec<Vec<u64>>, read: NodeSet) -> Result<Chunk> {
        let own = NodeSet::of(self.counts, &targets).ranked();
        let others = read.without(&own);
        let counts: Vec<usize> = targets.iter().map(Vec::len).collect();
        let mut nodes = targets;
        for (of_type, nodes) in nodes.iter_mut().enumerate() {
            nodes.extend(others.ids(of_type));
        }
        let numbers = Numbers { own, others: others.ranked(), targets: &counts };
        let relations = self.graph.schema().relations().iter().zip(self.graph.relations());
        let lists: Vec<Lists> = relations
            .map(|(relation, lists)| {
                let targets = &nodes[relation.target][..counts[relation.target]];
                let degrees = targets.iter().scan(0, |end, node| {
                    *end += lists.list(*node).len();
                    Some(*end)
                });
                let offsets = std::iter::once(0).chain(degrees).collect();
                let part = |targets: &[u64]| {
                    let mut sources = Vec::new();
                    for node in targets {
                        each_source(lists, *node, |source| sources.push(numbers.of(relation.source, source)));
                    }
                    sources
                };
                let parts: Vec<&[u64]> = targets.chunks(PART).collect();
                let sources: Vec<Vec<u32>> = parallel::collect(parts.len(), |at| part(parts[at]));
                let (src_type, dst_type) = (relation.source, relation.target);
                Lists { src_type, dst_type, offsets, sources: sources.concat() }.with(self.loops)
            })
            .collect();
        let sources: Vec<usize> = nodes.iter().map(Vec::len).collect();
        let graph = adjacency(&sources, &counts, &lists)?;
        Ok(Chunk { nodes, targets: counts, graph })
    }
}

/// The numbers of nodes in a block.
struct Numbers<'a> {
    own: Ranked,
    others: Ranked,
    targets: &'a [usize],
}

impl Numbers<'_> {
    /// Every node that is asked for is there: all were noted as read.
    fn of(&self, of_type: usize, node: u64) -> u32 {
        let behind = || {
            let targets = u32::try_from(self.targets[of_type]).unwrap_or(u32::MAX);
            self.others.rank(of_type, node).map_or(u32::MAX, |rank| rank.saturating_add(targets))
        };
        self.own.rank(of_type, node).unwrap_or_else(behind)
    }
}
