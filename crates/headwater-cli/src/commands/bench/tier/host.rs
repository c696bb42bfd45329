//! Without a GPU: the CPU gather is timed, and traffic is what the ids say.

use headwater::feature::Stored;
use headwater::memory::{Buffer, Host};
use headwater::tensor::gather::{IdSlice, gather_host};
use headwater::train::threads::bounded;

use super::figures::{Case, Gathers, Planned, Skipped};
use super::source::Features;
use super::timing::{Timed, Work};
use super::traffic::{Forecast, Lists, counted};
use crate::args::{BenchTierArgs, ColdOrder, stored_name};

/// What is run.
pub struct HostBench<'a> {
    pub args: &'a BenchTierArgs,
    pub features: &'a Features,
    pub lists: &'a Lists,
    pub forecast: &'a Forecast,
}

impl HostBench<'_> {
    /// Runs all of it.
    pub fn run(&self) -> anyhow::Result<Gathers> {
        let mut found = Gathers::default();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(bounded(self.args.cpu_threads.unwrap_or(0))).build()?;
        found.baselines.cpu = Some(pool.install(|| self.cpu())?);
        for &stored in &self.args.stored {
            match self.features.format_as(stored) {
                Ok(format) => {
                    let case = |&share| self.case(stored, share, format.row_bytes() as u64);
                    found.cases.extend(self.args.shares.iter().map(case).collect::<anyhow::Result<Vec<_>>>()?);
                }
                Err(why) => {
                    found.skipped.push(Skipped { what: stored_name(stored).to_owned(), why: format!("{why:#}") })
                }
            }
        }
        Ok(found)
    }

    fn cpu(&self) -> anyhow::Result<Timed> {
        let (bytes, width) = (self.features.source.bytes.as_slice(), self.features.source.format.row_bytes());
        let longest = self.lists.iter().map(Vec::len).max().unwrap_or(0);
        let mut out = Buffer::<u8, Host>::new(longest * width)?;
        let all = self.lists.iter().map(|list| (list.len() * width) as u64).sum();
        let work = Work { rounds: self.args.rounds, batches: self.lists.len(), bytes: all };
        work.on_host(&mut |at| {
            let ids = &self.lists[at];
            Ok(gather_host(bytes, width, IdSlice::U64(ids), &mut out.as_mut_slice()[..ids.len() * width])?)
        })
    }

    fn case(&self, stored: Stored, share_percent: f64, row_bytes: u64) -> anyhow::Result<Case> {
        let plan = self.forecast.plan(share_percent, row_bytes)?;
        let planned = Planned { stored, order: ColdOrder::Hotness, share_percent, plan: &plan, row_bytes };
        Ok(planned.counted(counted(self.lists, plan.replicated_end), None))
    }
}
