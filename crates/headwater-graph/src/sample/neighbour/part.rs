//! Some rows of a hop, as one thread handles them: what it draws, handed to shards, and what it writes once they are
//! through.
//!
//! An edge remembers only its shard. What it is in there is read back in the order it was handed over, so nothing needs
//! to be written at a place that another thread knows.

use std::ops::Range;
use std::slice::Iter;

use super::draw::{Draw, Drawn, GROUP_ROWS};
use super::shard::{Place, shard_of};
use crate::column::Id;
use crate::error::Result;

/// Some rows' edges.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The shard of every edge's neighbour.
    shards: Vec<u8>,
    /// For every shard, its neighbours in order: keys, which the shard replaces by places.
    pub(super) lists: Vec<Vec<u64>>,
    /// Edges of each row.
    lengths: Vec<u32>,
    /// Ids of the edges, when kept.
    ids: Vec<u64>,
}

/// Where a part writes its edges.
pub(super) struct Edges<'a> {
    pub(super) row: &'a mut [u32],
    pub(super) col: &'a mut [u32],
    /// Of no length when edges are not named.
    pub(super) ids: &'a mut [u64],
    /// Local number of the first node that asks.
    pub(super) asking_first: usize,
}

/// Where a part writes its new nodes.
pub(super) struct NewNodes<'a> {
    /// The number of the first.
    pub(super) first: usize,
    pub(super) keys: &'a mut [u64],
    /// For every shard, its new nodes of this part.
    pub(super) shards: Vec<NewInShard<'a>>,
}

/// The new nodes that a shard found in a part.
pub(super) struct NewInShard<'a> {
    pub(super) keys: &'a [u64],
    pub(super) numbers: &'a mut [u32],
}

impl Part {
    /// Draws these rows.
    pub(super) fn draw<I: Id>(&mut self, draw: &Draw<'_, I>, rows: Range<usize>, keeps_ids: bool) -> Result<()> {
        let mut drawn = Drawn::default();
        for first in rows.clone().step_by(GROUP_ROWS) {
            drawn.clear();
            draw.rows(first..(first + GROUP_ROWS).min(rows.end), &mut drawn)?;
            self.hand_over(&drawn, draw.topology.columns())?;
            if keeps_ids {
                draw.edge_ids(&drawn.positions, &mut self.ids);
            }
        }
        Ok(())
    }

    /// Forgets everything; as many shards are handed to from now on.
    pub(super) fn clear(&mut self, shards: usize) {
        self.shards.clear();
        self.lists.resize_with(shards, Vec::new);
        self.lists.iter_mut().for_each(Vec::clear);
        self.lengths.clear();
        self.ids.clear();
    }

    /// How many edges there are.
    pub(super) fn edges(&self) -> usize {
        self.shards.len()
    }

    /// How many of them have ids.
    pub(super) fn named(&self) -> usize {
        self.ids.len()
    }

    /// Numbers the new nodes in the order of the edges that found them.
    pub(super) fn number(&self, mut new: NewNodes<'_>) {
        let (mut lists, mut seen, mut count) = (self.places(), vec![0; self.lists.len()], 0);
        for shard in self.shards.iter().map(|&shard| usize::from(shard)) {
            let is_new = lists[shard].next().is_some_and(|&place| Place(place).is_new());
            // Written whether new or not, because a branch would be guessed wrong too often: what is not new is written
            // over by the next that is.
            let of_shard = &mut new.shards[shard];
            let at = seen[shard];
            if let (Some(key), Some(number), Some(to)) =
                (of_shard.keys.get(at), of_shard.numbers.get_mut(at), new.keys.get_mut(count))
            {
                *number = Id::narrow((new.first + count) as u64);
                *to = *key;
            }
            seen[shard] += usize::from(is_new);
            count += usize::from(is_new);
        }
    }

    /// Writes the edges. `numbers` has the number at every place of every shard.
    pub(super) fn write(&self, numbers: &[&[u32]], to: Edges<'_>) {
        let mut lists = self.places();
        for (row, &shard) in to.row.iter_mut().zip(&self.shards) {
            let shard = usize::from(shard);
            if let Some(&place) = lists[shard].next() {
                *row = numbers[shard][Place(place).index()];
            }
        }
        let mut rest = to.col;
        for (row, &length) in self.lengths.iter().enumerate() {
            crate::pieces::take(&mut rest, length as usize).fill(Id::narrow((to.asking_first + row) as u64));
        }
        to.ids.copy_from_slice(&self.ids);
    }

    /// Hands neighbours to their shards.
    fn hand_over<I: Id>(&mut self, drawn: &Drawn<I>, limit: u64) -> Result<()> {
        let mut one = |at: usize, base: u64| -> Result<()> {
            let key = base + drawn.checked(at, limit)?;
            let shard = shard_of(key, self.lists.len());
            self.shards.push(shard);
            self.lists[usize::from(shard)].push(key);
            Ok(())
        };
        if drawn.trees.is_empty() {
            (0..drawn.neighbours.len()).try_for_each(|at| one(at, 0))?;
        } else {
            let mut at = 0;
            for (&tree, &length) in drawn.trees.iter().zip(&drawn.lengths) {
                let end = at + length as usize;
                (at..end).try_for_each(|at| one(at, u64::from(tree) * limit))?;
                at = end;
            }
        }
        self.lengths.extend_from_slice(&drawn.lengths);
        Ok(())
    }

    /// Every edge's place in its shard, in order.
    fn places(&self) -> Vec<Iter<'_, u64>> {
        self.lists.iter().map(|list| list.iter()).collect()
    }
}
