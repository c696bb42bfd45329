//! Edges sorted by row, in parallel and stable: dealt into buckets, then each bucket sorted by counting.
//!
//! Until the end the offsets serve as cursors: a row's entry is where its next edge goes, one place to the right of
//! where the finished offsets have the row's beginning. When all edges are placed each cursor stands at its row's end,
//! which is the next row's beginning.

use std::ops::Range;
use std::slice::ChunksMut;

use headwater_tensor::parallel;

use super::deal::Dealt;
use super::plan::BuildPlan;
use crate::column::Ids;
use crate::lane::{Lane, Moved};
use crate::pieces::cut;
use crate::progress::Progress;
use crate::topology::index;

/// Edges in the order of their rows.
pub(super) struct Sorted {
    /// Where each row begins, and after the last one where it ends.
    pub(super) offsets: Vec<u64>,
    /// The lanes, in the order they were given.
    pub(super) lanes: Vec<Moved>,
}

/// Sorts edges by their keys, which are all below `rows`.
pub(super) fn sort(plan: &BuildPlan, rows: u64, keys: &Ids, lanes: &[Lane<'_>], progress: &dyn Progress) -> Sorted {
    let edges = keys.len();
    let mut offsets = vec![0; index(rows) + 1];
    let mut sorted: Vec<Moved> = lanes.iter().map(|lane| Moved::new(lane, edges)).collect();
    let mut dealt = Dealt::new(plan, lanes);
    let cursors = &mut offsets[1..];
    let passes = if plan.segments == 1 { 1 } else { 2 };
    progress.begin("sorting edges", edges as u64 * passes);
    if plan.segments == 1 {
        dealt.deal(plan, keys, 0..edges, lanes, progress);
        count(plan, &dealt, cursors);
        let buckets = begin_rows(plan, cursors);
        place(plan, &dealt, cursors, &buckets, &mut sorted);
    } else {
        for segment in segments(plan, edges) {
            dealt.deal(plan, keys, segment, &[], progress);
            count(plan, &dealt, cursors);
        }
        let buckets = begin_rows(plan, cursors);
        for segment in segments(plan, edges) {
            dealt.deal(plan, keys, segment, lanes, progress);
            place(plan, &dealt, cursors, &buckets, &mut sorted);
        }
    }
    Sorted { offsets, lanes: sorted }
}

fn segments(plan: &BuildPlan, edges: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let length = index(plan.segment_edges);
    (0..edges).step_by(length.max(1)).map(move |start| start..edges.min(start + length))
}

/// The rows of each bucket in `of_rows`.
fn by_bucket<'a>(plan: &BuildPlan, of_rows: &'a mut [u64]) -> ChunksMut<'a, u64> {
    of_rows.chunks_mut(1 << plan.bucket_rows_log2)
}

/// What every bucket has in an array that lies in the order of buckets.
fn spans<'a, T>(mut rest: &'a [T], counts: &[usize]) -> Vec<&'a [T]> {
    let mut next = |count: &usize| {
        let (span, others) = rest.split_at(*count);
        rest = others;
        span
    };
    counts.iter().map(&mut next).collect()
}

/// Adds a segment's edges to the counts of their rows.
fn count(plan: &BuildPlan, dealt: &Dealt, counts: &mut [u64]) {
    let spans = spans(&dealt.rows, &dealt.counts);
    parallel::for_each(by_bucket(plan, counts).zip(spans), |_, (counts, rows)| {
        for row in rows {
            counts[usize::from(*row)] += 1;
        }
    });
}

/// Turns counts into where each row begins. Returns how many edges every bucket has.
fn begin_rows(plan: &BuildPlan, counts: &mut [u64]) -> Vec<u64> {
    let of_buckets: Vec<&mut [u64]> = by_bucket(plan, counts).collect();
    let buckets: Vec<u64> = parallel::collect(of_buckets.len(), |bucket| of_buckets[bucket].iter().sum());
    parallel::for_each(of_buckets.into_iter().zip(begins(&buckets)), |_, (counts, mut begin)| {
        for count in counts {
            begin += std::mem::replace(count, begin);
        }
    });
    buckets
}

/// Where each bucket begins.
fn begins(buckets: &[u64]) -> Vec<u64> {
    let mut total = 0;
    let mut begin = |edges: &u64| {
        total += edges;
        total - edges
    };
    buckets.iter().map(&mut begin).collect()
}

/// Puts a segment's edges where their rows' cursors stand.
fn place(plan: &BuildPlan, dealt: &Dealt, cursors: &mut [u64], buckets: &[u64], sorted: &mut [Moved]) {
    for (from, to) in dealt.lanes.iter().zip(sorted) {
        match (from, to) {
            (Moved::Four(from), Moved::Four(to)) => place_lane(plan, dealt, cursors, buckets, from, to),
            (Moved::Eight(from), Moved::Eight(to)) => place_lane(plan, dealt, cursors, buckets, from, to),
            // Both are made from the same lanes, so widths agree.
            _ => {}
        }
    }
    let rows = spans(&dealt.rows, &dealt.counts);
    parallel::for_each(by_bucket(plan, cursors).zip(rows), |_, (cursors, rows)| {
        for row in rows {
            cursors[usize::from(*row)] += 1;
        }
    });
}

/// One array at a time keeps the places written to within the cache. Each goes over the same cursors, so they are copied.
fn place_lane<T: Copy + Send + Sync>(
    plan: &BuildPlan,
    dealt: &Dealt,
    cursors: &mut [u64],
    buckets: &[u64],
    from: &[T],
    to: &mut [T],
) {
    let (rows, values) = (spans(&dealt.rows, &dealt.counts), spans(from, &dealt.counts));
    let outputs = cut(to, buckets.iter().map(|edges| index(*edges)));
    let work = by_bucket(plan, cursors).zip(begins(buckets)).zip(rows.into_iter().zip(values).zip(outputs));
    parallel::for_each(work, |_, ((cursors, begin), ((rows, values), output))| {
        let mut own: Vec<u64> = cursors.iter().map(|cursor| cursor - begin).collect();
        for (row, value) in rows.iter().zip(values) {
            let cursor = &mut own[usize::from(*row)];
            output[index(*cursor)] = *value;
            *cursor += 1;
        }
    });
}
