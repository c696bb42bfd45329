//! Labels out of a dataset.
//!
//! Whole numbers, one a node, are classes, and so are floats where the dataset says how many classes there are. Whole numbers,
//! several a node, are yes or no. Other floats are yes or no where all of them are 0 or 1, and else how much.

use headwater_graph::dataset::Array;
use headwater_tensor::DType;
use headwater_tensor::npy::{NpyElement, NpyType};

use super::{Labels, Says, at};
use crate::error::{Error, Result};
use crate::loss::UNLABELLED;

/// More classes would need rows of outputs that no memory holds.
const MOST_CLASSES: u64 = 1 << 20;

/// The elements of an array.
enum Numbers {
    Whole(Vec<i64>),
    Real(Vec<f64>),
}

impl Labels {
    /// The labels in an array, and how many outputs a node needs for them. `classes` is what the dataset says.
    pub fn open(array: &Array, classes: Option<u64>) -> Result<(Self, usize)> {
        let file = File(array);
        let columns = match array.shape() {
            [_] => 1,
            [_, columns] if *columns > 0 => *columns,
            shape => return Err(file.wrong(format!("has shape {shape:?}; expected one label or one row a node"))),
        };
        if columns as u64 > MOST_CLASSES {
            return Err(file.wrong(format!("has {columns} labels a node; expected at most {MOST_CLASSES}")));
        }
        match (file.numbers()?, columns, classes) {
            (Numbers::Whole(labels), 1, classes) => file.classes(labels, classes),
            (Numbers::Real(labels), 1, Some(classes)) => file.classes(file.whole(&labels)?, Some(classes)),
            (Numbers::Whole(labels), ..) => file.yes_or_no(&labels, columns),
            (Numbers::Real(labels), ..) => file.values(&labels, columns),
        }
    }
}

/// The file that errors name.
struct File<'a>(&'a Array);

impl File<'_> {
    fn wrong(&self, why: String) -> Error {
        Error::Labels { path: self.0.path().to_owned(), why }
    }

    fn bad(&self, node: usize, value: impl std::fmt::Display, expected: &str) -> Error {
        self.wrong(format!("node {node} has label {value}; expected {expected}"))
    }

    fn numbers(&self) -> Result<Numbers> {
        Ok(match self.0.kind() {
            NpyType::Tensor(DType::Bool) => {
                Numbers::Whole(self.0.data().as_slice().iter().map(|yes| i64::from(*yes != 0)).collect())
            }
            NpyType::Tensor(DType::U8) => self.all::<u8>()?,
            NpyType::Tensor(DType::I8) => self.all::<i8>()?,
            NpyType::U16 => self.all::<u16>()?,
            NpyType::I16 => self.all::<i16>()?,
            NpyType::U32 => self.all::<u32>()?,
            NpyType::Tensor(DType::I32) => self.all::<i32>()?,
            NpyType::Tensor(DType::I64) => self.all::<i64>()?,
            NpyType::U64 => Numbers::Whole(
                self.0.column::<u64>()?.iter().map(|label| i64::try_from(*label).unwrap_or(i64::MAX)).collect(),
            ),
            NpyType::Tensor(DType::F32) => {
                Numbers::Real(self.0.column::<f32>()?.iter().map(|label| f64::from(*label)).collect())
            }
            NpyType::Tensor(DType::F64) => Numbers::Real(self.0.column::<f64>()?.to_vec()),
            kind => {
                let why = format!("holds {}; expected an integer type, bool, float32 or float64", kind.name());
                return Err(self.wrong(why));
            }
        })
    }

    fn all<T: NpyElement + Into<i64>>(&self) -> Result<Numbers> {
        Ok(Numbers::Whole(self.0.column::<T>()?.iter().map(|label| (*label).into()).collect()))
    }

    /// Classes written as floats, where NaN is none.
    #[expect(clippy::cast_possible_truncation, reason = "whole numbers below the largest number of classes")]
    fn whole(&self, labels: &[f64]) -> Result<Vec<i64>> {
        let one = |(node, label): (usize, &f64)| match *label {
            label if label.is_nan() => Ok(UNLABELLED),
            label if label.fract() == 0.0 && label.abs() <= MOST_CLASSES as f64 => Ok(label as i64),
            label => Err(self.bad(node, label, "a class, or -1 or NaN for none")),
        };
        labels.iter().enumerate().map(one).collect()
    }

    fn classes(&self, labels: Vec<i64>, classes: Option<u64>) -> Result<(Labels, usize)> {
        let most = labels.iter().copied().max().unwrap_or(UNLABELLED);
        let found = u64::try_from(most).map_or(0, |most| most.saturating_add(1));
        let classes = classes.unwrap_or(found);
        let wrong = |label: &i64| *label != UNLABELLED && u64::try_from(*label).map_or(true, |label| label >= classes);
        if classes == 0 || classes > MOST_CLASSES {
            return Err(self.wrong(format!("has {classes} classes; expected 1 to {MOST_CLASSES}")));
        }
        match labels.iter().position(wrong) {
            Some(node) => Err(self.bad(node, labels[node], &format!("a class below {classes}, or -1 for none"))),
            None => Ok((Labels::Classes(labels), at(classes))),
        }
    }

    fn yes_or_no(&self, labels: &[i64], columns: usize) -> Result<(Labels, usize)> {
        if let Some(bad) = labels.iter().position(|label| !matches!(label, 0 | 1)) {
            return Err(self.bad(bad / columns, labels[bad], "0 or 1, where nodes have several"));
        }
        let values = labels.iter().map(|label| if *label == 1 { 1.0 } else { 0.0 }).collect();
        Ok((Labels::Values { values, columns, says: Says::YesOrNo }, columns))
    }

    #[expect(clippy::cast_possible_truncation, reason = "outputs are f32, and so is what they should be")]
    fn values(&self, labels: &[f64], columns: usize) -> Result<(Labels, usize)> {
        let values: Vec<f32> = labels.iter().map(|label| *label as f32).collect();
        if let Some(bad) = values.iter().position(|value| value.is_infinite()) {
            return Err(self.bad(bad / columns, labels[bad], "a finite number"));
        }
        let is_yes_or_no = values.iter().all(|value| value.is_nan() || *value == 0.0 || *value == 1.0);
        let says = if is_yes_or_no { Says::YesOrNo } else { Says::HowMuch };
        Ok((Labels::Values { values, columns, says }, columns))
    }
}
