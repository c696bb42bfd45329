//! The loops under every CPU operator that maps positions to positions.
//!
//! The output is cut into parts of fixed size that threads take as they come free. Within a part the operands are walked
//! as runs, and a run whose operands are packed or constant is a loop over slices, which the compiler vectorises.

use bytemuck::Pod;

use crate::loops::Loops;
use crate::parallel::for_parts;
use crate::view::View;

/// Elements a thread takes at a time: enough work to hide the hand-over, small enough to stay in the second-level cache.
pub(crate) const PART: usize = 1 << 14;

/// `out[i] = f(a[i])`. The caller has checked that `out` has as many elements as `a`.
pub(crate) fn map1<A: Copy + Sync, O: Pod>(a: View<'_, A>, out: &mut [O], f: impl Fn(A) -> O + Sync) {
    let loops = Loops::new([a.layout()]);
    in_parts(out, &|start, part| {
        loops.for_each_run(start..start + part.len(), &mut |run| {
            let to = &mut part[run.first..run.first + run.len];
            match Operand::new(a.data(), run.offsets[0], run.strides[0], run.len) {
                Operand::Packed(a) => to.iter_mut().zip(a).for_each(|(o, &x)| *o = f(x)),
                Operand::Same(x) => to.fill(f(x)),
                a @ Operand::Spread(..) => to.iter_mut().enumerate().for_each(|(i, o)| *o = f(a.at(i))),
            }
        });
    });
}

/// `out[i] = f(a[i], b[i])` over operands of one shape.
pub(crate) fn map2<A: Copy + Sync, B: Copy + Sync, O: Pod>(
    a: View<'_, A>,
    b: View<'_, B>,
    out: &mut [O],
    f: impl Fn(A, B) -> O + Sync,
) {
    use Operand::{Packed, Same};
    let loops = Loops::new([a.layout(), b.layout()]);
    in_parts(out, &|start, part| {
        loops.for_each_run(start..start + part.len(), &mut |run| {
            let to = &mut part[run.first..run.first + run.len];
            let left = Operand::new(a.data(), run.offsets[0], run.strides[0], run.len);
            let right = Operand::new(b.data(), run.offsets[1], run.strides[1], run.len);
            match (left, right) {
                (Packed(a), Packed(b)) => to.iter_mut().zip(a.iter().zip(b)).for_each(|(o, (&x, &y))| *o = f(x, y)),
                (Packed(a), Same(y)) => to.iter_mut().zip(a).for_each(|(o, &x)| *o = f(x, y)),
                (Same(x), Packed(b)) => to.iter_mut().zip(b).for_each(|(o, &y)| *o = f(x, y)),
                (a, b) => to.iter_mut().enumerate().for_each(|(i, o)| *o = f(a.at(i), b.at(i))),
            }
        });
    });
}

/// `out[i] = f(a[i], b[i], c[i])` over operands of one shape.
pub(crate) fn map3<A: Copy + Sync, B: Copy + Sync, C: Copy + Sync, O: Pod>(
    a: View<'_, A>,
    b: View<'_, B>,
    c: View<'_, C>,
    out: &mut [O],
    f: impl Fn(A, B, C) -> O + Sync,
) {
    use Operand::Packed;
    let loops = Loops::new([a.layout(), b.layout(), c.layout()]);
    in_parts(out, &|start, part| {
        loops.for_each_run(start..start + part.len(), &mut |run| {
            let to = &mut part[run.first..run.first + run.len];
            let first = Operand::new(a.data(), run.offsets[0], run.strides[0], run.len);
            let second = Operand::new(b.data(), run.offsets[1], run.strides[1], run.len);
            let third = Operand::new(c.data(), run.offsets[2], run.strides[2], run.len);
            match (first, second, third) {
                (Packed(a), Packed(b), Packed(c)) => {
                    let inputs = a.iter().zip(b).zip(c);
                    to.iter_mut().zip(inputs).for_each(|(o, ((&x, &y), &z))| *o = f(x, y, z));
                }
                (a, b, c) => to.iter_mut().enumerate().for_each(|(i, o)| *o = f(a.at(i), b.at(i), c.at(i))),
            }
        });
    });
}

/// Calls `body` with the first position and the elements of each part of the output.
pub(crate) fn in_parts<O: Pod>(out: &mut [O], body: &(dyn Fn(usize, &mut [O]) + Sync)) {
    if out.len() <= 2 * PART {
        body(0, out);
    } else {
        for_parts(out, PART, body);
    }
}

/// One operand over one run.
pub(crate) enum Operand<'a, A> {
    /// Neighbours in storage.
    Packed(&'a [A]),
    /// One element for all positions.
    Same(A),
    /// Elements this far apart, at least two.
    Spread(&'a [A], usize),
}

impl<'a, A: Copy> Operand<'a, A> {
    pub(crate) fn new(data: &'a [A], offset: usize, stride: usize, len: usize) -> Operand<'a, A> {
        match stride {
            _ if len == 1 => Operand::Packed(&data[offset..=offset]),
            0 => Operand::Same(data[offset]),
            1 => Operand::Packed(&data[offset..offset + len]),
            _ => Operand::Spread(&data[offset..=offset + (len - 1) * stride], stride),
        }
    }

    pub(crate) fn at(&self, i: usize) -> A {
        match self {
            Operand::Packed(data) => data[i],
            Operand::Same(value) => *value,
            Operand::Spread(data, stride) => data[i * stride],
        }
    }
}
