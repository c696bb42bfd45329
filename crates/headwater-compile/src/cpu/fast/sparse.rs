//! Rows of which most elements are zero: bags of words, one-hot codes. Only the others are stored.
//!
//! Zeros stay zeros under dropout, and a product with a matrix skips them, so what costs milliseconds with all elements costs
//! microseconds with these. Results are those of the dense kernels up to the order of sums.

use std::sync::Arc;

use rayon::prelude::*;

use super::vector::{known_width, widest};
use crate::cpu::dropout::Dropout;

/// Rows of a matrix by their elements that are not zero.
#[derive(Debug, Clone, PartialEq)]
pub struct SparseRows {
    /// Elements of a whole row.
    pub width: usize,
    /// Where each row begins, and the column of each element, ascending within a row. Copies of rows share them.
    places: Arc<Places>,
    /// The elements.
    pub values: Vec<f32>,
}

/// Where elements lie.
#[derive(Debug, Clone, PartialEq)]
struct Places {
    starts: Vec<usize>,
    columns: Vec<u32>,
}

/// Rows that are worked on at a time.
const CHUNK_ROWS: usize = 512;
/// Parts that a sum over rows is made of, at most. Fixed, so that the result does not depend on the number of threads.
const MOST_PARTS: usize = 8;

impl SparseRows {
    /// Of dense rows, when at most `most` of the elements are not zero.
    #[must_use]
    pub fn of(dense: &[f32], width: usize, most: f64) -> Option<Self> {
        let count = dense.par_iter().filter(|value| **value != 0.0).count();
        if width == 0 || count as f64 > most * dense.len() as f64 {
            return None;
        }
        let (mut starts, mut columns, mut values) = (vec![0], Vec::with_capacity(count), Vec::with_capacity(count));
        for row in dense.chunks_exact(width) {
            for (column, value) in (0u32..).zip(row).filter(|(_, value)| **value != 0.0) {
                columns.push(column);
                values.push(*value);
            }
            starts.push(columns.len());
        }
        Some(Self { width, places: Arc::new(Places { starts, columns }), values })
    }

    /// No rows.
    #[must_use]
    pub fn empty(width: usize) -> Self {
        Self { width, places: Arc::new(Places { starts: vec![0], columns: Vec::new() }), values: Vec::new() }
    }

    /// Adds the rows of another matrix behind its own.
    pub fn append(&mut self, other: &Self) {
        let before = self.values.len();
        let places = Arc::make_mut(&mut self.places);
        places.columns.extend_from_slice(&other.places.columns);
        places.starts.extend(other.places.starts[1..].iter().map(|start| before + start));
        self.values.extend_from_slice(&other.values);
    }

    /// Some of its rows, in this order.
    #[must_use]
    pub fn picked(&self, rows: impl Iterator<Item = usize>) -> Self {
        let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in rows {
            let own = self.places.starts[row]..self.places.starts[row + 1];
            columns.extend_from_slice(&self.places.columns[own.clone()]);
            values.extend_from_slice(&self.values[own]);
            starts.push(columns.len());
        }
        Self { width: self.width, places: Arc::new(Places { starts, columns }), values }
    }

    /// Rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.places.starts.len() - 1
    }

    /// All elements.
    pub fn dense_into(&self, out: &mut [f32]) {
        out.par_chunks_exact_mut(self.width.max(1)).enumerate().for_each(|(row, out)| {
            out.fill(0.0);
            self.row(row).for_each(|(column, value)| out[column as usize] = value);
        });
    }

    /// Elements that are not zero.
    #[must_use]
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// After a dropout of elements, which are written to `values`: as many as there are.
    #[must_use]
    pub fn dropped(&self, dropout: Dropout, scale: f32, mut values: Vec<f32>) -> Self {
        values.resize(self.values.len(), 0.0);
        let (starts, columns) = (&self.places.starts, &self.places.columns);
        let chunks: Vec<usize> = (0..self.rows()).step_by(CHUNK_ROWS).chain([self.rows()]).collect();
        let mut rest = &mut values[..];
        let mut parts = Vec::new();
        for rows in chunks.windows(2) {
            let (part, behind) = rest.split_at_mut(starts[rows[1]] - starts[rows[0]]);
            parts.push((rows[0]..rows[1], part));
            rest = behind;
        }
        parts.into_par_iter().for_each(|(rows, mut part)| {
            widest!(for row in rows {
                let own = starts[row]..starts[row + 1];
                let (factors, behind) = std::mem::take(&mut part).split_at_mut(own.len());
                dropout.factors_at(row * self.width, &columns[own.clone()], scale, factors);
                factors.iter_mut().zip(&self.values[own]).for_each(|(factor, value)| *factor *= value);
                part = behind;
            });
        });
        Self { width: self.width, places: Arc::clone(&self.places), values }
    }

    /// Adds the product of row `row` with a matrix of `out.len()` columns.
    #[inline(always)]
    pub fn add_times(&self, row: usize, matrix: &[f32], out: &mut [f32]) {
        let cols = out.len();
        known_width!(
            cols,
            COLS => {
                // Sums that stay in registers.
                let (matrix, out) = (matrix.as_chunks::<COLS>().0, &mut out.as_chunks_mut::<COLS>().0[0]);
                let mut sums = *out;
                for (column, value) in self.row(row) {
                    let weights = &matrix[column as usize];
                    (0..COLS).for_each(|at| sums[at] += value * weights[at]);
                }
                *out = sums;
            },
            for (column, value) in self.row(row) {
                let weights = &matrix[column as usize * cols..][..cols];
                out.iter_mut().zip(weights).for_each(|(out, weight)| *out += value * weight);
            }
        );
    }

    /// The sum over rows of the outer product with rows of `y`, of which there may be fewer: `width` rows of `cols` columns.
    pub fn outer(&self, y: &[f32], cols: usize, out: &mut [f32]) {
        let count = self.rows().min(y.len() / cols.max(1));
        let part_rows = count.div_ceil(MOST_PARTS).max(CHUNK_ROWS);
        let parts: Vec<Vec<f32>> = (0..count)
            .step_by(part_rows)
            .collect::<Vec<_>>()
            .into_par_iter()
            .map(|first| {
                let mut part = vec![0.0; out.len()];
                let rows = first..(first + part_rows).min(count);
                widest!(self.outer_part(rows, y, cols, &mut part));
                part
            })
            .collect();
        out.fill(0.0);
        for part in parts {
            out.iter_mut().zip(&part).for_each(|(out, part)| *out += part);
        }
    }

    #[inline(always)]
    fn outer_part(&self, rows: std::ops::Range<usize>, y: &[f32], cols: usize, out: &mut [f32]) {
        for row in rows {
            let y = &y[row * cols..][..cols];
            for (column, value) in self.row(row) {
                let out = &mut out[column as usize * cols..][..cols];
                out.iter_mut().zip(y).for_each(|(out, y)| *out += value * y);
            }
        }
    }

    #[inline(always)]
    fn row(&self, row: usize) -> impl Iterator<Item = (u32, f32)> + '_ {
        let range = self.places.starts[row]..self.places.starts[row + 1];
        self.places.columns[range.clone()].iter().copied().zip(self.values[range].iter().copied())
    }
}
