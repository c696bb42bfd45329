//! How wrong a model is, and which way is less wrong.
//!
//! A loss takes rows of outputs and what they should be, returns the mean over everything that has a target, and writes
//! the gradient of that mean. Rows go through in pieces of a fixed size; the sums of pieces are f64 and are added in
//! their order, so the result does not depend on the number of threads. An output that is not a number gives a loss that
//! is not a number: the caller stops there.

mod binary;
mod class;
pub mod device;
mod exponential;
mod probability;
mod square;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::RangeInclusive;

use headwater_tensor::parallel;
use serde::{Deserialize, Serialize};

use crate::array::check_length;
use crate::error::{Error, Result};

/// The label of a row that has none.
pub const UNLABELLED: i64 = -1;

/// Numbers that one thread works on at a time, in whole rows.
const PIECE: usize = 1 << 12;

/// What is minimised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Softmax, then minus the logarithm of the true class's share.
    CrossEntropy,
    /// Minus the true class's output, which already is a logarithm of a share.
    Nll,
    /// A yes or no for each column: the sigmoid's cross-entropy.
    Bce,
    /// The squared difference.
    Mse,
}

/// What rows should be.
#[derive(Debug, Clone, Copy)]
pub enum Targets<'a> {
    /// The class of each row; -1 is none.
    Classes(&'a [i64]),
    /// A number for each output. One that is not a number is none.
    Values(&'a [f32]),
}

/// Outputs of a model and what they should be.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// The outputs, row by row.
    pub outputs: &'a [f32],
    /// Outputs a row.
    pub columns: usize,
    /// What they should be.
    pub targets: Targets<'a>,
}

/// What a loss found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// The mean over all targets; 0 when there are none.
    pub mean: f64,
    /// Targets that counted: rows for losses of classes, single outputs for the others.
    pub counted: u64,
}

impl Loss {
    /// The loss of these rows. The gradient of its mean fills `gradient`, which is as long as the outputs.
    pub fn of(self, rows: Rows<'_>, gradient: &mut [f32]) -> Result<Found> {
        self.weighted(rows, None, gradient)
    }

    /// As [`of`](Self::of), where a yes in a column of [`Bce`](Self::Bce) weighs as much as the column's weight says.
    pub fn weighted(self, rows: Rows<'_>, yes_weights: Option<&[f32]>, gradient: &mut [f32]) -> Result<Found> {
        rows.check()?;
        check_length("the gradient of the outputs", gradient.len(), rows.outputs.len())?;
        if let Some(weights) = yes_weights {
            check_length("the list of weights of columns", weights.len(), rows.columns)?;
        }
        match (self, rows.targets) {
            (Self::CrossEntropy, Targets::Classes(labels)) => class::cross_entropy(rows, labels, gradient),
            (Self::Nll, Targets::Classes(labels)) => class::nll(rows, labels, gradient),
            (Self::Bce, Targets::Values(values)) => binary::bce(rows, values, yes_weights, gradient),
            (Self::Mse, Targets::Values(values)) => square::mse(rows, values, gradient),
            (Self::CrossEntropy | Self::Nll, found) => Err(unfit(self, "one class a row", found)),
            (Self::Bce | Self::Mse, found) => Err(unfit(self, "a number for each output", found)),
        }
    }

    /// What numbers can be aimed at, in numbers and in words.
    pub(crate) fn range(self) -> (RangeInclusive<f32>, &'static str) {
        match self {
            Self::Bce => (0.0..=1.0, "a share from 0 to 1, or NaN for none"),
            _ => (f32::MIN..=f32::MAX, "a finite number, or NaN for none"),
        }
    }

    /// Its name in files and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CrossEntropy => "cross_entropy",
            Self::Nll => "nll",
            Self::Bce => "bce",
            Self::Mse => "mse",
        }
    }
}

impl Rows<'_> {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.outputs.len().checked_div(self.columns).unwrap_or(0)
    }

    /// Whether outputs and targets belong together.
    pub(crate) fn check(&self) -> Result<()> {
        let whole = self.columns * self.count();
        if self.columns == 0 {
            return Err(Error::Length { what: "a row of outputs".to_owned(), found: 0, expected: 1 });
        }
        check_length(format!("the array of outputs of {} columns", self.columns), self.outputs.len(), whole)?;
        match self.targets {
            Targets::Classes(labels) => check_length("the list of labels", labels.len(), self.count()),
            Targets::Values(values) => check_length("the array of targets", values.len(), self.outputs.len()),
        }
    }

    /// Rows of a piece.
    pub(crate) fn piece_rows(&self) -> usize {
        (PIECE / self.columns).max(1)
    }
}

impl fmt::Display for Targets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Classes(_) => "one class a row",
            Self::Values(_) => "a number for each output",
        })
    }
}

/// Checks labels and counts those that are some.
pub(crate) fn count_labels(labels: &[i64], classes: usize) -> Result<u64> {
    let limit = i64::try_from(classes).unwrap_or(i64::MAX);
    let bad = |label: &i64| *label != UNLABELLED && !(0..limit).contains(label);
    if let Some(row) = labels.iter().position(bad) {
        return Err(Error::Label { row, label: labels[row], classes });
    }
    Ok(labels.iter().filter(|&&label| label != UNLABELLED).count() as u64)
}

/// Checks targets and counts those that are some.
pub(crate) fn count_values(
    values: &[f32],
    columns: usize,
    range: RangeInclusive<f32>,
    expected: &'static str,
) -> Result<u64> {
    // Both comparisons are false of NaN, and neither waits for the other.
    let bad = |value: &f32| (value < range.start()) | (value > range.end());
    let count = |piece: &[f32]| {
        let (mut bad_ones, mut targets) = (0u32, 0u32);
        for value in piece {
            bad_ones += u32::from(bad(value));
            targets += u32::from(!value.is_nan());
        }
        (bad_ones > 0, u64::from(targets))
    };
    let pieces: Vec<&[f32]> = values.chunks(PIECE).collect();
    let counts: Vec<(bool, u64)> = parallel::collect(pieces.len(), |at| count(pieces[at]));
    if counts.iter().any(|(has_bad, _)| *has_bad) {
        let at = values.iter().position(bad).unwrap_or(0);
        return Err(Error::Target { row: at / columns, column: at % columns, value: values[at], expected });
    }
    Ok(counts.iter().map(|(_, count)| count).sum())
}

/// Adds up what pieces found, in their order.
fn mean(sums: &[f64], counted: u64) -> Found {
    let sum: f64 = sums.iter().sum();
    Found { mean: if counted == 0 { 0.0 } else { sum / counted as f64 }, counted }
}

/// The weight of one target in the mean.
#[expect(clippy::cast_possible_truncation, reason = "gradients are f32")]
fn share(counted: u64) -> f32 {
    (1.0 / counted.max(1) as f64) as f32
}

fn unfit(loss: Loss, expected: &'static str, found: Targets<'_>) -> Error {
    Error::TargetKind { what: loss.name(), expected, found: found.to_string() }
}
