//! The area under the ROC curve: how often a yes scores above a no.
//!
//! Computed from ranks, where equal scores share the middle of theirs: a tie is half a win. Wins are counted in whole
//! numbers and divided once, so the value is exact.

use headwater_tensor::parallel;
use rayon::prelude::*;

use super::{is_yes, too_many_classes};
use crate::error::{Error, Result};
use crate::loss::{Rows, Targets};

/// The scores of each column, with whether the answer is yes.
#[derive(Debug, Clone, Default)]
pub(super) struct Area(Vec<Vec<(f32, bool)>>);

impl Area {
    pub(super) fn add(&mut self, rows: Rows<'_>) -> Result<()> {
        let columns = if matches!(rows.targets, Targets::Classes(_)) { 1 } else { rows.columns };
        self.0.resize(columns, Vec::new());
        match rows.targets {
            Targets::Classes(labels) => self.add_classes(rows, labels),
            Targets::Values(values) => self.add_values(rows, values),
        }
    }

    /// Of two classes, the second is the yes, and the distance of the outputs is the score.
    fn add_classes(&mut self, rows: Rows<'_>, labels: &[i64]) -> Result<()> {
        if rows.columns != 2 {
            return Err(too_many_classes(rows.columns));
        }
        for (row, (outputs, &label)) in rows.outputs.chunks_exact(2).zip(labels).enumerate() {
            if label >= 0 {
                self.push(row, 0, outputs[1] - outputs[0], label == 1)?;
            }
        }
        Ok(())
    }

    fn add_values(&mut self, rows: Rows<'_>, values: &[f32]) -> Result<()> {
        for (at, (&output, &target)) in rows.outputs.iter().zip(values).enumerate() {
            if !target.is_nan() {
                self.push(at / rows.columns, at % rows.columns, output, is_yes(target))?;
            }
        }
        Ok(())
    }

    fn push(&mut self, row: usize, column: usize, score: f32, yes: bool) -> Result<()> {
        if score.is_nan() {
            return Err(Error::Score { row, column });
        }
        self.0[column].push((score, yes));
        Ok(())
    }

    /// The mean over columns that have both answers.
    pub(super) fn value(&self) -> Option<f64> {
        let areas = parallel::collect(self.0.len(), |column| area(self.0[column].clone()));
        let areas: Vec<f64> = areas.into_iter().flatten().collect();
        (!areas.is_empty()).then(|| areas.iter().sum::<f64>() / areas.len() as f64)
    }
}

/// The area of one column.
fn area(mut scores: Vec<(f32, bool)>) -> Option<f64> {
    scores.par_sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut noes, mut yeses, mut half_wins) = (0u128, 0u128, 0u128);
    // The two zeros are equal, and stand side by side.
    for equal in scores.chunk_by(|a, b| a.0 == b.0) {
        let yes = equal.iter().filter(|(_, yes)| *yes).count() as u128;
        let no = equal.len() as u128 - yes;
        half_wins += yes * (2 * noes + no);
        noes += no;
        yeses += yes;
    }
    let pairs = noes * yeses;
    (pairs > 0).then(|| half_wins as f64 / (2 * pairs) as f64)
}
