//! F1: the harmonic mean of how many answers are right and how many right ones are answered.
//!
//! What counts is what scikit-learn's `f1_score` counts: of classes, those that are asked for or answered; of columns of yes and
//! no, every one, with 0 where there is neither a yes nor one answered.

use super::{answer, is_yes};
use crate::loss::{Rows, Targets};

/// For each class, what was answered and what was asked.
#[derive(Debug, Clone)]
pub(super) struct Confusion(Vec<Class>);

#[derive(Debug, Clone, Copy, Default)]
struct Class {
    /// Asked for and answered.
    both: u64,
    /// Asked for.
    asked: u64,
    /// Answered.
    answered: u64,
    /// Targets of a column of yes and no.
    targets: u64,
}

impl Class {
    fn f1(self) -> Option<f64> {
        let all = self.asked + self.answered;
        (all + self.targets > 0).then(|| 2.0 * self.both as f64 / all.max(1) as f64)
    }
}

impl Confusion {
    pub(super) fn new(columns: usize) -> Self {
        Self(vec![Class::default(); columns])
    }

    pub(super) fn add(&mut self, rows: Rows<'_>) {
        match rows.targets {
            Targets::Classes(labels) => {
                for (outputs, &label) in rows.outputs.chunks_exact(rows.columns).zip(labels) {
                    if let Ok(label) = usize::try_from(label) {
                        self.row(label, answer(outputs));
                    }
                }
            }
            Targets::Values(values) => {
                for (at, (&output, &target)) in rows.outputs.iter().zip(values).enumerate() {
                    if !target.is_nan() {
                        self.output(at % rows.columns, is_yes(target), output > 0.0);
                    }
                }
            }
        }
    }

    fn row(&mut self, label: usize, answer: Option<usize>) {
        self.0[label].asked += 1;
        if let Some(answer) = answer {
            self.0[answer].answered += 1;
            self.0[answer].both += u64::from(answer == label);
        }
    }

    fn output(&mut self, column: usize, asked: bool, answered: bool) {
        let class = &mut self.0[column];
        class.targets += 1;
        class.asked += u64::from(asked);
        class.answered += u64::from(answered);
        class.both += u64::from(asked && answered);
    }

    /// Of all counts together.
    pub(super) fn micro(&self) -> Option<f64> {
        let join = |a: Class, b: &Class| Class {
            both: a.both + b.both,
            asked: a.asked + b.asked,
            answered: a.answered + b.answered,
            targets: a.targets + b.targets,
        };
        self.0.iter().fold(Class::default(), join).f1()
    }

    /// The mean over classes that occur, or over columns.
    pub(super) fn macro_mean(&self) -> Option<f64> {
        let each: Vec<f64> = self.0.iter().filter_map(|class| class.f1()).collect();
        (!each.is_empty()).then(|| each.iter().sum::<f64>() / each.len() as f64)
    }
}
