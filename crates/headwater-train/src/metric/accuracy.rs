//! The share of right answers.

use headwater_tensor::parallel::{self, PIECE};

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
        let piece = rows.piece_rows();
        let found = match rows.targets {
            Targets::Classes(labels) => {
                let pieces: Vec<_> = rows.outputs.chunks(piece * rows.columns).zip(labels.chunks(piece)).collect();
                let right = |(outputs, label): (&[f32], &i64)| answer(outputs) == usize::try_from(*label).ok();
                parallel::collect(pieces.len(), |at| {
                    let (outputs, labels) = pieces[at];
                    let labelled = outputs.chunks_exact(rows.columns).zip(labels).filter(|(_, label)| **label >= 0);
                    labelled.map(|row| count(right(row))).fold(Self::default(), join)
                })
            }
            Targets::Values(values) => {
                let pieces: Vec<_> = rows.outputs.chunks(PIECE).zip(values.chunks(PIECE)).collect();
                let right = |(output, target): (&f32, &f32)| !output.is_nan() && (*output > 0.0) == is_yes(*target);
                parallel::collect(pieces.len(), |at| {
                    let (outputs, values) = pieces[at];
                    let asked = outputs.iter().zip(values).filter(|(_, target)| !target.is_nan());
                    asked.map(|one| count(right(one))).fold(Self::default(), join)
                })
            }
        };
        *self = found.into_iter().fold(*self, join);
    }

    pub(super) fn value(&self) -> Option<f64> {
        (self.all > 0).then(|| self.right as f64 / self.all as f64)
    }
}
