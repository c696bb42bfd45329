//! The slope of the loss along a parameter: along all of it, or along some of its rows.
//!
//! A step over a sample touches few rows of a table that has one a node. Its gradient is those rows, so that neither memory
//! nor time of a step grows with the graph.

use rayon::prelude::*;

use crate::error::{Error, Result};

/// The gradient of one parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Gradient {
    /// Of all its elements.
    Dense(Vec<f32>),
    /// Of some of its rows; it is 0 along the others.
    Rows(RowGradient),
}

/// Gradients of some rows of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct RowGradient {
    /// Rows of the parameter in ascending order, and where each one's gradient stands in `values`.
    order: Vec<(u64, usize)>,
    /// Elements of a row.
    width: usize,
    values: Vec<f32>,
}

impl Gradient {
    /// Its numbers, without what it says is 0.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        match self {
            Self::Dense(values) => values,
            Self::Rows(rows) => &rows.values,
        }
    }

    /// The memory of its numbers.
    #[must_use]
    pub fn into_values(self) -> Vec<f32> {
        match self {
            Self::Dense(values) => values,
            Self::Rows(rows) => rows.values,
        }
    }
}

impl RowGradient {
    /// Row `i` of `values` is the gradient of row `ids[i]` of the parameter. No row may be there twice.
    pub fn new(ids: &[u64], values: Vec<f32>, width: usize) -> Result<Self> {
        crate::array::check_length("the gradient of rows", values.len(), ids.len() * width)?;
        let mut order: Vec<(u64, usize)> = ids.iter().copied().zip(0..).collect();
        order.par_sort_unstable();
        if let Some(twice) = order.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let (name, why) = ("a table".to_owned(), format!("has two gradients of row {}", twice[0].0));
            return Err(Error::Parameter { name, why });
        }
        Ok(Self { order, width, values })
    }

    /// Elements of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// The last row that has a gradient.
    #[must_use]
    pub fn last(&self) -> Option<u64> {
        self.order.last().map(|(row, _)| *row)
    }

    /// The rows of a range that have gradients, ascending.
    pub fn within(&self, rows: std::ops::Range<u64>) -> impl Iterator<Item = (u64, &[f32])> {
        let at = |row: u64| self.order.partition_point(|(own, _)| *own < row);
        let found = &self.order[at(rows.start)..at(rows.end)];
        found.iter().map(|(row, place)| (*row, &self.values[place * self.width..][..self.width]))
    }
}

impl AsRef<[f32]> for Gradient {
    fn as_ref(&self) -> &[f32] {
        self.values()
    }
}

impl AsMut<[f32]> for Gradient {
    fn as_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Dense(values) => values,
            Self::Rows(rows) => &mut rows.values,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_in_their_order() {
        let rows = RowGradient::new(&[7, 2, 5], vec![70.0, 71.0, 20.0, 21.0, 50.0, 51.0], 2).unwrap();
        let within = |range| rows.within(range).map(|(row, values)| (row, values[0])).collect::<Vec<_>>();
        assert_eq!(within(0..9), [(2, 20.0), (5, 50.0), (7, 70.0)]);
        assert_eq!(within(3..7), [(5, 50.0)]);
        assert_eq!((within(8..100), rows.last(), rows.width()), (vec![], Some(7), 2));
        let empty = RowGradient::new(&[], Vec::new(), 2).unwrap();
        assert_eq!((empty.within(0..9).count(), empty.last()), (0, None));
    }

    #[test]
    fn what_is_no_gradient_of_rows_is_refused() {
        let said = RowGradient::new(&[3, 1, 3], vec![0.0; 3], 1).unwrap_err().to_string();
        assert!(said.contains("two gradients of row 3"), "{said}");
        assert!(RowGradient::new(&[3, 1], vec![0.0; 3], 2).is_err());
    }
}
