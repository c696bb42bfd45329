//! Every score on batches that none of them has seen, beside the order of their own counts, which none can beat.

use std::time::Instant;

use anyhow::Context;
use headwater::feature::Curve;
use headwater::graph::Progress;
use headwater::graph::reorder::Permutation;
use headwater::graph::score::{Outgoing, Purpose, Score, Workload, in_order};
use serde::Serialize;

use crate::args::{BenchTierArgs, ScoreSet};
use crate::progress::Bar;

/// Percent of the rows at which scores are compared.
pub const SHARES: [f64; 3] = [5.0, 10.0, 25.0];

/// How well scores tell what batches read.
#[derive(Debug, Serialize)]
pub struct Comparison {
    pub share_percent: [f64; 3],
    /// The batches' own counts.
    pub oracle: [f64; 3],
    pub scores: Vec<Entry>,
    /// Batches that `presampled` is made from.
    pub presample: u64,
    /// Batches that hit rates are counted over.
    pub counted: u64,
}

/// One score.
#[derive(Debug, Serialize)]
pub struct Entry {
    pub score: Score,
    pub seconds: f64,
    /// Part of the reads that go to the first rows.
    pub hit_rate: [f64; 3],
    /// How much of that the oracle has more.
    pub below_oracle: [f64; 3],
}

/// Batches of an epoch that are counted at most when nobody says how many.
const MOST_COUNTED: u64 = 2048;

/// What is compared: reads of each node of one type.
pub struct Compare<'a> {
    pub run: &'a Workload,
    pub outgoing: &'a Outgoing,
    pub table_type: usize,
}

impl Compare<'_> {
    /// Works out the scores that were asked for, and gives the order that rows shall have.
    pub fn all(&self, args: &BenchTierArgs, bar: &Bar) -> anyhow::Result<(Comparison, Permutation)> {
        let counted = args.counted.unwrap_or_else(|| self.run.batches_per_epoch().clamp(1, MOST_COUNTED));
        let presample = args.presample.unwrap_or(counted);
        let mut reads = self.run.reads(Purpose::Measurement, counted, bar)?;
        let counts = reads.counts.swap_remove(self.table_type);
        let oracle = hit_rates(&counts, &Permutation::by_degree(&counts)?);
        let (mut scores, mut chosen) = (Vec::new(), None);
        for score in wanted(args) {
            bar.begin(&format!("scoring by {}", score.name()), 0);
            let begun = Instant::now();
            let of_types = score.of(self.run, self.outgoing, presample, bar)?;
            let seconds = begun.elapsed().as_secs_f64();
            let order = Permutation::by_degree(&of_types[self.table_type])?;
            let hit_rate = hit_rates(&counts, &order);
            let below_oracle = std::array::from_fn(|at| oracle[at] - hit_rate[at]);
            scores.push(Entry { score, seconds, hit_rate, below_oracle });
            if score == args.score {
                chosen = Some(order);
            }
        }
        let comparison = Comparison { share_percent: SHARES, oracle, scores, presample, counted };
        Ok((comparison, chosen.context("the score was not worked out")?))
    }
}

/// Those that were named and the one that orders, each once, in the library's order.
fn wanted(args: &BenchTierArgs) -> Vec<Score> {
    let is_wanted = |score: &Score| {
        *score == args.score
            || args.scores.iter().any(|set| matches!(set, ScoreSet::All) || *set == ScoreSet::One(*score))
    };
    Score::ALL.into_iter().filter(is_wanted).collect()
}

fn hit_rates(counts: &[u64], order: &Permutation) -> [f64; 3] {
    let curve = Curve::of(in_order(order, counts));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of the rows")]
    let rows = |percent: f64| (percent / 100.0 * curve.rows() as f64) as u64;
    SHARES.map(|percent| curve.share(rows(percent)))
}
