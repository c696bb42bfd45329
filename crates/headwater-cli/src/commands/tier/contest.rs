//! Scores against each other, on batches none of them has seen.

use std::time::Instant;

use headwater::feature::{Demand, Links, Room, RowFormat, SharedPlan, Stored, choose_padding};
use headwater::graph::Progress;
use headwater::graph::reorder::Permutation;
use headwater::graph::score::{Outgoing, Score, Workload, hottest_first};
use serde::Serialize;

use super::tables::{Point, Seen};
use crate::progress::Bar;

/// How well a score does.
#[derive(Debug, Serialize)]
pub struct Entry {
    pub score: Score,
    /// For the score alone.
    pub seconds: f64,
    /// On the batches that forecasts are made from.
    pub forecast: Vec<Point>,
    /// On the batches that only measure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Vec<Point>>,
}

/// The score that won.
pub struct Winner {
    pub score: Score,
    pub order: Vec<Permutation>,
    pub plan: SharedPlan,
    /// Bytes an epoch that each tier gives to the batches that only measure.
    pub counted_bytes: Option<[f64; 4]>,
    /// Bytes from a row to the next, of each table: more than a row where rows had better begin on lines.
    pub stride_bytes: Vec<usize>,
    /// Mean of its hit rates, which decides between plans that take as long.
    mean_hit_rate: f64,
}

/// What scores are compared on.
pub struct Contest<'a> {
    pub run: &'a Workload,
    pub outgoing: &'a Outgoing,
    /// Batches for the score that draws some.
    pub presample: u64,
    pub forecast: &'a Seen<'a>,
    pub measured: Option<&'a Seen<'a>>,
    pub room: Room,
    pub links: Links,
}

impl Contest<'_> {
    /// The winner is the best of `candidates`; `all` are shown. Only the best order so far is kept.
    pub fn hold(&self, all: &[Score], candidates: &[Score], bar: &Bar) -> anyhow::Result<(Vec<Entry>, Option<Winner>)> {
        let (mut entries, mut best) = (Vec::new(), None::<Winner>);
        for &score in all {
            bar.begin(&format!("scoring by {}", score.name()), 0);
            let begun = Instant::now();
            let scores = score.of(self.run, self.outgoing, self.presample, bar)?;
            let seconds = begun.elapsed().as_secs_f64();
            let order = hottest_first(&scores)?;
            drop(scores);
            let forecast = self.forecast.curves(&order).points();
            let measured = self.measured.map(|seen| seen.curves(&order).points());
            if candidates.contains(&score) {
                let candidate = self.candidate(score, order, &forecast)?;
                best = Some(match best {
                    Some(best) => best.better_of(candidate),
                    None => candidate,
                });
            }
            entries.push(Entry { score, seconds, forecast, measured });
        }
        Ok((entries, best))
    }

    fn candidate(&self, score: Score, order: Vec<Permutation>, forecast: &[Point]) -> anyhow::Result<Winner> {
        let curves = self.forecast.curves(&order);
        let demands = curves.demands();
        let plan = SharedPlan::new(&demands, &self.room, &self.links)?;
        let stride_bytes = demands.iter().map(|demand| self.stride_bytes(demand)).collect::<anyhow::Result<_>>()?;
        let counted_bytes = self.measured.map(|seen| plan.bytes_per_epoch(&seen.curves(&order).demands()));
        let mean_hit_rate = forecast.iter().map(|point| point.hit_rate).sum::<f64>() / forecast.len() as f64;
        Ok(Winner { score, order, plan, counted_bytes, stride_bytes, mean_hit_rate })
    }

    fn stride_bytes(&self, demand: &Demand<'_>) -> anyhow::Result<usize> {
        let packed = RowFormat::packed(usize::try_from(demand.row_bytes)?, Stored::Raw);
        // Alone in the room, which is where padding costs least; what it saves on the link is the same.
        let room = Room { has_disk: true, ..self.room };
        Ok(choose_padding(packed, demand, &room, &self.links)?.stride_bytes)
    }
}

impl Winner {
    /// The shorter epoch wins.
    fn better_of(self, other: Self) -> Self {
        let by_time = self.plan.seconds_per_epoch.total_cmp(&other.plan.seconds_per_epoch);
        if by_time.then(other.mean_hit_rate.total_cmp(&self.mean_hit_rate)).is_le() { self } else { other }
    }
}
