//! What labels of nodes are, from the numbers they were read as. Deciding is pure.
//!
//! | a node has | numbers | they are |
//! | --- | --- | --- |
//! | one | whole, also as floats, or NaN | classes; -1 and NaN are none |
//! | one | other floats | values to predict |
//! | several | 0 and 1 | answers of yes or no |
//! | several | floats | values, or answers where all are 0 or 1; NaN is not known |
//!
//! Whatever else there is, training could not use it, so it is refused here.

use super::fault::Fault;
use super::options::LabelKind;

/// More classes would need rows of outputs that no memory holds.
const MOST_CLASSES: i64 = 1 << 20;

/// Numbers as they were read, row after row.
#[derive(Debug, Clone, PartialEq)]
pub enum Numbers {
    /// Integers.
    Whole(Vec<i64>),
    /// Floats.
    Real(Vec<f64>),
}

/// Labels as they are kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Labels {
    /// One class a node.
    Classes(Vec<i64>),
    /// Several answers a node, 1 or 0.
    Answers(Vec<i64>),
    /// Numbers to predict.
    Values(Vec<f32>),
}

/// Decides, or says which element does not fit.
pub fn decide(numbers: Numbers, columns: usize, kind: LabelKind) -> Result<Labels, (u64, Fault)> {
    match (numbers, kind) {
        (Numbers::Whole(labels), LabelKind::Values) => {
            values(&labels.into_iter().map(|label| label as f64).collect::<Vec<_>>())
        }
        (Numbers::Real(labels), LabelKind::Values) => values(&labels),
        (_, LabelKind::Classes) if columns != 1 => {
            Err((0, Fault::Refused(format!("a node has {columns} labels; a class is one"))))
        }
        (Numbers::Whole(labels), _) if columns == 1 => classes(labels),
        (Numbers::Whole(labels), _) => answers(labels),
        (Numbers::Real(labels), LabelKind::Classes) => classes(whole(&labels)?),
        (Numbers::Real(labels), LabelKind::Auto) if columns == 1 => match whole(&labels) {
            Ok(labels) => classes(labels),
            Err(_) => values(&labels),
        },
        (Numbers::Real(labels), LabelKind::Auto) => values(&labels),
    }
}

/// How many classes there are.
pub fn class_count(labels: &[i64]) -> Option<u64> {
    let most = labels.iter().copied().max().unwrap_or(-1);
    u64::try_from(most).ok().map(|most| most + 1)
}

fn bad(at: usize, value: impl ToString, expected: &str) -> (u64, Fault) {
    (at as u64, Fault::Value { value: value.to_string(), expected: expected.to_owned() })
}

fn classes(labels: Vec<i64>) -> Result<Labels, (u64, Fault)> {
    match labels.iter().position(|label| !(-1..MOST_CLASSES).contains(label)) {
        Some(at) => {
            let expected = "a class: a number from 0 on and below 2^20, or -1 for none (--labels values takes labels for \
                            numbers to predict)";
            Err(bad(at, labels[at], expected))
        }
        None => Ok(Labels::Classes(labels)),
    }
}

fn answers(labels: Vec<i64>) -> Result<Labels, (u64, Fault)> {
    match labels.iter().position(|label| !matches!(label, 0 | 1)) {
        Some(at) => {
            let expected =
                "0 or 1, where a node has several labels (--labels values takes them for numbers to predict)";
            Err(bad(at, labels[at], expected))
        }
        None => Ok(Labels::Answers(labels)),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "numbers to predict are kept in single precision")]
fn values(labels: &[f64]) -> Result<Labels, (u64, Fault)> {
    let values: Vec<f32> = labels.iter().map(|label| *label as f32).collect();
    match values.iter().position(|value| value.is_infinite()) {
        Some(at) => Err(bad(at, labels[at], "a number that single precision holds, or NaN where it is not known")),
        None => Ok(Labels::Values(values)),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "only whole numbers that fit come this far")]
fn whole(labels: &[f64]) -> Result<Vec<i64>, (u64, Fault)> {
    let one = |(at, label): (usize, &f64)| match *label {
        none if none.is_nan() => Ok(-1),
        class if class.fract() == 0.0 && class.abs() < 1e15 => Ok(class as i64),
        other => Err(bad(at, other, "a class: a whole number, or NaN for none")),
    };
    labels.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_classes_answers_or_values() {
        use LabelKind::{Auto, Classes, Values};
        let (real, whole) =
            (|labels: &[f64]| Numbers::Real(labels.to_vec()), |labels: &[i64]| Numbers::Whole(labels.to_vec()));
        let nan = f64::NAN;
        for (numbers, columns, kind, expected) in [
            (whole(&[0, -1, 3]), 1, Auto, Ok(Labels::Classes(vec![0, -1, 3]))),
            (real(&[1.0, nan, 2.0]), 1, Auto, Ok(Labels::Classes(vec![1, -1, 2]))),
            (real(&[0.5, 2.0]), 1, Auto, Ok(Labels::Values(vec![0.5, 2.0]))),
            (real(&[1.0, 2.0]), 1, Values, Ok(Labels::Values(vec![1.0, 2.0]))),
            (whole(&[-7, 2]), 1, Values, Ok(Labels::Values(vec![-7.0, 2.0]))),
            (whole(&[0, 1]), 2, Auto, Ok(Labels::Answers(vec![0, 1]))),
            (real(&[0.0, 1.0]), 2, Auto, Ok(Labels::Values(vec![0.0, 1.0]))),
            (whole(&[0, -100]), 1, Auto, Err((1, "-100 is not a class"))),
            (whole(&[0, 1 << 20]), 1, Auto, Err((1, "1048576 is not a class"))),
            (real(&[0.0, 0.5]), 1, Classes, Err((1, "0.5 is not a class"))),
            (whole(&[0, 2]), 2, Auto, Err((1, "2 is not 0 or 1"))),
            (whole(&[0, 1]), 2, Classes, Err((0, "a node has 2 labels"))),
            (real(&[0.5, 1e300]), 1, Auto, Err((1, "is not a number that single precision holds"))),
            (real(&[0.5, f64::INFINITY]), 2, Auto, Err((1, "inf is not"))),
        ] {
            let found = decide(numbers.clone(), columns, kind).map_err(|(at, fault)| (at, fault.to_string()));
            match (&found, &expected) {
                (Err((at, said)), Err((place, words))) => assert!(at == place && said.contains(words), "{said}"),
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                _ => panic!("{numbers:?} of {columns} became {found:?}"),
            }
        }
        assert_eq!((class_count(&[-1]), class_count(&[2, -1])), (None, Some(3)));
    }
}
