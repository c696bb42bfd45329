//! How many of all reads the first rows of an order get.
//!
//! One number for every row would be as long as the table's column of ids, and nobody asks for the row: a few ten thousand
//! points with straight lines between them are the curve, whatever the table's size.

use serde::Serialize;

/// Points of a curve at most.
const POINTS: u64 = 1 << 16;

/// Cumulative reads over rows, in the order rows are placed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    rows: u64,
    /// Rows between two points.
    step: u64,
    /// Reads of the rows before each point; the first is 0, the last all.
    reads: Vec<f64>,
}

impl Curve {
    /// From the reads of each row, hottest rows first, or in whatever order they lie.
    #[must_use]
    pub fn of(reads_in_order: impl ExactSizeIterator<Item = u64>) -> Self {
        let rows = reads_in_order.len() as u64;
        let step = rows.div_ceil(POINTS).max(1);
        let (mut reads, mut sum, mut at) = (vec![0.0], 0u128, 0u64);
        for read in reads_in_order {
            sum += u128::from(read);
            at += 1;
            if at % step == 0 || at == rows {
                reads.push(sum as f64);
            }
        }
        Self { rows, step, reads }
    }

    /// Rows of the table.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The share of all reads that go to the first `rows` rows, from 0 to 1. Without any reads, their share of the rows.
    #[must_use]
    pub fn share(&self, rows: u64) -> f64 {
        let rows = rows.min(self.rows);
        let all = self.reads.last().copied().unwrap_or(0.0);
        if all <= 0.0 {
            return if self.rows == 0 { 1.0 } else { rows as f64 / self.rows as f64 };
        }
        let before = usize::try_from(rows / self.step).unwrap_or(usize::MAX).min(self.reads.len() - 1);
        let first = before as u64 * self.step;
        let width = (first + self.step).min(self.rows) - first.min(self.rows);
        let low = self.reads[before];
        let high = self.reads.get(before + 1).copied().unwrap_or(low);
        let inside = if width == 0 { 0.0 } else { rows.saturating_sub(first) as f64 / width as f64 };
        (low + (high - low) * inside.min(1.0)) / all
    }

    /// As many points as asked for, evenly over the rows: share of the rows, share of the reads.
    #[must_use]
    pub fn points(&self, count: u32) -> Vec<(f64, f64)> {
        let share = |at: u32| f64::from(at) / f64::from(count.max(1));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the rows")]
        let rows = |share: f64| (share * self.rows as f64) as u64;
        (0..=count).map(|at| (share(at), self.share(rows(share(at))))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_sums() {
        let curve = Curve::of([6u64, 3, 1, 0].into_iter());
        let shares: Vec<f64> = (0..=5).map(|rows| curve.share(rows)).collect();
        assert_eq!(shares, [0.0, 0.6, 0.9, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn long_tables_are_kept_short() {
        let rows = 3 * POINTS + 7;
        let curve = Curve::of((0..usize::try_from(rows).unwrap()).map(|at| rows - at as u64));
        assert!(curve.reads.len() as u64 <= POINTS + 2);
        for asked in [0, 1, rows / 3, rows - 1, rows] {
            let exact: f64 =
                (0..asked).map(|at| (rows - at) as f64).sum::<f64>() / (rows as f64 * (rows + 1) as f64 / 2.0);
            assert!((curve.share(asked) - exact).abs() < 1e-9, "{asked}: {} {exact}", curve.share(asked));
        }
        assert_eq!(curve.points(2).len(), 3);
    }

    #[test]
    fn nothing_read_is_spread_evenly() {
        assert_eq!(Curve::of([0u64, 0, 0, 0].into_iter()).share(1), 0.25);
        assert_eq!(Curve::of(std::iter::empty()).share(3), 1.0);
    }
}
