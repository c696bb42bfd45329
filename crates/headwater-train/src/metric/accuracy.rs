//! The share of right answers.

use rayon::prelude::*;

use super::{answer, is_yes};
use crate::loss::{Rows, Targets};

/// Right answers among all.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Accuracy {
    right: usize,
    all: usize,
}

impl Accuracy {
    pub(super) fn add(&mut self, rows: Rows<'_>) {
        let count = |right: bool| Self { right: usize::from(right), all: 1 };
        let join = |a: Self, b: Self| Self { right: a.right + b.right, all: a.all + b.all };
        let batch = match rows.targets {
            Targets::Classes(labels) => {
                let labelled =
                    rows.outputs.par_chunks_exact(rows.columns).zip(labels).filter(|(_, label)| **label >= 0);
                let right = |(outputs, label): (&[f32], &i64)| answer(outputs) == usize::try_from(*label).ok();
                labelled.map(|row| count(right(row))).reduce(Self::default, join)
            }
            Targets::Values(values) => {
                let asked = rows.outputs.par_iter().zip(values).filter(|(_, target)| !target.is_nan());
                let right = |(output, target): (&f32, &f32)| !output.is_nan() && (*output > 0.0) == is_yes(*target);
                asked.map(|one| count(right(one))).reduce(Self::default, join)
            }
        };
        *self = join(*self, batch);
    }

    pub(super) fn value(&self) -> Option<f64> {
        (self.all > 0).then(|| self.right as f64 / self.all as f64)
    }
}
