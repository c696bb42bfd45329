//! One batch: seeds in, hop after hop and relation after relation, a sample out.

use std::ops::Range;

use headwater_cuda::HostMemory;

use super::NeighbourSampler;
use super::draw::Draw;
use super::part::Part;
use super::shard::Shards;
use crate::column::{Id, Ids};
use crate::error::{Error, Result};
use crate::random::Key;
use crate::sample::exclude::Excluded;
use crate::sample::index::{Entry, Index};
use crate::sample::options::{EdgeIds, Fanout, Replacement, SampleOptions, Trees};
use crate::sample::output::{RelationEdges, Sample, TypeNodes};
use crate::sample::seeds::{Seeds, check_seeds};
use crate::topology::Layout;

/// Rows that are worth a thread. Tests divide small samples too.
const ROWS_PER_THREAD: usize = if cfg!(test) { 4 } else { 512 };

/// Edges of a hop that are drawn without a look at the memory that is left.
const SURELY_ROOM: u64 = 1 << 24;
/// What an edge takes while it is drawn and numbered: neighbour, position, both ends and its id.
const EDGE_BYTES: u64 = 40;

/// What is asked for.
pub(super) struct Request<'a> {
    pub(super) seeds: &'a [Seeds<'a>],
    pub(super) excluded: Option<&'a Excluded>,
    pub(super) key: Key,
    pub(super) threads: usize,
}

/// What a batch works in and gives back.
#[derive(Debug, Default)]
pub(super) struct Working<E> {
    /// The nodes of each type, when one thread numbers them.
    pub(super) whole: Vec<Index<E>>,
    /// The nodes of each type, when several do.
    pub(super) divided: Vec<Shards<E>>,
    pub(super) parts: Vec<Part>,
}

/// A batch under way.
pub(super) struct Batch<'a, E> {
    sampler: &'a NeighbourSampler,
    pub(super) memory: &'a mut Working<E>,
    pub(super) sample: Sample,
    /// The time of each tree, when seeds have times.
    times: Option<Vec<i64>>,
    request: &'a Request<'a>,
    /// Whether several threads number the nodes.
    is_divided: bool,
}

/// One relation's part of a hop.
pub(super) struct Hop<'a, I> {
    pub(super) draw: Draw<'a, I>,
    /// Which relation.
    pub(super) relation: usize,
    /// Type of the neighbours.
    pub(super) found: usize,
    /// Local number of the first node that asks.
    pub(super) asking_first: usize,
}

impl<'a, E: Entry> Batch<'a, E> {
    /// Draws a sample.
    pub(super) fn sample(
        sampler: &'a NeighbourSampler,
        memory: &'a mut Working<E>,
        request: &'a Request<'a>,
    ) -> Result<Sample> {
        if !is_worth_dividing(sampler, request) {
            return Self::new(sampler, memory, request, false).run();
        }
        // One way into the pool a batch, and not one a step.
        rayon::join(|| Self::new(sampler, memory, request, true).run(), || ()).0
    }

    fn new(
        sampler: &'a NeighbourSampler,
        memory: &'a mut Working<E>,
        request: &'a Request<'a>,
        is_divided: bool,
    ) -> Self {
        let (graph, options) = (&sampler.graph, &sampler.options);
        let types = graph.schema().node_types().len();
        if is_divided {
            memory.divided.resize_with(types, Shards::default);
            memory.divided.iter_mut().for_each(|known| known.clear(request.threads));
        } else {
            memory.whole.resize_with(types, Index::new);
            memory.whole.iter_mut().for_each(Index::clear);
        }
        let trees = (options.trees == Trees::Disjoint).then(Vec::new);
        let ids = (options.edge_ids == EdgeIds::Kept).then(Vec::new);
        let nodes = TypeNodes { trees, ..TypeNodes::default() };
        let edges = RelationEdges { ids, ..RelationEdges::default() };
        let sample = Sample { nodes: vec![nodes; types], edges: vec![edges; graph.relations().len()] };
        Self { sampler, memory, sample, times: None, request, is_divided }
    }

    fn run(mut self) -> Result<Sample> {
        self.plant()?;
        let mut begins = vec![0; self.sample.nodes.len()];
        for hop in 0..self.sampler.options.fanouts.len() {
            let frontiers: Vec<Range<usize>> =
                begins.iter().zip(&self.sample.nodes).map(|(&begin, nodes)| begin..nodes.ids.len()).collect();
            for relation in 0..self.sampler.graph.relations().len() {
                self.expand(hop, relation, &frontiers)?;
            }
            begins = frontiers.iter().map(|frontier| frontier.end).collect();
            for (nodes, &begin) in self.sample.nodes.iter_mut().zip(&begins) {
                nodes.per_hop.push(nodes.ids.len() - begin);
            }
        }
        Ok(self.sample)
    }

    /// Takes the seeds in.
    fn plant(&mut self) -> Result<()> {
        let (graph, seeds) = (&self.sampler.graph, self.request.seeds);
        if check_seeds(seeds, graph, &self.sampler.options)? {
            self.times = Some(Vec::new());
        }
        let mut tree = 0u32;
        for seeds in seeds {
            let limit = graph.schema().node_types()[seeds.node_type].count;
            for &id in seeds.nodes {
                let nodes = &mut self.sample.nodes[seeds.node_type];
                let number = local_number(nodes.ids.len())?;
                let key = if nodes.trees.is_some() { u64::from(tree) * limit + id } else { id };
                if self.is_divided {
                    self.memory.divided[seeds.node_type].plant(key, number);
                } else {
                    self.memory.whole[seeds.node_type].number(key, number);
                }
                nodes.ids.push(id);
                nodes.trees.iter_mut().for_each(|trees| trees.push(tree));
                tree = tree.checked_add(1).ok_or(Error::SampleTooLarge)?;
            }
            self.times.iter_mut().zip(seeds.times).for_each(|(all, times)| all.extend_from_slice(times));
        }
        self.sample.nodes.iter_mut().for_each(|nodes| nodes.per_hop.push(nodes.ids.len()));
        Ok(())
    }

    fn expand(&mut self, hop: usize, relation: usize, frontiers: &[Range<usize>]) -> Result<()> {
        match self.sampler.graph.relation(relation).neighbours() {
            Ids::U32(lists) => self.expand_lists(hop, relation, lists, frontiers)?,
            Ids::U64(lists) => self.expand_lists(hop, relation, lists, frontiers)?,
        }
        let edges = &mut self.sample.edges[relation];
        let before: usize = edges.per_hop.iter().sum();
        edges.per_hop.push(edges.row.len() - before);
        Ok(())
    }

    fn expand_lists<I: Id>(
        &mut self,
        hop: usize,
        relation: usize,
        lists: &[I],
        frontiers: &[Range<usize>],
    ) -> Result<()> {
        let (graph, options) = (&self.sampler.graph, &self.sampler.options);
        let (topology, types) = (graph.relation(relation), &graph.schema().relations()[relation]);
        let (asking, found) = match topology.layout() {
            Layout::Csc => (types.target, types.source),
            Layout::Csr => (types.source, types.target),
        };
        let fanout = options.fanout(hop, relation);
        let frontier = frontiers[asking].clone();
        if fanout == Fanout::Most(0) || topology.edges() == 0 {
            return Ok(());
        }
        check_room(options, fanout, frontier.len())?;
        // Numbering appends to the very lists that drawing reads, so drawing works on copies of its part.
        let nodes = &self.sample.nodes[asking];
        let ids = nodes.ids[frontier.clone()].to_vec();
        let trees = nodes.trees.as_ref().map(|trees| trees[frontier.clone()].to_vec());
        let times = self.times.take();
        let draw = Draw {
            topology,
            lists,
            options,
            fanout,
            key: self.request.key.of(hop as u64).of(relation as u64),
            ids: &ids,
            trees: trees.as_deref(),
            times: times.as_deref(),
            excluded: self.request.excluded.and_then(|excluded| excluded.of(relation)),
        };
        let hop = Hop { draw, relation, found, asking_first: frontier.start };
        let threads = self.request.threads.min(ids.len() / ROWS_PER_THREAD).max(1);
        let outcome = if self.is_divided { self.expand_together(&hop, threads) } else { self.expand_alone(&hop) };
        self.times = times;
        outcome
    }
}

/// Refuses a hop that cannot be held. Only what is drawn with replacement can be larger than the graph.
fn check_room(options: &SampleOptions, fanout: Fanout, rows: usize) -> Result<()> {
    let Fanout::Most(most) = fanout else { return Ok(()) };
    let edges = u64::from(most).saturating_mul(rows as u64);
    if options.replacement == Replacement::Without || edges <= SURELY_ROOM {
        return Ok(());
    }
    let (bytes, free_bytes) = (edges.saturating_mul(EDGE_BYTES), HostMemory::now().free_bytes as u64);
    // Where the system does not say, nothing is known to be too much.
    if free_bytes > 0 && bytes > free_bytes { Err(Error::HopTooLarge { edges, bytes, free_bytes }) } else { Ok(()) }
}

/// Whether some hop may be worth several threads: whether its rows may be many, if every row before has all it may.
fn is_worth_dividing(sampler: &NeighbourSampler, request: &Request<'_>) -> bool {
    let options = &sampler.options;
    let hops = options.fanouts.len();
    let found = |hop: usize, relation: usize| match options.fanout(hop, relation) {
        Fanout::All => usize::MAX,
        Fanout::Most(most) => most as usize,
    };
    let mut rows: usize = request.seeds.iter().map(|seeds| seeds.nodes.len()).sum();
    let mut most = if hops == 0 { 0 } else { rows };
    for hop in 0..hops.saturating_sub(1) {
        let relations = 0..sampler.graph.relations().len();
        let each = relations.fold(0, |sum: usize, relation| sum.saturating_add(found(hop, relation)));
        rows = rows.saturating_mul(each);
        most = most.max(rows);
    }
    request.threads > 1 && most >= 2 * ROWS_PER_THREAD
}

/// Local numbers are 32 bits wide.
pub(super) fn local_number(count: usize) -> Result<u32> {
    u32::try_from(count).map_err(|_| Error::SampleTooLarge)
}
