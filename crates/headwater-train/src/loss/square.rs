//! The squared difference, and the walk over single outputs.

use rayon::prelude::*;

use super::{Found, Rows, count_values, mean, share};
use crate::error::Result;

/// The mean squared difference.
pub(super) fn mse(rows: Rows<'_>, targets: &[f32], gradient: &mut [f32]) -> Result<Found> {
    let counted = count_values(targets, rows.columns, f32::MIN..=f32::MAX, "a finite number, or NaN for none")?;
    let share = share(counted);
    let sums = each_output(rows, targets, gradient, |_, output, target| {
        let difference = f64::from(output) - f64::from(target);
        (difference * difference, 2.0 * share * (output - target))
    });
    Ok(mean(&sums, counted))
}

/// Runs through outputs that have a target, `one` being told column, output and target and returning loss and slope, and
/// returns the sum of each piece. Outputs without a target get a gradient of 0.
pub(super) fn each_output(
    rows: Rows<'_>,
    targets: &[f32],
    gradient: &mut [f32],
    one: impl Fn(usize, f32, f32) -> (f64, f32) + Sync,
) -> Vec<f64> {
    let (columns, piece) = (rows.columns, rows.piece_rows() * rows.columns);
    let pieces = gradient.par_chunks_mut(piece).zip(rows.outputs.par_chunks(piece)).zip(targets.par_chunks(piece));
    let sum_piece = |((gradient, outputs), targets): ((&mut [f32], &[f32]), &[f32])| {
        let rows = outputs.chunks_exact(columns).zip(targets.chunks_exact(columns));
        let rows = gradient.chunks_exact_mut(columns).zip(rows);
        rows.map(|(slope, (outputs, targets))| sum_row(slope, outputs, targets, &one)).sum::<f64>()
    };
    pieces.map(sum_piece).collect()
}

fn sum_row(slope: &mut [f32], outputs: &[f32], targets: &[f32], one: &impl Fn(usize, f32, f32) -> (f64, f32)) -> f64 {
    let mut sum = 0.0;
    for (column, (slope, (&output, &target))) in slope.iter_mut().zip(outputs.iter().zip(targets)).enumerate() {
        let (loss, way) = if target.is_nan() { (0.0, 0.0) } else { one(column, output, target) };
        sum += loss;
        *slope = way;
    }
    sum
}
