//! Losses of rows that belong to one class each.

use headwater_tensor::parallel;

use super::exponential::exp_of_negative;
use super::{Found, Rows, count_labels, mean, share};
use crate::error::Result;

/// Softmax cross-entropy. Outputs are shifted by their maximum, so no exponential overflows.
pub(super) fn cross_entropy(rows: Rows<'_>, labels: &[i64], gradient: &mut [f32]) -> Result<Found> {
    let counted = count_labels(labels, rows.columns)?;
    let share = share(counted);
    Ok(mean(
        &each_row(rows, labels, gradient, |outputs, label, slope| cross_entropy_row(outputs, label, slope, share)),
        counted,
    ))
}

/// Minus the logarithm that stands in the label's column.
pub(super) fn nll(rows: Rows<'_>, labels: &[i64], gradient: &mut [f32]) -> Result<Found> {
    let counted = count_labels(labels, rows.columns)?;
    let share = share(counted);
    let sums = each_row(rows, labels, gradient, |outputs, label, slope| {
        slope.fill(0.0);
        slope[label] = -share;
        -f64::from(outputs[label])
    });
    Ok(mean(&sums, counted))
}

/// The loss of one row; its gradient, times `share`, fills `slope`.
fn cross_entropy_row(outputs: &[f32], label: usize, slope: &mut [f32], share: f32) -> f64 {
    let most = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    // Apart from the sum, which has an order, so that this loop has none.
    slope.iter_mut().zip(outputs).for_each(|(slope, &output)| *slope = exp_of_negative(output - most));
    let sum: f32 = slope.iter().sum();
    let scale = share / sum;
    slope.iter_mut().for_each(|slope| *slope *= scale);
    slope[label] -= share;
    // The difference is taken in f64: large outputs that are close together keep their digits.
    f64::from(sum).ln() + (f64::from(most) - f64::from(outputs[label]))
}

/// Runs through labelled rows and returns the sum of each piece. Rows without a label get a gradient of 0.
fn each_row(
    rows: Rows<'_>,
    labels: &[i64],
    gradient: &mut [f32],
    row: impl Fn(&[f32], usize, &mut [f32]) -> f64 + Sync,
) -> Vec<f64> {
    let (piece_rows, columns) = (rows.piece_rows(), rows.columns);
    let mut sums = vec![0.0; labels.len().div_ceil(piece_rows)];
    let outputs = rows.outputs.chunks(piece_rows * columns);
    let pieces = gradient.chunks_mut(piece_rows * columns).zip(outputs).zip(labels.chunks(piece_rows));
    parallel::for_each(pieces.zip(&mut sums), |_, (((gradient, outputs), labels), sum)| {
        let slopes = gradient.chunks_exact_mut(columns);
        for ((slope, outputs), &label) in slopes.zip(outputs.chunks_exact(columns)).zip(labels) {
            match usize::try_from(label) {
                Ok(label) => *sum += row(outputs, label, slope),
                Err(_) => slope.fill(0.0),
            }
        }
    });
    sums
}
