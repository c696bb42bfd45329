//! Rows times matrices: stretches of rows that share a matrix, in blocks, in parallel; each block's body follows while it is in
//! the cache.

use std::ops::Range;

use headwater_tensor::ops::matmul::{Before, Strided, product_into};
use rayon::prelude::*;

use super::block::Block;
use super::eval::{Code, Source};
use super::fuse::Action;
use super::index::Index;
use super::registers::{Memory, Registers};
use super::spare::Spare;
use super::sparse::SparseRows;
use super::traverse::{Store, Target, copy, ids, lend, stores};
use super::vector::{copy_rows, widest};
use super::{Context, Written};
use crate::adjacency::{Adjacency, Map};
use crate::error::Result;
use crate::inter::{Domain, Path, Shape};
use crate::intra::Gemm;

/// Numbers that a block's rows should have, in and out together.
const BLOCK_NUMBERS: usize = 96 << 10;

/// Rows from which on a product is added to what is there while it is computed.
const LEAST_ADDED: usize = 16;
/// Elements that these rows have at least.
const LEAST_LONG: usize = 3;

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
        rows.step_by(most).map(move |first| (kind, first..first.saturating_add(most).min(end))).collect::<Vec<_>>()
    };
    stretches.iter().flat_map(cut).collect()
}

/// Runs a product.
pub(super) fn run(
    context: &Context<'_>,
    gemm: &Gemm,
    x: &Rows<'_>,
    scale: Option<Source<'_>>,
    code: &Code<'_>,
    written: &mut [Written],
) -> Result<()> {
    let Some(product) = Product::new(context, gemm, x, scale) else { return Ok(()) };
    let most = (BLOCK_NUMBERS / product.numbers()).clamp(32, 2048);
    let stores = stores(code, &ids(written));
    let placed = placed(context, gemm, most);
    let parts = cut(placed, &stores, written);
    let run = |(piece, outs): Part<'_>| product.block(piece, outs, code, &stores, None);
    if parts.len() == 1 {
        return parts.into_iter().try_for_each(run);
    }
    parts.into_par_iter().try_for_each(run)
}

/// Rows that a body runs for, and what is multiplied for them.
pub(super) struct Piece {
    pub rows: Range<usize>,
    /// The type and the rows of the product; nothing where no product goes.
    product: Option<(usize, Range<usize>)>,
}

impl Piece {
    /// Products of the rows themselves.
    fn in_place((kind, rows): (usize, Range<usize>)) -> Self {
        Self { rows: rows.clone(), product: Some((kind, rows)) }
    }

    /// Some of its rows.
    pub fn part(&self, rows: Range<usize>) -> Self {
        let before = rows.start - self.rows.start;
        let own = |first: usize| first + before..first + before + rows.len();
        Self { product: self.product.as_ref().map(|(kind, all)| (*kind, own(all.start))), rows }
    }
}

/// All rows that a product goes to, in order, in pieces of at most `most` rows.
pub(super) fn placed(context: &Context<'_>, gemm: &Gemm, most: usize) -> Vec<Piece> {
    let all = stretches(context.graph, gemm.product.rows, context.program[gemm.product.w].domain, gemm.product.path);
    let all = pieces(&all, most);
    match gemm.scatter.and_then(|to| Some((to, context.graph.map(gemm.product.rows, to, Path::Only)?))) {
        Some((to, map)) => scattered(&all, map, context.graph.rows(to), most),
        None => all.into_iter().map(Piece::in_place).collect(),
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

/// Rows times matrices, ready to run for any of the rows.
pub(super) struct Product<'a> {
    heads: usize,
    from: usize,
    to: usize,
    weights: &'a [f32],
    is_transposed: bool,
    x: &'a Rows<'a>,
    scale: Option<Source<'a>>,
}

impl<'a> Product<'a> {
    /// Of the rows of a kernel.
    pub fn new(context: &'a Context<'a>, gemm: &Gemm, x: &'a Rows<'a>, scale: Option<Source<'a>>) -> Option<Self> {
        let Shape::Matrix { heads, rows, cols } = context.program[gemm.product.w].shape else { return None };
        let (from, to) = if gemm.product.transposed { (cols, rows) } else { (rows, cols) };
        Some(Self {
            heads,
            from,
            to,
            weights: context.dense(gemm.product.w),
            is_transposed: gemm.product.transposed,
            x,
            scale,
        })
    }

    /// Numbers of a row, in and out.
    pub fn numbers(&self) -> usize {
        self.heads * (self.from + self.to)
    }

    /// Products of some rows and the body for them. `begun` is what products are added to, where nobody else needs it.
    pub fn block<'w>(
        &self,
        piece: Piece,
        outs: Vec<Option<&'w mut [f32]>>,
        code: &'w Code<'_>,
        stores: &[Store],
        begun: Option<Spare>,
    ) -> Result<()> {
        let mut registers = Registers::default();
        let mut targets = lend(stores, outs, &mut registers);
        let product = self.product(&piece, code, &mut registers, begun)?;
        code.run(&Block::of_rows(piece.rows), &mut registers, Some(product), &mut |step, rows| {
            let target = stores.iter().position(|store| store.step == step).map(|at| (&stores[at], &mut targets[at]));
            if let Some((store, Target::Piece(out))) = target {
                copy(rows, store.shape, out);
            }
        });
        Ok(())
    }

    /// The product of some rows, added to others where the body only does that with it; and the step that it then stands for.
    /// `begun` has the others where nobody else needs them.
    fn product<'w>(
        &self,
        piece: &Piece,
        code: &Code<'_>,
        registers: &mut Registers<'w>,
        begun: Option<Spare>,
    ) -> Result<(usize, Memory<'w>)> {
        let rows = &piece.rows;
        let sum = code.actions.iter().enumerate().find_map(|(at, action)| match action {
            Action::Accumulate { load } => code.loads[*load].map(|source| (at, source)),
            _ => None,
        });
        let (step, numbers) = (sum.map_or(0, |sum| sum.0), rows.len() * self.heads * self.to);
        let begun = sum.map(|(_, (table, index))| {
            let len = self.heads * self.to;
            let row = &table[index.get(rows.start) * len..];
            registers.begin(step, numbers, begun, |out| match index {
                Index::One(_) => out.chunks_exact_mut(len).for_each(|out| out.copy_from_slice(&row[..len])),
                _ => out.copy_from_slice(&row[..numbers]),
            })
        });
        let Some((kind, read)) = piece.product.clone() else {
            return Ok((step, begun.unwrap_or_else(|| registers.zeros(step, numbers))));
        };
        let packed = self.packed(read.clone());
        // Few rows, and short ones, are multiplied in another way, which would add to them in another order: a row should not
        // depend on how many there are beside it.
        let is_large = read.len() >= LEAST_ADDED && self.from >= LEAST_LONG;
        let is_together = is_large || matches!(self.x, Rows::Sparse(_));
        let product = match begun {
            Some(mut sum) if is_together => {
                self.multiply(kind, read, packed.as_deref(), &mut sum, Before::Kept)?;
                sum
            }
            Some(mut sum) => {
                let mut product = Spare::new(numbers);
                self.multiply(kind, read, packed.as_deref(), &mut product, Before::Replaced)?;
                sum.iter_mut().zip(&product[..]).for_each(|(sum, product)| *sum += product);
                sum
            }
            None => {
                let mut product = registers.memory(step, numbers);
                self.multiply(kind, read, packed.as_deref(), &mut product, Before::Replaced)?;
                product
            }
        };
        Ok((step, product))
    }

    /// Rows that do not lie together, or are scaled, put together.
    fn packed(&self, rows: Range<usize>) -> Option<Spare> {
        let Rows::Dense(table, index) = self.x else { return None };
        if self.scale.is_none() && index.neighbours(rows.start).is_some() {
            return None;
        }
        let len = self.heads * self.from;
        let mut packed = Spare::new(rows.len() * len);
        copy_rows(table, len, &mut packed, |at| index.get(rows.start + at));
        if let Some((scales, index)) = self.scale {
            for (row, out) in rows.zip(packed.chunks_exact_mut(len)) {
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
                (Rows::Dense(table, index), None) => &table[(index.get(rows.start) * heads + head) * from..],
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
