//! The cases on a GPU: first the ways to do without tiers, then every share of every type.
//!
//! Tables are placed one after the other, each gone before the next: the features may fill most of either memory.

use headwater::cuda::{Gpu, Span};
use headwater::feature::TierPlan;
use headwater::graph::Progress;
use headwater::memory::{pin, upload};
use headwater::tensor::gather::{IdSlice, StagedGather};
use headwater::train::threads::bounded;

use super::figures::{Bound, Case, Gathers, Hbm, Planned, Skipped, Traffic};
use super::source::{Features, Source};
use super::stage::{DeviceLists, Stage};
use super::table::Placed;
use super::timing::Timed;
use super::traffic::{Forecast, Lists, only, reordered};
use crate::args::{BenchTierArgs, ColdOrder, stored_name};
use crate::progress::Bar;

/// Part of the free GPU memory that is left for the gathers' own use.
const SPARE_PART: usize = 8;

/// What is run.
pub struct GpuBench<'a> {
    pub args: &'a BenchTierArgs,
    pub gpu: &'a Gpu,
    pub features: &'a Features,
    pub lists: &'a Lists,
    pub forecast: &'a Forecast,
    pub bar: &'a Bar,
}

/// What the bound of a case is made of.
struct Alone {
    /// Time of the cold rows of each share.
    cold: Vec<(f64, f64)>,
    hbm: Option<Hbm>,
}

impl GpuBench<'_> {
    /// Runs all of it.
    pub fn run(&self) -> anyhow::Result<Gathers> {
        let mut found = Gathers::default();
        let own = &self.features.source;
        // What drawing took is for tables now.
        self.gpu.trim(0)?;
        let stage = Stage::new(self.gpu, self.lists, own, self.args)?;
        let lists = stage.upload(self.lists)?;
        // First what reads the file from end to end: the others find it in memory then.
        let hbm = self.hbm(&stage)?;
        let alone = self.alone(&stage, &lists, hbm, &mut found)?;
        found.baselines.hbm = hbm;
        found.baselines.cpu = Some(self.cpu(&stage, &lists)?);
        if self.args.stored.contains(&own.format.stored) {
            self.shares(&stage, own, Some(&alone), &mut found)?;
        }
        for &stored in self.args.stored.iter().filter(|stored| **stored != own.format.stored) {
            self.bar.begin(&format!("storing rows as {}", stored_name(stored)), 0);
            match self.features.encoded(stored) {
                Ok(source) => self.shares(&stage, &source, None, &mut found)?,
                Err(why) => found.skipped.push(skipped(stored_name(stored).to_owned(), &why)),
            }
        }
        Ok(found)
    }

    fn cpu(&self, stage: &Stage, lists: &DeviceLists<'_>) -> anyhow::Result<Timed> {
        self.bar.begin("CPU gather", 0);
        let own = &self.features.source;
        let gather = |at: usize, _: &Span, out: &Span| {
            let (table, ids) = (own.bytes.as_slice(), IdSlice::U64(&self.lists[at]));
            let staged = StagedGather { stream: &stage.stream, table, width_bytes: own.format.row_bytes(), ids, out };
            Ok(staged.run(bounded(self.args.cpu_threads.unwrap_or(0)))?)
        };
        stage.checked("the CPU", own, lists, &gather)
    }

    /// The plain gather in GPU memory, out of as many rows as fit.
    fn hbm(&self, stage: &Stage) -> anyhow::Result<Option<Hbm>> {
        self.bar.begin("plain gather in GPU memory", 0);
        let own = &self.features.source;
        let rows = own.rows.min(self.free_bytes()? / own.row_bytes());
        let hot = only(self.lists, |row| row < rows);
        if rows == 0 || hot.iter().all(Vec::is_empty) {
            return Ok(None);
        }
        let bytes = usize::try_from(rows * own.row_bytes())?;
        let table = upload(self.gpu, &own.bytes.as_slice()[..bytes])?;
        let gather = |_: usize, ids: &Span, out: &Span| stage.plain(&table, rows, ids, out);
        let timed = stage.checked("the plain gather in GPU memory", own, &stage.upload(&hot)?, &gather)?;
        Ok(Some(Hbm { rows, is_whole: rows == own.rows, timed }))
    }

    /// The zero-copy gather: of whole batches, and of the rows that are cold at each share.
    fn alone(
        &self,
        stage: &Stage,
        lists: &DeviceLists<'_>,
        hbm: Option<Hbm>,
        found: &mut Gathers,
    ) -> anyhow::Result<Alone> {
        self.bar.begin("zero-copy gather", self.args.shares.len() as u64);
        let own = &self.features.source;
        let table = match pin(self.gpu, &own.bytes) {
            Ok(table) => table,
            Err(why) => {
                found.skipped.push(skipped("zero-copy".to_owned(), &why.into()));
                return Ok(Alone { cold: Vec::new(), hbm });
            }
        };
        let gather = |_: usize, ids: &Span, out: &Span| stage.plain(&table, own.rows, ids, out);
        found.baselines.zero_copy = Some(stage.checked("zero-copy", own, lists, &gather)?);
        let mut cold = Vec::new();
        for &share in &self.args.shares {
            let gpu_rows = self.forecast.plan(share, own.row_bytes())?.replicated_end;
            let rows = only(self.lists, |row| row >= gpu_rows);
            let ms = if rows.iter().all(Vec::is_empty) {
                0.0
            } else {
                stage.time(&stage.upload(&rows)?, &gather)?.ms_per_batch
            };
            cold.push((share, ms));
            self.bar.advance(1);
        }
        let place = table.host_pointer().map(|start| start.as_ptr().cast_const());
        found.baselines.is_pinned_in_place = Some(place == Some(own.bytes.as_slice().as_ptr()));
        Ok(Alone { cold, hbm })
    }

    fn shares(&self, stage: &Stage, source: &Source, alone: Option<&Alone>, found: &mut Gathers) -> anyhow::Result<()> {
        let (stored, name) = (source.format.stored, stored_name(source.format.stored));
        self.bar.begin(&format!("{name} rows in tiers"), self.args.shares.len() as u64);
        let _pinned = source.pinned(self.gpu);
        for &share_percent in &self.args.shares {
            let plan = self.forecast.plan(share_percent, source.row_bytes())?;
            let placed = match self.place(source, &plan) {
                Ok(placed) => placed,
                Err(why) => {
                    found.skipped.push(skipped(format!("{name} with {share_percent}% in GPU memory"), &why));
                    continue;
                }
            };
            // Other types are there for their bytes; how cold rows lie is asked once.
            let all = if alone.is_some() { &self.args.order[..] } else { &[ColdOrder::Hotness] };
            let has_cold = plan.replicated_end < source.rows;
            for &order in all.iter().filter(|order| has_cold || **order == ColdOrder::Hotness) {
                let planned = Planned { stored, order, share_percent, plan: &plan, row_bytes: source.row_bytes() };
                let mut case = self.case(stage, source, &placed, &planned)?;
                case.bound = alone.filter(|_| order == ColdOrder::Hotness).and_then(|alone| alone.bound(&case));
                found.cases.push(case);
            }
            self.bar.advance(1);
        }
        Ok(())
    }

    fn place(&self, source: &Source, plan: &TierPlan) -> anyhow::Result<Placed> {
        let scales_bytes = 4 * source.scales.len() as u64;
        let need = plan.replicated_end.saturating_mul(source.row_bytes()).saturating_add(scales_bytes);
        let free = self.free_bytes()?;
        anyhow::ensure!(need <= free, "{need} bytes of rows find {free} free bytes of GPU memory");
        Placed::new(self.gpu, source, plan, self.features.source.format.stored)
    }

    fn case(&self, stage: &Stage, source: &Source, placed: &Placed, planned: &Planned<'_>) -> anyhow::Result<Case> {
        let gpu_rows = planned.plan.replicated_end;
        let host = reordered(self.lists, planned.order, gpu_rows, source.rows, self.args.seed);
        let lists = stage.upload(&host)?;
        let gather = |_: usize, ids: &Span, out: &Span| placed.gather(&stage.stream, ids, out);
        stage.check("the table", source, &lists, &gather)?;
        let before = placed.served(&stage.stream)?;
        let timed = stage.time(&lists, &gather)?;
        let after = placed.served(&stage.stream)?;
        let traffic = Traffic {
            gpu_rows: after.gpu_rows - before.gpu_rows,
            host_rows: after.host_rows - before.host_rows,
            gathers: stage.gathers_a_batch() * self.lists.len() as u64,
        };
        Ok(planned.counted(traffic, Some(timed)))
    }

    fn free_bytes(&self) -> anyhow::Result<u64> {
        let free = self.gpu.memory()?.free_bytes;
        Ok((free - free / SPARE_PART) as u64)
    }
}

impl Alone {
    fn bound(&self, case: &Case) -> Option<Bound> {
        let cold_alone_ms = self.cold.iter().find(|(share, _)| *share == case.share_percent)?.1;
        let timed = case.timed?;
        let batch_bytes = timed.gb_per_s * timed.ms_per_batch * 1e6;
        let hot_ms = case.hit_rate * batch_bytes / self.hbm?.timed.gb_per_s / 1e6;
        let bound_ms = cold_alone_ms + hot_ms;
        Some(Bound { cold_alone_ms, hot_ms, bound_ms, ratio: timed.ms_per_batch / bound_ms })
    }
}

fn skipped(what: String, why: &anyhow::Error) -> Skipped {
    Skipped { what, why: format!("{why:#}") }
}
