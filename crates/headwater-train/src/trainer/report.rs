//! What a run tells while it goes, and in the end.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use headwater_feature::HostServed;
use serde::{Deserialize, Serialize};

use crate::gpu::{BroughtRows, StepOffload};
use crate::metric::Metric;

/// Where the time of an epoch went. Batches are drawn while others are computed, so the parts may be more than the whole.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Split {
    /// Drawing neighbours and making blocks of them.
    pub sample: f64,
    /// Reading features.
    pub gather: f64,
    /// Forward, backward and the step.
    pub compute: f64,
}

/// One epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// From 1.
    pub epoch: u64,
    /// Mean over the training nodes, each as the network was when its batch came.
    pub loss: f64,
    /// The run's metric of the validation nodes; nothing where it was not measured or has no value.
    #[serde(default)]
    pub valid: Option<f64>,
    /// The loss of the validation nodes.
    #[serde(default)]
    pub valid_loss: Option<f64>,
    /// The run's metric of the test nodes.
    #[serde(default)]
    pub test: Option<f64>,
    /// Learning rate of the last step.
    pub rate: f64,
    /// Without the evaluation.
    pub epoch_seconds: f64,
    /// Where they went.
    pub seconds: Split,
    /// The evaluation.
    #[serde(default)]
    pub evaluate_seconds: f64,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// All epochs, or nothing got better any more.
    #[default]
    Done,
    /// The listener asked for it; a checkpoint says how to go on.
    Stopped,
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How it ended.
    #[serde(default)]
    pub ending: Ending,
    /// Why parts of what came of it are not in its folder: a full disk, as a rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// What is measured.
    pub metric: Metric,
    /// The metric of the test nodes in the best epoch; where there is none, in the last that was measured.
    pub test: Option<f64>,
    /// The metric of the validation nodes in that epoch.
    pub valid: Option<f64>,
    /// The loss of the validation nodes in that epoch.
    pub valid_loss: Option<f64>,
    /// The epoch that was best for the validation nodes by what is watched, from 1. Its weights are what predictions are made
    /// with. Nothing where nothing was watched: then it is the last that counts.
    pub best_epoch: Option<u64>,
    /// Epochs that were run now.
    pub epochs: usize,
    /// Median over the epochs that were run, the last 1000 of them where there were more.
    pub epoch_seconds: f64,
    /// Medians over the same epochs of where the time went.
    pub sample_seconds: f64,
    /// See `sample_seconds`.
    pub gather_seconds: f64,
    /// See `sample_seconds`.
    pub compute_seconds: f64,
    /// Bytes of activations and gradients that were in use together.
    pub peak_bytes: usize,
    /// Rows of features that were read now, and from where.
    #[serde(default)]
    pub features: HostServed,
    /// Rows that a GPU gathered for batches now, and from where; nothing where batches were not gathered by one.
    #[serde(default)]
    pub gpu_features: Option<BroughtRows>,
    /// The share of the rows that a GPU gathered that was in its memory; without one, of those read that was in host memory.
    #[serde(default)]
    pub feature_hit_rate: f64,
    /// What became of activations, where steps on a GPU saw the whole graph and activations could leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offload: Option<StepOffload>,
    /// Where everything is.
    pub run_dir: PathBuf,
}

/// Who is told.
pub trait Listener {
    /// A batch is done: how many there are in the epoch, and its loss.
    fn batch(&self, done: u64, of: u64, loss: f64);

    /// An epoch is done.
    fn epoch(&self, report: &EpochReport);

    /// Whether the run should stop here.
    fn should_stop(&self) -> bool;
}

/// Nobody listens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl Listener for Quiet {
    fn batch(&self, _done: u64, _of: u64, _loss: f64) {}

    fn epoch(&self, _report: &EpochReport) {}

    fn should_stop(&self) -> bool {
        false
    }
}

/// Epochs that medians of times are over: the last so many. All of them are in the journal.
const MOST_RECENT: usize = 1000;

/// What a summary needs of the epochs that were run, in bounded memory however many they are.
#[derive(Debug, Clone, Default)]
pub(super) struct Recent {
    /// How many there were.
    pub epochs: usize,
    /// The last of them.
    pub last: VecDeque<EpochReport>,
    /// The one that says how good the run is.
    pub told: Option<EpochReport>,
}

impl Recent {
    /// One more epoch; `best` is the best one so far.
    pub fn add(&mut self, report: EpochReport, best: Option<u64>) {
        self.epochs += 1;
        if self.last.len() == MOST_RECENT {
            self.last.pop_front();
        }
        self.last.push_back(report);
        if report.tells_of_run(best) {
            self.told = Some(report);
        }
    }
}

impl EpochReport {
    /// Whether it says how good a run is: that of the best epoch, or else any that was measured, of which the last counts.
    pub(super) fn tells_of_run(&self, best_epoch: Option<u64>) -> bool {
        match best_epoch {
            Some(best) => self.epoch == best,
            None => self.test.is_some() || self.valid_loss.is_some(),
        }
    }
}

/// What a summary is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts<'a> {
    pub run_dir: &'a Path,
    pub ending: Ending,
    pub metric: Metric,
    /// The best epoch, where there is one, and the epoch that says how good the run is.
    pub best_epoch: Option<u64>,
    pub told: Option<&'a EpochReport>,
    /// Epochs that were run now.
    pub recent: &'a Recent,
    pub peak_bytes: usize,
    pub features: HostServed,
    pub gpu_features: Option<BroughtRows>,
}

impl Summary {
    pub(super) fn new(facts: Facts<'_>) -> Self {
        let Facts { run_dir, ending, metric, best_epoch, told, recent, peak_bytes, features, gpu_features } = facts;
        let median = |pick: fn(&EpochReport) -> f64| {
            let mut all: Vec<f64> = recent.last.iter().map(pick).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or(0.0)
        };
        Self {
            ending,
            lost: Vec::new(),
            metric,
            test: told.and_then(|report| report.test),
            valid: told.and_then(|report| report.valid),
            valid_loss: told.and_then(|report| report.valid_loss),
            best_epoch,
            epochs: recent.epochs,
            epoch_seconds: median(|report| report.epoch_seconds),
            sample_seconds: median(|report| report.seconds.sample),
            gather_seconds: median(|report| report.seconds.gather),
            compute_seconds: median(|report| report.seconds.compute),
            peak_bytes,
            features,
            gpu_features,
            feature_hit_rate: gpu_features.map_or_else(|| features.hit_rate(), BroughtRows::hit_rate),
            offload: None,
            run_dir: run_dir.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(epoch: u64) -> EpochReport {
        let (valid, seconds) = (Some(0.5), Split::default());
        let (valid_loss, test) = (Some(1.0), Some(epoch as f64));
        EpochReport {
            epoch,
            loss: 1.0,
            valid,
            valid_loss,
            test,
            rate: 0.1,
            epoch_seconds: 1.0,
            seconds,
            evaluate_seconds: 0.0,
        }
    }

    #[test]
    fn very_many_epochs_take_the_memory_of_a_thousand() {
        let mut recent = Recent::default();
        (1..=20_000).for_each(|epoch| recent.add(report(epoch), Some(epoch.min(7))));
        assert_eq!((recent.epochs, recent.last.len()), (20_000, MOST_RECENT));
        assert!(recent.last.capacity() < 2 * MOST_RECENT);
        assert_eq!(recent.told, Some(report(7)), "the best is kept");
        let mut without = Recent::default();
        (1..=3).for_each(|epoch| without.add(report(epoch), None));
        assert_eq!(without.told, Some(report(3)), "the last that was measured, where none is the best");
    }
}
