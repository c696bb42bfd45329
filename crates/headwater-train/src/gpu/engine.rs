//! A run's work on a GPU: what is trained and how its epochs go.

use std::path::Path;

use headwater_compile::cuda::Tuning;
use headwater_cuda::{Gpu, Stream};

use super::apart;
use super::beside::{Beside, Remote};
use super::capacity::Capacity;
use super::company::Repeat;
use super::draw::sizes_of;
use super::features::BroughtRows;
use super::finish::Finish;
use super::flat::Flat;
use super::full::{Everything, FullGraph, OffloadSettings, StepOffload};
use super::layers::DeviceLayer;
use super::plan::Mode;
use super::provide::{Provider, Provision, step_down};
use super::sampled::{Epoch, Pipeline, Settings, Step};
use super::site::{Found, Shared};
use super::slots::{Home, Slots};
use super::source::Source;
use super::timeline::Timeline;
use crate::device::copy_of;
use crate::error::{Error, Result};
use crate::loss::Loss;
use crate::network::{InputPlan, Network};
use crate::optimiser::Optimiser;
use crate::run_config::{ProducerName, RunConfig};
use crate::task::Task;
use crate::trainer::Seconds;
use crate::trainer::draw::{Batch, Drawing};
use crate::trainer::whole::Whole;

/// What trains.
#[derive(Debug)]
pub(crate) struct Engine {
    gpu: Gpu,
    stream: Stream,
    layers: Vec<DeviceLayer>,
    flat: Flat,
    finish: Finish,
    work: Work,
    /// Whether parameters here are newer than those of the host.
    is_ahead: bool,
}

/// How epochs go.
#[derive(Debug)]
enum Work {
    Full(Box<FullGraph>),
    Sampled(Box<Pipeline>),
    Apart,
}

/// What an engine is made for.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub config: &'a RunConfig,
    pub task: &'a Task,
    pub network: &'a Network,
    pub optimiser: &'a Optimiser,
    pub whole: &'a Whole,
    pub loss: Loss,
    /// The folder of the run.
    pub run: &'a Path,
    /// How a producer may be started.
    pub beside: Option<&'a Beside<'a>>,
}

impl Engine {
    /// Brings a run to a GPU.
    pub fn new(gpu: &Gpu, parts: Parts<'_>, first_epoch: &dyn Fn() -> Result<Drawing>) -> Result<Self> {
        check(&parts)?;
        let stream = Stream::new(gpu)?;
        let (tuning, held) = (parts.config.tuning(), parts.whole.held.as_ref());
        let tuning = held.filter(|_| tuning != Tuning::Fixed).map(|held| (tuning, &held.graph));
        let layers = DeviceLayer::of(&stream, parts.network, parts.config.precision(), tuning)?;
        let flat = Flat::new(&stream, &parts.network.parameters)?;
        let finish = Finish::new(&stream, &parts, &flat)?;
        let mut made = Self { gpu: gpu.clone(), stream, layers, flat, finish, work: Work::Apart, is_ahead: false };
        made.work = made.begin(&parts, first_epoch)?;
        Ok(made)
    }

    fn begin(&self, parts: &Parts<'_>, first_epoch: &dyn Fn() -> Result<Drawing>) -> Result<Work> {
        if let Some(held) = &parts.whole.held {
            let task = parts.task;
            let before = task.node_counts().into_iter().take(task.node_type).sum::<u64>();
            let all = Everything {
                graph: &held.graph,
                extras: &held.extras,
                x: held.rows.dense(),
                labels: task.labels.only(&task.train),
                first_row: usize::try_from(before).unwrap_or(usize::MAX),
                offload: OffloadSettings::of(parts.config, parts.run),
            };
            return Ok(Work::Full(Box::new(FullGraph::new(&self.stream, &self.shared(), all)?)));
        }
        if parts.config.batches_by_cpu(parts.task.has_types()).is_some() {
            return Ok(Work::Apart);
        }
        self.sampled(parts, first_epoch()?)
    }

    /// The pipeline of a run, with as much in GPU memory as there is room for.
    fn sampled(&self, parts: &Parts<'_>, drawing: Drawing) -> Result<Work> {
        let Parts { config, task, network, whole, .. } = *parts;
        let degrees = if network.needs_scales() {
            Some(copy_of(&self.stream, bytemuck::cast_slice(whole.degrees.first().map_or(&[][..], Vec::as_slice)))?)
        } else {
            None
        };
        let width = network.input_plan().width().unwrap_or(0);
        let seeds = config.batch.min(task.train.len());
        let green_sms = config.gather_green.then_some(config.gather_sms);
        let finds_window = config.gather_window == 0;
        let settings = Settings { loops: whole.loops, width, seeds, home: Home::Own, green_sms, finds_window };
        let sizes = sizes_of(&drawing.sample(0)?.1)?;
        let shared = self.shared();
        let sizing = settings.sizing(&shared, Capacity::like(&sizes), degrees.is_some());
        let working_bytes = Slots::bytes(&self.stream, &sizing)? as u64;
        self.stream.synchronize()?;
        self.gpu.trim(0)?;
        let source = self.source(parts, working_bytes)?;
        Ok(Work::Sampled(Box::new(Pipeline::new(&self.gpu, source, degrees, settings)?)))
    }

    /// Where batches come from. A producer that cannot be had is no reason not to train.
    fn source(&self, parts: &Parts<'_>, working_bytes: u64) -> Result<Source> {
        let Parts { config, task, .. } = *parts;
        if let Some(beside) = parts.beside.filter(|_| config.producer == ProducerName::Process) {
            match Remote::start(beside, &self.gpu, config, working_bytes) {
                Ok(remote) => return Ok(Source::Beside(Box::new(remote))),
                Err(why) => log::warn!("batches are made in the trainer's process: {why}"),
            }
        }
        let own = Provision { gpu: &self.gpu, config, task };
        Ok(Source::Here(Box::new(Provider::new(&own, working_bytes)?)))
    }

    /// Parameters, and the optimiser's memory of them, as they are here.
    pub fn fetch(&mut self, network: &mut Network, optimiser: &mut Optimiser) -> Result<()> {
        if self.is_ahead {
            self.flat.fetch(&self.stream, &mut network.parameters)?;
            self.finish.fetch(&self.stream, optimiser)?;
            for (at, layer) in self.layers.iter().enumerate() {
                layer.moments(&self.stream)?.into_iter().for_each(|moments| network.set_moments(at, moments));
            }
            // Only now: after an error they belong to different steps, and the next attempt has to bring all of them.
            self.is_ahead = false;
        }
        Ok(())
    }

    /// Queues a kernel that meets an id that is none.
    #[cfg(test)]
    pub fn fail_next_wait(&self) -> Result<()> {
        use headwater_tensor::gather::{GatherOptions, GpuGather, IdType};
        let (table, ids, out) =
            (copy_of(&self.stream, &[0; 8])?, copy_of(&self.stream, &[9; 8])?, copy_of(&self.stream, &[0; 8])?);
        let (stream, table, ids, out) = (&self.stream, &table, &ids, &out);
        let (rows, width_bytes, id_type, options) = (1, 8, IdType::U64, GatherOptions::default());
        GpuGather { stream, table, host_table: None, rows, width_bytes, ids, id_type, out, options }.run()?;
        Ok(())
    }

    /// Where features lie, where batches are gathered by a GPU.
    pub fn mode(&self) -> Option<Mode> {
        match &self.work {
            Work::Sampled(pipeline) => Some(pipeline.source.mode()),
            _ => None,
        }
    }

    /// Translations of host addresses that a gather has under way.
    pub fn gather_window(&self) -> Option<u64> {
        match &self.work {
            Work::Sampled(pipeline) => pipeline.source.window(),
            _ => None,
        }
    }

    /// What became of activations, where steps see the whole graph and activations may leave.
    pub fn offload(&self) -> Option<StepOffload> {
        match &self.work {
            Work::Full(full) => full.offload(),
            _ => None,
        }
    }

    /// Whether batches come from another process.
    pub fn has_producer(&self) -> bool {
        matches!(&self.work, Work::Sampled(pipeline) if matches!(pipeline.source, Source::Beside(_)))
    }

    /// How its epochs go.
    pub fn kind(&self) -> Kind {
        match &self.work {
            Work::Full(_) => Kind::Full,
            Work::Sampled(_) => Kind::Sampled,
            Work::Apart => Kind::Apart,
        }
    }

    /// One step over the whole graph.
    pub fn full_step(&mut self, step: &Step) -> Result<Found> {
        let _current = self.gpu.make_current()?;
        let Self { stream, layers, flat, finish, work, is_ahead, .. } = self;
        *is_ahead = true;
        let Work::Full(full) = work else { return Err(of_another_kind()) };
        full.step(stream, &Shared { layers, finish, flat }, step)
    }

    /// One step over a batch that was put together on the host.
    pub fn apart_step(&mut self, batch: &Batch, x: Option<&[f32]>, step: &Step) -> Result<Found> {
        let _current = self.gpu.make_current()?;
        self.is_ahead = true;
        apart::step(&self.stream, &self.shared(), batch, x, step)
    }

    /// Milliseconds of a step, on a batch again and again.
    pub fn repeat_step(&mut self, repeat: Repeat<'_>) -> Result<Option<f64>> {
        let Self { layers, flat, finish, work, is_ahead, .. } = self;
        *is_ahead = true;
        let Work::Sampled(pipeline) = work else { return Err(of_another_kind()) };
        pipeline.repeat(&Shared { layers, finish, flat }, repeat)
    }

    /// Milliseconds of a batch that is drawn and gathered while nobody trains.
    pub fn load(&mut self, task: &Task, drawing: Drawing, batches: u64) -> Result<Option<f64>> {
        let Work::Sampled(pipeline) = &mut self.work else { return Err(of_another_kind()) };
        pipeline.load(task, drawing, batches)
    }

    /// A step on the last batch, kernel by kernel: what ran, and for how many milliseconds.
    pub fn kernels(&mut self, step: &Step) -> Result<Vec<(String, f64)>> {
        let Self { layers, flat, finish, work, is_ahead, .. } = self;
        *is_ahead = true;
        let Work::Sampled(pipeline) = work else { return Err(of_another_kind()) };
        pipeline.kernels(&Shared { layers, finish, flat }, step)
    }

    /// Batches of an epoch from one on. Where memory runs out on the way, fewer rows of features are kept in GPU memory and
    /// the epoch goes on.
    pub fn sampled_epoch(&mut self, config: &RunConfig, task: &Task, epoch: &mut dyn Epoch) -> Result<Seconds> {
        // The thread keeps it for the epoch, or every call would enter and leave it.
        let _current = self.gpu.make_current()?;
        self.is_ahead = true;
        loop {
            let Self { gpu, layers, flat, finish, work, .. } = &mut *self;
            let Work::Sampled(pipeline) = work else { return Err(of_another_kind()) };
            let shared = Shared { layers, finish, flat };
            let why = match pipeline.epoch(&shared, task, epoch) {
                Ok(()) => return Ok(pipeline.timeline.take()),
                Err(why) => why,
            };
            let mode = step_down(pipeline.source.mode(), task, why)?;
            pipeline.place(&Provision { gpu, config, task }, mode)?;
        }
    }

    /// Keeps from now on when stages and their kernels run.
    pub fn trace(&mut self) {
        if let Work::Sampled(pipeline) = &mut self.work {
            pipeline.trace();
        }
    }

    /// When stages ran, where that is kept.
    pub fn timeline(&mut self) -> Option<&mut Timeline> {
        match &mut self.work {
            Work::Sampled(pipeline) => Some(&mut pipeline.timeline),
            _ => None,
        }
    }

    /// Rows of features that were brought so far, batch by batch.
    pub fn brought(&mut self) -> Result<BroughtRows> {
        match &mut self.work {
            Work::Sampled(pipeline) => pipeline.brought(),
            _ => Ok(BroughtRows::default()),
        }
    }

    fn shared(&self) -> Shared<'_> {
        Shared { layers: &self.layers, finish: &self.finish, flat: &self.flat }
    }
}

/// How epochs of an engine go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Steps over the whole graph.
    Full,
    /// Batches, overlapped.
    Sampled,
    /// Batches that are put together on the host.
    Apart,
}

/// What a GPU cannot do yet is said before anything is brought there.
fn check(parts: &Parts<'_>) -> Result<()> {
    match parts.network.input_plan() {
        InputPlan::Apart { .. } => Err(Error::NotOnGpu {
            why: "features of node types differ or are missing; such inputs are learnt on the CPU",
        }),
        InputPlan::Nothing | InputPlan::Together { .. } => Ok(()),
    }
}

fn of_another_kind() -> Error {
    Error::Model { why: "the run was made for epochs of another kind".to_owned() }
}
