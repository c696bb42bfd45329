//! Folding an axis in the one documented order, whatever its strides and however many threads there are.
//!
//! An axis that is packed is folded output by output. Any other axis is folded for a tile of neighbouring outputs at
//! once, so that memory is read along the outputs; each output still meets its elements in the same order.

use super::{BLOCK, LANES};
use crate::dtype::Element;
use crate::layout::Layout;
use crate::loops::{Loops, Run};
use crate::ops::map::PART;
use crate::parallel;
use crate::view::View;

/// A fold that may be done in pieces: `join` is what makes one state of two.
pub(super) trait Fold<T> {
    /// What is known after some elements.
    type State: Copy + Send + Sync;
    /// What is known after none. Joining it changes nothing.
    fn empty() -> Self::State;
    /// Adds the element at a position of the axis.
    fn take(state: &mut Self::State, value: T, index: usize);
    /// Adds what another state knows.
    fn join(state: &mut Self::State, other: Self::State);
}

/// Outputs folded side by side when the axis is not packed: their running states stay in the first-level cache.
const TILE: usize = 16;

/// One state for each output. `outputs` is the layout without the axis.
pub(super) fn fold_axis<T: Element, F: Fold<T>>(a: View<'_, T>, axis: usize, outputs: &Layout) -> Vec<F::State> {
    let length = a.shape()[axis];
    let count = outputs.count();
    let mut blocks = length.div_ceil(BLOCK).max(1);
    let mut states = vec![F::empty(); count * blocks];
    let walk = Walk { data: a.data(), stride: a.layout().strides()[axis], length, outputs: Loops::new([outputs]) };
    for_pieces(&mut states, count, length, &|block, first, piece| walk.fold_block::<F>(block, first, piece));
    while blocks > 1 {
        let next_blocks = blocks.div_ceil(BLOCK);
        let mut next = vec![F::empty(); count * next_blocks];
        for_pieces(&mut next, count, blocks, &|block, first, piece| {
            let rows = block * BLOCK..blocks.min((block + 1) * BLOCK);
            for (i, state) in piece.iter_mut().enumerate() {
                let mut lanes = [F::empty(); LANES];
                for (at, row) in rows.clone().enumerate() {
                    F::join(&mut lanes[at % LANES], states[row * count + first + i]);
                }
                *state = halve::<T, F>(lanes, rows.len());
            }
        });
        (states, blocks) = (next, next_blocks);
    }
    states
}

/// Calls `body` with block, first output and states of each piece of a table of blocks by outputs. Pieces are large: the body
/// is called through a pointer, so that the splitting is compiled once for each type of state.
fn for_pieces<S: Send>(table: &mut [S], outputs: usize, length: usize, body: &(dyn Fn(usize, usize, &mut [S]) + Sync)) {
    if outputs == 0 {
        return;
    }
    // A piece is about as much work as a part of an elementwise operator.
    let piece = (PART / length.clamp(1, BLOCK)).max(TILE);
    if table.len().saturating_mul(length.min(BLOCK)) <= 2 * PART {
        for (block, row) in table.chunks_mut(outputs).enumerate() {
            body(block, 0, row);
        }
    } else {
        let pieces = table.chunks_mut(outputs).enumerate().flat_map(|(block, row)| {
            row.chunks_mut(piece).enumerate().map(move |(number, states)| (block, number * piece, states))
        });
        parallel::for_each(pieces, |_, (block, first, states)| body(block, first, states));
    }
}

struct Walk<'a, T> {
    data: &'a [T],
    stride: usize,
    length: usize,
    outputs: Loops<1>,
}

impl<T: Element> Walk<'_, T> {
    /// Folds one block of the axis for the outputs from `first` on.
    fn fold_block<F: Fold<T>>(&self, block: usize, first: usize, states: &mut [F::State]) {
        let start = block * BLOCK;
        let length = self.length.min(start + BLOCK) - start;
        if length == 0 {
            return;
        }
        self.outputs.for_each_run(first..first + states.len(), &mut |run: Run<1>| {
            let states = &mut states[run.first..run.first + run.len];
            let offset = run.offsets[0] + start * self.stride;
            if self.stride == 1 || run.strides[0] != 1 {
                for (i, state) in states.iter_mut().enumerate() {
                    *state = self.fold_one::<F>(offset + i * run.strides[0], start, length);
                }
            } else {
                for (i, tile) in states.chunks_mut(TILE).enumerate() {
                    self.fold_tile::<F>(offset + i * TILE, start, length, tile);
                }
            }
        });
    }

    fn fold_one<F: Fold<T>>(&self, offset: usize, start: usize, length: usize) -> F::State {
        let mut lanes = [F::empty(); LANES];
        if self.stride == 1 {
            let values = &self.data[offset..offset + length];
            for (row, chunk) in values.chunks(LANES).enumerate() {
                for (lane, (state, &value)) in lanes.iter_mut().zip(chunk).enumerate() {
                    F::take(state, value, start + row * LANES + lane);
                }
            }
        } else {
            for i in 0..length {
                F::take(&mut lanes[i % LANES], self.data[offset + i * self.stride], start + i);
            }
        }
        halve::<T, F>(lanes, length)
    }

    fn fold_tile<F: Fold<T>>(&self, offset: usize, start: usize, length: usize, out: &mut [F::State]) {
        let mut lanes = [[F::empty(); TILE]; LANES];
        for i in 0..length {
            let row = &self.data[offset + i * self.stride..][..out.len()];
            for (state, &value) in lanes[i % LANES].iter_mut().zip(row) {
                F::take(state, value, start + i);
            }
        }
        for (i, state) in out.iter_mut().enumerate() {
            *state = halve::<T, F>(std::array::from_fn(|lane| lanes[lane][i]), length);
        }
    }
}

/// Joins the lanes in halves. Lanes that met no element are left out, which changes nothing.
fn halve<T, F: Fold<T>>(mut lanes: [F::State; LANES], used: usize) -> F::State {
    let mut half = used.min(LANES).next_power_of_two() / 2;
    while half > 0 {
        for lane in 0..half {
            let other = lanes[lane + half];
            F::join(&mut lanes[lane], other);
        }
        half /= 2;
    }
    lanes[0]
}
