//! How reads spread with the number of hops: the data-tiering paper's figure 9.

use headwater::graph::sample::SampleOptions;
use headwater::graph::score::{Outgoing, Purpose, Score, Workload, hottest_first};
use serde::Serialize;

use super::tables::{Point, Seen, Table};
use crate::progress::Bar;

/// The fan-out of every hop.
const FANOUT: i64 = 10;
/// Deep batches reach most of a graph, so a few say enough.
const MOST_BATCHES: u64 = 16;
/// The scores of the figure. Neither depends on hops.
const SCORES: [Score; 2] = [Score::WeightedPagerank, Score::OutDegree];

/// One line of the figure.
#[derive(Debug, Serialize)]
pub struct Depth {
    pub hops: usize,
    pub score: Score,
    /// Part of all nodes that a batch reads.
    pub batch_share: f64,
    pub measured: Vec<Point>,
}

/// What a sweep is made on.
pub struct Sweep<'a> {
    pub run: &'a Workload,
    pub outgoing: &'a Outgoing,
    pub tables: &'a [Table],
    /// Batches of each depth.
    pub batches: u64,
}

impl Sweep<'_> {
    /// Every number of hops with every score.
    pub fn over(&self, depths: &[usize], bar: &Bar) -> anyhow::Result<Vec<Depth>> {
        if depths.is_empty() {
            return Ok(Vec::new());
        }
        let order = |score: &Score| Ok((*score, hottest_first(&score.of(self.run, self.outgoing, 0, bar)?)?));
        let orders = SCORES.iter().map(order).collect::<anyhow::Result<Vec<_>>>()?;
        let mut found = Vec::new();
        for &hops in depths {
            let deep = self.run.with_options(SampleOptions::fanouts(&vec![FANOUT; hops])?)?;
            let reads = deep.reads(Purpose::Measurement, self.batches.min(MOST_BATCHES), bar)?;
            let batch_share = reads.nodes as f64 / reads.batches.max(1) as f64 / self.run.graph().nodes().max(1) as f64;
            let seen = Seen::new(self.tables, reads, &deep);
            let depth = |(score, order): &(Score, Vec<_>)| Depth {
                hops,
                score: *score,
                batch_share,
                measured: seen.curves(order).points(),
            };
            found.extend(orders.iter().map(depth));
        }
        Ok(found)
    }
}
