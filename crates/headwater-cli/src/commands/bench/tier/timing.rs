//! How long batches take: every batch in every round, on the GPU's clock or on the host's.

use std::time::Instant;

use headwater::cuda::{Event, Stream};
use serde::Serialize;

use crate::commands::bench::gather_gpu::median_and_spread;

/// The time of a batch.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Timed {
    /// The mean over the batches of each one's median over the rounds.
    pub ms_per_batch: f64,
    /// The range of the rounds over their median.
    pub spread: f64,
    /// Bytes of all rows that came out, over the time.
    pub gb_per_s: f64,
}

/// What is timed: batches whose rows have so many bytes together.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub rounds: usize,
    pub batches: usize,
    pub bytes: u64,
}

impl Work {
    /// Times `gather` of each batch by events, and not what is queued `before` it. A round warms up before the first that
    /// counts.
    pub fn on_stream(
        self,
        stream: &Stream,
        before: &dyn Fn() -> anyhow::Result<()>,
        gather: &dyn Fn(usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<Timed> {
        let mark = || Event::timed(stream.gpu());
        let marks = (0..self.batches).map(|_| Ok((mark()?, mark()?))).collect::<anyhow::Result<Vec<_>>>()?;
        let mut rounds = Vec::new();
        for _ in 0..=self.rounds {
            for (at, (begun, ended)) in marks.iter().enumerate() {
                before()?;
                begun.record_on(stream)?;
                gather(at)?;
                ended.record_on(stream)?;
            }
            stream.synchronize()?;
            let seconds = |(begun, ended): &(Event, Event)| Ok(f64::from(ended.ms_since(begun)?) / 1e3);
            rounds.push(marks.iter().map(seconds).collect::<anyhow::Result<Vec<f64>>>()?);
        }
        Ok(self.timed(&rounds[1..]))
    }

    /// Times `gather` of each batch by the host's clock.
    pub fn on_host(self, gather: &mut dyn FnMut(usize) -> anyhow::Result<()>) -> anyhow::Result<Timed> {
        let mut rounds = Vec::new();
        for _ in 0..=self.rounds {
            let mut seconds = Vec::new();
            for at in 0..self.batches {
                let begun = Instant::now();
                gather(at)?;
                seconds.push(begun.elapsed().as_secs_f64());
            }
            rounds.push(seconds);
        }
        Ok(self.timed(&rounds[1..]))
    }

    fn timed(self, rounds: &[Vec<f64>]) -> Timed {
        let median_of = |at: usize| median_and_spread(&mut rounds.iter().map(|round| round[at]).collect::<Vec<_>>()).0;
        let all_s: f64 = (0..self.batches).map(median_of).sum();
        let mut totals: Vec<f64> = rounds.iter().map(|round| round.iter().sum()).collect();
        let (_, spread) = median_and_spread(&mut totals);
        let ms_per_batch = 1e3 * all_s / self.batches as f64;
        Timed { ms_per_batch, spread, gb_per_s: self.bytes as f64 / all_s / 1e9 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_have_medians_and_rounds_a_range() {
        let work = Work { rounds: 3, batches: 2, bytes: 8_000_000 };
        let timed = work.timed(&[vec![1e-3, 3e-3], vec![2e-3, 3e-3], vec![9e-3, 3e-3]]);
        assert!((timed.ms_per_batch - 2.5).abs() < 1e-9, "{timed:?}");
        assert!((timed.spread - 8.0 / 5.0).abs() < 1e-9, "{timed:?}");
        assert!((timed.gb_per_s - 1.6).abs() < 1e-9, "{timed:?}");
    }
}
