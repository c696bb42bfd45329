//! What arrays of labels are, what is refused in them, and what suits them.

use headwater_graph::dataset::Array;
use headwater_tensor::DType;
use headwater_tensor::npy::{NpyElement, NpyType, write_array};

use super::*;

/// An array in a file. The mapping outlives the folder.
fn raw(kind: NpyType, shape: &[usize], bytes: &[u8]) -> Array {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("labels.npy");
    write_array(std::fs::File::create(&path).unwrap(), kind, shape, bytes).unwrap();
    Array::map(&path).unwrap()
}

fn array<T: NpyElement>(shape: &[usize], values: &[T]) -> Array {
    raw(T::KIND, shape, bytemuck::cast_slice(values))
}

fn open(array: &Array, classes: Option<u64>) -> Result<(Labels, usize)> {
    Labels::open(array, classes)
}

fn values(values: &[f32], columns: usize, says: Says) -> Labels {
    Labels::Values { values: values.to_vec(), columns, says }
}

#[test]
fn arrays_are_classes_or_answers_or_numbers() {
    let classes = |labels: &[i64]| Labels::Classes(labels.to_vec());
    let yes = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0];
    for (array, named, expected, outputs) in [
        (array(&[3], &[0i64, -1, 2]), None, classes(&[0, -1, 2]), 3),
        (array(&[3], &[0i64, -1, 2]), Some(7), classes(&[0, -1, 2]), 7),
        (array(&[3, 1], &[1u8, 0, 1]), None, classes(&[1, 0, 1]), 2),
        (array(&[3], &[1i8, -1, 1]), None, classes(&[1, -1, 1]), 2),
        (array(&[3], &[1u32, 0, 4]), None, classes(&[1, 0, 4]), 5),
        (array(&[3], &[1.0f32, f32::NAN, 0.0]), Some(2), classes(&[1, -1, 0]), 2),
        (array(&[3, 2], &[1u8, 0, 0, 1, 1, 1]), None, values(&yes, 2, Says::YesOrNo), 2),
        (array(&[3, 2], &[1i64, 0, 0, 1, 1, 1]), Some(2), values(&yes, 2, Says::YesOrNo), 2),
        (raw(NpyType::Tensor(DType::Bool), &[3, 2], &[1, 0, 0, 1, 1, 1]), None, values(&yes, 2, Says::YesOrNo), 2),
        (array(&[3, 2], &yes), None, values(&yes, 2, Says::YesOrNo), 2),
        (array(&[3, 1], &[0.5f64, 3.0, -2.0]), None, values(&[0.5, 3.0, -2.0], 1, Says::HowMuch), 1),
        (array(&[3], &[0.0f32, 1.0, 1.0]), None, values(&[0.0, 1.0, 1.0], 1, Says::YesOrNo), 1),
    ] {
        let (found, columns) = open(&array, named).unwrap();
        assert_eq!((found.nodes(), columns), (3, outputs));
        assert_eq!(found, expected);
    }
    // NaN is none, as -1 is of classes.
    let (found, _) = open(&array(&[3], &[0.5f32, f32::NAN, 2.0]), None).unwrap();
    assert_eq!((found.nodes(), found.usual_loss()), (3, Loss::Mse));
    assert_eq!([0, 1, 2].map(|node| found.is_known(node)), [true, false, true]);
    let (found, _) = open(&array(&[2, 2], &[0.5f32, f32::NAN, f32::NAN, f32::NAN]), None).unwrap();
    assert_eq!([0, 1].map(|node| found.is_known(node)), [true, false], "some of its numbers are known");
}

#[test]
fn labels_that_cannot_be_are_named() {
    for (array, named, words) in [
        (array(&[3], &[0i64, 3, 1]), Some(3), "node 1 has label 3; expected a class below 3"),
        (array(&[3], &[0i64, 1, -2]), None, "node 2 has label -2"),
        (array(&[3], &[0u64, u64::MAX, 1]), None, "classes; expected 1 to"),
        (array(&[3], &[-1i64; 3]), None, "has 0 classes"),
        (array(&[3], &[0i64; 3]), Some(1 << 40), "classes; expected 1 to"),
        (array(&[3], &[0.0f32, 0.5, 1.0]), Some(2), "node 1 has label 0.5"),
        (array(&[3], &[0.0f32, 1e30, 1.0]), Some(2), "node 1 has label 1"),
        (array(&[3], &[0.5f32, f32::INFINITY, 1.0]), None, "node 1 has label inf"),
        (array(&[3], &[0.5f64, 1e300, 1.0]), None, "node 1 has label 1"),
        (array(&[3, 2], &[0u8, 1, 0, 2, 1, 0]), None, "node 1 has label 2; expected 0 or 1"),
        (array(&[3, 1, 1], &[0i64; 3]), None, "shape [3, 1, 1]"),
        (array::<i64>(&[3, 0], &[]), None, "shape [3, 0]"),
        (raw(NpyType::Tensor(DType::F16), &[3], &[0; 6]), None, "float16"),
    ] {
        let said = open(&array, named).unwrap_err().to_string();
        assert!(said.contains(words) && said.contains("labels.npy"), "{said}");
    }
}

#[test]
fn some_nodes_by_themselves_or_among_all() {
    let classes = Labels::Classes(vec![5, 6, 7]);
    assert_eq!(classes.of(&[2, 0]), Labels::Classes(vec![7, 5]));
    assert_eq!(classes.only(&[2, 0]), Labels::Classes(vec![5, -1, 7]));
    let rows = values(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 2, Says::HowMuch);
    assert_eq!(rows.of(&[2, 0]), values(&[4.0, 5.0, 0.0, 1.0], 2, Says::HowMuch));
    let Labels::Values { values: only, .. } = rows.only(&[1]) else { panic!("numbers stay numbers") };
    assert!(only[2..4] == [2.0, 3.0] && [0, 1, 4, 5].iter().all(|at| only[*at].is_nan()), "{only:?}");
}

#[test]
fn what_does_not_suit_labels_is_refused() {
    let classes = Labels::Classes(vec![0, 1]);
    let (yes, much) = (values(&[0.0, 1.0], 1, Says::YesOrNo), values(&[0.0, 7.0], 1, Says::HowMuch));
    for labels in [&classes, &yes, &much] {
        labels.check(labels.usual_loss(), labels.usual_metric(), 3).unwrap();
    }
    yes.check(Loss::Mse, Metric::RocAuc, 1).unwrap();
    classes.check(Loss::Nll, Metric::RocAuc, 2).unwrap();
    for (labels, loss, metric, words) in [
        (&classes, Loss::Bce, Metric::Accuracy, "bce takes a number"),
        (&classes, Loss::CrossEntropy, Metric::R2, "r2 takes a number"),
        (&classes, Loss::CrossEntropy, Metric::RocAuc, "one of 3 classes"),
        (&yes, Loss::CrossEntropy, Metric::F1Micro, "cross_entropy takes one class"),
        (&much, Loss::Mse, Metric::Accuracy, "accuracy takes classes"),
    ] {
        let said = labels.check(loss, metric, 3).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
}
