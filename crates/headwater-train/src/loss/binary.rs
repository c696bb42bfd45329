//! A yes or no for each output.

use super::exponential::exp_of_negative;
use super::square::each_output;
use super::{Found, Loss, Rows, count_values, mean, share};
use crate::error::Result;

/// Cross-entropy of sigmoids, in the form that neither overflows nor cancels. A yes weighs as its column says.
pub(super) fn bce(rows: Rows<'_>, targets: &[f32], yes_weights: Option<&[f32]>, gradient: &mut [f32]) -> Result<Found> {
    let (range, expected) = Loss::Bce.range();
    let counted = count_values(targets, rows.columns, range, expected)?;
    let share = share(counted);
    let sums = each_output(rows, targets, yes_weights, gradient, |output, target, weight| {
        let (loss, slope) = bce_output(output, target, weight);
        (loss, slope * share)
    });
    Ok(mean(&sums, counted))
}

/// Loss and slope of one output. Signs of outputs are as good as random, so nothing here branches on them.
fn bce_output(output: f32, target: f32, yes_weight: f32) -> (f64, f32) {
    // With w = 1 + (weight - 1) y: loss = (1 - y) x + w log(1 + exp(-x)).
    let weight = 1.0 + (yes_weight - 1.0) * target;
    let small = exp_of_negative(-output.abs());
    // The sum is f64, so that a small loss is not lost beside a large output.
    let softplus = f64::from(log_one_plus(small)) + f64::from(if output < 0.0 { -output } else { 0.0 });
    // The sigmoid of -x, which is the share of the wrong answer.
    let wrong = (if output >= 0.0 { small } else { 1.0 }) / (1.0 + small);
    let loss = f64::from(1.0 - target) * f64::from(output) + f64::from(weight) * softplus;
    (loss, (1.0 - target) - weight * wrong)
}

/// `log(1 + x)` for x from 0 to 1, to the last bits of an f32: with z = x / (2 + x), which is at most 1/3, it is
/// 2 (z + z^3/3 + z^5/5 + ...). Neither a branch nor a call.
fn log_one_plus(x: f32) -> f32 {
    const ODD: [f32; 7] = [1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0];
    let z = x / (2.0 + x);
    let square = z * z;
    2.0 * z * ODD.iter().fold(1.0 / 15.0, |sum, term| sum * square + term)
}

#[cfg(test)]
mod tests {
    use super::log_one_plus;

    #[test]
    fn the_series_is_the_logarithm() {
        let tiny = (0..150).map(|i| 2f32.powi(-i));
        let others = (0..=10_000u16).map(|i| f32::from(i) / 10_000.0);
        for x in tiny.chain(others) {
            let (found, expected) = (f64::from(log_one_plus(x)), f64::from(x).ln_1p());
            assert!((found - expected).abs() <= 3e-7 * expected, "{x}: {found} {expected}");
        }
        assert!(log_one_plus(f32::NAN).is_nan());
    }
}
