//! One kernel of a chain: what it reads is found once, and it then runs for any of its rows.

use std::ops::Range;

use super::super::Context;
use super::super::block::{Block, Nest, Rows as Level};
use super::super::eval::{Code, Loads, Source, held};
use super::super::fuse::Action;
use super::super::gemm::{Piece, Product, Rows, placed};
use super::super::index::Index;
use super::super::outer::Sum;
use super::super::registers::Memory;
use super::super::spare::Spare;
use super::super::traverse::{self, Store, column_sum, most_items, reduction, stores};
use super::super::vector::combine;
use crate::error::Result;
use crate::inter::Reduce;
use crate::intra::{Body, BufferId, Gemm, Kernel, Outer, StepOp};

/// Rows that a type should have on average: many short stretches are no blocks.
const LEAST_ROWS: usize = 64;

/// A kernel, ready to run for some rows.
pub(super) struct Link<'a> {
    what: What<'a>,
    body: Option<(&'a Body, &'a [Action], Loads<'a>)>,
    /// What it stores row by row.
    pub writes: Vec<BufferId>,
    pub reads: Vec<BufferId>,
}

enum What<'a> {
    Gemm { gemm: &'a Gemm, x: Rows<'a>, scale: Option<(&'a [f32], Index<'a>)>, pieces: Vec<Piece> },
    Traverse { nest: Nest<'a>, most_items: usize },
    Outer { outer: &'a Outer, x: Rows<'a>, y: Rows<'a>, sum: Sum },
    Columns { len: usize },
}

/// What earlier kernels of the chain made of the rows of a block.
pub(super) struct Locals<'a> {
    /// From rows to rows of the block.
    pub after: Index<'a>,
    pub made: Vec<(BufferId, &'a [f32])>,
}

impl Locals<'_> {
    fn get(&self, id: BufferId) -> Option<Source<'_>> {
        let found = self.made.iter().find(|(made, _)| *made == id);
        found.map(|(_, values)| (*values, &self.after))
    }

    fn rows(&self, id: BufferId) -> Option<Rows<'_>> {
        self.get(id).map(|(values, after)| Rows::Dense(values, after.clone()))
    }
}

impl<'a> Link<'a> {
    /// Of a kernel; `None` where its rows cannot be cut into blocks.
    pub fn new(context: &'a Context<'a>, kernel: &'a Kernel, actions: &'a [Action]) -> Result<Option<Self>> {
        let writes = if super::is_sum(kernel) { Vec::new() } else { kernel.writes() };
        let (what, body) = match kernel {
            Kernel::Gemm(gemm) => {
                let pieces = placed(context, gemm, usize::MAX);
                if pieces.len() > 1 && pieces.len() * LEAST_ROWS > context.graph.rows(*gemm.body_rows()) {
                    return Ok(None);
                }
                let scale =
                    gemm.product.scale.as_ref().map(|scale| context.load(gemm.product.rows, scale)).transpose()?;
                let what = What::Gemm { gemm, x: context.rows(gemm.product.rows, &gemm.product.x)?, scale, pieces };
                (what, Some(&gemm.body))
            }
            Kernel::Outer(outer) => {
                let Some(sum) = Sum::new(context.program[outer.to].shape) else { return Ok(None) };
                let (x, y) = (context.rows(outer.rows, &outer.x)?, context.rows(outer.rows, &outer.y)?);
                (What::Outer { outer, x, y, sum }, None)
            }
            Kernel::Traverse(traverse) if super::is_sum(kernel) => {
                let len = kernel.writes().first().map_or(0, |to| context.program[*to].shape.len());
                (What::Columns { len }, Some(&traverse.body))
            }
            Kernel::Traverse(traverse) => {
                let nest = Nest::new(context.graph, &traverse.nest, traverse.path)?;
                (What::Traverse { nest, most_items: most_items(traverse, actions) }, Some(&traverse.body))
            }
            Kernel::GemmSum(_) | Kernel::Library(_) => return Ok(None),
        };
        let nest = match kernel {
            Kernel::Gemm(gemm) => std::slice::from_ref(gemm.body_rows()),
            _ => kernel.nest(),
        };
        let body = match body {
            Some(body) => Some((body, actions, context.loads(nest, body)?)),
            None => None,
        };
        Ok(Some(Self { what, body, writes, reads: kernel.reads() }))
    }

    /// The rows that its products are only added to.
    pub fn adds_to(&self) -> Option<BufferId> {
        let (body, actions, _) = self.body.as_ref()?;
        actions.iter().find_map(|action| match action {
            Action::Accumulate { load } => match &body.steps[*load].op {
                StepOp::Load(read) => Some(read.from),
                _ => None,
            },
            _ => None,
        })
    }

    /// Numbers that it has in hand for every row.
    pub fn numbers(&self, context: &Context<'_>) -> usize {
        let of_body = self.body.as_ref().map_or(0, |(body, actions, _)| held(body, actions, 0));
        let of_product = match &self.what {
            What::Gemm { gemm, .. } => context.program[gemm.product.x.from].shape.len(),
            What::Outer { sum, .. } => sum.numbers(),
            _ => 0,
        };
        of_body + of_product
    }

    /// The last row, at most `rows.end`, that a block which begins with `rows` may have.
    pub fn end(&self, rows: Range<usize>) -> usize {
        match &self.what {
            What::Gemm { pieces, .. } => {
                piece_of(pieces, rows.start).map_or(rows.end, |own| own.rows.end.min(rows.end))
            }
            What::Traverse { nest, most_items } => nest.end(rows, *most_items),
            _ => rows.end,
        }
    }

    /// How many sums it makes of all rows together.
    pub fn sums(&self) -> usize {
        match &self.what {
            What::Outer { sum, .. } => sum.len(),
            What::Columns { len } => *len,
            _ => 0,
        }
    }

    /// Adds the sums of other rows to those there are, if any.
    pub fn add(&self, is_first: bool, others: &[f32], sums: &mut [f32]) {
        combine(self.how().unwrap_or(Reduce::Sum), is_first, others, sums);
    }

    /// Ends with the sums of all `count` rows.
    pub fn finish(&self, count: usize, sums: &mut [f32]) {
        if self.how() == Some(Reduce::Mean) && count > 1 {
            sums.iter_mut().for_each(|sum| *sum /= count as f32);
        }
    }

    fn how(&self) -> Option<Reduce> {
        self.body.as_ref().map(|(body, ..)| reduction(body))
    }

    /// Runs for some rows. `begun` is what products are added to, where nobody else needs it; `is_first` says that there are no
    /// sums yet.
    pub fn block(
        &self,
        context: &Context<'_>,
        rows: Range<usize>,
        locals: &Locals<'_>,
        outs: &mut [Memory<'_>],
        begun: Option<Spare>,
        (is_first, sums): (bool, &mut [f32]),
    ) -> Result<()> {
        let code = self
            .body
            .as_ref()
            .map(|(body, actions, loads)| Code::new(body, actions, loads, context.step).with(|id| locals.get(id)));
        match (&self.what, &code) {
            (What::Gemm { gemm, x, scale, pieces }, Some(code)) => {
                let local = locals.rows(gemm.product.x.from);
                let scale = scale.as_ref().map(|(scales, index)| (*scales, index));
                let scale = gemm.product.scale.as_ref().and_then(|read| locals.get(read.from)).or(scale);
                let product = Product::new(context, gemm, local.as_ref().unwrap_or(x), scale);
                let (Some(product), Some(piece)) = (product, piece_of(pieces, rows.start)) else { return Ok(()) };
                let stores = stores(code, &self.writes);
                product.block(piece.part(rows), memories(&stores, outs), code, &stores, begun)
            }
            (What::Traverse { nest, .. }, Some(code)) => {
                let stores = stores(code, &self.writes);
                traverse::block(nest, code, &stores, rows, memories(&stores, outs));
                Ok(())
            }
            (What::Outer { outer, x, y, sum }, _) => {
                let (own_x, own_y) = (locals.rows(outer.x.from), locals.rows(outer.y.from));
                let (x, y) = (own_x.as_ref().unwrap_or(x), own_y.as_ref().unwrap_or(y));
                sum.add(x, y, rows, sums)
            }
            (What::Columns { .. }, Some(code)) => {
                let part = column_sum(code, &Block::of_two_levels(0..1, Level::Range(rows)));
                combine(reduction(code.body), is_first, &part, sums);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The piece that a row lies in.
fn piece_of(pieces: &[Piece], row: usize) -> Option<&Piece> {
    pieces.get(pieces.partition_point(|piece| piece.rows.end <= row))
}

/// For every store its memory.
fn memories<'w>(stores: &[Store], outs: &'w mut [Memory<'_>]) -> Vec<Option<&'w mut [f32]>> {
    let mut outs: Vec<Option<&'w mut [f32]>> = outs.iter_mut().map(|out| Some(&mut out[..])).collect();
    stores.iter().map(|store| outs[store.written].take()).collect()
}
