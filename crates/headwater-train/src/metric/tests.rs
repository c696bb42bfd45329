//! Against scikit-learn's values, against counting all pairs, and batch by batch against all at once.

use proptest::prelude::*;

use super::*;

fn value(metric: Metric, columns: usize, outputs: &[f32], targets: Targets<'_>) -> Option<f64> {
    let mut meter = Meter::new(metric, columns);
    meter.add(Rows { outputs, columns, targets }).unwrap();
    meter.value()
}

/// Rows whose largest output is at the given place.
fn one_hot(answers: &[usize], columns: usize) -> Vec<f32> {
    answers.iter().flat_map(|&answer| (0..columns).map(move |c| if c == answer { 1.0 } else { -1.0 })).collect()
}

fn signs(answers: &[u8]) -> Vec<f32> {
    answers.iter().map(|&answer| f32::from(answer) - 0.5).collect()
}

#[test]
fn classes_are_counted_as_scikit_learn_does() {
    let labels = [0i64, 1, 2, 2, 1, 0, 3, 2];
    // A fifth class that nobody asks for or answers changes nothing.
    let outputs = one_hot(&[0, 2, 2, 2, 1, 1, 3, 0], 5);
    for (metric, expected) in [(Metric::Accuracy, 0.625), (Metric::F1Micro, 0.625), (Metric::F1Macro, 2.0 / 3.0)] {
        let found = value(metric, 5, &outputs, Targets::Classes(&labels)).unwrap();
        assert!((found - expected).abs() < 1e-12, "{metric:?} {found}");
    }
}

#[test]
fn yes_and_no_are_counted_as_scikit_learn_does() {
    let asked = signs(&[1, 0, 1, 0, 1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0]).iter().map(|v| v + 0.5).collect::<Vec<_>>();
    let outputs = signs(&[1, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0]);
    for (metric, expected) in [
        (Metric::Accuracy, 10.0 / 15.0),
        (Metric::F1Micro, 0.666_666_666_666_666_6),
        (Metric::F1Macro, 0.619_047_619_047_619_1),
    ] {
        let found = value(metric, 3, &outputs, Targets::Values(&asked)).unwrap();
        assert!((found - expected).abs() < 1e-12, "{metric:?} {found}");
    }
    // The second column has neither a yes nor one answered, the third is never answered: both count with 0.
    let asked = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
    let outputs = signs(&[1, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]);
    for (metric, expected) in [(Metric::F1Micro, 0.545_454_545_454_545_4), (Metric::F1Macro, 0.291_666_666_666_666_6)] {
        let found = value(metric, 4, &outputs, Targets::Values(&asked)).unwrap();
        assert!((found - expected).abs() < 1e-12, "{metric:?} {found}");
        assert_eq!(value(metric, 2, &[-1.0; 4], Targets::Values(&[0.0; 4])), Some(0.0), "{metric:?}");
        assert_eq!(value(metric, 1, &[-1.0], Targets::Values(&[f32::NAN])), None, "{metric:?}");
    }
}

#[test]
fn areas_of_known_curves() {
    let scikit = [0.1f32, 0.4, 0.35, 0.8, 0.4, 0.4];
    for (scores, yes, expected) in [
        (&scikit[..], &[0.0f32, 0.0, 1.0, 1.0, 0.0, 1.0][..], Some(2.0 / 3.0)),
        (&[1.0, 2.0, 3.0, 4.0], &[0.0, 0.0, 1.0, 1.0], Some(1.0)),
        (&[1.0, 2.0, 3.0, 4.0], &[1.0, 1.0, 0.0, 0.0], Some(0.0)),
        (&[5.0; 4], &[1.0, 0.0, 0.0, 1.0], Some(0.5)),
        (&[0.0, -0.0], &[1.0, 0.0], Some(0.5)),
        (&[f32::INFINITY, f32::NEG_INFINITY], &[1.0, 0.0], Some(1.0)),
        (&[1.0, 2.0], &[1.0, 1.0], None),
        (&[1.0, 2.0, 9.0], &[0.0, 1.0, f32::NAN], Some(1.0)),
        (&[], &[], None),
    ] {
        assert_eq!(value(Metric::RocAuc, 1, scores, Targets::Values(yes)), expected, "{scores:?} {yes:?}");
    }
    // The mean is over the columns that have both answers: the third has none.
    let outputs = [1.0, 1.0, 7.0, 2.0, 0.0, 8.0];
    let yes = [0.0, 0.0, 1.0, 1.0, 1.0, 1.0];
    assert_eq!(value(Metric::RocAuc, 3, &outputs, Targets::Values(&yes)), Some(0.5));
    // Of two classes the distance of the outputs is the score.
    let two = [0.0, 1.0, 5.0, 5.5, 3.0, 1.0];
    assert_eq!(value(Metric::RocAuc, 2, &two, Targets::Classes(&[1, 0, -1])), Some(1.0));
}

/// As scikit-learn's `r2_score` with the mean over columns.
#[test]
fn numbers_are_explained_as_scikit_learn_says() {
    for (columns, outputs, targets, expected) in [
        (1, &[2.5f32, 0.0, 2.0, 8.0][..], &[3.0f32, -0.5, 2.0, 7.0][..], Some(0.948_608_137_044_967_9)),
        (2, &[0.0, 2.0, -1.0, 2.0, 8.0, -5.0], &[0.5, 1.0, -1.0, 1.0, 7.0, -6.0], Some(0.936_800_526_662_277_7)),
        (1, &[1.0, 1.0, 1.0], &[1.0, 2.0, 3.0], Some(-1.5)),
        (1, &[1.0, 9.0, 3.0], &[1.0, f32::NAN, 3.0], Some(1.0)),
        // A column whose targets are all the same counts too: 1 where they are met, else 0.
        (2, &[0.0, 5.0, 0.0, 5.0], &[1.0, 4.0, 1.0, 6.0], Some(0.0)),
        (1, &[1.0, 2.0], &[4.0, 4.0], Some(0.0)),
        (
            3,
            &[1.5, 2.0, 3.5, 2.0, 2.0, 3.0, 3.0, 2.0, 3.0, 0.0, 2.0, 3.0],
            &[1.0, 2.0, 3.0, 2.0, 2.0, 3.0, 4.0, 2.0, 3.0, 0.5, 2.0, 3.0],
            Some(0.597_101_449_275_362_2),
        ),
        (1, &[1.0], &[1.0], None),
        (2, &[f32::INFINITY, 0.0, 1.0, 1.0], &[1.0, 2.0, 1.0, 3.0], None),
        (1, &[], &[], None),
    ] {
        let found = value(Metric::R2, columns, outputs, Targets::Values(targets));
        let is_near = match (found, expected) {
            (Some(found), Some(expected)) => (found - expected).abs() < 1e-7,
            (found, expected) => found == expected,
        };
        assert!(is_near, "{outputs:?} {targets:?}: {found:?}");
    }
    let rows = Rows { outputs: &[0.0; 2], columns: 1, targets: Targets::Classes(&[0, 0]) };
    assert!(Meter::new(Metric::R2, 1).add(rows).unwrap_err().to_string().contains("r2"));
}

#[test]
fn rows_without_a_label_do_not_count() {
    let outputs = one_hot(&[0, 1, 1], 2);
    for metric in [Metric::Accuracy, Metric::F1Micro, Metric::F1Macro] {
        assert_eq!(value(metric, 2, &outputs, Targets::Classes(&[0, -1, 1])), Some(1.0), "{metric:?}");
        assert_eq!(value(metric, 2, &outputs, Targets::Classes(&[-1; 3])), None, "{metric:?}");
        assert_eq!(value(metric, 2, &[1.0, -1.0], Targets::Values(&[1.0, f32::NAN])), Some(1.0), "{metric:?}");
    }
}

#[test]
fn what_is_not_a_number_is_no_right_answer() {
    let outputs = [f32::NAN, 0.0, 1.0, 0.0];
    assert_eq!(value(Metric::Accuracy, 2, &outputs, Targets::Classes(&[0, 0])), Some(0.5));
    assert_eq!(value(Metric::F1Micro, 2, &outputs, Targets::Classes(&[0, 0])), Some(2.0 / 3.0));
    assert_eq!(value(Metric::Accuracy, 2, &outputs, Targets::Values(&[0.0; 4])), Some(0.5));
    let rows = |columns, targets| Rows { outputs: &outputs, columns, targets };
    for (columns, targets, words) in [
        (4, Targets::Values(&[0.0; 4][..]), "row 0, column 0"),
        (2, Targets::Classes(&[0, 1]), "row 0, column 0"),
        (4, Targets::Classes(&[0]), "one of 4 classes"),
        (2, Targets::Classes(&[0, 2]), "label 2"),
        (2, Targets::Values(&[0.0, 0.0, 3.0, 0.0]), "row 1, column 0"),
    ] {
        let said = Meter::new(Metric::RocAuc, columns).add(rows(columns, targets)).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
    assert!(Meter::new(Metric::Accuracy, 3).add(rows(2, Targets::Classes(&[0, 1]))).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_area_is_the_share_of_pairs_in_order(drawn in prop::collection::vec((0u8..12, any::<bool>()), 0..60)) {
        let scores: Vec<f32> = drawn.iter().map(|d| f32::from(d.0) - 5.0).collect();
        let yes: Vec<f32> = drawn.iter().map(|d| f32::from(u8::from(d.1))).collect();
        let (mut halves, mut pairs) = (0u32, 0u32);
        for (a, _) in drawn.iter().filter(|d| d.1) {
            for (b, _) in drawn.iter().filter(|d| !d.1) {
                halves += if a > b { 2 } else { u32::from(a == b) };
                pairs += 1;
            }
        }
        let expected = (pairs > 0).then(|| f64::from(halves) / f64::from(2 * pairs));
        prop_assert_eq!(value(Metric::RocAuc, 1, &scores, Targets::Values(&yes)), expected);
    }

    #[test]
    fn batches_are_all_at_once(drawn in prop::collection::vec((0usize..3, -1i64..3), 1..40), cut in 0usize..40) {
        let outputs = one_hot(&drawn.iter().map(|d| d.0).collect::<Vec<_>>(), 3);
        let labels: Vec<i64> = drawn.iter().map(|d| d.1).collect();
        let yes: Vec<f32> = (0..outputs.len()).map(|i| [0.0, 1.0, f32::NAN][(i * 7 + labels.len()) % 3]).collect();
        let cut = cut.min(labels.len());
        for metric in [Metric::Accuracy, Metric::F1Micro, Metric::F1Macro, Metric::RocAuc] {
            for by_class in [true, false] {
                if by_class && metric == Metric::RocAuc {
                    continue;
                }
                let part = |range: std::ops::Range<usize>| Rows {
                    outputs: &outputs[range.start * 3..range.end * 3],
                    columns: 3,
                    targets: if by_class {
                        Targets::Classes(&labels[range])
                    } else {
                        Targets::Values(&yes[range.start * 3..range.end * 3])
                    },
                };
                let (mut whole, mut parts) = (Meter::new(metric, 3), Meter::new(metric, 3));
                whole.add(part(0..labels.len())).unwrap();
                parts.add(part(0..cut)).unwrap();
                parts.add(part(cut..labels.len())).unwrap();
                prop_assert_eq!(whole.value(), parts.value());
            }
        }
    }
}
