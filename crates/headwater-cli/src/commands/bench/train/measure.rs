//! One measurement: some batches to warm up, then as many as were asked for.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use headwater::cuda::Gpu;
use headwater::train::gpu::company::Company;
use headwater::train::gpu::plan::Mode;
use headwater::train::gpu::timeline::{Stage, Stretch};
use headwater::train::run_config::Features;
use headwater::train::task::Task;
use headwater::train::trainer::{EpochReport, Listener, Trainer};
use serde::Serialize;

use super::super::usage::{Mark, Meter, Used};
use super::Plan;
use crate::args::BenchTrainArgs;
use crate::commands::train::trace;

/// Steps of the same batch that are timed, alone and beside other stages.
const TIMED: u32 = 20;

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    pub suite: String,
    pub shape: String,
    pub nodes: u64,
    pub edges: u64,
    pub width: usize,
    pub model: String,
    pub features: String,
    pub batch: usize,
    pub batches: u64,
    /// Of one batch after the other, all stages overlapped.
    pub batch_ms: f64,
    /// Half of the batches took no longer.
    pub median_ms: f64,
    /// What only a GPU has; absent for a run on the CPU.
    #[serde(flatten)]
    pub on_gpu: Option<GpuFigures>,
    /// CPU cores that were busy.
    pub cores: f64,
    pub watts: Option<f64>,
    pub joules_per_epoch: Option<f64>,
    pub epoch_s: f64,
    pub loss: f64,
    /// Kernels of a step and their milliseconds, where somebody asked for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<(String, f64)>,
}

/// What was measured of a GPU. Stages are timed by its clock; they overlap, so they may add up to more than a batch.
#[derive(Debug, Clone, Serialize)]
pub struct GpuFigures {
    /// Rows of features in GPU memory.
    pub hot_rows: u64,
    pub gather_sms: u32,
    /// Translations of host addresses that a gather had under way in the end.
    pub gather_window: Option<u64>,
    pub sample_ms: f64,
    pub blocks_ms: f64,
    pub gather_ms: f64,
    pub train_ms: f64,
    /// A step with nothing beside it.
    pub step_alone_ms: Option<f64>,
    /// A step alone, and while another stage goes on without a pause.
    pub step_beside_ms: Vec<(Company, f64)>,
    /// A batch that is drawn and gathered while nobody trains.
    pub load_ms: Option<f64>,
    /// Part of the time in which at least one stage was running on the GPU.
    pub busy: f64,
    /// Rows of a batch, and how many of them came out of host memory.
    pub rows: f64,
    pub host_rows: f64,
    /// Megabytes of features that crossed the link for a batch, as they are stored where the GPU reads them.
    pub link_mb: f64,
}

/// What to measure.
pub struct Measure<'a> {
    pub args: &'a BenchTrainArgs,
    pub gpu: Option<&'a Gpu>,
    pub task: &'a Arc<Task>,
    pub plan: &'a Plan,
}

impl Measure<'_> {
    pub fn run(&self) -> anyhow::Result<Measured> {
        let (args, plan) = (self.args, self.plan);
        let config = plan.config(args)?;
        let folder = Folder::new(plan);
        let is_on_cpu = plan.features == Features::Memory;
        let task = Arc::clone(self.task);
        let mut trainer = match self.gpu.filter(|_| !is_on_cpu) {
            Some(gpu) => Trainer::open_on(gpu, config, task, &folder.0)?,
            None => Trainer::open(config, task, &folder.0)?,
        };
        trainer.keep_timeline();
        // A CPU takes as long for one batch as a GPU for hundreds.
        let (warm, batches) = if is_on_cpu { (1, 4) } else { (144, 64) };
        let window = Window::new(self.gpu, args.warm.unwrap_or(warm), args.batches.unwrap_or(batches));
        while !window.is_over() {
            trainer.train_epoch(&window)?;
        }
        // Steps are timed on the last batch, which is a whole one if the epoch neither begins nor ends there.
        let whole = 4..(self.batches_per_epoch() as u64).saturating_sub(4);
        for _ in (0..9).filter(|_| !is_on_cpu && !whole.is_empty()) {
            if whole.contains(&window.seen.borrow().done) {
                break;
            }
            let one = Window::new(None, 0, 1);
            trainer.train_epoch(&one)?;
            window.seen.borrow_mut().done = one.seen.borrow().done;
        }
        self.measured(&mut trainer, &window)
    }

    fn batches_per_epoch(&self) -> usize {
        self.task.train.len().div_ceil(self.args.batch)
    }

    fn measured(&self, trainer: &mut Trainer, window: &Window) -> anyhow::Result<Measured> {
        let Self { args, task, plan, .. } = self;
        let seen = window.seen.borrow();
        let batches = seen.times.len().saturating_sub(1).max(1) as u64;
        let seconds = seen.seconds();
        let stretches = trainer.timeline();
        if let Some(path) = &args.trace {
            trace::write(path, &stretches, &[])?;
        }
        let on_gpu = match trainer.feature_mode() {
            Some(mode) => Some(self.on_gpu(trainer, mode, &stretches, (seen.skipped, batches))?),
            None => None,
        };
        let width = task.widths().first().copied().flatten().unwrap_or(0);
        let per_epoch = self.batches_per_epoch() as f64;
        let used = seen.used;
        Ok(Measured {
            suite: format!("{:?}", plan.suite).to_lowercase(),
            shape: plan.shape.clone(),
            nodes: task.graph.nodes(),
            edges: task.graph.edges(),
            width,
            model: plan.model.clone(),
            features: plan.features.name().to_owned(),
            batch: args.batch,
            batches,
            batch_ms: 1e3 * seconds / batches as f64,
            median_ms: seen.median_ms(),
            on_gpu,
            cores: used.map_or(0.0, |used| used.cpu_seconds / seconds),
            watts: used.and_then(|used| used.joules).map(|joules| joules / seconds),
            joules_per_epoch: used.and_then(|used| used.joules).map(|joules| joules / batches as f64 * per_epoch),
            epoch_s: seconds / batches as f64 * per_epoch,
            loss: seen.loss,
            kernels: if args.kernels { trainer.kernels()? } else { Vec::new() },
        })
    }

    /// `counted` says how many batches are left out, and how many behind them count.
    fn on_gpu(
        &self,
        trainer: &mut Trainer,
        mode: Mode,
        stretches: &[Stretch],
        counted: (usize, u64),
    ) -> anyhow::Result<GpuFigures> {
        let (skipped, batches) = counted;
        let by_batch = stretches.chunk_by(|one, next| one.batch == next.batch);
        let counted = usize::try_from(batches).unwrap_or(usize::MAX);
        let own: Vec<&Stretch> = by_batch.skip(skipped).take(counted).flatten().collect();
        let mean = |stage: Stage| {
            let all: Vec<f64> =
                own.iter().filter(|own| own.stage == stage).map(|own| own.end_ms - own.begin_ms).collect();
            // Nothing sums up to -0 otherwise.
            all.iter().fold(0.0, |sum, ms| sum + ms) / all.len().max(1) as f64
        };
        let all_batches = stretches.iter().filter(|stretch| stretch.stage == Stage::Gather).count().max(1) as f64;
        let served = trainer.feature_rows()?;
        let (hot, host) = (served.gpu_rows as f64 / all_batches, served.host_rows as f64 / all_batches);
        let mut step_beside_ms = Vec::new();
        for company in Company::ALL {
            step_beside_ms.extend(trainer.repeat_step(TIMED, company)?.map(|ms| (company, ms)));
        }
        Ok(GpuFigures {
            hot_rows: match mode {
                Mode::Tiered { hot_rows } => hot_rows,
                Mode::AllGpu => self.task.graph.nodes(),
                _ => 0,
            },
            gather_sms: self.plan.gather_sms,
            gather_window: trainer.gather_window(),
            sample_ms: mean(Stage::Sample),
            blocks_ms: mean(Stage::Blocks),
            gather_ms: mean(Stage::Gather),
            train_ms: mean(Stage::Train),
            step_alone_ms: step_beside_ms.first().map(|(_, ms)| *ms),
            step_beside_ms,
            load_ms: trainer.load(batches)?,
            busy: busy(&own),
            rows: hot + host,
            host_rows: host,
            link_mb: served.link_bytes as f64 / all_batches / 1e6,
        })
    }
}

/// A folder of a run that nobody keeps.
struct Folder(PathBuf);

impl Folder {
    fn new(plan: &Plan) -> Self {
        let name = format!("headwater-bench-{}-{}-{}", std::process::id(), plan.model, plan.features.name());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The part of the time, from the first to the last of these stretches, that at least one of them covers.
fn busy(stretches: &[&Stretch]) -> f64 {
    let mut all: Vec<(f64, f64)> = stretches.iter().map(|own| (own.begin_ms, own.end_ms)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some((first, _)) = all.first().copied() else { return 0.0 };
    let (mut covered, mut end) = (0.0, first);
    for (from, to) in all {
        covered += (to - from.max(end)).max(0.0);
        end = end.max(to);
    }
    if end > first { covered / (end - first) } else { 0.0 }
}

/// Looks at the batches behind the first ones.
struct Window {
    meter: Meter,
    warm: u64,
    batches: u64,
    seen: RefCell<Seen>,
}

#[derive(Default)]
struct Seen {
    batches: u64,
    /// Of the batch before the first that counts, and of all that count.
    times: Vec<Instant>,
    /// Batches before those that count.
    skipped: usize,
    /// Batches of the epoch that are done.
    done: u64,
    mark: Option<Mark>,
    used: Option<Used>,
    loss: f64,
}

impl Seen {
    fn seconds(&self) -> f64 {
        match (self.times.first(), self.times.last()) {
            (Some(first), Some(last)) => (*last - *first).as_secs_f64(),
            _ => 0.0,
        }
    }

    fn median_ms(&self) -> f64 {
        let mut all: Vec<f64> = self.times.windows(2).map(|pair| 1e3 * (pair[1] - pair[0]).as_secs_f64()).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    }
}

impl Window {
    fn new(gpu: Option<&Gpu>, warm: u64, batches: u64) -> Self {
        Self { meter: Meter::new(gpu), warm, batches, seen: RefCell::default() }
    }

    fn is_over(&self) -> bool {
        self.seen.borrow().batches >= self.warm + self.batches
    }
}

impl Listener for Window {
    fn batch(&self, done: u64, _of: u64, loss: f64) {
        let mut seen = self.seen.borrow_mut();
        (seen.batches, seen.done) = (seen.batches + 1, done);
        if seen.batches < self.warm || seen.batches > self.warm + self.batches {
            return;
        }
        if seen.mark.is_none() {
            seen.mark = Some(self.meter.mark());
            seen.skipped = usize::try_from(seen.batches).unwrap_or(usize::MAX);
        }
        seen.times.push(Instant::now());
        seen.loss = loss;
        if seen.batches == self.warm + self.batches {
            seen.used = seen.mark.as_ref().map(|mark| self.meter.since(mark));
        }
    }

    fn epoch(&self, _report: &EpochReport) {}

    fn should_stop(&self) -> bool {
        self.is_over()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_counts_what_overlaps_once() {
        let stretch = |begin_ms, end_ms| Stretch { stage: Stage::Train, batch: 0, begin_ms, end_ms };
        let all = [stretch(0.0, 2.0), stretch(1.0, 3.0), stretch(4.0, 5.0)];
        assert!((busy(&all.iter().collect::<Vec<_>>()) - 0.8).abs() < 1e-12);
        assert_eq!(busy(&[]), 0.0);
    }
}
