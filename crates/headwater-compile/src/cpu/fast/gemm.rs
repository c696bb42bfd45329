//! Rows times matrices: stretches of rows that share a matrix, in blocks, in parallel; each block's body follows while it is in
//! the cache.

use std::ops::Range;

use headwater_tensor::ops::matmul::{Before, Strided, product_into};
use rayon::prelude::*;

use super::block::Block;
use super::eval::{Code, Registers};
use super::index::Index;
use super::sparse::SparseRows;
use super::traverse::{Store, copy, stores, with_spare};
use super::vector::widest;
use super::{Context, Written};
use crate::adjacency::{Adjacency, Map};
use crate::error::Result;
use crate::inter::{Domain, Path, Shape};
use crate::intra::{Gemm, StepOp};

/// Numbers that a block's rows should have, in and out together.
const BLOCK_NUMBERS: usize = 192 << 10;

/// What rows are multiplied.
pub(super) enum Rows<'a> {
    /// All elements, the row that each row reads, and how many elements it has.
    Dense(&'a [f32], Index<'a>),
    /// Elements that are not zero.
    Sparse(&'a SparseRows),
}

/// Rows of one type that lie together.
pub(super) fn stretches(graph: &Adjacency, rows: Domain, types: Domain, path: Path) -> Vec<(usize, Range<usize>)> {
    let own = |starts: &[usize]| starts.windows(2).map(|pair| pair[0]..pair[1]).enumerate().collect::<Vec<_>>();
    let found = match graph.map(rows, types, path) {
        Some(Map::First) => vec![(0, 0..graph.rows(rows))],
        Some(Map::Stretches(starts)) => own(starts),
        Some(Map::Ends(starts, ends, side)) => {
            own(starts).into_iter().map(|(at, rows)| (ends[at][side as usize] as usize, rows)).collect()
        }
        Some(map) => (0..graph.rows(rows)).map(|row| (map.get(row), row..row + 1)).collect(),
        None => Vec::new(),
    };
    found.into_iter().filter(|(_, rows)| !rows.is_empty()).collect()
}

/// Rows of one type in pieces of at most `most`.
pub(super) fn pieces(stretches: &[(usize, Range<usize>)], most: usize) -> Vec<(usize, Range<usize>)> {
    let cut = |(kind, rows): &(usize, Range<usize>)| {
        let (kind, rows) = (*kind, rows.clone());
        let end = rows.end;
        rows.step_by(most).map(move |first| (kind, first..(first + most).min(end))).collect::<Vec<_>>()
    };
    stretches.iter().flat_map(cut).collect()
}

/// Runs a product.
pub(super) fn run(
    context: &Context<'_>,
    gemm: &Gemm,
    x: &Rows<'_>,
    scale: Option<(&[f32], Index<'_>)>,
    code: &Code<'_>,
    written: &mut [Written],
) -> Result<()> {
    let Shape::Matrix { heads, rows, cols } = context.program[gemm.w].shape else { return Ok(()) };
    let (from, to) = if gemm.transposed { (cols, rows) } else { (rows, cols) };
    let product = Product { heads, from, to, weights: context.dense(gemm.w), is_transposed: gemm.transposed, x, scale };
    let most = (BLOCK_NUMBERS / (heads * (from + to))).clamp(32, 2048);
    let all = stretches(context.graph, gemm.rows, context.program[gemm.w].domain, gemm.path);
    let stores = stores(code, written);
    let parts = cut(&pieces(&all, most), &stores, written);
    let run = |(kind, rows, outs): Part<'_>| product.block(kind, rows, outs, code, &stores);
    if parts.len() == 1 {
        return parts.into_iter().try_for_each(run);
    }
    parts.into_par_iter().try_for_each(run)
}

/// Rows of one type, the type, and for every store its part of the output.
type Part<'w> = (usize, Range<usize>, Vec<&'w mut [f32]>);

fn cut<'w>(pieces: &[(usize, Range<usize>)], stores: &[Store], written: &'w mut [Written]) -> Vec<Part<'w>> {
    let mut rests: Vec<&'w mut [f32]> = written.iter_mut().map(|written| &mut written.values[..]).collect();
    let mut parts = Vec::with_capacity(pieces.len());
    for (kind, rows) in pieces {
        let mut outs = Vec::with_capacity(stores.len());
        for store in stores {
            let whole = std::mem::take(&mut rests[store.written]);
            let (part, behind) = whole.split_at_mut(rows.len() * store.shape.len());
            rests[store.written] = behind;
            outs.push(part);
        }
        parts.push((*kind, rows.clone(), outs));
    }
    parts
}

struct Product<'a> {
    heads: usize,
    from: usize,
    to: usize,
    weights: &'a [f32],
    is_transposed: bool,
    x: &'a Rows<'a>,
    scale: Option<(&'a [f32], Index<'a>)>,
}

impl Product<'_> {
    fn block(
        &self,
        kind: usize,
        rows: Range<usize>,
        mut outs: Vec<&mut [f32]>,
        code: &Code<'_>,
        stores: &[Store],
    ) -> Result<()> {
        // A product that is only stored goes where it belongs at once.
        let is_bare = matches!(code.body.steps[..], [_, crate::intra::Step { op: StepOp::Store(_, _), .. }]);
        with_spare(|spare| {
            let mut registers = Registers::new(spare);
            let packed = self.packed(rows.clone(), &mut registers);
            if let ([out], true) = (&mut outs[..], is_bare) {
                self.multiply(kind, rows, packed.as_deref(), out)?;
            } else {
                let mut product = registers.array(rows.len() * self.heads * self.to);
                self.multiply(kind, rows.clone(), packed.as_deref(), &mut product)?;
                code.run(&Block::of_rows(rows), &mut registers, Some(product), &mut |step, rows| {
                    if let Some(at) = stores.iter().position(|store| store.step == step) {
                        copy(rows, stores[at].shape, outs[at]);
                    }
                });
            }
            registers.finish();
            Ok(())
        })
    }

    /// Rows that do not lie together, or are scaled, put together.
    fn packed(&self, rows: Range<usize>, registers: &mut Registers<'_>) -> Option<Vec<f32>> {
        let Rows::Dense(table, index) = self.x else { return None };
        if matches!(index, Index::Same) && self.scale.is_none() {
            return None;
        }
        let len = self.heads * self.from;
        let mut packed = registers.array(rows.len() * len);
        for (row, out) in rows.zip(packed.chunks_exact_mut(len)) {
            out.copy_from_slice(&table[index.get(row) * len..][..len]);
            if let Some((scales, index)) = &self.scale {
                let scale = scales[index.get(row)];
                out.iter_mut().for_each(|out| *out *= scale);
            }
        }
        Some(packed)
    }

    fn multiply(&self, kind: usize, rows: Range<usize>, packed: Option<&[f32]>, out: &mut [f32]) -> Result<()> {
        let Self { heads, from, to, .. } = *self;
        let count = rows.len();
        for head in 0..heads {
            let own = &self.weights[(kind * heads + head) * from * to..][..from * to];
            let w = if self.is_transposed {
                Strided::packed(own, to, from).transposed()
            } else {
                Strided::packed(own, from, to)
            };
            let x = match (self.x, packed) {
                (Rows::Sparse(x), _) => {
                    sparse(x, rows.clone(), own, self.is_transposed, out, to);
                    continue;
                }
                (Rows::Dense(..), Some(packed)) => &packed[head * from..],
                (Rows::Dense(table, _), None) => &table[rows.start * heads * from + head * from..],
            };
            let x = Strided { data: x, rows: count, columns: from, row_stride: heads * from, column_stride: 1 };
            product_into(x, w, &mut out[head * to..], heads * to, Before::Replaced)?;
        }
        Ok(())
    }
}

fn sparse(x: &SparseRows, rows: Range<usize>, w: &[f32], is_transposed: bool, out: &mut [f32], to: usize) {
    let turned: Vec<f32>;
    let w = if is_transposed {
        turned = (0..w.len()).map(|at| w[at % to * x.width + at / to]).collect();
        &turned[..]
    } else {
        w
    };
    widest!(for (row, out) in rows.zip(out.chunks_exact_mut(to)) {
        x.times(row, w, out);
    });
}
