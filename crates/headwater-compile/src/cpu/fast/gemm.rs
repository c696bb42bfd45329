//! Rows times matrices: stretches of rows that share a matrix, in blocks, in parallel; each block's body follows while it is in
//! the cache.

use std::ops::Range;

use headwater_tensor::ops::matmul::{Before, Strided, product_into};
use rayon::prelude::*;

use super::block::Block;
use super::eval::Code;
use super::fuse::Action;
use super::index::Index;
use super::registers::{Memory, Registers};
use super::sparse::SparseRows;
use super::traverse::{Store, Target, copy, lend, stores, with_spare};
use super::vector::widest;
use super::{Context, Written};
use crate::adjacency::{Adjacency, Map};
use crate::error::Result;
use crate::inter::{Domain, Path, Shape};
use crate::intra::Gemm;

/// Numbers that a block's rows should have, in and out together.
const BLOCK_NUMBERS: usize = 192 << 10;

/// Rows from which on a product is added to what is there while it is computed.
const LEAST_ADDED: usize = 16;

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
    let all = pieces(&all, most);
    let placed = match gemm.scatter.and_then(|to| Some((to, context.graph.map(gemm.rows, to, Path::Only)?))) {
        Some((to, map)) => scattered(&all, map, context.graph.rows(to), most),
        None => all.into_iter().map(Piece::in_place).collect(),
    };
    let parts = cut(placed, &stores, written);
    let run = |(piece, outs): Part<'_>| product.block(piece, outs, code, &stores);
    if parts.len() == 1 {
        return parts.into_iter().try_for_each(run);
    }
    parts.into_par_iter().try_for_each(run)
}

/// Rows that a body runs for, and what is multiplied for them.
struct Piece {
    rows: Range<usize>,
    /// The type and the rows of the product; nothing where no product goes.
    product: Option<(usize, Range<usize>)>,
}

impl Piece {
    /// Products of the rows themselves.
    fn in_place((kind, rows): (usize, Range<usize>)) -> Self {
        Self { rows: rows.clone(), product: Some((kind, rows)) }
    }
}

/// All `count` rows that products go to along a map which keeps their order, in pieces: with a product, and without.
fn scattered(products: &[(usize, Range<usize>)], map: Map<'_>, count: usize, most: usize) -> Vec<Piece> {
    let mut found: Vec<Piece> = Vec::new();
    let empty = |rows: Range<usize>| {
        pieces(&[(0, rows)], most).into_iter().map(|(_, rows)| Piece { rows, product: None }).collect::<Vec<_>>()
    };
    let mut next = 0;
    for (kind, rows) in products {
        let mut rest = rows.clone();
        while !rest.is_empty() {
            let first = map.get(rest.start);
            let together = rest.clone().zip(first..).take_while(|(row, to)| map.get(*row) == *to).count();
            let own = rest.start..rest.start + together;
            found.extend(empty(next..first));
            found.push(Piece { rows: first..first + together, product: Some((*kind, own)) });
            next = first + together;
            rest.start += together;
        }
    }
    found.extend(empty(next..count));
    found
}

/// A piece, and for every store its part of the output.
type Part<'w> = (Piece, Vec<Option<&'w mut [f32]>>);

fn cut<'w>(pieces: Vec<Piece>, stores: &[Store], written: &'w mut [Written]) -> Vec<Part<'w>> {
    let mut rests: Vec<&'w mut [f32]> = written.iter_mut().map(|written| &mut written.values[..]).collect();
    let mut parts = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let mut outs = Vec::with_capacity(stores.len());
        for store in stores {
            let whole = std::mem::take(&mut rests[store.written]);
            let (part, behind) = whole.split_at_mut(piece.rows.len() * store.shape.len());
            rests[store.written] = behind;
            outs.push(Some(part));
        }
        parts.push((piece, outs));
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
    fn block<'w>(
        &self,
        piece: Piece,
        outs: Vec<Option<&'w mut [f32]>>,
        code: &'w Code<'_>,
        stores: &[Store],
    ) -> Result<()> {
        with_spare(|spare| {
            let mut registers = Registers::new(spare);
            let mut targets = lend(stores, outs, &mut registers);
            let product = self.product(&piece, code, &mut registers)?;
            code.run(&Block::of_rows(piece.rows), &mut registers, Some(product), &mut |step, rows| {
                let target =
                    stores.iter().position(|store| store.step == step).map(|at| (&stores[at], &mut targets[at]));
                if let Some((store, Target::Piece(out))) = target {
                    copy(rows, store.shape, out);
                }
            });
            registers.finish();
            Ok(())
        })
    }

    /// The product of some rows, added to others where the body only does that with it; and the step that it then stands for.
    fn product<'w>(
        &self,
        piece: &Piece,
        code: &Code<'_>,
        registers: &mut Registers<'w>,
    ) -> Result<(usize, Memory<'w>)> {
        let rows = &piece.rows;
        let len = self.heads * self.to;
        let sum = code.actions.iter().enumerate().find_map(|(at, action)| match action {
            Action::Accumulate { load } => code.loads[*load].as_ref().map(|(table, _)| (at, *table)),
            _ => None,
        });
        let step = sum.map_or(0, |sum| sum.0);
        let mut product = registers.memory(step, rows.len() * len);
        let others = sum.map(|(_, table)| &table[rows.start * len..rows.end * len]);
        let Some((kind, read)) = piece.product.clone() else {
            match others {
                Some(others) => product.copy_from_slice(others),
                None => product.fill(0.0),
            }
            return Ok((step, product));
        };
        let packed = self.packed(read.clone(), registers);
        // Few rows are multiplied in another way, which would add to them in another order: a row should not depend on how many
        // there are beside it.
        let is_together = read.len() >= LEAST_ADDED || matches!(self.x, Rows::Sparse(_));
        match others {
            Some(others) if is_together => {
                product.copy_from_slice(others);
                self.multiply(kind, read, packed.as_deref(), &mut product, Before::Kept)?;
            }
            _ => self.multiply(kind, read, packed.as_deref(), &mut product, Before::Replaced)?,
        }
        if let (Some(others), false) = (others, is_together) {
            product.iter_mut().zip(others).for_each(|(product, other)| *product += other);
        }
        packed.into_iter().for_each(|packed| registers.give(packed));
        Ok((step, product))
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

    fn multiply(
        &self,
        kind: usize,
        rows: Range<usize>,
        packed: Option<&[f32]>,
        out: &mut [f32],
        before: Before,
    ) -> Result<()> {
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
                    sparse(x, rows.clone(), own, self.is_transposed, Into { out, columns: to, before });
                    continue;
                }
                (Rows::Dense(..), Some(packed)) => &packed[head * from..],
                (Rows::Dense(table, _), None) => &table[rows.start * heads * from + head * from..],
            };
            let x = Strided { data: x, rows: count, columns: from, row_stride: heads * from, column_stride: 1 };
            product_into(x, w, &mut out[head * to..], heads * to, before)?;
        }
        Ok(())
    }
}

/// How a product meets what is there.
struct Into<'a> {
    out: &'a mut [f32],
    columns: usize,
    before: Before,
}

fn sparse(x: &SparseRows, rows: Range<usize>, w: &[f32], is_transposed: bool, into: Into<'_>) {
    let to = into.columns;
    let turned: Vec<f32>;
    let w = if is_transposed {
        turned = (0..w.len()).map(|at| w[at % to * x.width + at / to]).collect();
        &turned[..]
    } else {
        w
    };
    if into.before == Before::Replaced {
        into.out.fill(0.0);
    }
    widest!(for (row, out) in rows.zip(into.out.chunks_exact_mut(to)) {
        x.add_times(row, w, out);
    });
}
