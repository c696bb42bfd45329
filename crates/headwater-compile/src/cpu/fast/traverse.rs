//! Traversals: blocks of outermost rows, in parallel.

use std::ops::Range;

use rayon::prelude::*;

use super::block::{Block, Nest, Rows};
use super::eval::{Code, held};
use super::fuse::Action;
use super::registers::Registers;
use super::vector::{Operand, combine};
use super::{Context, Written};
use crate::error::Result;
use crate::inter::{Reduce, Shape};
use crate::intra::{Body, BufferId, StepOp, Traverse};

/// Numbers that the registers of a block should have together: a good part of the second-level cache.
const BLOCK_NUMBERS: usize = 96 << 10;
/// Rows that are added up at a time, where few rows come out. Fixed, so that sums do not depend on the number of threads.
const COLUMN_ROWS: usize = 4096;

/// Runs a traversal. Rows that few others come out of are added up in another way.
pub(super) fn run(context: &Context<'_>, traverse: &Traverse, code: &Code<'_>, written: &mut [Written]) -> Result<()> {
    let nest = Nest::new(context.graph, &traverse.nest, traverse.path)?;
    if traverse.nest.len() > 1 && traverse.nest[0].is_type() {
        columns(&nest, code, context.graph.rows(traverse.nest[0]), written);
        return Ok(());
    }
    let most_rows = (BLOCK_NUMBERS / held(&traverse.body, code.actions, 0).max(1)).clamp(16, 4096);
    let blocks = nest.blocks(most_items(traverse, code.actions), most_rows);
    let scattered = in_blocks(&nest, code, &blocks, written);
    for (at, rows, values) in scattered {
        let len = written[at].shape.len();
        let to = &mut written[at].values;
        for (row, values) in rows.iter().zip(values.chunks_exact(len)) {
            to[*row as usize * len..][..len].copy_from_slice(values);
        }
    }
    Ok(())
}

/// Innermost rows that a block should have at most.
pub(super) fn most_items(traverse: &Traverse, actions: &[Action]) -> usize {
    let inner = traverse.nest.len() - 1;
    let numbers = held(&traverse.body, actions, inner).max(1);
    if inner == 0 { usize::MAX } else { (BLOCK_NUMBERS / numbers).clamp(64, 16384) }
}

/// Rows that do not lie together, and what is stored there: the place among what is written, rows, values.
pub(super) type Scattered = (usize, Vec<u32>, Vec<f32>);

fn in_blocks(nest: &Nest<'_>, code: &Code<'_>, blocks: &[Range<usize>], written: &mut [Written]) -> Vec<Scattered> {
    let stores = stores(code, &ids(written));
    let parts = cut(nest, blocks, &stores, written);
    let run = |(rows, outs): Part<'_>| block(nest, code, &stores, rows, outs);
    if parts.len() == 1 {
        return parts.into_iter().flat_map(run).collect();
    }
    parts.into_par_iter().flat_map_iter(run).collect()
}

/// Runs the body for some outermost rows. What is stored in rows here and there comes back.
pub(super) fn block<'w>(
    nest: &Nest<'_>,
    code: &'w Code<'_>,
    stores: &[Store],
    rows: Range<usize>,
    outs: Vec<Option<&'w mut [f32]>>,
) -> Vec<Scattered> {
    let block = nest.block(rows);
    let mut scattered = Vec::new();
    let mut registers = Registers::default();
    let mut copied = lend(stores, outs, &mut registers);
    code.run(&block, &mut registers, None, &mut |step, rows| {
        let Some(store) = stores.iter().position(|store| store.step == step) else { return };
        match &mut copied[store] {
            Target::Lent => {}
            Target::Piece(out) => copy(rows, stores[store].shape, out),
            Target::Scattered => scattered.push(scatter(&stores[store], &block, rows)),
        }
    });
    scattered
}

/// A step that stores.
#[derive(Debug, Clone, Copy)]
pub(super) struct Store {
    pub step: usize,
    /// Which of the buffers that are written.
    pub written: usize,
    pub level: usize,
    pub shape: Shape,
    /// The step that can write there itself.
    pub maker: Option<usize>,
}

/// Where a store of a block goes.
pub(super) enum Target<'w> {
    /// The step that makes it wrote it there.
    Lent,
    /// One piece of the output.
    Piece(&'w mut [f32]),
    /// Rows here and there.
    Scattered,
}

/// Lets steps write what is stored as it is straight to its place.
pub(super) fn lend<'w>(
    stores: &[Store],
    outs: Vec<Option<&'w mut [f32]>>,
    registers: &mut Registers<'w>,
) -> Vec<Target<'w>> {
    let targets = stores.iter().zip(outs).map(|(store, out)| match (out, store.maker) {
        (Some(out), Some(maker)) => {
            registers.lend(maker, out);
            Target::Lent
        }
        (Some(out), None) => Target::Piece(out),
        (None, _) => Target::Scattered,
    });
    targets.collect()
}

/// Which buffers are written.
pub(super) fn ids(written: &[Written]) -> Vec<BufferId> {
    written.iter().map(|written| written.id).collect()
}

/// The steps of a body that store.
pub(super) fn stores(code: &Code<'_>, written: &[BufferId]) -> Vec<Store> {
    let mut found = Vec::new();
    for (step, made) in code.body.steps.iter().enumerate() {
        if let StepOp::Store(_, to) = made.op {
            let place = written.iter().position(|written| *written == to);
            // Of two that store the same, one is a copy.
            let maker = code.maker(step).filter(|maker| found.iter().all(|store: &Store| store.maker != Some(*maker)));
            found.extend(place.map(|written| Store { step, written, level: made.level, shape: made.shape, maker }));
        }
    }
    found
}

/// Rows of a block, and for every store its part of the output where that is one piece.
type Part<'w> = (Range<usize>, Vec<Option<&'w mut [f32]>>);

/// For every block its rows, and for every store its part of the output where that is one piece.
fn cut<'w>(nest: &Nest<'_>, blocks: &[Range<usize>], stores: &[Store], written: &'w mut [Written]) -> Vec<Part<'w>> {
    let mut rests: Vec<Option<&'w mut [f32]>> =
        written.iter_mut().map(|written| Some(&mut written.values[..])).collect();
    let mut parts: Vec<_> = blocks.iter().map(|rows| (rows.clone(), Vec::new())).collect();
    for store in stores {
        let mut rest = rests[store.written].take();
        for (rows, outs) in &mut parts {
            let part = rest.take().filter(|_| nest.is_contiguous(store.level)).map(|whole| {
                let count = nest.range(store.level, rows.clone()).len() * store.shape.len();
                let (part, behind) = whole.split_at_mut(count);
                rest = Some(behind);
                part
            });
            outs.push(part);
        }
    }
    parts
}

fn scatter(store: &Store, block: &Block<'_>, rows: Operand<'_>) -> Scattered {
    let level = &block.levels[store.level];
    let mut values = vec![0.0; level.len() * store.shape.len()];
    copy(rows, store.shape, &mut values);
    #[expect(clippy::cast_possible_truncation, reason = "rows of a block are counted in 32 bits")]
    let numbers = (0..level.len()).map(|at| level.get(at) as u32).collect();
    (store.written, numbers, values)
}

/// Rows into an output.
pub(super) fn copy(rows: Operand<'_>, shape: Shape, out: &mut [f32]) {
    match rows {
        Operand::Rows(rows) => out.copy_from_slice(rows),
        Operand::Same(row) => out.chunks_exact_mut(shape.len().max(1)).for_each(|out| out.copy_from_slice(row)),
        Operand::Number(number) => out.fill(number),
    }
}

/// One reduction to few rows: chunks of rows in parallel, then the chunks in order.
fn columns(nest: &Nest<'_>, code: &Code<'_>, types: usize, written: &mut [Written]) {
    for kind in 0..types {
        let whole = nest.block(kind..kind + 1);
        let count = whole.levels[1].len();
        let chunks: Vec<usize> = (0..count).step_by(COLUMN_ROWS).collect();
        let part = |first| column_sum(code, &whole.chunk(kind, first, COLUMN_ROWS));
        let parts: Vec<Vec<f32>> = chunks.into_par_iter().map(part).collect();
        for store in stores(code, &ids(written)) {
            let len = store.shape.len();
            let how = reduction(code.body);
            let out = &mut written[store.written].values[kind * len..][..len];
            out.fill(0.0);
            parts.iter().enumerate().for_each(|(at, part)| combine(how, at == 0, part, out));
            if how == Reduce::Mean && count > 1 {
                out.iter_mut().for_each(|out| *out /= count as f32);
            }
        }
    }
}

/// The sum, or the largest, of the rows of a block.
pub(super) fn column_sum(code: &Code<'_>, part: &Block<'_>) -> Vec<f32> {
    let mut found = Vec::new();
    code.run(part, &mut Registers::default(), None, &mut |step, rows| {
        found = vec![0.0; code.body.steps[step].shape.len()];
        copy(rows, code.body.steps[step].shape, &mut found);
    });
    // A mean of a part is a sum again: the parts are not equally many.
    if reduction(code.body) == Reduce::Mean {
        let count = part.levels[1].len() as f32;
        found.iter_mut().for_each(|found| *found *= count);
    }
    found
}

/// How a body that adds up rows does that.
pub(super) fn reduction(body: &Body) -> Reduce {
    let found = body.steps.iter().find_map(|step| match step.op {
        StepOp::Reduce(how, _) => Some(how),
        _ => None,
    });
    found.unwrap_or(Reduce::Sum)
}

impl Block<'_> {
    /// The block of some of the rows below the one outermost row.
    fn chunk(&self, kind: usize, first: usize, most: usize) -> Block<'_> {
        let count = most.min(self.levels[1].len() - first);
        let rows = match &self.levels[1] {
            Rows::Range(rows) => Rows::Range(rows.start + first..rows.start + first + count),
            Rows::Listed(rows) => Rows::Listed(std::borrow::Cow::Borrowed(&rows[first..first + count])),
        };
        Block::of_two_levels(kind..kind + 1, rows)
    }
}
