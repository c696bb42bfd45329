//! What a run tells while it goes, and in the end.

use std::path::{Path, PathBuf};

use headwater_feature::HostServed;
use serde::{Deserialize, Serialize};

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
    /// From 0.
    pub epoch: u64,
    /// Mean over its batches.
    pub loss: f64,
    /// The metric of the validation nodes, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid: Option<f64>,
    /// The loss of the validation nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_loss: Option<f64>,
    /// The metric of the test nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// The metric of the test nodes in the epoch that was best for the validation nodes.
    pub test_accuracy: f64,
    /// The best metric of the validation nodes.
    pub best_val_accuracy: f64,
    /// The epoch it was reached in.
    pub best_epoch: u64,
    /// Epochs that were run now.
    pub epochs: usize,
    /// Median.
    pub epoch_seconds: f64,
    /// Medians of where the time went.
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
    /// The share of these rows that was in memory.
    #[serde(default)]
    pub feature_hit_rate: f64,
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

impl Summary {
    /// Of epochs that were run now, and the best one of all.
    #[must_use]
    pub fn new(
        run_dir: &Path,
        best: Option<&EpochReport>,
        reports: &[EpochReport],
        peak_bytes: usize,
        features: HostServed,
    ) -> Self {
        let median = |pick: fn(&EpochReport) -> f64| {
            let mut all: Vec<f64> = reports.iter().map(pick).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or(0.0)
        };
        Self {
            ending: Ending::Done,
            lost: Vec::new(),
            test_accuracy: best.and_then(|report| report.test).unwrap_or(0.0),
            best_val_accuracy: best.and_then(|report| report.valid).unwrap_or(0.0),
            best_epoch: best.map_or(0, |report| report.epoch),
            epochs: reports.len(),
            epoch_seconds: median(|report| report.epoch_seconds),
            sample_seconds: median(|report| report.seconds.sample),
            gather_seconds: median(|report| report.seconds.gather),
            compute_seconds: median(|report| report.seconds.compute),
            peak_bytes,
            features,
            feature_hit_rate: features.hit_rate(),
            run_dir: run_dir.to_owned(),
        }
    }
}
