//! Against torch 2.2, against central differences of a plain f64 version, and against bad input.

use proptest::prelude::*;

use super::*;

const OUTPUTS: [f32; 12] = [1.5, -0.5, 0.25, 0.0, 3.0, -2.0, 10.0, -10.0, 0.5, -1.0, -1.0, -1.0];
const LABELS: [i64; 4] = [0, 2, -1, 1];
const VALUES: [f32; 12] = [1.0, 0.0, 0.5, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0];

fn rows<'a>(outputs: &'a [f32], columns: usize, targets: Targets<'a>) -> Rows<'a> {
    Rows { outputs, columns, targets }
}

fn run(loss: Loss, weights: Option<&[f32]>, rows: Rows<'_>) -> (Found, Vec<f32>) {
    let mut gradient = vec![f32::NAN; rows.outputs.len()];
    (loss.weighted(rows, weights, &mut gradient).unwrap(), gradient)
}

/// Printed by torch for the same numbers.
#[test]
#[rustfmt::skip]
fn losses_and_gradients_are_torchs() {
    let (classes, values) = (Targets::Classes(&LABELS), Targets::Values(&VALUES));
    let weights: &[f32] = &[2.0, 0.5, 3.0];
    let cases = [
        (Loss::CrossEntropy, None, classes, Found { mean: 2.168_516_397_476_196, counted: 3 }, [
            -0.098_895_356, 0.031_727_728, 0.067_167_61, 0.015_707_806, 0.315_499_72, -0.331_207_51,
            0.0, 0.0, 0.0, 0.111_111_104, -0.222_222_24, 0.111_111_104]),
        (Loss::Nll, None, classes, Found { mean: 0.5, counted: 3 }, [
            -0.333_333_34, 0.0, 0.0, 0.0, 0.0, -0.333_333_34, 0.0, 0.0, 0.0, 0.0, -0.333_333_34, 0.0]),
        (Loss::Bce, None, values, Found { mean: 1.263_253_808_021_545_4, counted: 12 }, [
            -0.015_202_13, 0.031_461_723, 0.005_181_377_3, 0.041_666_668, -0.003_952_155_4, 0.009_933_577,
            -3.784_894_9e-6, -0.083_329_55, 0.051_871_613, 0.022_411_786, 0.022_411_786, -0.060_921_55]),
        (Loss::Bce, Some(weights), values, Found { mean: 1.128_220_915_794_372_6, counted: 12 }, [
            -0.030_404_26, 0.031_461_723, -0.031_303_912, 0.041_666_668, -0.001_976_077_7, 0.009_933_577,
            -7.569_79e-6, -0.041_664_775, 0.051_871_613, 0.022_411_786, 0.022_411_786, -0.182_764_65]),
        (Loss::Mse, None, values, Found { mean: 18.067_708_969_116_21, counted: 12 }, [
            0.083_333_336, -0.083_333_336, -0.041_666_668, 0.0, 0.333_333_34, -0.333_333_34,
            1.5, -1.833_333_4, 0.083_333_336, -0.166_666_67, -0.166_666_67, -0.333_333_34]),
    ];
    for (loss, weights, targets, whole, expected) in cases {
        let (found, gradient) = run(loss, weights, rows(&OUTPUTS, 3, targets));
        let close = (found.mean - whole.mean).abs() < 2e-7 * (1.0 + whole.mean);
        assert!(close && found.counted == whole.counted, "{loss:?} {found:?}");
        for (found, expected) in gradient.iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() < 1.5e-7, "{loss:?}: {found} {expected}");
        }
    }
}

/// The definitions, in f64 and without care for overflow.
fn plain(loss: Loss, outputs: &[f64], columns: usize, targets: Targets<'_>, weights: &[f32]) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    match targets {
        Targets::Classes(labels) => {
            for (row, &label) in outputs.chunks(columns).zip(labels) {
                let Ok(label) = usize::try_from(label) else { continue };
                let share = row.iter().map(|v| v.exp()).sum::<f64>().ln();
                sum += if loss == Loss::Nll { -row[label] } else { share - row[label] };
                count += 1.0;
            }
        }
        Targets::Values(values) => {
            for (at, (&x, &y)) in outputs.iter().zip(values).enumerate().filter(|(_, (_, y))| !y.is_nan()) {
                let (y, yes) = (f64::from(y), 1.0 / (1.0 + (-x).exp()));
                let entropy = -f64::from(weights[at % columns]) * y * yes.ln() - (1.0 - y) * (1.0 - yes).ln();
                sum += if loss == Loss::Mse { (x - y) * (x - y) } else { entropy };
                count += 1.0;
            }
        }
    }
    sum / f64::max(count, 1.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn gradients_are_central_differences(
        columns in 1usize..5,
        drawn in prop::collection::vec((-4f32..4.0, 0u8..6, 0f32..1.0), 1..24),
        weights in prop::collection::vec(0.25f32..3.0, 5),
    ) {
        let count = drawn.len() / columns;
        let outputs: Vec<f32> = drawn[..count * columns].iter().map(|d| d.0).collect();
        let labels: Vec<i64> = drawn[..count].iter().map(|d| i64::from(d.1) % (columns as i64 + 1) - 1).collect();
        let values: Vec<f32> = drawn[..count * columns].iter().map(|d| if d.1 == 0 { f32::NAN } else { d.2 }).collect();
        let weights = &weights[..columns];
        for loss in [Loss::CrossEntropy, Loss::Nll, Loss::Bce, Loss::Mse] {
            let by_class = matches!(loss, Loss::CrossEntropy | Loss::Nll);
            let targets = if by_class { Targets::Classes(&labels) } else { Targets::Values(&values) };
            let (found, gradient) = run(loss, Some(weights), rows(&outputs, columns, targets));
            let wide: Vec<f64> = outputs.iter().map(|&v| f64::from(v)).collect();
            let whole = plain(loss, &wide, columns, targets, weights);
            prop_assert!((found.mean - whole).abs() < 1e-5, "{loss:?} {} {whole}", found.mean);
            for at in 0..outputs.len() {
                let moved = |by: f64| {
                    let mut wide = wide.clone();
                    wide[at] += by;
                    plain(loss, &wide, columns, targets, weights)
                };
                let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                prop_assert!((f64::from(gradient[at]) - slope).abs() < 1e-5, "{loss:?} {at}: {} {slope}", gradient[at]);
            }
        }
    }
}

#[test]
fn extreme_outputs_keep_their_digits() {
    for (outputs, label, expected) in [
        ([1000.0f32, 0.0], 0, 0.0),
        ([1000.0, 0.0], 1, 1000.0),
        ([-1e30, 1e30], 0, 2e30),
        ([16_777_216.0, 16_777_215.0], 1, 1.0 + 0.313_261_687_518_222_84),
        ([f32::NEG_INFINITY, 5.0], 1, 0.0),
    ] {
        let found = run(Loss::CrossEntropy, None, rows(&outputs, 2, Targets::Classes(&[label]))).0.mean;
        assert!((found - expected).abs() <= 1e-6 * expected.max(1e-3), "{outputs:?} {label}: {found}");
    }
    for (output, target, expected) in
        [(1000.0f32, 1.0f32, 0.0), (1000.0, 0.0, 1000.0), (-1000.0, 1.0, 1000.0), (-1e30, 0.0, 0.0)]
    {
        let (found, gradient) = run(Loss::Bce, None, rows(&[output], 1, Targets::Values(&[target])));
        assert!((found.mean - expected).abs() < 1e-6 && gradient[0].is_finite(), "{output} {target}: {found:?}");
    }
}

/// A right answer's loss is exp(-20), however large the output that it is the rest of.
#[test]
fn small_losses_are_not_lost() {
    for (output, target) in [(20.0f32, 1.0f32), (-20.0, 0.0)] {
        let found = run(Loss::Bce, None, rows(&[output], 1, Targets::Values(&[target]))).0.mean;
        assert!((found / (-20.0f64).exp() - 1.0).abs() < 1e-5, "{output}: {found}");
    }
}

#[test]
fn what_is_not_a_number_is_seen() {
    let wrong = [0.0, f32::NAN, 1.0, 2.0];
    for (loss, targets) in [
        (Loss::CrossEntropy, Targets::Classes(&[0, 1])),
        (Loss::Nll, Targets::Classes(&[1, 1])),
        (Loss::Bce, Targets::Values(&[0.0, 0.0, 1.0, 1.0])),
        (Loss::Bce, Targets::Values(&[0.0, 1.0, 1.0, 1.0])),
        (Loss::Mse, Targets::Values(&[0.0; 4])),
    ] {
        assert!(run(loss, None, rows(&wrong, 2, targets)).0.mean.is_nan(), "{loss:?}");
    }
    // A row that does not count may be anything.
    let found = run(Loss::CrossEntropy, None, rows(&wrong, 2, Targets::Classes(&[-1, 1])));
    assert!(found.0.mean.is_finite() && found.1[..2] == [0.0, 0.0], "{found:?}");
}

#[test]
fn nothing_to_learn_from_is_a_loss_of_nothing() {
    let none = Found { mean: 0.0, counted: 0 };
    assert_eq!(run(Loss::CrossEntropy, None, rows(&[1.0, 2.0], 2, Targets::Classes(&[-1]))), (none, vec![0.0; 2]));
    assert_eq!(run(Loss::Mse, None, rows(&[1.0], 1, Targets::Values(&[f32::NAN]))), (none, vec![0.0]));
    assert_eq!(run(Loss::Bce, None, rows(&[], 3, Targets::Values(&[]))), (none, vec![]));
}

#[test]
fn bad_targets_are_named() {
    let outputs = [0.0; 6];
    let classes = Targets::Classes;
    let values = Targets::Values;
    for (loss, columns, targets, words) in [
        (Loss::CrossEntropy, 3, classes(&[2, 3]), &["row 1", "label 3", "below 3"][..]),
        (Loss::Nll, 3, classes(&[-2, 0]), &["row 0", "label -2"]),
        (Loss::CrossEntropy, 3, classes(&[0]), &["labels has 1", "expected 2"]),
        (Loss::CrossEntropy, 4, classes(&[0]), &["4 columns", "expected 4"]),
        (Loss::CrossEntropy, 0, classes(&[]), &["row of outputs"]),
        (Loss::CrossEntropy, 3, values(&outputs), &["cross_entropy", "one class a row", "a number for each output"]),
        (Loss::Mse, 3, classes(&[0, 0]), &["mse", "one class a row"]),
        (Loss::Bce, 3, values(&[0.0, 0.0, 0.0, 0.0, 1.5, 2.0]), &["row 1", "column 1", "1.5"]),
        (Loss::Bce, 3, values(&[0.0, 0.0, -0.5, 0.0, 0.0, 0.0]), &["row 0", "column 2", "-0.5"]),
        (Loss::Mse, 2, values(&[0.0, 0.0, 0.0, f32::INFINITY, 0.0, 0.0]), &["row 1", "column 1", "inf"]),
    ] {
        let said = loss.of(rows(&outputs, columns, targets), &mut [0.0; 6]).unwrap_err().to_string();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    assert!(Loss::Mse.of(rows(&outputs, 3, values(&outputs)), &mut [0.0; 5]).is_err());
    assert!(Loss::Bce.weighted(rows(&outputs, 3, values(&outputs)), Some(&[1.0]), &mut [0.0; 6]).is_err());
}

#[test]
fn threads_change_nothing() {
    let (count, columns) = (3000, 7);
    let outputs: Vec<f32> = (0..count * columns).map(|i| (i % 997) as f32 / 100.0).collect();
    let labels: Vec<i64> = (0..count as i64).map(|i| i % 8 - 1).collect();
    let values: Vec<f32> = (0..count * columns).map(|i| (i % 3) as f32 / 2.0).collect();
    for (loss, targets) in [(Loss::CrossEntropy, Targets::Classes(&labels)), (Loss::Bce, Targets::Values(&values))] {
        let at = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| run(loss, None, rows(&outputs, columns, targets)))
        };
        let one = at(1);
        assert!(one.0.mean.to_bits() == at(5).0.mean.to_bits() && one.1 == at(3).1, "{loss:?}");
    }
}
