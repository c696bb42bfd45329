//! Every node adds up what the nodes it points at have for it: one pass over the edges.
//!
//! A batch walks edges backwards, from a node to those that point at it, so what a node is worth it gets from its targets.
//! Lists by source make that a sum a node, without two threads ever writing to one place. Contributions are floats of 32
//! bits, so that those of millions of nodes stay in cache; sums are whole numbers of 64 bits, so that their order does not
//! matter. An edge costs its id and one scattered read of 4 bytes.

use headwater_memory::prefetch_element;
use rayon::prelude::*;

use super::NodeScores;
use super::degree::add_degrees;
use crate::column::{Id, Ids};
use crate::error::Result;
use crate::graph::Graph;
use crate::progress::Progress;
use crate::topology::{Layout, Topology, index};

/// Rows that one thread takes at a time.
const ROWS: usize = 2048;
/// Edges whose contributions are asked for ahead of their turn...
const AHEAD: usize = 32;
/// ...when all of them do not stay in a core's own cache anyway.
const CACHED_BYTES: usize = 1 << 20;

/// A graph's lists turned so that every node has those it gets something from, and what scores ask again and again.
#[derive(Debug)]
pub struct Outgoing {
    relations: Vec<OutgoingRelation>,
    /// Nodes of each type.
    pub(super) counts: Vec<usize>,
    /// Whether nodes pull from those that ask for them when batches are drawn.
    pub(super) follows_sampling: bool,
}

#[derive(Debug)]
struct OutgoingRelation {
    /// Type of the nodes that pull, and of those they pull from.
    source: usize,
    target: usize,
    lists: Topology,
    /// How many pull from each target.
    in_degrees: Vec<u64>,
}

impl Outgoing {
    /// Nodes pull from the nodes they point at. Lists by target are turned round, which takes as long as building them.
    pub fn of(graph: &Graph, progress: &dyn Progress) -> Result<Self> {
        let is_turned = |layout: Layout| layout == Layout::Csc;
        Self::turned(graph, is_turned, progress)
    }

    /// Nodes pull from the nodes that ask for them when batches are drawn: from targets where lists are by target, from
    /// sources where they are by source.
    pub fn of_sampling(graph: &Graph, progress: &dyn Progress) -> Result<Self> {
        Self::turned(graph, |_| true, progress)
    }

    fn turned(graph: &Graph, is_turned: impl Fn(Layout) -> bool, progress: &dyn Progress) -> Result<Self> {
        let turned = graph.relations().iter().enumerate().map(|(at, topology)| {
            let (rows, columns) = graph.ends(at);
            let is_turned = is_turned(topology.layout());
            let (source, target) = if is_turned { (columns, rows) } else { (rows, columns) };
            let lists = if is_turned {
                topology.bare().transposed(progress)?
            } else {
                topology.check()?;
                topology.bare()
            };
            let mut in_degrees = vec![0; index(graph.schema().node_types()[target].count)];
            add_degrees(topology, is_turned, &mut in_degrees);
            Ok(OutgoingRelation { source, target, lists, in_degrees })
        });
        let counts = graph.schema().node_types().iter().map(|node_type| index(node_type.count)).collect();
        let follows_sampling = graph.relations().iter().all(|topology| is_turned(topology.layout()));
        Ok(Self { relations: turned.collect::<Result<_>>()?, counts, follows_sampling })
    }

    /// Relations of the graph.
    pub(super) fn relation_count(&self) -> usize {
        self.relations.len()
    }

    /// Nodes of all types.
    pub(super) fn nodes(&self) -> usize {
        self.counts.iter().sum()
    }

    /// In-degrees of a relation's targets.
    pub(super) fn in_degrees(&self, relation: usize) -> &[u64] {
        &self.relations[relation].in_degrees
    }

    /// In-degrees of every node over all relations.
    pub(super) fn all_in_degrees(&self) -> NodeScores {
        let mut all: NodeScores = self.counts.iter().map(|&count| vec![0; count]).collect();
        for relation in &self.relations {
            let into = all[relation.target].par_iter_mut().zip(&relation.in_degrees);
            into.for_each(|(all, degree)| *all += degree);
        }
        all
    }

    /// For every node, the sum of what its targets contribute, in units of 2^-`unit_log2`. `contributions` are asked for
    /// a relation at a time, one a target.
    pub(super) fn pull(&self, unit_log2: u8, contributions: impl Fn(usize, usize) -> Vec<f32>) -> NodeScores {
        let mut sums: NodeScores = self.counts.iter().map(|&count| vec![0; count]).collect();
        for (at, relation) in self.relations.iter().enumerate() {
            let contributions = contributions(at, relation.target);
            let pull =
                Pull { lists: &relation.lists, contributions: &contributions, unit: 2f32.powi(i32::from(unit_log2)) };
            match relation.lists.neighbours() {
                Ids::U32(ids) => pull.add(ids, &mut sums[relation.source]),
                Ids::U64(ids) => pull.add(ids, &mut sums[relation.source]),
            }
        }
        sums
    }
}

/// One relation's part of a pass.
struct Pull<'a> {
    lists: &'a Topology,
    contributions: &'a [f32],
    unit: f32,
}

impl Pull<'_> {
    fn add<I: Id>(&self, ids: &[I], sums: &mut [u64]) {
        let is_cached = size_of_val(self.contributions) <= CACHED_BYTES;
        sums.par_chunks_mut(ROWS).enumerate().for_each(|(chunk, sums)| {
            for (row, sum) in sums.iter_mut().enumerate() {
                let list = self.lists.list((chunk * ROWS + row) as u64);
                *sum += if is_cached { self.of_list(&ids[list]) } else { self.of_far_list(ids, list) };
            }
        });
    }

    fn of_list<I: Id>(&self, list: &[I]) -> u64 {
        list.iter().map(|id| self.of(id)).sum()
    }

    fn of_far_list<I: Id>(&self, ids: &[I], list: std::ops::Range<usize>) -> u64 {
        let ahead = ids.get(list.start + AHEAD..).unwrap_or_default();
        let asked = ahead.iter().take(list.len());
        asked.for_each(|id| prefetch_element(self.contributions, index(id.wide())));
        self.of_list(&ids[list])
    }

    /// What one target contributes, in whole units; nothing for an id that no node has.
    fn of<I: Id>(&self, id: &I) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole units, never negative")]
        self.contributions.get(index(id.wide())).map_or(0, |share| (share * self.unit) as i64 as u64)
    }
}
