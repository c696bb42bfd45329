//! A yes or no for each output.

use super::square::each_output;
use super::{Found, Rows, count_values, mean, share};
use crate::error::Result;

/// Cross-entropy of sigmoids, in the form that neither overflows nor cancels. A yes weighs as its column says.
pub(super) fn bce(rows: Rows<'_>, targets: &[f32], yes_weights: Option<&[f32]>, gradient: &mut [f32]) -> Result<Found> {
    let counted = count_values(targets, rows.columns, 0.0..=1.0, "a share from 0 to 1, or NaN for none")?;
    let share = share(counted);
    let sums = each_output(rows, targets, gradient, |column, output, target| {
        let weight = yes_weights.map_or(1.0, |weights| weights[column]);
        let (loss, slope) = bce_output(output, target, weight);
        (loss, slope * share)
    });
    Ok(mean(&sums, counted))
}

/// Loss and slope of one output.
fn bce_output(output: f32, target: f32, yes_weight: f32) -> (f64, f32) {
    // With w = 1 + (weight - 1) y: loss = (1 - y) x + w log(1 + exp(-x)).
    let weight = 1.0 + (yes_weight - 1.0) * target;
    let small = (-output.abs()).exp();
    // The sum is f64, so that a small loss is not lost beside a large output. `max` would lose an output that is not a
    // number; `small` keeps it.
    let softplus = f64::from(small.ln_1p()) + f64::from((-output).max(0.0));
    // The sigmoid of -x, which is the share of the wrong answer.
    let wrong = if output >= 0.0 { small / (1.0 + small) } else { 1.0 / (1.0 + small) };
    (f64::from(1.0 - target) * f64::from(output) + f64::from(weight) * softplus, (1.0 - target) - weight * wrong)
}
