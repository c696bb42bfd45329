//! The neighbour sampler on the CPU.
//!
//! A row costs two cache misses (its offsets, its list) and an edge one more (the table of known nodes), and all of them
//! are known ahead. So rows go through in small groups: offsets are asked for a group ahead, lists as soon as positions
//! are drawn, table slots as soon as neighbours are read. Drawing may run on several threads, because no draw depends on
//! another; numbering the nodes follows in order, which makes the result the same for any number of them.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use headwater_memory::prefetch_element;
use rayon::prelude::*;

use super::choose::Chooser;
use super::exclude::{Excluded, Pairs};
use super::index::{Entry, Index};
use super::options::{Bias, EdgeIds, Fanout, Recency, Replacement, SampleOptions, Trees};
use super::output::{RelationEdges, Sample, TypeNodes};
use super::seeds::{Seeds, check_seeds};
use crate::column::{Id, Ids};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::random::Key;
use crate::topology::{Layout, Topology, index};

/// Rows that go through together.
const GROUP_ROWS: usize = 32;
/// Rows that are worth a thread.
const ROWS_PER_THREAD: usize = 1024;
/// Edges whose table slots are asked for ahead of their turn.
const AHEAD: usize = 16;
/// Working memory that is kept for the next batches.
const MOST_KEPT: usize = 64;

/// Draws neighbourhoods out of a graph in host memory. Shared by any number of threads.
#[derive(Debug)]
pub struct NeighbourSampler {
    graph: Graph,
    options: SampleOptions,
    /// Working memory between batches, bounded by `MOST_KEPT`.
    kept: Mutex<Vec<Memory>>,
}

impl NeighbourSampler {
    /// Fails when the graph cannot be sampled this way.
    pub fn new(graph: Graph, options: SampleOptions) -> Result<Self> {
        options.check(&graph)?;
        Ok(Self { graph, options, kept: Mutex::new(Vec::new()) })
    }

    /// The graph.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What was asked for.
    #[must_use]
    pub fn options(&self) -> &SampleOptions {
        &self.options
    }

    /// The neighbourhood of `seeds` under `key`, on the threads of the current pool where that pays.
    pub fn sample(&self, seeds: Seeds<'_>, key: Key) -> Result<Sample> {
        self.run(&[seeds], None, key, rayon::current_num_threads())
    }

    /// The neighbourhood of seeds of several types.
    pub fn sample_types(&self, seeds: &[Seeds<'_>], key: Key) -> Result<Sample> {
        self.run(seeds, None, key, rayon::current_num_threads())
    }

    /// As [`NeighbourSampler::sample_types`], without the edges that `excluded` names.
    pub fn sample_without(&self, seeds: &[Seeds<'_>], excluded: &Excluded, key: Key) -> Result<Sample> {
        self.run(seeds, Some(excluded), key, rayon::current_num_threads())
    }

    /// As [`NeighbourSampler::sample`], on this thread alone: what to use when many batches are drawn at once.
    pub fn sample_alone(&self, seeds: Seeds<'_>, key: Key) -> Result<Sample> {
        self.run(&[seeds], None, key, 1)
    }

    fn run(&self, seeds: &[Seeds<'_>], excluded: Option<&Excluded>, key: Key, threads: usize) -> Result<Sample> {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut memory = kept().pop().unwrap_or_default();
        let narrow = self.most_key(seeds)? <= u64::MOST;
        let sampled = if narrow {
            Batch::new(self, &mut memory.narrow, seeds, excluded)?.run(key, threads)
        } else {
            Batch::new(self, &mut memory.wide, seeds, excluded)?.run(key, threads)
        };
        if kept().len() < MOST_KEPT {
            kept().push(memory);
        }
        sampled
    }

    /// The largest key a node of any type can have.
    fn most_key(&self, seeds: &[Seeds<'_>]) -> Result<u64> {
        let trees = match self.options.trees {
            Trees::Shared => 1,
            Trees::Disjoint => seeds.iter().map(|seeds| seeds.nodes.len() as u64).sum::<u64>().max(1),
        };
        let nodes = self.graph.schema().node_types().iter().map(|node_type| node_type.count).max().unwrap_or(0);
        nodes.checked_mul(trees).filter(|most| *most < u64::MAX).ok_or(Error::TooManyTrees { nodes, trees })
    }
}

/// What a batch works in and gives back.
#[derive(Debug, Default)]
struct Memory {
    narrow: Vec<Index<u64>>,
    wide: Vec<Index<u128>>,
}

/// A batch under way.
struct Batch<'a, E> {
    sampler: &'a NeighbourSampler,
    known: &'a mut Vec<Index<E>>,
    sample: Sample,
    /// The time of each tree, when seeds have times.
    times: Option<Vec<i64>>,
    excluded: Option<&'a Excluded>,
}

impl<'a, E: Entry> Batch<'a, E> {
    fn new(
        sampler: &'a NeighbourSampler,
        known: &'a mut Vec<Index<E>>,
        seeds: &[Seeds<'_>],
        excluded: Option<&'a Excluded>,
    ) -> Result<Self> {
        let (graph, options) = (&sampler.graph, &sampler.options);
        known.resize_with(graph.schema().node_types().len(), Index::new);
        known.iter_mut().for_each(Index::clear);
        let disjoint = (options.trees == Trees::Disjoint).then(Vec::new);
        let keeps_ids = (options.edge_ids == EdgeIds::Kept).then(Vec::new);
        let nodes = TypeNodes { trees: disjoint, ..TypeNodes::default() };
        let edges = RelationEdges { ids: keeps_ids, ..RelationEdges::default() };
        let sample = Sample {
            nodes: vec![nodes; graph.schema().node_types().len()],
            edges: vec![edges; graph.relations().len()],
        };
        let mut batch = Self { sampler, known, sample, times: None, excluded };
        batch.plant(seeds)?;
        Ok(batch)
    }

    /// Takes the seeds in.
    fn plant(&mut self, seeds: &[Seeds<'_>]) -> Result<()> {
        if check_seeds(seeds, &self.sampler.graph, &self.sampler.options)? {
            self.times = Some(Vec::new());
        }
        let mut tree = 0u32;
        for seeds in seeds {
            let limit = self.sampler.graph.schema().node_types()[seeds.node_type].count;
            for &id in seeds.nodes {
                let nodes = &mut self.sample.nodes[seeds.node_type];
                let number = local_number(nodes.ids.len())?;
                let key = if nodes.trees.is_some() { u64::from(tree) * limit + id } else { id };
                self.known[seeds.node_type].number(key, number);
                nodes.ids.push(id);
                nodes.trees.iter_mut().for_each(|trees| trees.push(tree));
                tree = tree.checked_add(1).ok_or(Error::SampleTooLarge)?;
            }
            self.times.iter_mut().zip(seeds.times).for_each(|(all, times)| all.extend_from_slice(times));
        }
        self.sample.nodes.iter_mut().for_each(|nodes| nodes.per_hop.push(nodes.ids.len()));
        Ok(())
    }

    fn run(mut self, key: Key, threads: usize) -> Result<Sample> {
        let mut begins = vec![0; self.sample.nodes.len()];
        for hop in 0..self.sampler.options.fanouts.len() {
            let frontiers: Vec<Range<usize>> =
                begins.iter().zip(&self.sample.nodes).map(|(&begin, nodes)| begin..nodes.ids.len()).collect();
            for relation in 0..self.sampler.graph.relations().len() {
                let key = key.of(hop as u64).of(relation as u64);
                self.expand(hop, relation, &frontiers, key, threads)?;
            }
            begins = frontiers.iter().map(|frontier| frontier.end).collect();
            for (nodes, &begin) in self.sample.nodes.iter_mut().zip(&begins) {
                nodes.per_hop.push(nodes.ids.len() - begin);
            }
        }
        Ok(self.sample)
    }

    fn expand(&mut self, hop: usize, at: usize, frontiers: &[Range<usize>], key: Key, threads: usize) -> Result<()> {
        let topology = self.sampler.graph.relation(at);
        match topology.neighbours() {
            Ids::U32(ids) => self.expand_lists(hop, at, ids, frontiers, key, threads)?,
            Ids::U64(ids) => self.expand_lists(hop, at, ids, frontiers, key, threads)?,
        }
        let edges = &mut self.sample.edges[at];
        let before: usize = edges.per_hop.iter().sum();
        edges.per_hop.push(edges.row.len() - before);
        Ok(())
    }

    fn expand_lists<I: Id>(
        &mut self,
        hop: usize,
        at: usize,
        lists: &[I],
        frontiers: &[Range<usize>],
        key: Key,
        threads: usize,
    ) -> Result<()> {
        let (graph, options) = (&self.sampler.graph, &self.sampler.options);
        let (topology, relation) = (graph.relation(at), &graph.schema().relations()[at]);
        let (asking, found) = match topology.layout() {
            Layout::Csc => (relation.target, relation.source),
            Layout::Csr => (relation.source, relation.target),
        };
        let fanout = options.fanout(hop, at);
        let frontier = frontiers[asking].clone();
        if fanout == Fanout::Most(0) || topology.edges() == 0 {
            return Ok(());
        }
        // Numbering appends to the very lists that drawing reads, so drawing works on copies of its part.
        let nodes = &self.sample.nodes[asking];
        let ids = nodes.ids[frontier.clone()].to_vec();
        let trees = nodes.trees.as_ref().map(|trees| trees[frontier.clone()].to_vec());
        let times = self.times.take();
        let excluded = self.excluded.and_then(|excluded| excluded.of(at));
        let draw = Draw {
            excluded,
            topology,
            lists,
            options,
            fanout,
            key,
            ids: &ids,
            trees: trees.as_deref(),
            times: times.as_deref(),
        };
        let settle = Settle { topology, asking_first: frontier.start, at, found };
        let parts = threads.min(ids.len() / ROWS_PER_THREAD);
        let outcome =
            if parts > 1 { self.draw_together(&draw, &settle, parts) } else { self.draw_in_groups(&draw, &settle) };
        self.times = times;
        outcome
    }

    fn draw_in_groups<I: Id>(&mut self, draw: &Draw<'_, I>, settle: &Settle<'_>) -> Result<()> {
        let mut drawn = Drawn::default();
        for first in (0..draw.ids.len()).step_by(GROUP_ROWS) {
            drawn.clear();
            draw.rows(first..(first + GROUP_ROWS).min(draw.ids.len()), &mut drawn)?;
            self.settle(settle, first, &drawn)?;
        }
        Ok(())
    }

    /// Draws on several threads, then numbers in order.
    fn draw_together<I: Id>(&mut self, draw: &Draw<'_, I>, settle: &Settle<'_>, parts: usize) -> Result<()> {
        let rows_per_part = draw.ids.len().div_ceil(parts * 2).next_multiple_of(GROUP_ROWS);
        let firsts: Vec<usize> = (0..draw.ids.len()).step_by(rows_per_part).collect();
        let draw_part = |&first: &usize| {
            let mut drawn = Drawn::default();
            let end = (first + rows_per_part).min(draw.ids.len());
            for group in (first..end).step_by(GROUP_ROWS) {
                draw.rows(group..(group + GROUP_ROWS).min(end), &mut drawn)?;
            }
            Ok(drawn)
        };
        let parts: Vec<Drawn<I>> = firsts.par_iter().map(draw_part).collect::<Result<_>>()?;
        firsts.iter().zip(&parts).try_for_each(|(&first, drawn)| self.settle(settle, first, drawn))
    }

    /// Numbers the neighbours that were drawn and writes their edges.
    fn settle<I: Id>(&mut self, settle: &Settle<'_>, first: usize, drawn: &Drawn<I>) -> Result<()> {
        let limit = settle.topology.columns();
        let edges = &mut self.sample.edges[settle.at];
        let (known, nodes) = (&mut self.known[settle.found], &mut self.sample.nodes[settle.found]);
        local_number(nodes.ids.len() + drawn.neighbours.len())?;
        edges.row.reserve(drawn.neighbours.len());
        edges.col.reserve(drawn.neighbours.len());
        let mut at = 0;
        for (row, &length) in drawn.lengths.iter().enumerate() {
            let tree = drawn.trees.get(row).copied();
            let base = tree.map_or(0, |tree| u64::from(tree) * limit);
            for _ in 0..length {
                if let Some(ahead) = drawn.neighbours.get(at + AHEAD) {
                    known.prefetch(base + ahead.wide());
                }
                let id = drawn.neighbours[at].wide();
                if id >= limit {
                    let position = drawn.positions[at];
                    return Err(Error::IdOutOfRange { name: "neighbours", position, id, limit });
                }
                let (number, is_new) = known.number(base + id, Id::narrow(nodes.ids.len() as u64));
                if is_new {
                    nodes.ids.push(id);
                    nodes.trees.iter_mut().zip(tree).for_each(|(trees, tree)| trees.push(tree));
                }
                edges.row.push(number);
                at += 1;
            }
            let asking: u32 = Id::narrow((settle.asking_first + first + row) as u64);
            edges.col.resize(edges.col.len() + length as usize, asking);
        }
        if let Some(ids) = &mut edges.ids {
            match settle.topology.edge_ids() {
                None => ids.extend_from_slice(&drawn.positions),
                Some(Ids::U32(own)) => ids.extend(drawn.positions.iter().map(|&at| u64::from(own[index(at)]))),
                Some(Ids::U64(own)) => ids.extend(drawn.positions.iter().map(|&at| own[index(at)])),
            }
        }
        Ok(())
    }
}

/// Where drawn neighbours go.
struct Settle<'a> {
    topology: &'a Topology,
    /// Local number of the first node of the frontier.
    asking_first: usize,
    at: usize,
    /// Type of the neighbours.
    found: usize,
}

/// What drawing reads. Nothing here changes, so any thread may do any part.
struct Draw<'a, I> {
    topology: &'a Topology,
    lists: &'a [I],
    options: &'a SampleOptions,
    fanout: Fanout,
    key: Key,
    ids: &'a [u64],
    trees: Option<&'a [u32]>,
    times: Option<&'a [i64]>,
    excluded: Option<&'a Pairs>,
}

/// Some rows' neighbours.
#[derive(Debug)]
struct Drawn<I> {
    neighbours: Vec<I>,
    /// Where each stands in the lists.
    positions: Vec<u64>,
    /// How many each row has.
    lengths: Vec<u32>,
    /// The tree of each row, when there are trees.
    trees: Vec<u32>,
    chooser: Chooser,
}

impl<I> Default for Drawn<I> {
    fn default() -> Self {
        let (neighbours, positions, lengths, trees) = Default::default();
        Self { neighbours, positions, lengths, trees, chooser: Chooser::default() }
    }
}

impl<I> Drawn<I> {
    fn clear(&mut self) {
        self.neighbours.clear();
        self.positions.clear();
        self.lengths.clear();
        self.trees.clear();
    }
}

impl<I: Id> Draw<'_, I> {
    /// Draws the neighbours of some rows of the frontier.
    fn rows(&self, rows: Range<usize>, drawn: &mut Drawn<I>) -> Result<()> {
        let offsets = self.topology.offsets().as_slice();
        let begin = drawn.positions.len();
        for row in rows.clone() {
            if let Some(&ahead) = self.ids.get(row + GROUP_ROWS) {
                prefetch_element(offsets, index(ahead));
            }
        }
        for row in rows.clone() {
            let id = index(self.ids[row]);
            let (start, end) = (offsets[id], offsets[id + 1]);
            let first = drawn.positions.len();
            self.choose(row, index(start)..index(end), drawn)?;
            for position in &mut drawn.positions[first..] {
                *position += start;
                prefetch_element(self.lists, index(*position));
            }
            let length = u32::try_from(drawn.positions.len() - first).map_err(|_| Error::SampleTooLarge)?;
            drawn.lengths.push(length);
        }
        drawn.trees.extend(self.trees.into_iter().flat_map(|trees| &trees[rows.clone()]));
        drawn.neighbours.extend(drawn.positions[begin..].iter().map(|&position| self.lists[index(position)]));
        if let Some(excluded) = self.excluded {
            self.drop_excluded(excluded, rows, begin, drawn);
        }
        Ok(())
    }

    /// Takes excluded edges out again: they count as drawn, but nothing of them stays.
    fn drop_excluded(&self, excluded: &Pairs, rows: Range<usize>, begin: usize, drawn: &mut Drawn<I>) {
        let (mut from, mut to) = (begin, begin);
        let first_length = drawn.lengths.len() - rows.len();
        for (length, row) in drawn.lengths[first_length..].iter_mut().zip(rows) {
            let list = from..from + *length as usize;
            (from, *length) = (list.end, 0);
            for at in list {
                if !excluded.contains(&(self.ids[row], drawn.neighbours[at].wide())) {
                    (drawn.neighbours[to], drawn.positions[to]) = (drawn.neighbours[at], drawn.positions[at]);
                    to += 1;
                    *length += 1;
                }
            }
        }
        drawn.neighbours.truncate(to);
        drawn.positions.truncate(to);
    }

    /// Chooses positions of one row, counted from its first.
    #[inline]
    fn choose(&self, row: usize, list: Range<usize>, drawn: &mut Drawn<I>) -> Result<()> {
        if list.start > list.end || list.end > self.lists.len() {
            let (before, after) = (list.start as u64, list.end as u64);
            return Err(Error::FallingOffsets { row: self.ids[row], before, after });
        }
        let tree = self.trees.map(|trees| trees[row]);
        let seen = match (self.times, tree, self.topology.times()) {
            (Some(limits), Some(tree), Some(times)) => {
                let limit = limits[tree as usize];
                list.start + times[list.clone()].partition_point(|&time| time <= limit)
            }
            _ => list.end,
        };
        let degree = (seen - list.start) as u64;
        let (options, out) = (self.options, &mut drawn.positions);
        let key = self.key.of(tree.map_or(0, |tree| u64::from(tree) * self.topology.rows()) + self.ids[row]);
        // All neighbours are all of them, each once, however they would be drawn.
        let (wanted, replacement) = match self.fanout {
            Fanout::All => (degree, Replacement::Without),
            Fanout::Most(most) => (u64::from(most), options.replacement),
        };
        match (options.bias, replacement, self.topology.weights()) {
            (Bias::Weights, Replacement::Without, Some(weights)) => {
                drawn.chooser.weighted(key, &weights[list.start..seen], wanted, out);
            }
            (Bias::Weights, Replacement::With, Some(weights)) => {
                Chooser::weighted_with_replacement(key, &weights[list.start..seen], wanted, out);
            }
            (_, Replacement::With, _) => Chooser::with_replacement(key, degree, wanted, out),
            _ if options.recency == Recency::Last => Chooser::last(degree, wanted, out),
            _ => drawn.chooser.without_replacement(key, degree, wanted, out),
        }
        Ok(())
    }
}

/// Local numbers are 32 bits wide.
fn local_number(count: usize) -> Result<u32> {
    u32::try_from(count).map_err(|_| Error::SampleTooLarge)
}
