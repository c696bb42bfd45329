//! The coefficient of determination: how much of the spread of the targets the outputs explain.
//!
//! As scikit-learn's `r2_score`, every column counts: one whose targets are all the same has 1 where they are met exactly and
//! else 0. A column of fewer than two targets has none.
//!
//! Sums go element by element in their order (Welford's way), so batches and threads change nothing.

use crate::loss::Rows;

/// What was seen of each column.
#[derive(Debug, Clone)]
pub(super) struct Determination(Vec<Column>);

#[derive(Debug, Clone, Copy, Default)]
struct Column {
    count: u64,
    mean: f64,
    /// Squared distances of the targets from their mean.
    spread: f64,
    /// Squared distances of the outputs from the targets.
    missed: f64,
}

impl Determination {
    pub(super) fn new(columns: usize) -> Self {
        Self(vec![Column::default(); columns])
    }

    pub(super) fn add(&mut self, rows: Rows<'_>, targets: &[f32]) {
        for (at, (&output, &target)) in rows.outputs.iter().zip(targets).enumerate() {
            if !target.is_nan() {
                self.0[at % rows.columns].see(f64::from(output), f64::from(target));
            }
        }
    }

    /// The mean over columns; nothing where an output is no finite number.
    pub(super) fn value(&self) -> Option<f64> {
        let each: Vec<f64> = self.0.iter().filter(|column| column.count > 1).map(Column::explained).collect();
        let mean = each.iter().sum::<f64>() / each.len() as f64;
        mean.is_finite().then_some(mean)
    }
}

impl Column {
    fn explained(&self) -> f64 {
        match (self.spread > 0.0, self.missed) {
            (true, missed) => 1.0 - missed / self.spread,
            (false, 0.0) => 1.0,
            // What is no number stays none.
            (false, missed) => 0.0 * missed,
        }
    }

    fn see(&mut self, output: f64, target: f64) {
        self.count += 1;
        let before = target - self.mean;
        self.mean += before / self.count as f64;
        self.spread += before * (target - self.mean);
        self.missed += (output - target) * (output - target);
    }
}
