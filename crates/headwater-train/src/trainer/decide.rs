//! What a run leaves open, decided once its dataset is known. What was decided is in the run's folder, so a run that goes on and
//! whoever asks its network decide nothing again.

use super::evaluate::can_measure;
use crate::error::{Error, Result};
use crate::loss::Loss;
use crate::metric::Metric;
use crate::run_config::{DeviceName, PrecisionName, RunConfig, Watch};
use crate::task::{self, Task};

/// Rows of each type that are looked at, evenly spread, to tell whether features are counts.
const LOOKED_AT: u64 = 1 << 16;
/// Rows that are read together.
const PIECE: usize = 1 << 10;

/// A run in which nothing is left open.
#[derive(Debug)]
pub(super) struct Decided {
    pub config: RunConfig,
    pub loss: Loss,
    pub metric: Metric,
    /// What was decided otherwise than somebody might think, in sentences.
    pub remarks: Vec<String>,
}

/// Decides. What cannot be done as it was asked for is refused.
pub(super) fn decide(config: RunConfig, task: &Task) -> Result<Decided> {
    if task.train.is_empty() {
        return Err(Error::Model { why: task::without("training nodes that have a label", "train_idx or a split") });
    }
    let loss = config.loss.unwrap_or_else(|| task.labels.usual_loss());
    let metric = config.metric.unwrap_or_else(|| task.labels.usual_metric());
    task.labels.check(loss, metric, task.classes)?;
    let mut remarks = task.remarks.clone();
    let normalises = match config.normalise_features {
        Some(normalises) => normalises,
        None => are_counts(task, &config, &mut remarks)?,
    };
    let narrow = match config.precision {
        PrecisionName::Tf32 => Some("tf32"),
        PrecisionName::Bf16 => Some("bf16"),
        PrecisionName::F32 | PrecisionName::Tf32x3 => None,
    };
    if let Some(name) = narrow.filter(|_| config.device == DeviceName::Cpu) {
        remarks.push(format!("products are computed in single precision here; {name} is how a GPU computes them"));
    }
    let patience = patience(&config, task, metric, &mut remarks)?;
    let (loss_too, metric_too) = (Some(loss), Some(metric));
    let (normalise_features, patience) = (Some(normalises), Some(patience));
    let config = RunConfig { loss: loss_too, metric: metric_too, normalise_features, patience, ..config };
    Ok(Decided { config, loss, metric, remarks })
}

/// Whether features are counts of something, which no negative number is: those are divided by their sums, as published. The
/// sum of numbers of both signs says nothing about them.
fn are_counts(task: &Task, config: &RunConfig, remarks: &mut Vec<String>) -> Result<bool> {
    if task.features.iter().all(Option::is_none) {
        return Ok(false);
    }
    let model = &config.model;
    let is_negative = has_negative(task)?;
    remarks.push(if is_negative {
        format!("features have negative numbers: rows are not divided by their sums, as counts are for {model}")
    } else {
        format!("no feature is negative: rows are divided by their sums, as published for {model}")
    });
    Ok(!is_negative)
}

/// Whether a feature is negative, of those that are looked at.
fn has_negative(task: &Task) -> Result<bool> {
    let is_negative = |rows: &[f32]| rows.iter().any(|value| *value < 0.0);
    for (node_type, (count, table)) in task.node_counts().into_iter().zip(&task.features).enumerate() {
        let Some(table) = table else { continue };
        let width = usize::try_from(table.shape()[1]).unwrap_or(usize::MAX);
        let step = usize::try_from(count.div_ceil(LOOKED_AT).max(1)).unwrap_or(usize::MAX);
        // Rows that lie in memory are looked at where they lie: nobody has read them for a batch yet.
        if let Some(rows) = table.in_place() {
            if rows.chunks(width.max(1)).step_by(step).any(is_negative) {
                return Ok(true);
            }
            continue;
        }
        let ids: Vec<u64> = (0..count).step_by(step).collect();
        for ids in ids.chunks(PIECE) {
            let mut rows = vec![0.0; ids.len() * width];
            task.gather(node_type, ids, &mut rows)?;
            if is_negative(&rows) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Epochs without anything better before the run stops: none are enough where nothing says what is better.
fn patience(config: &RunConfig, task: &Task, metric: Metric, remarks: &mut Vec<String>) -> Result<u64> {
    let asked = config.patience().map_or(0, |patience| patience.epochs);
    let Some(why) = unwatched(config, task, metric)? else { return Ok(asked) };
    match config.patience {
        Some(epochs) if epochs > 0 => {
            let expected = format!("0, because {why}: nothing says when to stop");
            Err(Error::Setting { field: "patience", value: epochs.to_string(), expected })
        }
        _ => {
            remarks.push(format!("{why}: no epoch is the best, and the last one's weights are used"));
            Ok(0)
        }
    }
}

/// Why nothing of the validation nodes can be watched, where that is so.
fn unwatched(config: &RunConfig, task: &Task, metric: Metric) -> Result<Option<String>> {
    if task.valid.is_empty() {
        return Ok(Some("the dataset names no validation nodes".to_owned()));
    }
    if !task.valid.iter().any(|node| task.labels.is_known(*node)) {
        return Ok(Some("no validation node has a label".to_owned()));
    }
    if config.watch != Watch::Loss && !can_measure(metric, task, &task.valid)? {
        return Ok(Some(format!("{} of the validation nodes has no value", metric.name())));
    }
    Ok(None)
}
