//! Steps over the whole graph, which lies in GPU memory with all features.
//!
//! | the question | the room |
//! | --- | --- |
//! | What does a step touch, and when? | `shape.rs` |
//! | How long does each layer take? | `timing.rs` |
//! | What may leave, and who lets it? | `settings.rs` |
//! | Which layers keep their activations, let them leave or compute them twice? | `plan.rs` |
//! | Where is each buffer? | `memory.rs` |
//! | What came of it? | `report.rs` |

mod memory;
mod plan;
mod report;
mod settings;
mod shape;
mod timing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use headwater_compile::adjacency::Adjacency;
use headwater_compile::cuda::DeviceGraph;
use headwater_compile::inter::Domain;
use headwater_cuda::{Span, Stream};
use headwater_offload::{GpuLane, Offloader};

pub(crate) use memory::PlannedMemory;
pub use plan::LayerActivations;
use plan::StepPlan;
pub use report::StepOffload;
pub(crate) use settings::OffloadSettings;
pub(crate) use shape::{LayerShape, MadeShape};
use timing::layer_seconds;

use super::layers::{DeviceLayer, shape_of};
use super::passes::Brought;
use super::sampled::Step;
use super::site::{Found, Ground, Shared, Site, rows};
use super::step_memory::StepMemory;
use super::wait::wait_so_long;
use crate::device::copy_of;
use crate::error::{Error, Result};
use crate::labels::Labels;
use crate::network::Extras;

/// The whole graph and a site for it.
#[derive(Debug)]
pub(crate) struct FullGraph {
    labels: Labels,
    /// The row of the first node that may have a label.
    first_row: usize,
    graph: DeviceGraph,
    x: Option<Span>,
    extras: Vec<BTreeMap<String, Span>>,
    shapes: Vec<LayerShape>,
    offload: Option<OffloadSettings>,
    report: Option<StepOffload>,
    /// Steps since the plan was made, those before, and seconds of the first since and of the others.
    steps: u64,
    steps_before: u64,
    first_seconds: f64,
    step_seconds: f64,
    /// Bytes that were written to a disk that is no longer used.
    written_before: u64,
    placed: Option<Placed>,
}

/// A step put over memory.
#[derive(Debug)]
struct Placed {
    site: Site,
    /// What the site points into.
    memory: PlannedMemory,
}

/// What a whole graph is made of.
pub(crate) struct Everything<'a> {
    pub graph: &'a Adjacency,
    pub extras: &'a Extras,
    /// All features, where there are any.
    pub x: Option<Vec<f32>>,
    /// Labels of all nodes of the type that has them, known where they are to be learnt.
    pub labels: Labels,
    /// The row of the first of these nodes.
    pub first_row: usize,
    /// What may become of activations, where they may leave.
    pub offload: Option<OffloadSettings>,
}

impl FullGraph {
    /// Brings everything to the GPU.
    pub fn new(stream: &Stream, shared: &Shared<'_>, all: Everything<'_>) -> Result<Self> {
        let tables: Vec<_> = shared.layers.iter().flat_map(|layer| layer.tables()).collect();
        let graph = DeviceGraph::of(stream, all.graph, &tables)?;
        let x = all.x.map(|values| copy_of(stream, bytemuck::cast_slice(&values))).transpose()?;
        let mut extras = BTreeMap::new();
        for (name, values) in all.extras {
            extras.insert(name.clone(), copy_of(stream, bytemuck::cast_slice(values))?);
        }
        debug_assert!(all.first_row + all.labels.nodes() <= all.graph.rows(Domain::DST));
        let mut made = Self {
            labels: all.labels,
            first_row: all.first_row,
            graph,
            x,
            extras: vec![extras; shared.layers.len()],
            shapes: Vec::new(),
            offload: all.offload,
            report: None,
            steps: 0,
            steps_before: 0,
            first_seconds: 0.0,
            step_seconds: 0.0,
            written_before: 0,
            placed: None,
        };
        made.shapes = made.measured(stream, shared)?;
        made.place(stream, shared)?;
        Ok(made)
    }

    /// Memory of all layers, and their times where a plan depends on them.
    fn measured(&self, stream: &Stream, shared: &Shared<'_>) -> Result<Vec<LayerShape>> {
        let layers = shared.layers;
        let seconds = match self.offload {
            Some(_) => {
                let letter = Site::letter(stream, shared, self.labels.nodes())?;
                // Keys of dropouts are whatever lies there.
                letter.send(stream)?;
                let graphs = vec![&self.graph; layers.len()];
                let brought = self.brought(&graphs, Site::keys(&letter, layers.len())?);
                let seconds = layer_seconds(stream, layers, &brought, shared.flat)?;
                stream.synchronize()?;
                seconds
            }
            None => vec![(0.0, 0.0); layers.len()],
        };
        let shape = |(layer, seconds): (&DeviceLayer, (f64, f64))| shape_of(layer, &self.graph, seconds);
        Ok(layers.iter().zip(seconds).map(shape).collect())
    }

    fn brought<'a>(&'a self, graphs: &'a [&'a DeviceGraph], keys: Vec<Span>) -> Brought<'a> {
        Brought { graphs, x: self.x.as_ref().and_then(rows), extras: &self.extras, keys }
    }

    /// Makes a plan, and puts the step over its memory.
    fn place(&mut self, stream: &Stream, shared: &Shared<'_>) -> Result<()> {
        self.placed = None;
        stream.synchronize()?;
        stream.gpu().trim(0)?;
        let (plan, offloader) = self.planned(stream)?;
        let memory = PlannedMemory::new(stream, plan, offloader)?;
        let letter = Site::letter(stream, shared, self.labels.nodes())?;
        let graphs = vec![&self.graph; shared.layers.len()];
        let keys = Site::keys(&letter, shared.layers.len())?;
        let brought = self.brought(&graphs, keys);
        let (memory_of_step, most_rows) = (StepMemory::Planned(&memory), self.labels.nodes());
        let ground = Ground { brought, memory: memory_of_step, first_row: self.first_row, most_rows };
        let site = Site::new(stream, shared, letter, &ground)?;
        (self.placed, self.steps, self.step_seconds) = (Some(Placed { site, memory }), 0, 0.0);
        Ok(())
    }

    /// The plan, and who lets activations leave by it.
    fn planned(&mut self, stream: &Stream) -> Result<(StepPlan, Option<Arc<Offloader<GpuLane>>>)> {
        let Some(settings) = &self.offload else { return Ok((StepPlan::kept(&self.shapes), None)) };
        let offloader = settings.offloader(stream.gpu(), &self.shapes)?;
        let mut host_bytes = None;
        loop {
            let limits = settings.limits(stream.gpu(), &self.shapes, (offloader.as_deref(), host_bytes))?;
            let (plan, kept) = StepPlan::best(&self.shapes, &limits);
            let most = limits.room.gpu_bytes.unwrap_or(u64::MAX);
            if !plan.fits(most) {
                return Err(Error::NoRoomForStep { needed_bytes: plan.fixed.forecast.peak_bytes, most_bytes: most });
            }
            // Host memory that the system refuses is not relied on.
            let wanted = plan.fixed.forecast.host_bytes;
            let has =
                offloader.as_ref().map_or(Ok(0), |own| own.reserve(usize::try_from(wanted).unwrap_or(usize::MAX)))?;
            if (has as u64) < wanted && host_bytes != Some(has as u64) {
                host_bytes = Some(has as u64);
                continue;
            }
            let replanned = self.report.as_ref().and_then(|report| report.replanned.clone());
            self.report = Some(StepOffload { replanned, ..StepOffload::expected(&plan, &kept, &self.shapes) });
            return Ok((plan, offloader));
        }
    }

    /// One step. Returns when it is over. Where a disk or host memory fails, a plan without it is made, and the step is made again:
    /// nothing was learnt from it yet.
    pub fn step(&mut self, stream: &Stream, shared: &Shared<'_>, step: &Step) -> Result<Found> {
        match self.try_step(stream, shared, step) {
            Err(Error::Offload(why)) => {
                let Some(settings) = self.offload.as_ref().filter(|own| own.has_disk()) else { return Err(why.into()) };
                log::warn!("activations no longer go to disk: {why}");
                let next = settings.without_disk();
                self.written_before = self.offload().map_or(0, |report| report.written_bytes);
                (self.offload, self.steps_before) = (Some(next), self.steps_before + self.steps);
                if let Some(report) = &mut self.report {
                    report.replanned = Some(why.to_string());
                }
                self.place(stream, shared)?;
                self.try_step(stream, shared, step)
            }
            found => found,
        }
    }

    fn try_step(&mut self, stream: &Stream, shared: &Shared<'_>, step: &Step) -> Result<Found> {
        let missing = || Error::Model { why: "a step over the whole graph has no memory".to_owned() };
        let begun = Instant::now();
        let Placed { site, memory } = self.placed.as_mut().ok_or_else(missing)?;
        match self.steps {
            0 => site.write(shared, step, &self.labels)?,
            _ => site.write_keys(shared, step)?,
        }
        site.send(stream)?;
        site.step(stream, shared, step)?;
        wait_so_long(&stream.record()?, "step", memory.plan().fixed.forecast.step_s)?;
        stream.take_fault()?;
        let seconds = begun.elapsed().as_secs_f64();
        match self.steps {
            0 => self.first_seconds = seconds,
            _ => self.step_seconds += seconds,
        }
        self.steps += 1;
        site.found()
    }

    /// What became of activations, where they may leave.
    pub fn offload(&self) -> Option<StepOffload> {
        let (report, placed) = (self.report.as_ref()?, self.placed.as_ref()?);
        let counts = placed.site.mover().map(|mover| mover.offloader().counts());
        // The first step compiles what was never run; it counts where there is no other.
        let measured_ms = match self.steps {
            0 | 1 => 1e3 * self.first_seconds,
            steps => 1e3 * self.step_seconds / (steps - 1) as f64,
        };
        let report = StepOffload { measured_ms, steps: self.steps, ..report.clone() };
        let report = match counts {
            Some(Ok(counts)) => report.measured(&counts),
            _ => report,
        };
        let (steps, written_bytes) = (self.steps + self.steps_before, report.written_bytes + self.written_before);
        Some(StepOffload { steps, written_bytes, ..report })
    }
}
