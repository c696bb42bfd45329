//! How good a network is: its outputs without dropout, then the metric of each split.
//!
//! A run that sees the whole graph anyway asks each layer once. One that is trained on samples goes layer by layer in chunks
//! (`layerwise`), and computes only what the splits need.

use std::path::Path;

use headwater_compile::cpu::fast::Given;
use headwater_graph::{Progress, Silent};

use super::Trainer;
use super::whole::{Held, Whole};
use crate::error::Result;
use crate::features::Reader;
use crate::layerwise::{Layerwise, Outputs, Plan};
use crate::loss::{self, Loss};
use crate::metric::{Meter, Metric};
use crate::network::{Network, Read, Stage};
use crate::run_config::RunConfig;
use crate::task::Task;

/// Rows that are measured at a time.
const PIECE: usize = 1 << 16;

/// The metric of each split; nothing where no node of it says anything.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Measured {
    pub valid: Option<f64>,
    pub valid_loss: Option<f64>,
    pub test: Option<f64>,
}

/// What outputs are made of: borrowed from a run, or from a network that is only asked.
pub(super) struct Inference<'a> {
    pub config: &'a RunConfig,
    pub task: &'a Task,
    pub whole: &'a Whole,
    pub network: &'a mut Network,
    /// Whether features that are not numbers are refused.
    pub checks: bool,
    /// Where files without a name may be.
    pub scratch: &'a Path,
}

impl Trainer {
    /// Outputs of these nodes of the type that has labels.
    pub fn outputs(&mut self, nodes: &[u64]) -> Result<Outputs> {
        self.bring_back()?;
        let mut inference = self.inference();
        let plan = inference.plan(nodes)?;
        inference.outputs(plan.as_ref(), &Silent)
    }

    /// The metrics of the validation and the test nodes.
    pub(super) fn evaluate(&mut self) -> Result<Measured> {
        self.bring_back()?;
        // It is the same every time.
        let known = self.evaluation.take();
        let (asked, metric, loss) = ([&self.task.valid[..], &self.task.test].concat(), self.metric, self.loss);
        let mut inference = self.inference();
        let plan = if known.is_some() { known } else { inference.plan(&asked)? };
        let outputs = inference.outputs(plan.as_ref(), &Silent)?;
        let task = inference.task;
        let measured = Measured {
            valid: measure(metric, task, &outputs, &task.valid)?,
            valid_loss: loss_of(loss, task, &outputs, &task.valid)?,
            test: measure(metric, task, &outputs, &task.test)?,
        };
        inference.recycle(outputs, plan.as_ref());
        self.evaluation = plan;
        Ok(measured)
    }

    fn inference(&mut self) -> Inference<'_> {
        let Self { config, task, whole, network, folder, .. } = self;
        Inference { config, task, whole, network, checks: false, scratch: folder.path() }
    }
}

impl<'a> Inference<'a> {
    /// How outputs of these nodes of the type that has labels are made. Nothing where all are made at once.
    pub fn plan(&self, nodes: &[u64]) -> Result<Option<Plan>> {
        if self.whole.held.is_some() {
            return Ok(None);
        }
        let mut asked = vec![Vec::new(); self.task.node_counts().len()];
        asked[self.task.node_type] = nodes.to_vec();
        self.layerwise().plan(self.network, &asked).map(Some)
    }

    /// Outputs of at least the nodes of a plan.
    pub fn outputs(&mut self, plan: Option<&Plan>, progress: &dyn Progress) -> Result<Outputs> {
        match (plan, &self.whole.held) {
            (Some(plan), _) => self.layerwise().outputs(self.network, plan, progress),
            (None, Some(held)) => {
                let rows = at_once(self.network, held)?;
                Ok(Outputs::whole(&self.task.node_counts(), self.task.classes, rows))
            }
            (None, None) => Ok(Outputs::whole(&self.task.node_counts(), 0, Vec::new())),
        }
    }

    fn layerwise(&self) -> Layerwise<'a> {
        Layerwise {
            task: self.task,
            loops: self.whole.loops,
            degrees: &self.whole.degrees,
            reader: Reader {
                task: self.task,
                plan: self.network.input_plan().clone(),
                normalise: self.config.normalises(),
            },
            sparse: self.whole.sparse.as_ref(),
            checks: self.checks,
            limits: self.whole.limits,
            scratch: self.scratch,
        }
    }

    /// Gives the memory of outputs back that was taken for them. Others' would be kept, more of it after every evaluation.
    pub fn recycle(&mut self, outputs: Outputs, plan: Option<&Plan>) {
        let is_taken = plan.is_none_or(|plan| self.layerwise().takes_memory(plan));
        outputs.into_memory().into_iter().filter(|_| is_taken).for_each(|rows| self.network.give(rows));
    }
}

/// Outputs of all nodes, each layer over the whole graph.
fn at_once(network: &mut Network, held: &Held) -> Result<Vec<f32>> {
    let stage = Stage { graph: &held.graph, extras: &held.extras };
    let lent = held.rows.lent();
    let read = network.read(lent.inputs())?;
    let mut rows: Option<Vec<f32>> = None;
    for at in 0..network.depth() {
        let x = match &rows {
            Some(rows) => Some(Given::Dense(rows)),
            None => read.given(),
        };
        let next = network.infer(at, stage, x)?;
        if let Some(before) = rows.replace(next) {
            network.give(before);
        }
    }
    if let Read::Made(made) = read {
        network.give(made);
    }
    Ok(rows.unwrap_or_default())
}

/// The mean loss of those of these nodes that have labels; nothing where none has, or where it is no number.
fn loss_of(loss: Loss, task: &Task, outputs: &Outputs, nodes: &[u64]) -> Result<Option<f64>> {
    let columns = task.classes;
    let (mut sum, mut counted, mut rows) = (0.0, 0, vec![0.0; nodes.len().min(PIECE) * columns]);
    let mut unused = rows.clone();
    for nodes in nodes.chunks(PIECE) {
        let (rows, unused) = (&mut rows[..nodes.len() * columns], &mut unused[..nodes.len() * columns]);
        outputs.gather(task.node_type, nodes, rows)?;
        let labels = task.labels.of(nodes);
        let found = loss.of(loss::Rows { outputs: rows, columns, targets: labels.targets() }, unused)?;
        sum += found.mean * found.counted as f64;
        counted += found.counted;
    }
    let mean = sum / counted as f64;
    Ok(mean.is_finite().then_some(mean))
}

/// The metric of these nodes, whose outputs are known.
pub(super) fn measure(metric: Metric, task: &Task, outputs: &Outputs, nodes: &[u64]) -> Result<Option<f64>> {
    let columns = task.classes;
    let mut meter = Meter::new(metric, columns);
    let mut rows = vec![0.0; nodes.len().min(PIECE) * columns];
    for nodes in nodes.chunks(PIECE) {
        let rows = &mut rows[..nodes.len() * columns];
        outputs.gather(task.node_type, nodes, rows)?;
        let labels = task.labels.of(nodes);
        meter.add(loss::Rows { outputs: rows, columns, targets: labels.targets() })?;
    }
    Ok(meter.value())
}

/// Whether a metric of these nodes has a value, whatever a network says of them.
pub(super) fn can_measure(metric: Metric, task: &Task, nodes: &[u64]) -> Result<bool> {
    let columns = task.classes;
    let (mut meter, zeros) = (Meter::new(metric, columns), vec![0.0; nodes.len().min(PIECE) * columns]);
    for nodes in nodes.chunks(PIECE) {
        let labels = task.labels.of(nodes);
        let outputs = &zeros[..nodes.len() * columns];
        meter.add(loss::Rows { outputs, columns, targets: labels.targets() })?;
    }
    Ok(meter.value().is_some())
}
