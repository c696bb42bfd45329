//! A hop on several threads, in four steps that each depend on the whole of the one before.
//!
//! Parts of the frontier draw their rows and hand the neighbours to shards. Shards find out which are new. Parts number
//! the new ones, which they can because they know how many the parts before them have. Parts write their edges.
//! What is written is what one thread writes, however many parts, shards and threads there are.

use std::ops::Range;

use headwater_tensor::parallel::{self, PIECE};
use rayon::iter::repeat_n;
use rayon::prelude::*;

use super::batch::{Batch, Hop, local_number};
use super::draw::GROUP_ROWS;
use super::part::{Edges, NewInShard, NewNodes, Part};
use super::shard::Shards;
use crate::column::Id;
use crate::error::Result;
use crate::pieces::{cut, take};
use crate::sample::index::Entry;
use crate::sample::output::{RelationEdges, TypeNodes};

/// Parts a thread: enough that a thread which is held up leaves its share to others.
const PARTS_PER_THREAD: usize = 4;

/// New nodes of each shard, of each part.
type Counts = Vec<Vec<usize>>;

impl<E: Entry> Batch<'_, E> {
    /// Draws and numbers on so many threads.
    pub(super) fn expand_together<I: Id>(&mut self, hop: &Hop<'_, I>, threads: usize) -> Result<()> {
        let rows = rows_of_parts(hop.draw.ids.len(), threads);
        let all_parts = &mut self.memory.parts;
        all_parts.resize_with(all_parts.len().max(rows.len()), Part::default);
        let mut shared =
            Shared { parts: &mut all_parts[..rows.len()], known: &mut self.memory.divided[hop.found], rows, threads };
        let edges = &mut self.sample.edges[hop.relation];
        shared.draw(hop, edges.ids.is_some())?;
        let counts = shared.place();
        shared.number(&counts, &mut self.sample.nodes[hop.found], hop.draw.topology.columns())?;
        shared.write(edges, hop.asking_first);
        Ok(())
    }
}

/// Which rows each part has.
fn rows_of_parts(rows: usize, threads: usize) -> Vec<Range<usize>> {
    let parts = if threads > 1 { threads * PARTS_PER_THREAD } else { 1 };
    let each = rows.div_ceil(parts).next_multiple_of(GROUP_ROWS).max(GROUP_ROWS);
    (0..rows).step_by(each).map(|first| first..(first + each).min(rows)).collect()
}

/// A hop shared out.
struct Shared<'a, E> {
    parts: &'a mut [Part],
    /// The rows of each part.
    rows: Vec<Range<usize>>,
    known: &'a mut Shards<E>,
    /// Threads that it is shared by.
    threads: usize,
}

impl<E: Entry> Shared<'_, E> {
    /// Every part draws its rows. Of several errors the first in order is returned, as one thread would.
    fn draw<I: Id>(&mut self, hop: &Hop<'_, I>, keeps_ids: bool) -> Result<()> {
        let shards = self.known.shards.len();
        parallel::try_for_each(self.parts.iter_mut().zip(&self.rows), |(part, rows)| {
            part.clear(shards);
            part.draw(&hop.draw, rows.clone(), keeps_ids)
        })
    }

    /// Every shard finds the places of what was handed to it.
    fn place(&mut self) -> Counts {
        let shards = &mut self.known.shards;
        let mut lists: Vec<Vec<&mut Vec<u64>>> = shards.iter().map(|_| Vec::new()).collect();
        for part in &mut *self.parts {
            lists.iter_mut().zip(&mut part.lists).for_each(|(lists, list)| lists.push(list));
        }
        let mut counts: Counts = vec![Vec::new(); shards.len()];
        let work = shards.iter_mut().zip(lists).zip(&mut counts);
        share_out(self.threads, work, &|((shard, lists), counts)| {
            counts.extend(lists.into_iter().map(|list| shard.place(list)));
        });
        counts
    }

    /// Every part numbers the nodes that it saw first.
    fn number(&mut self, counts: &Counts, nodes: &mut TypeNodes, limit: u64) -> Result<()> {
        let (before, threads) = (nodes.ids.len(), self.threads);
        let of_part = |part: usize| counts.iter().map(|counts| counts[part]).sum();
        let lengths: Vec<usize> = (0..self.parts.len()).map(of_part).collect();
        let count: usize = lengths.iter().sum();
        local_number(before + count)?;
        let new = lengthen(&mut nodes.ids, count, threads);
        let found = new_nodes(self.known, counts, cut(new, lengths.into_iter()), before);
        share_out(threads, self.parts.iter().zip(found), &|(part, found)| part.number(found));
        self.known.shards.iter_mut().for_each(|shard| shard.fresh.clear());
        if let Some(trees) = &mut nodes.trees {
            let trees = lengthen(trees, count, threads);
            share_out(threads, trees.chunks_mut(PIECE).zip(new.chunks_mut(PIECE)), &|(trees, keys)| {
                for (tree, key) in trees.iter_mut().zip(keys) {
                    (*tree, *key) = (Id::narrow(*key / limit), *key % limit);
                }
            });
        }
        Ok(())
    }

    /// Every part writes its edges.
    fn write(&self, edges: &mut RelationEdges, asking_first: usize) {
        let threads = self.threads;
        let count: usize = self.parts.iter().map(Part::edges).sum();
        let mut row = lengthen(&mut edges.row, count, threads);
        let mut col = lengthen(&mut edges.col, count, threads);
        let mut ids = edges.ids.as_mut().map(|ids| lengthen(ids, count, threads)).unwrap_or_default();
        let one = |(part, rows): (&Part, &Range<usize>)| Edges {
            row: take(&mut row, part.edges()),
            col: take(&mut col, part.edges()),
            ids: take(&mut ids, part.named()),
            asking_first: asking_first + rows.start,
        };
        let targets: Vec<Edges<'_>> = self.parts.iter().zip(&self.rows).map(one).collect();
        let numbers: Vec<&[u32]> = self.known.shards.iter().map(|shard| &shard.numbers[..]).collect();
        share_out(threads, self.parts.iter().zip(targets), &|(part, to)| part.write(&numbers, to));
    }
}

/// Hands pieces of work to threads, or does them here where one thread is enough.
fn share_out<W: Send>(threads: usize, work: impl Iterator<Item = W>, body: &(dyn Fn(W) + Sync)) {
    if threads > 1 {
        parallel::for_each(work, |_, piece| body(piece));
    } else {
        work.for_each(body);
    }
}

/// Where each part writes its new nodes. `keys` has a slice for each part, `first` is the number of the first node.
fn new_nodes<'a, E: Entry>(
    known: &'a mut Shards<E>,
    counts: &Counts,
    keys: Vec<&'a mut [u64]>,
    mut first: usize,
) -> Vec<NewNodes<'a>> {
    let mut of_part = |keys: &'a mut [u64]| {
        let nodes = NewNodes { first, shards: Vec::with_capacity(counts.len()), keys };
        first += nodes.keys.len();
        nodes
    };
    let mut found: Vec<NewNodes<'a>> = keys.into_iter().map(&mut of_part).collect();
    for (shard, counts) in known.shards.iter_mut().zip(counts) {
        let old = shard.numbers.len();
        shard.numbers.resize(old + shard.fresh.len(), 0);
        let (mut keys, mut numbers) = (&shard.fresh[..], &mut shard.numbers[old..]);
        for (found, &count) in found.iter_mut().zip(counts) {
            let of_part;
            (of_part, keys) = keys.split_at(count);
            found.shards.push(NewInShard { keys: of_part, numbers: take(&mut numbers, count) });
        }
    }
    found
}

/// Appends zeros, on several threads because fresh memory costs more than what is written to it, and returns them.
fn lengthen<T: Clone + Default + Send + Sync>(list: &mut Vec<T>, count: usize, threads: usize) -> &mut [T] {
    let before = list.len();
    // The least that is handed to another thread: more than there is when one thread is enough.
    let least = if threads > 1 { 1 } else { usize::MAX };
    list.par_extend(repeat_n(T::default(), count).with_min_len(least));
    &mut list[before..]
}
