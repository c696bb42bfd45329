//! `bench gather` on a GPU: each variant timed by events on its stream, checked against the table, beside a plain copy.

use std::time::Instant;

use anyhow::{Context, bail, ensure};
use headwater::cuda::{Event, Gpu, SmShare, Span, Stream};
use headwater::memory::{self, Buffer, Device, Pinned};
use headwater::tensor::gather::plan::Plan;
use headwater::tensor::gather::{GatherOptions, GpuGather, IdType, Variant};
use headwater::train::threads::bounded;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

use super::gather_steps::{Step, variants};
use super::gather_view::{Row, View};
use super::usage::Meter;
use crate::args::GatherArgs;

/// Rows compared with the table after each variant's first run.
const CHECKED_ROWS: usize = 4096;
const MOST_REPEATS: usize = 200;

/// Runs every step.
pub fn run(args: &GatherArgs, gpu: &Gpu, steps: &[Step], view: &mut View) -> anyhow::Result<()> {
    let variants = variants(args);
    let progress = ProgressBar::new((steps.len() * variants.len()) as u64)
        .with_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {eta}")?);
    let mut table: Option<Buffer<u8, Pinned>> = None;
    for step in steps {
        let bytes = usize::try_from(step.table_bytes)?;
        if table.as_ref().is_none_or(|table| table.len() < bytes) {
            progress.set_message(format!("pinning {:.1} GiB", bytes as f64 / (1u64 << 30) as f64));
            // The old table goes first: both may not fit.
            drop(table.take());
            let fill = |made: &mut [u8]| -> memory::Result<()> {
                fill_table(made);
                Ok(())
            };
            table = Some(Buffer::<u8, Pinned>::filled(gpu, bytes, fill).context("pinning the table")?);
        }
        let Some(table) = &table else { continue };
        let bench = Bench::new(args, gpu, step, table)?;
        let mut rows = Vec::new();
        for variant in &variants {
            progress.set_message(format!("{} B {}", step.width_bytes, variant.name()));
            rows.push(bench.measure(*variant, None)?);
            progress.inc(1);
        }
        for tune in &args.tune {
            rows.push(bench.measure(Variant::Sorted, Some(tune))?);
        }
        progress.suspend(|| view.rows(rows))?;
    }
    progress.finish_and_clear();
    Ok(())
}

/// One step, ready to be run in any variant.
struct Bench<'a> {
    args: &'a GatherArgs,
    step: &'a Step,
    stream: Stream,
    table: Span,
    host_table: &'a [u8],
    table_rows: u64,
    ids: Vec<u32>,
    device_ids: Buffer<u32, Device>,
    out: Buffer<u8, Device>,
    meter: Meter,
    ideal_gb_per_s: f64,
}

impl<'a> Bench<'a> {
    #[expect(unsafe_code, reason = "CPU threads gather from the table that kernels read")]
    fn new(args: &'a GatherArgs, gpu: &Gpu, step: &'a Step, table: &'a Buffer<u8, Pinned>) -> anyhow::Result<Self> {
        let stream = Stream::new(gpu)?;
        let table_rows = step.table_bytes / step.width_bytes;
        let table_bytes = usize::try_from(table_rows * step.width_bytes)?;
        let ids = random_ids(args.seed, step.rows, table_rows);
        let device_ids = Buffer::from_slice(&stream, &ids)?;
        let out_bytes = usize::try_from(step.rows * step.width_bytes)?;
        let out = Buffer::on_stream(&stream, out_bytes)?;
        // SAFETY: gathers read their table, and nothing else is queued on it.
        let host_table = &unsafe { table.as_slice() }?[..table_bytes];
        let part = |bytes| table.part(0..bytes).context("the table is shorter than a step needs");
        let mut bench = Self {
            args,
            step,
            table: part(table_bytes)?,
            host_table,
            table_rows,
            ids,
            device_ids,
            out,
            meter: Meter::new(gpu),
            ideal_gb_per_s: 0.0,
            stream,
        };
        // The table is at least as long as the output in every suite but the smallest; a copy of what there is serves.
        let ideal = part(out_bytes.min(table_bytes))?;
        let landing = bench.out.part(0..ideal.bytes()).context("the output is shorter than the copy")?;
        let timed = bench.time(&|| Ok(bench.stream.copy(&ideal, &landing)?))?;
        bench.ideal_gb_per_s = ideal.bytes() as f64 / timed.median_s / 1e9;
        Ok(bench)
    }

    fn measure(&self, variant: Variant, tune: Option<&str>) -> anyhow::Result<Row> {
        let threads = bounded(self.args.cpu_threads.unwrap_or_else(spare_threads));
        let helps = matches!(variant, Variant::Cpu | Variant::Hybrid);
        let gather = GpuGather {
            stream: &self.stream,
            table: &self.table,
            host_table: Some(self.host_table),
            rows: self.table_rows,
            width_bytes: self.step.width_bytes,
            ids: self.device_ids.whole(),
            id_type: IdType::U32,
            out: self.out.whole(),
            options: GatherOptions {
                variant,
                share: self.step.sms.map_or(SmShare::All, SmShare::AtMost),
                cpu_threads: if helps { threads } else { 0 },
            },
        };
        self.stream.fill(self.out.whole(), 0xa5)?;
        let mut plan = gather.plan();
        if let Some(tune) = tune {
            retune(&mut plan, tune)?;
        }
        gather.run_plan(&plan)?;
        self.check(variant)?;
        let timed = self.time(&|| Ok(gather.run_plan(&plan)?))?;
        let gathered_bytes = self.out.len() as f64;
        let gb_per_s = gathered_bytes / timed.median_s / 1e9;
        Ok(Row {
            suite: self.step.suite.into(),
            table_bytes: self.step.table_bytes,
            width_bytes: self.step.width_bytes,
            rows: self.step.rows,
            distinct_rows: Some(distinct(&self.ids)),
            variant: tune.map_or(variant.name().into(), |tune| format!("sorted:{tune}")),
            chosen: plan.variant.name().into(),
            gb_per_s,
            ideal_gb_per_s: Some(self.ideal_gb_per_s),
            share_of_ideal: Some(gb_per_s / self.ideal_gb_per_s),
            spread: timed.spread,
            repeats: timed.repeats,
            cpu_seconds: timed.cpu_seconds,
            cpu_cores: timed.cpu_cores,
            joules: timed.joules,
            sms: self.step.sms,
        })
    }

    /// Times `work` by events until enough has been seen. The host sleeps meanwhile, so that its CPU time is the work's;
    /// a few runs are queued at a time, so that waking up is a small part of it.
    fn time(&self, work: &dyn Fn() -> anyhow::Result<()>) -> anyhow::Result<Timed> {
        const QUEUED: usize = 8;
        let gpu = self.stream.gpu();
        let marks = (0..=QUEUED).map(|_| Event::timed(gpu)).collect::<Result<Vec<_>, _>>()?;
        work()?;
        self.stream.synchronize()?;
        let (mut times, begun, mark) = (Vec::new(), Instant::now(), self.meter.mark());
        while begun.elapsed().as_millis() < u128::from(self.args.least_ms) && times.len() < MOST_REPEATS {
            marks[0].record_on(&self.stream)?;
            for mark in &marks[1..] {
                work()?;
                mark.record_on(&self.stream)?;
            }
            marks[QUEUED].synchronize()?;
            for pair in marks.windows(2) {
                times.push(f64::from(pair[1].ms_since(&pair[0])?) / 1e3);
            }
        }
        let used = self.meter.since(&mark);
        let wall_s = begun.elapsed().as_secs_f64();
        let repeats = times.len();
        let (median_s, spread) = median_and_spread(&mut times);
        Ok(Timed {
            median_s,
            spread,
            repeats,
            cpu_seconds: used.cpu_seconds / repeats as f64,
            cpu_cores: used.cpu_seconds / wall_s,
            joules: used.joules.map(|joules| joules / repeats as f64),
        })
    }

    fn check(&self, variant: Variant) -> anyhow::Result<()> {
        self.stream.synchronize()?;
        let width = usize::try_from(self.step.width_bytes)?;
        let rows = self.ids.len();
        for at in (0..rows).step_by(rows.div_ceil(CHECKED_ROWS).max(1)) {
            let mut got = vec![0; width];
            let span = self.out.part(at * width..(at + 1) * width).context("a row outside the output")?;
            self.stream.download(&span, &mut got)?;
            let from = self.ids[at] as usize * width;
            ensure!(got == self.host_table[from..from + width], "{} gathered row {at} wrongly", variant.name());
        }
        Ok(())
    }
}

struct Timed {
    median_s: f64,
    spread: f64,
    repeats: usize,
    cpu_seconds: f64,
    cpu_cores: f64,
    joules: Option<f64>,
}

/// Replaces a plan's launch by BLOCKSxTHREADSxDEPTHxLANESxCLAIMS.
fn retune(plan: &mut Plan, tune: &str) -> anyhow::Result<()> {
    let numbers: Vec<u32> =
        tune.split('x').map(str::parse).collect::<Result<_, _>>().context("--tune takes numbers")?;
    let [blocks, threads, depth, lanes, claims] = numbers[..] else {
        bail!("--tune takes BLOCKSxTHREADSxDEPTHxLANESxCLAIMS, as 16x512x2x32x1")
    };
    (plan.blocks, plan.threads, plan.claims) = (blocks, threads, claims == 1);
    (plan.lanes.depth, plan.lanes.per_row) = (depth, lanes);
    Ok(())
}

/// The median, and the range over it. Sorts.
pub fn median_and_spread(times: &mut [f64]) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2].max(f64::MIN_POSITIVE);
    (median, (times[times.len() - 1] - times[0]) / median)
}

/// How many different ids there are.
pub fn distinct(ids: &[u32]) -> u64 {
    let mut ids = ids.to_vec();
    ids.par_sort_unstable();
    ids.dedup();
    ids.len() as u64
}

/// Uniformly random ids from a counter, the same for a seed on every machine.
pub fn random_ids(seed: u64, count: u64, rows: u64) -> Vec<u32> {
    let random = |i: u64| u128::from(mix(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i));
    let scaled = |i: u64| (random(i) * u128::from(rows)) >> 64;
    (0..count).into_par_iter().map(|i| u32::try_from(scaled(i)).unwrap_or(u32::MAX)).collect()
}

/// Fills a table so that every row is different from every other.
pub fn fill_table(table: &mut [u8]) {
    const BLOCK: usize = 1 << 20;
    table.par_chunks_mut(BLOCK).enumerate().for_each(|(block, bytes)| {
        for (i, word) in bytes.chunks_mut(8).enumerate() {
            let value = mix((block * (BLOCK / 8) + i) as u64).to_le_bytes();
            word.copy_from_slice(&value[..word.len()]);
        }
    });
}

/// Splitmix64: a bijection whose output looks random.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn spare_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(2).max(1))
}
