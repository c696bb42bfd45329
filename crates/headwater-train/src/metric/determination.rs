//! The coefficient of determination: how much of the spread of the targets the outputs explain.
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

    /// The mean over columns whose targets differ.
    pub(super) fn value(&self) -> Option<f64> {
        let spread = |column: &&Column| column.spread > 0.0 && column.missed.is_finite();
        let each: Vec<f64> = self.0.iter().filter(spread).map(|column| 1.0 - column.missed / column.spread).collect();
        (!each.is_empty()).then(|| each.iter().sum::<f64>() / each.len() as f64)
    }
}

impl Column {
    fn see(&mut self, output: f64, target: f64) {
        self.count += 1;
        let before = target - self.mean;
        self.mean += before / self.count as f64;
        self.spread += before * (target - self.mean);
        self.missed += (output - target) * (output - target);
    }
}
