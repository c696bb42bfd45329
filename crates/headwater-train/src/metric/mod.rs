//! How good a model is, in the numbers that papers print.
//!
//! A [`Meter`] is fed batch by batch and keeps counts, not outputs; only the area under a curve, which is about ranks,
//! keeps scores. Sums are of whole numbers, or go in the order of the rows, so the value depends on neither batches nor
//! threads. Values are those of scikit-learn's `f1_score`, `roc_auc_score` and `r2_score` with their defaults but for the mean
//! over columns that is asked for; `accuracy` of several questions is the share of single answers, which is 1 less its
//! `hamming_loss`.

mod accuracy;
mod area;
mod determination;
mod f1;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use accuracy::Accuracy;
use area::Area;
use determination::Determination;
use f1::Confusion;

use crate::error::{Error, Result};
use crate::loss::{Rows, Targets, count_labels, count_values};

/// What is measured. Larger is better for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Share of right answers: of rows for classes, of single outputs for yes or no.
    Accuracy,
    /// F1 of all classes' counts together.
    F1Micro,
    /// Mean of the F1 of classes that are asked for or answered, or of all columns of yes and no.
    F1Macro,
    /// Area under the ROC curve; the mean over columns that have both a yes and a no.
    RocAuc,
    /// The coefficient of determination of numbers; the mean over columns.
    R2,
}

/// A metric over the batches seen so far.
#[derive(Debug, Clone)]
pub struct Meter {
    metric: Metric,
    columns: usize,
    counts: Counts,
}

#[derive(Debug, Clone)]
enum Counts {
    Accuracy(Accuracy),
    Confusion(Confusion),
    Area(Area),
    Determination(Determination),
}

impl Metric {
    /// Its name in files and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::F1Micro => "f1_micro",
            Self::F1Macro => "f1_macro",
            Self::RocAuc => "roc_auc",
            Self::R2 => "r2",
        }
    }
}

impl Meter {
    /// One that has seen nothing yet, for rows of so many outputs.
    #[must_use]
    pub fn new(metric: Metric, columns: usize) -> Self {
        let counts = match metric {
            Metric::Accuracy => Counts::Accuracy(Accuracy::default()),
            Metric::F1Micro | Metric::F1Macro => Counts::Confusion(Confusion::new(columns)),
            Metric::RocAuc => Counts::Area(Area::default()),
            Metric::R2 => Counts::Determination(Determination::new(columns)),
        };
        Self { metric, columns, counts }
    }

    /// Takes in a batch. Rows and outputs without a target do not count. Classes are answered by the largest output, a
    /// yes is an output above 0; an output that is not a number makes its answer wrong.
    pub fn add(&mut self, rows: Rows<'_>) -> Result<()> {
        rows.check()?;
        crate::array::check_length("a row of outputs", rows.columns, self.columns)?;
        match rows.targets {
            Targets::Classes(labels) => count_labels(labels, rows.columns)?,
            Targets::Values(_) if self.metric == Metric::R2 => 0,
            Targets::Values(values) => count_values(values, rows.columns, 0.0..=1.0, "0, 1, or NaN for none")?,
        };
        match &mut self.counts {
            Counts::Determination(sums) => match rows.targets {
                Targets::Values(targets) => sums.add(rows, targets),
                found @ Targets::Classes(_) => return Err(no_numbers(found)),
            },
            Counts::Accuracy(counts) => counts.add(rows),
            Counts::Confusion(counts) => counts.add(rows),
            Counts::Area(scores) => scores.add(rows)?,
        }
        Ok(())
    }

    /// The value over everything taken in; nothing when nothing that counts was.
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        match (&self.counts, self.metric) {
            (Counts::Accuracy(counts), _) => counts.value(),
            (Counts::Confusion(counts), Metric::F1Micro) => counts.micro(),
            (Counts::Confusion(counts), _) => counts.macro_mean(),
            (Counts::Area(scores), _) => scores.value(),
            (Counts::Determination(sums), _) => sums.value(),
        }
    }
}

/// The column of the largest output, the first of equals; nothing when one of them is not a number.
pub(crate) fn answer(outputs: &[f32]) -> Option<usize> {
    let mut best = 0;
    for (at, &output) in outputs.iter().enumerate() {
        if output.is_nan() {
            return None;
        }
        if output > outputs[best] {
            best = at;
        }
    }
    Some(best)
}

/// Whether a target is a yes.
fn is_yes(target: f32) -> bool {
    target > 0.5
}

fn no_numbers(found: Targets<'_>) -> Error {
    Error::TargetKind { what: Metric::R2.name(), expected: "a number for each output", found: found.to_string() }
}

fn too_many_classes(columns: usize) -> Error {
    let found = format!("one of {columns} classes a row");
    Error::TargetKind { what: Metric::RocAuc.name(), expected: "a yes or no for each output, or two classes", found }
}
