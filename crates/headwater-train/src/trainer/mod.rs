//! A run: epochs of steps, an evaluation after each, checkpoints, and what it leaves in its folder.
//!
//! Everything random is a function of the seed, the epoch and the batch or the step, so a run that was stopped anywhere goes on
//! from its last checkpoint as if nothing had happened. `full.rs` steps over the whole graph, `sampled.rs` over batches;
//! `evaluate.rs` measures, layer by layer over the whole graph.

mod evaluate;
mod full;
mod inputs;
mod report;
mod sampled;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Instant;

use headwater_compile::adjacency::Adjacency;
use headwater_compile::front::builtin;
use headwater_compile::pass::Statistics;
use headwater_graph::random::Key;

use self::inputs::WholeRows;
pub use report::{EpochReport, Listener, Quiet, Split as Seconds, Summary};

use crate::blocks::{SelfLoops, degrees, whole};
use crate::checkpoint::{Best, Checkpoints, Fingerprint, Snapshot, State};
use crate::clip::{clip, global_norm};
use crate::early_stop::{EarlyStop, Verdict};
use crate::error::{Error, Result};
use crate::gradient::Gradient;
use crate::journal::{self, Journal};
use crate::loss::Loss;
use crate::metric::Metric;
use crate::network::{Extras, Facts, Network, NodeInput};
use crate::optimiser::Optimiser;
use crate::run_config::{Model, RunConfig};
use crate::schedule::Schedule;
use crate::task::Task;
use crate::whole_file::write_whole;

/// Part of the features that may be other than zero where they are kept as sparse rows.
const MOST_FILLED: f64 = 0.25;
/// The lines of a run, in its folder.
const JOURNAL: &str = "metrics.jsonl";
/// What draws are for.
const SHUFFLE: u64 = 1;
const SAMPLE: u64 = 2;
const STEP: u64 = 3;

/// A run on the CPU.
#[derive(Debug)]
pub struct Trainer {
    config: RunConfig,
    task: Task,
    network: Network,
    optimiser: Optimiser,
    schedule: Schedule,
    loss: Loss,
    metric: Metric,
    whole: Whole,
    folder: PathBuf,
    journal: Journal,
    fingerprint: Fingerprint,
    state: State,
}

/// The whole graph, as layers take it.
#[derive(Debug)]
struct Whole {
    graph: Adjacency,
    loops: SelfLoops,
    extras: Extras,
    degrees: Vec<Vec<f32>>,
    /// All features, where they are needed at once.
    rows: WholeRows,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All epochs, or nothing got better any more.
    Done,
    /// The listener asked for it; a checkpoint says how to go on.
    Stopped,
}

impl Trainer {
    /// A run in a folder: a new one, or the one that its newest checkpoint says.
    pub fn open(config: RunConfig, task: Task, folder: &Path) -> Result<Self> {
        let (name, text) = text_of(&config.model)?;
        let loss = config.loss.unwrap_or_else(|| task.labels.usual_loss());
        let metric = config.metric.unwrap_or_else(|| task.labels.usual_metric());
        task.labels.check(loss, metric, task.classes)?;
        let (mut network, graph, loops) = network(&config, &task, &name, &text)?;
        let mut optimiser = Optimiser::new(config.rule(), &config.groups(), &network.parameters)?;
        let sizes = [
            ("classes", task.classes),
            ("width", network.input_plan().width().unwrap_or(0)),
            ("layers", config.layers),
        ];
        let sizes = sizes.into_iter().map(|(name, size)| (name.to_owned(), size as u64)).collect();
        let fingerprint = Fingerprint::new(&text, sizes, &network.parameters);
        std::fs::create_dir_all(folder).map_err(|source| Error::Io {
            action: "create",
            path: folder.to_owned(),
            source,
        })?;
        let (state, journal) = begin(&config, folder, &fingerprint, &mut network, &mut optimiser)?;
        let schedule = config.schedule(steps_of_epoch(&config, &task));
        let degrees = degrees(&task.graph);
        let whole = Whole { graph, loops, extras: Extras::new(), degrees, rows: WholeRows::default() };
        let mut trainer = Self {
            folder: folder.to_owned(),
            config,
            task,
            network,
            optimiser,
            schedule,
            loss,
            metric,
            whole,
            journal,
            fingerprint,
            state,
        };
        trainer.prepare_whole()?;
        Ok(trainer)
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

    /// Runs until it ends.
    pub fn run(&mut self, listener: &dyn Listener) -> Result<(Summary, Ending)> {
        let mut reports: Vec<EpochReport> = Vec::new();
        let mut ending = Ending::Done;
        while self.state.epoch < self.config.epochs {
            let begun = Instant::now();
            let Some((loss, seconds)) = self.epoch(listener)? else {
                ending = Ending::Stopped;
                break;
            };
            let epoch_seconds = begun.elapsed().as_secs_f64();
            let measured = self.evaluate()?;
            let report = EpochReport {
                epoch: self.state.epoch,
                loss,
                valid: measured.valid,
                test: measured.test,
                rate: self.schedule.at(self.state.step.saturating_sub(1)),
                epoch_seconds,
                seconds,
            };
            let is_over = self.finish_epoch(&report)?;
            listener.epoch(&report);
            reports.push(report);
            if is_over {
                break;
            }
        }
        if ending == Ending::Stopped || self.config.checkpoint_every == 0 {
            self.save()?;
        }
        let summary = self.summary(&reports)?;
        Ok((summary, ending))
    }

    /// One epoch, or what is left of it: the mean loss and where the time went; nothing when the listener stops it.
    fn epoch(&mut self, listener: &dyn Listener) -> Result<Option<(f64, Seconds)>> {
        if self.config.full_graph { self.full_epoch(listener) } else { self.sampled_epoch(listener) }
    }

    /// Notes what an epoch gave. Whether the run is over.
    fn finish_epoch(&mut self, report: &EpochReport) -> Result<bool> {
        self.journal.append(report)?;
        self.state.epoch += 1;
        self.state.batch = 0;
        let is_better = |best: &Best| report.valid > best.value;
        if self.state.best.as_ref().is_none_or(is_better) {
            let best = Best { value: report.valid, epoch: report.epoch, step: self.state.step };
            self.state.best = Some(best);
        }
        let mut is_over = false;
        if let Some(patience) = self.config.patience() {
            let watched = match self.config.watch {
                crate::run_config::Watch::Metric => report.valid,
                crate::run_config::Watch::Loss => report.loss,
            };
            is_over = self.state.early_stop.see(watched, &patience) == Verdict::Stop;
        }
        let every = self.config.checkpoint_every;
        let is_last = is_over || self.state.epoch == self.config.epochs;
        if every > 0 && (self.state.epoch.is_multiple_of(every) || is_last) {
            self.save_or_go_on();
        }
        Ok(is_over)
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
        Key::new(self.config.seed).of(STEP).of(self.state.step)
    }

    fn save(&mut self) -> Result<()> {
        self.journal.sync()?;
        self.state.journal_bytes = self.journal.bytes();
        let checkpoints = Checkpoints::new(&self.folder.join("checkpoints"), self.config.keep);
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
        if let Err(why) = self.save() {
            log::warn!("no checkpoint was written, training goes on: {why}");
        }
    }

    fn summary(&self, reports: &[EpochReport]) -> Result<Summary> {
        // The best epoch may be one of a run that this one goes on with.
        let lines = journal::read(&self.folder.join(JOURNAL))?;
        let all: Vec<EpochReport> = lines.into_iter().filter_map(|line| serde_json::from_value(line).ok()).collect();
        let at_best = self.state.best.and_then(|best| all.iter().rfind(|report| report.epoch == best.epoch));
        let summary = Summary::new(&self.folder, at_best, reports, self.network.peak_bytes());
        let text = serde_json::to_string_pretty(&summary).unwrap_or_default();
        write_whole(&self.folder.join("summary.json"), text.as_bytes())?;
        Ok(summary)
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
            let text = std::fs::read_to_string(path).map_err(|source| Error::Io {
                action: "read",
                path: path.clone(),
                source,
            })?;
            Ok((path.display().to_string(), text))
        }
    }
}

/// The network of a run and the graph it is for. Whether nodes need an edge to themselves is known when the text is read, and how
/// many rows some parameters have only with the graph; so where they do, both are made once more.
fn network(config: &RunConfig, task: &Task, name: &str, text: &str) -> Result<(Network, Adjacency, SelfLoops)> {
    let node_types = node_types(task);
    let made = |loops: SelfLoops| {
        let graph = whole(&task.graph, loops)?;
        let statistics = Statistics::of(&graph);
        let blocks = if config.full_graph { Vec::new() } else { sampled::typical(config, task, loops)? };
        let (node_types, classes) = (&node_types[..], task.classes);
        let facts = Facts { node_types, classes, graph: &graph, statistics, blocks, text, name };
        Ok::<_, Error>((Network::new(config, &facts)?, graph, loops))
    };
    let found = made(SelfLoops::AsTheyAre)?;
    if found.0.wants_self_loops() { made(SelfLoops::Added) } else { Ok(found) }
}

/// The node types of a task, as a network sees them.
fn node_types(task: &Task) -> Vec<NodeInput> {
    let types = task.graph.schema().node_types().iter().zip(task.widths());
    types
        .map(|(own, width)| NodeInput {
            name: own.name.clone(),
            nodes: usize::try_from(own.count).unwrap_or(usize::MAX),
            width,
        })
        .collect()
}

fn steps_of_epoch(config: &RunConfig, task: &Task) -> u64 {
    if config.full_graph { 1 } else { task.train.len().div_ceil(config.batch) as u64 }
}

/// The first state of a run, or that of its newest checkpoint; and the journal cut back to it.
fn begin(
    config: &RunConfig,
    folder: &Path,
    fingerprint: &Fingerprint,
    network: &mut Network,
    optimiser: &mut Optimiser,
) -> Result<(State, Journal)> {
    let journal = folder.join(JOURNAL);
    let newest = Checkpoints::new(&folder.join("checkpoints"), config.keep).newest()?;
    let Some(checkpoint) = newest else {
        config.write(&folder.join("config.toml"))?;
        let state = State {
            epoch: 0,
            batch: 0,
            step: 0,
            seed: config.seed,
            best: None,
            early_stop: EarlyStop::default(),
            journal_bytes: 0,
        };
        return Ok((state, Journal::create(&journal)?));
    };
    checkpoint.check(fingerprint)?;
    let (state, buffers) = checkpoint.restore(&mut network.parameters, optimiser)?;
    network.restore_buffers(buffers)?;
    let journal = Journal::resume(&journal, state.journal_bytes)?;
    Ok((state, journal))
}
