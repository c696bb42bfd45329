//! Which edges a hop takes: pure functions of what is known before it, so any thread may draw any rows.

use std::ops::Range;

use headwater_memory::prefetch_element;

use crate::column::{Id, Ids};
use crate::error::{Error, Result};
use crate::random::Key;
use crate::sample::choose::Chooser;
use crate::sample::exclude::Pairs;
use crate::sample::options::{Bias, Fanout, Recency, Replacement, SampleOptions};
use crate::topology::{Topology, index};

/// Rows that go through together.
pub(super) const GROUP_ROWS: usize = 32;

/// What drawing reads. Nothing here changes, so any thread may do any part.
pub(super) struct Draw<'a, I> {
    pub(super) topology: &'a Topology,
    pub(super) lists: &'a [I],
    pub(super) options: &'a SampleOptions,
    pub(super) fanout: Fanout,
    pub(super) key: Key,
    pub(super) ids: &'a [u64],
    pub(super) trees: Option<&'a [u32]>,
    pub(super) times: Option<&'a [i64]>,
    pub(super) excluded: Option<&'a Pairs>,
}

/// Some rows' neighbours.
#[derive(Debug)]
pub(super) struct Drawn<I> {
    pub(super) neighbours: Vec<I>,
    /// Where each stands in the lists.
    pub(super) positions: Vec<u64>,
    /// How many each row has.
    pub(super) lengths: Vec<u32>,
    /// The tree of each row, when there are trees.
    pub(super) trees: Vec<u32>,
    chooser: Chooser,
}

impl<I> Default for Drawn<I> {
    fn default() -> Self {
        let (neighbours, positions, lengths, trees) = Default::default();
        Self { neighbours, positions, lengths, trees, chooser: Chooser::default() }
    }
}

impl<I> Drawn<I> {
    pub(super) fn clear(&mut self) {
        self.neighbours.clear();
        self.positions.clear();
        self.lengths.clear();
        self.trees.clear();
    }
}

impl<I: Id> Drawn<I> {
    /// The neighbour of an edge, unless the lists are damaged.
    #[inline]
    pub(super) fn checked(&self, at: usize, limit: u64) -> Result<u64> {
        let id = self.neighbours[at].wide();
        if id < limit {
            return Ok(id);
        }
        Err(Error::IdOutOfRange { name: "neighbours", position: self.positions[at], id, limit })
    }
}

impl<I: Id> Draw<'_, I> {
    /// Draws the neighbours of some rows of the frontier.
    pub(super) fn rows(&self, rows: Range<usize>, drawn: &mut Drawn<I>) -> Result<()> {
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

    /// The ids of the edges at these positions.
    pub(super) fn edge_ids(&self, positions: &[u64], out: &mut Vec<u64>) {
        match self.topology.edge_ids() {
            None => out.extend_from_slice(positions),
            Some(Ids::U32(own)) => out.extend(positions.iter().map(|&at| u64::from(own[index(at)]))),
            Some(Ids::U64(own)) => out.extend(positions.iter().map(|&at| own[index(at)])),
        }
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
