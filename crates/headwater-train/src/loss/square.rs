//! The squared difference, and the walk over single outputs.

use headwater_tensor::parallel;

use super::{Found, Loss, Rows, count_values, mean, share};
use crate::error::Result;

/// Outputs that are worked on together, before their losses are added up.
const BLOCK: usize = 64;

/// The mean squared difference.
pub(super) fn mse(rows: Rows<'_>, targets: &[f32], gradient: &mut [f32]) -> Result<Found> {
    let (range, expected) = Loss::Mse.range();
    let counted = count_values(targets, rows.columns, range, expected)?;
    let share = share(counted);
    let sums = each_output(rows, targets, None, gradient, |output, target, _| {
        let difference = f64::from(output) - f64::from(target);
        (difference * difference, 2.0 * share * (output - target))
    });
    Ok(mean(&sums, counted))
}

/// Runs through outputs that have a target, `one` being told output, target and the column's weight and returning loss
/// and slope, and returns the sum of each piece. Outputs without a target get a gradient of 0.
pub(super) fn each_output(
    rows: Rows<'_>,
    targets: &[f32],
    weights: Option<&[f32]>,
    gradient: &mut [f32],
    one: impl Fn(f32, f32, f32) -> (f64, f32) + Sync,
) -> Vec<f64> {
    // A piece is whole rows, so the weights of one are those of all.
    let weights = weights.map_or_else(|| vec![1.0; rows.columns], <[f32]>::to_vec).repeat(rows.piece_rows());
    let piece = weights.len();
    let mut sums = vec![0.0; gradient.len().div_ceil(piece)];
    let pieces = gradient.chunks_mut(piece).zip(rows.outputs.chunks(piece)).zip(targets.chunks(piece));
    parallel::for_each(pieces.zip(&mut sums), |_, (((slopes, outputs), targets), sum)| {
        let inputs = outputs.chunks(BLOCK).zip(targets.chunks(BLOCK)).zip(weights.chunks(BLOCK));
        for (slopes, ((outputs, targets), weights)) in slopes.chunks_mut(BLOCK).zip(inputs) {
            *sum += sum_block(slopes, outputs, targets, weights, &one);
        }
    });
    sums
}

/// Losses are kept apart from their sum, which has an order, so that the first loop has none and becomes vectors.
fn sum_block(
    slopes: &mut [f32],
    outputs: &[f32],
    targets: &[f32],
    weights: &[f32],
    one: &impl Fn(f32, f32, f32) -> (f64, f32),
) -> f64 {
    let mut losses = [0.0; BLOCK];
    let inputs = outputs.iter().zip(targets).zip(weights);
    for ((slope, loss), ((&output, &target), &weight)) in slopes.iter_mut().zip(&mut losses).zip(inputs) {
        let (found, way) = one(output, target, weight);
        *loss = if target.is_nan() { 0.0 } else { found };
        *slope = if target.is_nan() { 0.0 } else { way };
    }
    losses.iter().sum()
}
