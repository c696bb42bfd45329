//! The order in which kernels walk several operands of one shape.
//!
//! Axes of size one vanish and neighbouring axes that lie packed in every operand merge, so most real views become one
//! or two loops. What is left is walked as runs: pieces of the innermost axis, which a kernel handles as slices. A walk
//! can start anywhere, so threads take parts of the output and the result does not depend on how many there are.

mod cuda;

use std::ops::Range;

use crate::layout::{Layout, MAX_DIMS};

/// `N` operands over one shape, with as few axes as their strides allow. The last axis is the innermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loops<const N: usize> {
    rank: usize,
    shape: [usize; MAX_DIMS],
    strides: [[usize; MAX_DIMS]; N],
    offsets: [usize; N],
}

impl<const N: usize> Loops<N> {
    /// Merges the axes of operands that have the same shape; the first one's shape is taken for all.
    pub fn new(layouts: [&Layout; N]) -> Loops<N> {
        let mut loops =
            Loops { rank: 0, shape: [0; MAX_DIMS], strides: [[0; MAX_DIMS]; N], offsets: layouts.map(Layout::offset) };
        let sizes = layouts.first().map(|layout| *layout.shape());
        // The sizes beside a zero may have a product that overflows.
        if sizes.is_some_and(|sizes| sizes.contains(&0)) {
            loops.push(0, [0; N]);
            return loops;
        }
        for (axis, &size) in sizes.iter().flat_map(|sizes| sizes.iter()).enumerate() {
            if size != 1 {
                loops.push(size, layouts.map(|layout| layout.strides().get(axis).copied().unwrap_or(0)));
            }
        }
        if loops.rank == 0 {
            loops.push(1, [0; N]);
        }
        loops
    }

    /// How many axes are left, at least one.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Sizes of the axes that are left.
    pub fn shape(&self) -> &[usize] {
        &self.shape[..self.rank]
    }

    /// Strides of one operand.
    pub fn strides(&self, operand: usize) -> &[usize] {
        &self.strides[operand][..self.rank]
    }

    /// First index of each operand.
    pub fn offsets(&self) -> [usize; N] {
        self.offsets
    }

    /// Strides of all operands along the innermost axis.
    pub fn inner_strides(&self) -> [usize; N] {
        self.strides.map(|strides| strides[self.rank - 1])
    }

    /// Calls `visit` for each run of the positions in `range`, counted in row-major order. Runs are mostly long: `visit` is
    /// called through a pointer, so that the walk is compiled once and not for each operator.
    pub fn for_each_run(&self, range: Range<usize>, visit: &mut dyn FnMut(Run<N>)) {
        let inner = self.shape[self.rank - 1];
        if range.is_empty() || inner == 0 {
            return;
        }
        let steps = self.inner_strides();
        let (mut position, mut starts) = self.seek(range.start / inner);
        let mut skip = range.start % inner;
        let mut done = range.start;
        loop {
            let len = (inner - skip).min(range.end - done);
            let offsets = std::array::from_fn(|n| starts[n] + skip * steps[n]);
            visit(Run { first: done - range.start, len, offsets, strides: steps });
            done += len;
            if done == range.end {
                return;
            }
            skip = 0;
            self.advance(&mut position, &mut starts);
        }
    }

    fn push(&mut self, size: usize, strides: [usize; N]) {
        let merges =
            self.rank > 0 && (0..N).all(|n| strides[n].checked_mul(size) == Some(self.strides[n][self.rank - 1]));
        if !merges {
            self.rank += 1;
            self.shape[self.rank - 1] = 1;
        }
        let last = self.rank - 1;
        self.shape[last] *= size;
        for (own, stride) in self.strides.iter_mut().zip(strides) {
            own[last] = stride;
        }
    }

    /// The outer position with this number, and where each operand's row begins there.
    fn seek(&self, mut row: usize) -> ([usize; MAX_DIMS], [usize; N]) {
        let mut position = [0; MAX_DIMS];
        let mut starts = self.offsets;
        for axis in (0..self.rank - 1).rev() {
            position[axis] = row % self.shape[axis];
            row /= self.shape[axis];
            for (start, strides) in starts.iter_mut().zip(&self.strides) {
                *start += position[axis] * strides[axis];
            }
        }
        (position, starts)
    }

    /// The next outer position. Carrying subtracts what the axis had added, so nothing is multiplied in the common case.
    fn advance(&self, position: &mut [usize; MAX_DIMS], starts: &mut [usize; N]) {
        for axis in (0..self.rank - 1).rev() {
            position[axis] += 1;
            if position[axis] < self.shape[axis] {
                for (start, strides) in starts.iter_mut().zip(&self.strides) {
                    *start += strides[axis];
                }
                return;
            }
            position[axis] = 0;
            for (start, strides) in starts.iter_mut().zip(&self.strides) {
                *start -= (self.shape[axis] - 1) * strides[axis];
            }
        }
    }
}

/// The kernels' side of this file, put after the prelude and before a kernel's text. Wants `HW_MAX_DIMS` defined.
pub const LOOPS_CUH: &str = include_str!("loops.cuh");

/// A piece of the innermost axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<const N: usize> {
    /// Its first position, counted from the start of the range that is walked.
    pub first: usize,
    /// How many positions it has, at least one.
    pub len: usize,
    /// Where each operand begins.
    pub offsets: [usize; N],
    /// How far each operand moves from position to position.
    pub strides: [usize; N],
}

/// The kernels' copy of `Loops`, passed by value; `loops.cuh` holds the same struct. All fields are 64 bits wide, so
/// there is no padding to agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct LoopsArg<const N: usize> {
    /// Axes in use.
    pub rank: u64,
    /// Elements in all.
    pub count: u64,
    /// Sizes, innermost last; unused ones are 0.
    pub shape: [u64; MAX_DIMS],
    /// Strides of each operand in elements.
    pub strides: [[u64; MAX_DIMS]; N],
    /// First index of each operand.
    pub offsets: [u64; N],
}

impl<const N: usize> From<&Loops<N>> for LoopsArg<N> {
    fn from(loops: &Loops<N>) -> LoopsArg<N> {
        LoopsArg {
            rank: loops.rank as u64,
            count: loops.shape().iter().product::<usize>() as u64,
            shape: loops.shape.map(|size| size as u64),
            strides: loops.strides.map(|strides| strides.map(|stride| stride as u64)),
            offsets: loops.offsets.map(|offset| offset as u64),
        }
    }
}

impl<const N: usize> LoopsArg<N> {
    /// One more than the largest index of an operand, for any values of the fields; the largest number there is when the
    /// fields do not describe loops.
    pub fn reach(&self, operand: usize) -> u64 {
        if self.count == 0 {
            return 0;
        }
        let axes = usize::try_from(self.rank).ok().and_then(|rank| self.shape.get(..rank));
        let (Some(sizes), Some(strides)) = (axes, self.strides.get(operand)) else { return u64::MAX };
        let product = sizes.iter().try_fold(1u64, |product, size| product.checked_mul(*size));
        if product != Some(self.count) {
            return u64::MAX;
        }
        let ends = sizes.iter().zip(strides).map(|(size, stride)| (size - 1).saturating_mul(*stride));
        let first = self.offsets.get(operand).copied().unwrap_or(u64::MAX);
        ends.fold(first, u64::saturating_add).saturating_add(1)
    }
}

#[cfg(test)]
mod tests;
