//! Sums of outer products: rows of a type in parts, each a product of its own, added up in order.

use std::ops::Range;

use headwater_tensor::ops::matmul::{Before, Strided, product_into};
use rayon::prelude::*;

use super::Context;
use super::gemm::{Rows, pieces, stretches};
use super::index::Index;
use super::spare::Spare;
use super::vector::copy_rows;
use crate::error::Result;
use crate::inter::Shape;
use crate::intra::Outer;

/// Rows of a part, at least.
const PART_ROWS: usize = 1024;
/// Parts of all rows, at most. Fixed, so that sums do not depend on the number of threads.
const MOST_PARTS: usize = 8;
/// Rows that are multiplied at a time: both sides of them lie in the cache.
const CHUNK_ROWS: usize = 256;

/// Runs a sum of outer products into `out`.
pub(super) fn run(context: &Context<'_>, outer: &Outer, x: &Rows<'_>, y: &Rows<'_>, out: &mut [f32]) -> Result<()> {
    let Some(sum) = Sum::new(context.program[outer.to].shape) else { return Ok(()) };
    out.fill(0.0);
    let types = context.program[outer.to].domain;
    let all = stretches(context.graph, outer.rows, types, outer.path);
    if let (Rows::Sparse(x), Rows::Dense(y, Index::Same), [(0, _)], 1) = (x, y, &all[..], sum.heads) {
        x.outer(y, sum.cols, out);
        return Ok(());
    }
    let count = context.graph.rows(outer.rows);
    let pieces = pieces(&all, count.div_ceil(MOST_PARTS).max(PART_ROWS));
    let part = |(kind, own): &(usize, Range<usize>)| {
        let mut part = vec![0.0; sum.len()];
        for first in own.clone().step_by(CHUNK_ROWS) {
            sum.add(x, y, first..(first + CHUNK_ROWS).min(own.end), &mut part)?;
        }
        Ok((*kind, part))
    };
    // A few at a time: with many types all parts together would be as large as many weights.
    for some in pieces.chunks(4 * MOST_PARTS) {
        let parts: Vec<(usize, Vec<f32>)> = some.par_iter().map(part).collect::<Result<_>>()?;
        for (kind, part) in parts {
            let out = &mut out[kind * sum.len()..][..sum.len()];
            out.iter_mut().zip(&part).for_each(|(out, part)| *out += part);
        }
    }
    Ok(())
}

/// The matrix that outer products of rows are added to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sum {
    heads: usize,
    rows: usize,
    cols: usize,
}

impl Sum {
    /// Of a shape, which is a matrix's.
    pub fn new(shape: Shape) -> Option<Self> {
        let Shape::Matrix { heads, rows, cols } = shape else { return None };
        Some(Self { heads, rows, cols })
    }

    /// How many elements it has.
    pub fn len(self) -> usize {
        self.heads * self.rows * self.cols
    }

    /// Numbers of a row, of both sides.
    pub fn numbers(self) -> usize {
        self.heads * (self.rows + self.cols)
    }

    /// Adds the products of some rows.
    pub fn add(self, x: &Rows<'_>, y: &Rows<'_>, rows: Range<usize>, out: &mut [f32]) -> Result<()> {
        let (Rows::Dense(x, x_index), Rows::Dense(y, y_index)) = (x, y) else { return Ok(()) };
        let (mut x_copy, mut y_copy) = (None, None);
        let x = together(x, x_index, rows.clone(), self.heads * self.rows, &mut x_copy);
        let y = together(y, y_index, rows.clone(), self.heads * self.cols, &mut y_copy);
        for head in 0..self.heads {
            let side = |data, columns| Strided {
                data,
                rows: rows.len(),
                columns,
                row_stride: self.heads * columns,
                column_stride: 1,
            };
            let (x, y) = (side(&x[head * self.rows..], self.rows), side(&y[head * self.cols..], self.cols));
            let out = &mut out[head * self.rows * self.cols..];
            product_into(x.transposed(), y, out, self.cols, Before::Kept)?;
        }
        Ok(())
    }
}

/// Rows one after the other: where they lie, or a copy.
fn together<'a>(
    table: &'a [f32],
    index: &Index<'_>,
    rows: Range<usize>,
    len: usize,
    copy: &'a mut Option<Spare>,
) -> &'a [f32] {
    if let Some(first) = index.neighbours(rows.start) {
        return &table[first * len..][..rows.len() * len];
    }
    let copy = copy.insert(Spare::new(rows.len() * len));
    copy_rows(table, len, copy, |at| index.get(rows.start + at));
    copy
}
