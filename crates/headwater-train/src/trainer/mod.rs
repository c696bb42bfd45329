//! A run: epochs of steps, an evaluation after each, checkpoints, and what it leaves in its folder.
//!
//! Everything random is a function of the seed, the epoch and the batch or the step, so a run that was stopped anywhere goes on
//! from its last checkpoint as if nothing had happened. `full.rs` steps over the whole graph, `sampled.rs` over batches;
//! `evaluate.rs` measures. `whole.rs` is the graph they are about, and `decide.rs` what is done where nobody said;
//! `keep.rs` says which weights stay.

mod decide;
pub(crate) mod draw;
mod evaluate;
mod full;
mod keep;
mod on_gpu;
mod opening;
mod predictor;
mod report;
mod sampled;
#[cfg(test)]
mod tests;
pub(crate) mod whole;

use std::sync::Arc;
use std::time::Instant;

use headwater_compile::front::builtin;
use headwater_cuda::Gpu;
use headwater_graph::random::Key;

pub use predictor::{Places, Predictor, Which};
pub use report::{Ending, EpochReport, Listener, Quiet, Split as Seconds, Summary};

use self::decide::{Decided, decide};
use self::evaluate::Measured;
use self::keep::Kept;
use self::opening::begin;
use self::report::{Facts, Recent};
use self::whole::Whole;
use crate::checkpoint::{Best, Fingerprint, State};
use crate::clip::{clip, global_norm};
use crate::early_stop::{Goal, Verdict};
use crate::error::{Error, Result};
use crate::gpu::beside::Beside;
use crate::gpu::{BroughtRows, Engine};
use crate::gradient::Gradient;
use crate::journal::{self, Journal};
use crate::layerwise::{Limits, Plan};
use crate::loss::Loss;
use crate::metric::Metric;
use crate::network::Network;
use crate::optimiser::Optimiser;
use crate::placement::served;
use crate::run_config::{Model, ProducerName, RunConfig, Watch};
use crate::run_folder::{Place, RunFolder};
use crate::schedule::Schedule;
use crate::task::Task;
use crate::whole_file::write_whole;

/// The lines of a run, in its folder.
const JOURNAL: &str = "metrics.jsonl";
/// What draws are for.
const SHUFFLE: u64 = 1;
const SAMPLE: u64 = 2;
const STEP: u64 = 3;

/// A run, on the CPU or on a GPU.
#[derive(Debug)]
pub struct Trainer {
    /// What makes its steps, where that is a GPU.
    engine: Option<Box<Engine>>,
    config: RunConfig,
    task: Arc<Task>,
    network: Network,
    optimiser: Optimiser,
    schedule: Schedule,
    loss: Loss,
    metric: Metric,
    whole: Whole,
    /// How evaluations go, once there was one.
    evaluation: Option<Plan>,
    folder: RunFolder,
    journal: Journal,
    fingerprint: Fingerprint,
    state: State,
    remarks: Vec<String>,
    /// The best epoch, where it is not written yet.
    kept: Option<Box<Kept>>,
    /// What the folder could not take so far.
    unsaved: Unsaved,
}

/// What is not on disk yet because it could not be written.
#[derive(Debug, Default)]
struct Unsaved {
    /// Why the last checkpoint was not.
    checkpoint: Option<String>,
    /// Epochs whose lines are not in the journal, and why.
    reports: Vec<EpochReport>,
    journal: Option<String>,
}

impl Trainer {
    /// A run in a folder: a new one, or the one that its newest checkpoint says. Until it has run, and while it runs, the
    /// folder is its own.
    pub fn open(config: RunConfig, task: impl Into<Arc<Task>>, folder: impl Into<Place>) -> Result<Self> {
        let task = task.into();
        // The run's folder says what was decided: whoever asks the network may have no labels.
        let Decided { config, loss, metric, remarks } = decide(config, &task)?;
        let (name, text) = text_of(&config.model)?;
        let (mut network, whole) = Whole::with_network(&config, &task, &name, &text)?;
        let mut optimiser = Optimiser::new(config.rule(), &config.groups(), &network.parameters)?;
        let fingerprint = fingerprint(&config, &task, &network, &text);
        let mut folder = folder.into().claim()?;
        let (state, journal) = begin(&config, &mut folder, &fingerprint, &mut network, &mut optimiser)?;
        let schedule = config.schedule(steps_of_epoch(&config, &task));
        Ok(Self {
            engine: None,
            folder,
            config,
            task,
            network,
            optimiser,
            schedule,
            loss,
            metric,
            whole,
            evaluation: None,
            journal,
            fingerprint,
            state,
            remarks,
            kept: None,
            unsaved: Unsaved::default(),
        })
    }

    /// As [`Trainer::open`], with steps on a GPU.
    pub fn open_on(gpu: &Gpu, config: RunConfig, task: impl Into<Arc<Task>>, folder: impl Into<Place>) -> Result<Self> {
        if config.producer == ProducerName::Process {
            let expected =
                "thread; a process beside the trainer is started by the command line, headwater train".to_owned();
            return Err(Error::Setting { field: "producer", value: "process".to_owned(), expected });
        }
        let task = task.into();
        config.check_on_gpu(task.has_types())?;
        let mut made = Self::open(config, task, folder)?;
        made.bring(gpu, None)?;
        Ok(made)
    }

    /// As [`Trainer::open_on`], with batches made by a process of their own where the run asks for one and it can be had.
    pub fn open_beside(
        gpu: &Gpu,
        beside: &Beside<'_>,
        config: RunConfig,
        task: impl Into<Arc<Task>>,
        folder: impl Into<Place>,
    ) -> Result<Self> {
        let task = task.into();
        config.check_on_gpu(task.has_types())?;
        let mut made = Self::open(config, task, folder)?;
        made.bring(gpu, Some(beside))?;
        Ok(made)
    }

    /// Lets others at the folder until the run goes on. It then makes sure that nobody opened it meanwhile.
    pub fn rest(&mut self) {
        self.folder.release();
    }

    /// Where a run stands.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The run with everything decided that was left open.
    #[must_use]
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// What was decided for the run, and what of its dataset it does not use, where somebody might think otherwise: a
    /// sentence each.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// What is trained.
    pub fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    /// What evaluations and predictions may hold in memory.
    pub fn set_limits(&mut self, limits: Limits) {
        self.whole.limits = limits;
        self.evaluation = None;
    }

    /// Runs until it ends, and then lets others at the folder.
    pub fn run(&mut self, listener: &dyn Listener) -> Result<(Summary, Ending)> {
        self.folder.retake()?;
        let ended = self.run_epochs(listener);
        self.rest();
        ended
    }

    fn run_epochs(&mut self, listener: &dyn Listener) -> Result<(Summary, Ending)> {
        let mut recent = Recent::default();
        let mut ending = Ending::Done;
        while self.state.epoch < self.config.epochs {
            let begun = Instant::now();
            let Some((loss, seconds)) = self.epoch(listener)? else {
                ending = Ending::Stopped;
                break;
            };
            let epoch_seconds = begun.elapsed().as_secs_f64();
            let evaluated = Instant::now();
            let Measured { valid, valid_loss, test } =
                if self.is_evaluated() { self.evaluate()? } else { Measured::default() };
            let report = EpochReport {
                epoch: self.state.epoch + 1,
                loss,
                valid,
                valid_loss,
                test,
                rate: self.schedule.at(self.state.step.saturating_sub(1)),
                epoch_seconds,
                seconds,
                evaluate_seconds: evaluated.elapsed().as_secs_f64(),
            };
            let is_over = self.finish_epoch(&report)?;
            listener.epoch(&report);
            recent.add(report, self.state.best.map(|best| best.epoch));
            if is_over {
                break;
            }
        }
        // What could not be written on the way may find room now.
        if ending == Ending::Stopped || self.config.checkpoint_every == 0 || self.unsaved.checkpoint.is_some() {
            self.save_or_go_on();
        }
        self.note_reports();
        Ok((self.summary(&recent, ending), ending))
    }

    /// One epoch and nothing else: no evaluation, no checkpoint. The mean loss and where the time went; nothing when the
    /// listener stops it.
    pub fn train_epoch(&mut self, listener: &dyn Listener) -> Result<Option<(f64, Seconds)>> {
        let found = self.epoch(listener)?;
        self.state.epoch += 1;
        (self.state.batch, self.state.losses) = (0, 0.0);
        Ok(found)
    }

    /// One epoch, or what is left of it: the mean loss and where the time went; nothing when the listener stops it.
    fn epoch(&mut self, listener: &dyn Listener) -> Result<Option<(f64, Seconds)>> {
        if let Some(engine) = self.engine.take() {
            return self.epoch_on(engine, listener);
        }
        if self.config.full_graph { self.full_epoch(listener) } else { self.sampled_epoch(listener) }
    }

    /// Notes what an epoch gave. Whether the run is over.
    fn finish_epoch(&mut self, report: &EpochReport) -> Result<bool> {
        self.unsaved.reports.push(*report);
        self.note_reports();
        self.state.epoch += 1;
        self.state.batch = 0;
        self.state.losses = 0.0;
        let is_best = self.note_best(report);
        let is_over = self.has_waited_enough(report);
        let every = self.config.checkpoint_every;
        let is_last = is_over || self.state.epoch == self.config.epochs;
        let is_due = every > 0 && (self.state.epoch.is_multiple_of(every) || is_last);
        if is_due {
            self.save_or_go_on();
        } else if is_best {
            self.keep()?;
        }
        Ok(is_over)
    }

    /// Whether an epoch is the best so far.
    fn note_best(&mut self, report: &EpochReport) -> bool {
        let watch = self.config.watch;
        let own = Best { value: report.valid, epoch: report.epoch, step: self.state.step, loss: report.valid_loss };
        let is_best = own.is_told_by(watch) && self.state.best.is_none_or(|best| own.is_better_than(&best, watch));
        if is_best {
            self.state.best = Some(own);
        }
        is_best
    }

    /// Whether the epoch that was just run is one after which the network is measured.
    fn is_evaluated(&self) -> bool {
        let (done, every) = (self.state.epoch + 1, self.config.evaluate_every);
        done == self.config.epochs || (every > 0 && done.is_multiple_of(every))
    }

    /// Whether what is watched got no better for too long.
    fn has_waited_enough(&mut self, report: &EpochReport) -> bool {
        let EpochReport { epoch, valid, valid_loss, .. } = *report;
        let Some(patience) = self.config.patience().filter(|_| valid.or(valid_loss).is_some()) else { return false };
        let State { early_stop, loss_stop, .. } = &mut self.state;
        let (valid, valid_loss) = (valid.unwrap_or(f64::NAN), valid_loss.unwrap_or(f64::NAN));
        let metric = early_stop.see(valid, epoch, Goal::Maximise, &patience) == Verdict::Stop;
        let loss = loss_stop.see(valid_loss, epoch, Goal::Minimise, &patience) == Verdict::Stop;
        match self.config.watch {
            Watch::Metric => metric,
            Watch::Loss => loss,
            Watch::Either => metric && loss,
        }
    }

    /// A step with these gradients.
    fn step(&mut self, gradients: Vec<Gradient>) -> Result<()> {
        let mut gradients = gradients;
        let norm = match self.config.most_norm() {
            Some(most) => clip(&mut gradients, most),
            None => global_norm(&gradients),
        };
        // Some activations turn what is not a number into one, and the loss looks well. Gradients do not.
        self.check_finite("norm of the gradients", norm)?;
        let rate = self.schedule.at(self.state.step);
        self.optimiser.step(&mut self.network.parameters, &gradients, rate)?;
        self.network.recycle(gradients);
        self.state.step += 1;
        Ok(())
    }

    /// Refuses a number that is none. The last checkpoint stays.
    fn check_finite(&self, what: &'static str, value: f64) -> Result<()> {
        if value.is_finite() {
            return Ok(());
        }
        Err(Error::NotFinite { epoch: self.state.epoch + 1, batch: self.state.batch, what, value })
    }

    /// Notes the loss of a batch, which is the mean over its seeds: an epoch's is the mean over all of them.
    fn note_loss(&mut self, mean: f64) {
        let first = self.state.batch * self.config.batch as u64;
        let seeds = (self.task.train.len() as u64).saturating_sub(first).min(self.config.batch as u64);
        self.state.losses += mean * seeds as f64;
        self.state.batch += 1;
    }

    /// The mean loss of an epoch that is over.
    fn mean_loss(&self) -> f64 {
        self.state.losses / self.task.train.len().max(1) as f64
    }

    fn step_key(&self) -> Key {
        self.key_of_step(self.state.step)
    }

    fn key_of_step(&self, step: u64) -> Key {
        Key::new(self.config.seed).of(STEP).of(step)
    }

    /// Writes the lines of epochs that are not in the journal. One that cannot be written waits for room.
    fn note_reports(&mut self) {
        self.unsaved.journal = None;
        while let Some(report) = self.unsaved.reports.first() {
            if let Err(why) = self.journal.append(report) {
                log::warn!("epoch {} is not in the journal, training goes on: {why}", report.epoch);
                self.unsaved.journal = Some(why.to_string());
                return;
            }
            self.unsaved.reports.remove(0);
        }
    }

    fn summary(&mut self, recent: &Recent, ending: Ending) -> Summary {
        let best_epoch = self.state.best.map(|best| best.epoch);
        let is_told = |report: &EpochReport| report.tells_of_run(best_epoch);
        let told = recent.told.filter(is_told).or_else(|| {
            // It may be one of a run that this one goes on with.
            let lines = journal::read(&self.folder.path().join(JOURNAL)).unwrap_or_default();
            lines.into_iter().rev().filter_map(|line| serde_json::from_value(line).ok()).find(is_told)
        });
        let gpu_features = self.feature_rows().unwrap_or_else(|why| {
            log::warn!("what the GPU gathered is not known: {why}");
            BroughtRows::default()
        });
        let mut summary = Summary::new(Facts {
            run_dir: self.folder.path(),
            ending,
            metric: self.metric,
            best_epoch,
            told: told.as_ref(),
            recent,
            peak_bytes: self.network.peak_bytes(),
            features: served(&self.task),
            gpu_features: Some(gpu_features).filter(|rows| *rows != BroughtRows::default()),
        });
        summary.offload = self.offload();
        let Unsaved { checkpoint, journal, .. } = &self.unsaved;
        summary.lost = checkpoint.iter().chain(journal).cloned().collect();
        let text = serde_json::to_string_pretty(&summary).unwrap_or_default();
        if let Err(why) = write_whole(&self.folder.path().join("summary.json"), text.as_bytes()) {
            summary.lost.push(why.to_string());
        }
        summary
    }
}

/// The text of a model, and its name.
fn text_of(model: &Model) -> Result<(String, String)> {
    match model {
        Model::Named(model) => {
            let text = builtin(model.name()).unwrap_or_default();
            Ok((model.name().to_owned(), text.to_owned()))
        }
        Model::Text(path) => {
            let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
            Ok((path.display().to_string(), text))
        }
    }
}

/// Whose checkpoints these are.
fn fingerprint(config: &RunConfig, task: &Task, network: &Network, text: &str) -> Fingerprint {
    let width = network.input_plan().width().unwrap_or(0);
    let sizes = [("classes", task.classes), ("width", width), ("layers", config.layers)];
    let sizes = sizes.into_iter().map(|(name, size)| (name.to_owned(), size as u64)).collect();
    Fingerprint::new(text, sizes, &network.parameters).with_settings(config.unchangeable())
}

fn steps_of_epoch(config: &RunConfig, task: &Task) -> u64 {
    if config.full_graph { 1 } else { task.train.len().div_ceil(config.batch) as u64 }
}
