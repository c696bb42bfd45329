//! A network that was trained, to be asked. Nothing in the run's folder is touched.

use std::path::{Path, PathBuf};

use headwater_graph::Progress;

use super::evaluate::{Inference, measure};
use super::whole::Whole;
use super::{fingerprint, text_of};
use crate::checkpoint::{Checkpoints, State};
use crate::error::{Error, Result};
use crate::layerwise::{Limits, Outputs};
use crate::loss::Loss;
use crate::metric::Metric;
use crate::network::Network;
use crate::run_config::RunConfig;
use crate::task::Task;

/// A trained network and the graph it is asked about.
#[derive(Debug)]
pub struct Predictor {
    config: RunConfig,
    task: Task,
    network: Network,
    whole: Whole,
    state: State,
    scratch: PathBuf,
}

/// Which checkpoint of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Which {
    /// The best for the validation nodes; the newest where nothing was measured there.
    #[default]
    Best,
    /// The newest.
    Last,
}

/// Where a predictor reads and writes.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The run's folder.
    pub run: &'a Path,
    /// Where files without a name may be, for graphs whose layers are larger than memory.
    pub scratch: &'a Path,
}

impl Predictor {
    /// The network of a run, for a task that has the same types and widths.
    pub fn open(config: RunConfig, task: Task, places: Places<'_>, which: Which) -> Result<Self> {
        let checkpoints = Checkpoints::new(&places.run.join("checkpoints"), config.keep);
        let found = match which {
            Which::Best => checkpoints.best()?,
            Which::Last => checkpoints.newest()?,
        };
        let checkpoint = found.ok_or_else(|| Error::NoCheckpoint { folder: places.run.to_owned() })?;
        let State { epoch, step, best, .. } = checkpoint.state;
        if let Some(best) = best.filter(|best| which == Which::Best && best.step != step) {
            log::warn!("the weights of epoch {}, the best, were not kept; those of epoch {epoch} are used", best.epoch);
        }
        let (name, text) = text_of(&config.model)?;
        let (mut network, whole) = Whole::with_network(&config, &task, &name, &text)?;
        checkpoint.check(&fingerprint(&config, &task, &network, &text))?;
        network.parameters.restore(checkpoint.parameters)?;
        network.restore_buffers(checkpoint.buffers)?;
        let (state, scratch) = (checkpoint.state, places.scratch.to_owned());
        Ok(Self { config, task, network, whole, state, scratch })
    }

    /// Where the run stood.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What it is asked about.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// What it was trained with.
    #[must_use]
    pub fn loss(&self) -> Loss {
        self.config.loss.unwrap_or_else(|| self.task.labels.usual_loss())
    }

    /// What it is measured by.
    #[must_use]
    pub fn metric(&self) -> Metric {
        self.config.metric.unwrap_or_else(|| self.task.labels.usual_metric())
    }

    /// What it may hold in memory.
    pub fn set_limits(&mut self, limits: Limits) {
        self.whole.limits = limits;
    }

    /// Outputs of these nodes of the type that has labels.
    pub fn outputs(&mut self, nodes: &[u64], progress: &dyn Progress) -> Result<Outputs> {
        let count = self.task.labels.nodes() as u64;
        if let Some(id) = nodes.iter().find(|id| **id >= count) {
            let (value, expected) = (id.to_string(), format!("an id below {count}"));
            return Err(Error::Setting { field: "nodes", value, expected });
        }
        let Self { config, task, whole, network, scratch, .. } = self;
        let mut inference = Inference { config, task, whole, network, checks: true, scratch };
        let plan = inference.plan(nodes)?;
        inference.outputs(plan.as_ref(), progress)
    }

    /// The run's metric over those of these nodes that have a label, and how many have.
    pub fn measure(&self, outputs: &Outputs, nodes: &[u64]) -> Result<(Option<f64>, usize)> {
        let labelled: Vec<u64> = nodes.iter().copied().filter(|node| self.task.labels.is_known(*node)).collect();
        Ok((measure(self.metric(), &self.task, outputs, &labelled)?, labelled.len()))
    }
}
