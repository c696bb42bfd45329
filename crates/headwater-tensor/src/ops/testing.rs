//! Random data for the operators' tests: a small generator with fixed seeds, so that a failure repeats.

use std::collections::BTreeSet;

use crate::dtype::{Element, Scalar};
use crate::layout::{Layout, Slice};

/// A splitmix64 generator.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.bits() % bound as u64).unwrap()
    }

    /// A value in -4..4, exact in every float type.
    pub(crate) fn value(&mut self) -> f64 {
        (self.below(513) as f64 - 256.0) / 64.0
    }

    /// Plain values, with NaN, infinities and signed zeros among them.
    pub(crate) fn special(&mut self) -> f64 {
        match self.below(16) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => -0.0,
            _ => self.value(),
        }
    }

    pub(crate) fn values<T: Element>(&mut self, count: usize) -> Vec<T> {
        (0..count).map(|_| T::narrow(Scalar::Float(self.value() * 8.0))).collect()
    }

    pub(crate) fn specials<T: Element>(&mut self, count: usize) -> Vec<T> {
        (0..count).map(|_| T::narrow(Scalar::Float(self.special()))).collect()
    }

    /// A view of this shape that is packed, transposed, stepped or broadcast. The storage needs `end()` elements.
    pub(crate) fn layout(&mut self, shape: &[usize]) -> Layout {
        let packed = Layout::contiguous(shape).unwrap();
        match (self.below(4), shape.len()) {
            (1, 2..) => {
                let mut turned = shape.to_vec();
                turned.swap(0, shape.len() - 1);
                Layout::contiguous(&turned).unwrap().transpose(0, shape.len() - 1).unwrap()
            }
            (2, 1..) => {
                let mut wide = shape.to_vec();
                wide[shape.len() - 1] = shape[shape.len() - 1] * 2 + 1;
                let end = wide[shape.len() - 1];
                Layout::contiguous(&wide).unwrap().slice(shape.len() - 1, Slice { start: 1, end, step: 2 }).unwrap()
            }
            (3, 1..) => {
                let mut strides = packed.strides().to_vec();
                strides[self.below(shape.len())] = 0;
                Layout::new(shape, &strides, 2).unwrap()
            }
            _ => packed,
        }
    }
}

/// The storage index of every element of a view in row-major order.
pub(crate) fn indices(layout: &Layout) -> Vec<usize> {
    (0..layout.count())
        .map(|number| {
            let mut rest = number;
            let mut position = vec![0; layout.rank()];
            for axis in (0..layout.rank()).rev() {
                position[axis] = rest % layout.shape()[axis];
                rest /= layout.shape()[axis];
            }
            layout.index_of(&position).unwrap()
        })
        .collect()
}

/// The value as a double.
pub(crate) fn real<T: Element>(x: T) -> f64 {
    match x.widen() {
        Scalar::Float(x) => x,
        Scalar::Int(x) => x as f64,
    }
}

/// Whether a result is the expected value, or within a relative tolerance of it; NaN equals NaN.
pub(crate) fn close(found: f64, expected: f64, relative: f64) -> bool {
    found == expected
        || (found.is_nan() && expected.is_nan())
        || (found - expected).abs() <= relative * expected.abs().max(1e-3)
}

/// Runs a body on pools of one, two and five threads and fails when the results differ.
pub(crate) fn same_for_any_thread_count(body: impl Fn() -> Vec<u8> + Sync) {
    let results: BTreeSet<Vec<u8>> = [1, 2, 5]
        .into_iter()
        .map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(&body))
        .collect();
    assert_eq!(results.len(), 1, "the result depends on the number of threads");
}
