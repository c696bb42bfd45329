//! A run: epochs of steps, an evaluation after each, checkpoints, and what it leaves in its folder.
//!
//! Everything random is a function of the seed, the epoch and the batch or the step, so a run that was stopped anywhere goes on
//! from its last checkpoint as if nothing had happened. `full.rs` steps over the whole graph, `sampled.rs` over batches;
//! `evaluate.rs` measures. `whole.rs` is the graph they are about.

pub(crate) mod draw;
mod evaluate;
mod full;
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

use self::opening::begin;
use self::whole::Whole;
use crate::checkpoint::{Best, Checkpoints, Fingerprint, Snapshot, State};
use crate::clip::{clip, global_norm};
use crate::early_stop::{Goal, Verdict};
use crate::error::{Error, Result};
use crate::gpu::Engine;
use crate::gpu::beside::Beside;
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
use crate::task::{self, Task};
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
        if task.train.is_empty() {
            return Err(Error::Model { why: task::without("training nodes", "train_idx or a split") });
        }
        let (name, text) = text_of(&config.model)?;
        let loss = config.loss.unwrap_or_else(|| task.labels.usual_loss());
        let metric = config.metric.unwrap_or_else(|| task.labels.usual_metric());
        task.labels.check(loss, metric, task.classes)?;
        // The run's folder says what was chosen: whoever asks the network may have no labels.
        let config = RunConfig { loss: Some(loss), metric: Some(metric), ..config };
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
        let mut reports: Vec<EpochReport> = Vec::new();
        let mut ending = Ending::Done;
        while self.state.epoch < self.config.epochs {
            let begun = Instant::now();
            let Some((loss, seconds)) = self.epoch(listener)? else {
                ending = Ending::Stopped;
                break;
            };
            let epoch_seconds = begun.elapsed().as_secs_f64();
            let evaluated = Instant::now();
            let measured = if self.is_evaluated() { Some(self.evaluate()?) } else { None };
            let report = EpochReport {
                epoch: self.state.epoch,
                loss,
                valid: measured.map(|measured| measured.valid),
                valid_loss: measured.and_then(|measured| measured.valid_loss),
                test: measured.map(|measured| measured.test),
                rate: self.schedule.at(self.state.step.saturating_sub(1)),
                epoch_seconds,
                seconds,
                evaluate_seconds: evaluated.elapsed().as_secs_f64(),
            };
            let is_over = self.finish_epoch(&report)?;
            listener.epoch(&report);
            reports.push(report);
            if is_over {
                break;
            }
        }
        // What could not be written on the way may find room now.
        if ending == Ending::Stopped || self.config.checkpoint_every == 0 || self.unsaved.checkpoint.is_some() {
            self.save_or_go_on();
        }
        self.note_reports();
        Ok((self.summary(&reports, ending), ending))
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
        if let Some(value) = report.valid {
            let own = Best { value, epoch: report.epoch, step: self.state.step, loss: report.valid_loss };
            self.state.best =
                Some(self.state.best.filter(|best| !own.is_better_than(best, self.config.watch)).unwrap_or(own));
        }
        let is_over = self.has_waited_enough(report);
        let every = self.config.checkpoint_every;
        let is_last = is_over || self.state.epoch == self.config.epochs;
        if every > 0 && (self.state.epoch.is_multiple_of(every) || is_last) {
            self.save_or_go_on();
        }
        Ok(is_over)
    }

    /// Whether the epoch that was just run is one after which the network is measured.
    fn is_evaluated(&self) -> bool {
        let (done, every) = (self.state.epoch + 1, self.config.evaluate_every);
        done == self.config.epochs || (every > 0 && done.is_multiple_of(every))
    }

    /// Whether what is watched got no better for too long.
    fn has_waited_enough(&mut self, report: &EpochReport) -> bool {
        let (Some(patience), Some(valid)) = (self.config.patience(), report.valid) else { return false };
        let State { early_stop, loss_stop, .. } = &mut self.state;
        let metric = early_stop.see(valid, Goal::Maximise, &patience) == Verdict::Stop;
        let loss = loss_stop.see(report.valid_loss.unwrap_or(f64::NAN), Goal::Minimise, &patience) == Verdict::Stop;
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
        Err(Error::NotFinite { epoch: self.state.epoch, batch: self.state.batch, what, value })
    }

    fn step_key(&self) -> Key {
        self.key_of_step(self.state.step)
    }

    fn key_of_step(&self, step: u64) -> Key {
        Key::new(self.config.seed).of(STEP).of(step)
    }

    fn save(&mut self) -> Result<()> {
        self.bring_back()?;
        self.journal.sync()?;
        self.state.journal_bytes = self.journal.bytes();
        let checkpoints = Checkpoints::new(&self.folder.path().join("checkpoints"), self.config.keep);
        checkpoints.save(Snapshot {
            state: &self.state,
            fingerprint: &self.fingerprint,
            parameters: &self.network.parameters,
            optimiser: &self.optimiser,
            buffers: &self.network.buffers(),
        })?;
        Ok(())
    }

    /// A checkpoint that cannot be written does not end the run: the one before stays.
    fn save_or_go_on(&mut self) {
        self.unsaved.checkpoint = self.save().err().map(|why| why.to_string());
        if let Some(why) = &self.unsaved.checkpoint {
            log::warn!("no checkpoint was written, training goes on: {why}");
        }
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

    fn summary(&self, reports: &[EpochReport], ending: Ending) -> Summary {
        let best = self.state.best.map(|best| best.epoch);
        let at_best = reports.iter().rfind(|report| Some(report.epoch) == best).copied().or_else(|| {
            // It may be one of a run that this one goes on with.
            let lines = journal::read(&self.folder.path().join(JOURNAL)).unwrap_or_default();
            let all = lines.into_iter().rev().filter_map(|line| serde_json::from_value(line).ok());
            all.into_iter().find(|report: &EpochReport| Some(report.epoch) == best)
        });
        let peak_bytes = self.network.peak_bytes();
        let mut summary = Summary::new(self.folder.path(), at_best.as_ref(), reports, peak_bytes, served(&self.task));
        summary.ending = ending;
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
    Fingerprint::new(text, sizes, &network.parameters)
}

fn steps_of_epoch(config: &RunConfig, task: &Task) -> u64 {
    if config.full_graph { 1 } else { task.train.len().div_ceil(config.batch) as u64 }
}
