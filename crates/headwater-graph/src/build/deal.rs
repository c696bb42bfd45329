//! The first step of a build: edges dealt into buckets of neighbouring rows, in their order.
//!
//! A segment is cut into strips. Every strip first counts what it has for every bucket, which gives it a part of each
//! bucket to itself. Then it goes through its edges block by block: a block is sorted by bucket within the cache and
//! handed out run by run, so that memory sees copies and not scattered words.

use std::ops::Range;

use headwater_tensor::parallel;

use super::plan::BuildPlan;
use crate::column::{Id, Ids};
use crate::lane::{Fill, Lane, Moved};
use crate::pieces::{cut, take};
use crate::progress::Progress;
use crate::topology::index;

/// A segment of the edges, dealt.
pub(super) struct Dealt {
    /// Every edge's row within its bucket.
    pub(super) rows: Vec<u16>,
    /// The other arrays, in the same order.
    pub(super) lanes: Vec<Moved>,
    /// Edges of every bucket.
    pub(super) counts: Vec<usize>,
}

impl Dealt {
    /// Memory for one segment.
    pub(super) fn new(plan: &BuildPlan, lanes: &[Lane<'_>]) -> Self {
        let length = index(plan.segment_edges);
        let lanes = lanes.iter().map(|lane| Moved::new(lane, length)).collect();
        Self { rows: vec![0; length], lanes, counts: vec![0; index(plan.buckets)] }
    }

    /// Deals a segment. With no lanes only the rows are dealt, which is enough to count them.
    pub(super) fn deal(
        &mut self,
        plan: &BuildPlan,
        keys: &Ids,
        segment: Range<usize>,
        lanes: &[Lane<'_>],
        progress: &dyn Progress,
    ) {
        match keys {
            Ids::U32(keys) => self.deal_keys(plan, &keys[segment.clone()], segment.start, lanes, progress),
            Ids::U64(keys) => self.deal_keys(plan, &keys[segment.clone()], segment.start, lanes, progress),
        }
    }

    fn deal_keys<K: Id>(
        &mut self,
        plan: &BuildPlan,
        keys: &[K],
        start: usize,
        lanes: &[Lane<'_>],
        progress: &dyn Progress,
    ) {
        let strip_edges = keys.len().div_ceil(index(plan.strips)).max(1);
        let keys_of: Vec<&[K]> = keys.chunks(strip_edges).collect();
        let counts: Vec<Vec<usize>> = parallel::collect(keys_of.len(), |strip| count(plan, keys_of[strip]));
        for (bucket, total) in self.counts.iter_mut().enumerate() {
            *total = counts.iter().map(|strip| strip[bucket]).sum();
        }
        let mut rows = parts(&mut self.rows[..keys.len()], &counts);
        let mut strips: Vec<Strip<'_>> =
            rows.drain(..).map(|rows| Strip { rows, lanes: Vec::with_capacity(lanes.len()) }).collect();
        for moved in self.lanes.iter_mut().take(lanes.len()) {
            match moved {
                Moved::Four(values) => {
                    let parts = parts(&mut values[..keys.len()], &counts);
                    strips.iter_mut().zip(parts).for_each(|(strip, part)| strip.lanes.push(Part::Four(part)));
                }
                Moved::Eight(values) => {
                    let parts = parts(&mut values[..keys.len()], &counts);
                    strips.iter_mut().zip(parts).for_each(|(strip, part)| strip.lanes.push(Part::Eight(part)));
                }
            }
        }
        let block_edges = index(plan.block_edges);
        parallel::for_each(strips.into_iter().zip(keys_of), |at, (mut strip, keys)| {
            let mut block = Block::new(plan);
            for (nth, keys) in keys.chunks(block_edges).enumerate() {
                block.sort(plan.bucket_rows_log2, keys);
                strip.receive(&mut block, start + at * strip_edges + nth * block_edges, keys.len(), lanes);
                progress.advance(keys.len() as u64);
            }
        });
    }
}

/// How many edges go to every bucket.
fn count<K: Id>(plan: &BuildPlan, keys: &[K]) -> Vec<usize> {
    let mut counts = vec![0; index(plan.buckets)];
    for key in keys {
        counts[index(key.wide() >> plan.bucket_rows_log2)] += 1;
    }
    counts
}

/// The part of every bucket that belongs to each strip. Buckets lie one after the other, strips in order within each.
fn parts<'a, T>(values: &'a mut [T], counts: &[Vec<usize>]) -> Vec<Vec<&'a mut [T]>> {
    let buckets = counts.first().map_or(0, Vec::len);
    let lengths = (0..buckets).flat_map(|bucket| counts.iter().map(move |strip| strip[bucket]));
    let mut by_strip: Vec<Vec<&mut [T]>> = counts.iter().map(|_| Vec::with_capacity(buckets)).collect();
    for (at, cell) in cut(values, lengths).into_iter().enumerate() {
        by_strip[at % counts.len()].push(cell);
    }
    by_strip
}

/// Where a strip puts what it deals: the unfilled rest of its part of every bucket.
struct Strip<'a> {
    rows: Vec<&'a mut [u16]>,
    lanes: Vec<Part<'a>>,
}

enum Part<'a> {
    Four(Vec<&'a mut [u32]>),
    Eight(Vec<&'a mut [u64]>),
}

impl Strip<'_> {
    fn receive(&mut self, block: &mut Block, start: usize, length: usize, lanes: &[Lane<'_>]) {
        hand_out(&block.rows, &block.starts, &mut self.rows);
        for (lane, part) in lanes.iter().zip(&mut self.lanes) {
            match (lane, part) {
                (Lane::Four(fill), Part::Four(part)) => {
                    let Block { positions, starts, four, .. } = block;
                    stage(fill, start, &positions[..length], four);
                    hand_out(&four.sorted, starts, part);
                }
                (Lane::Eight(fill), Part::Eight(part)) => {
                    let Block { positions, starts, eight, .. } = block;
                    stage(fill, start, &positions[..length], eight);
                    hand_out(&eight.sorted, starts, part);
                }
                // Parts are made from their lanes, so widths agree.
                _ => {}
            }
        }
    }
}

/// Brings a block's values into the order of buckets.
fn stage<T: Copy + Default>(fill: &Fill<'_, T>, start: usize, positions: &[u32], stage: &mut Stage<T>) {
    stage.given.resize(positions.len(), T::default());
    stage.sorted.resize(positions.len(), T::default());
    fill(start, &mut stage.given);
    for (value, position) in stage.given.iter().zip(positions) {
        stage.sorted[*position as usize] = *value;
    }
}

/// Appends every bucket's run to its part.
fn hand_out<T: Copy>(sorted: &[T], starts: &[u32], parts: &mut [&mut [T]]) {
    for (part, bounds) in parts.iter_mut().zip(starts.windows(2)) {
        let run = &sorted[bounds[0] as usize..bounds[1] as usize];
        if !run.is_empty() {
            take(part, run.len()).copy_from_slice(run);
        }
    }
}

/// The working memory of a thread: one block of edges.
struct Block {
    /// Where each edge goes within the sorted block.
    positions: Vec<u32>,
    /// Where each bucket begins in it.
    starts: Vec<u32>,
    cursors: Vec<u32>,
    rows: Vec<u16>,
    four: Stage<u32>,
    eight: Stage<u64>,
}

#[derive(Default)]
struct Stage<T> {
    given: Vec<T>,
    sorted: Vec<T>,
}

impl Block {
    fn new(plan: &BuildPlan) -> Self {
        let (edges, buckets) = (index(plan.block_edges), index(plan.buckets));
        Self {
            positions: vec![0; edges],
            starts: vec![0; buckets + 1],
            cursors: vec![0; buckets],
            rows: vec![0; edges],
            four: Stage::default(),
            eight: Stage::default(),
        }
    }

    /// Decides where every edge of the block goes.
    #[expect(clippy::cast_possible_truncation, reason = "the mask leaves at most 16 bits")]
    fn sort<K: Id>(&mut self, bucket_rows_log2: u32, keys: &[K]) {
        let mask = (1u64 << bucket_rows_log2) - 1;
        self.starts.fill(0);
        for key in keys {
            self.starts[index(key.wide() >> bucket_rows_log2) + 1] += 1;
        }
        for bucket in 0..self.cursors.len() {
            self.cursors[bucket] = self.starts[bucket];
            self.starts[bucket + 1] += self.starts[bucket];
        }
        for (key, position) in keys.iter().zip(&mut self.positions) {
            let cursor = &mut self.cursors[index(key.wide() >> bucket_rows_log2)];
            *position = *cursor;
            self.rows[*cursor as usize] = (key.wide() & mask) as u16;
            *cursor += 1;
        }
    }
}
