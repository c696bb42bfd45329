//! Sums of outer products: rows of a type in parts, each a product of its own, added up in order.

use headwater_tensor::ops::matmul::{Before, Strided, product_into};
use rayon::prelude::*;

use super::Context;
use super::gemm::{Rows, pieces, stretches};
use super::index::Index;
use crate::error::Result;
use crate::inter::Shape;
use crate::intra::Outer;

/// Rows of a part, at least.
const PART_ROWS: usize = 1024;
/// Parts of all rows, at most. Fixed, so that sums do not depend on the number of threads.
const MOST_PARTS: usize = 8;

/// Runs a sum of outer products into `out`.
pub(super) fn run(context: &Context<'_>, outer: &Outer, x: &Rows<'_>, y: &Rows<'_>, out: &mut [f32]) -> Result<()> {
    let Shape::Matrix { heads, rows, cols } = context.program[outer.to].shape else { return Ok(()) };
    out.fill(0.0);
    let types = context.program[outer.to].domain;
    let all = stretches(context.graph, outer.rows, types, outer.path);
    if let (Rows::Sparse(x), Rows::Dense(y, Index::Same), [(0, _)], 1) = (x, y, &all[..], heads) {
        x.outer(y, cols, out);
        return Ok(());
    }
    let (Rows::Dense(x, x_index), Rows::Dense(y, y_index)) = (x, y) else { return Ok(()) };
    let count = context.graph.rows(outer.rows);
    let pieces = pieces(&all, count.div_ceil(MOST_PARTS).max(PART_ROWS));
    let size = heads * rows * cols;
    let part = |(kind, own): &(usize, std::ops::Range<usize>)| {
        let mut part = vec![0.0; size];
        let (xs, ys) =
            (gathered(x, x_index, own.clone(), heads * rows), gathered(y, y_index, own.clone(), heads * cols));
        for head in 0..heads {
            let side = |data, columns| Strided {
                data,
                rows: own.len(),
                columns,
                row_stride: heads * columns,
                column_stride: 1,
            };
            let (x, y) = (side(&xs[head * rows..], rows), side(&ys[head * cols..], cols));
            product_into(x.transposed(), y, &mut part[head * rows * cols..], cols, Before::Replaced)?;
        }
        Ok((*kind, part))
    };
    // A few at a time: with many types all parts together would be as large as many weights.
    for some in pieces.chunks(4 * MOST_PARTS) {
        let parts: Vec<(usize, Vec<f32>)> = some.par_iter().map(part).collect::<Result<_>>()?;
        for (kind, part) in parts {
            let out = &mut out[kind * size..][..size];
            out.iter_mut().zip(&part).for_each(|(out, part)| *out += part);
        }
    }
    Ok(())
}

fn gathered<'a>(
    table: &'a [f32],
    index: &Index<'_>,
    rows: std::ops::Range<usize>,
    len: usize,
) -> std::borrow::Cow<'a, [f32]> {
    if matches!(index, Index::Same) {
        return std::borrow::Cow::Borrowed(&table[rows.start * len..rows.end * len]);
    }
    let mut out = Vec::with_capacity(rows.len() * len);
    rows.for_each(|row| out.extend_from_slice(&table[index.get(row) * len..][..len]));
    std::borrow::Cow::Owned(out)
}
