//! Reductions on the CPU: what is folded and how it ends. The walk in the documented order is in `fold.rs`.

use half::{bf16, f16};

use super::ReduceOp;
use super::fold::{Fold, fold_axis};
use crate::dtype::{Bool, Element, Scalar};
use crate::error::{Error, Result};
use crate::read::{HostOperand, typed_mut};
use crate::view::{View, check_output};

/// Reduces an axis into a packed array of the operator's result type.
pub(super) fn run(op: ReduceOp, a: &HostOperand<'_>, axis: usize, out: &mut [u8]) -> Result<()> {
    crate::dispatch!(a.dtype(), T => {
        let view = a.view::<T>()?;
        match op {
            ReduceOp::Sum => sum(view, axis, typed_mut(out)?),
            ReduceOp::Mean => mean(view, axis, typed_mut(out)?),
            ReduceOp::Max => max(view, axis, typed_mut(out)?),
            ReduceOp::ArgMax => argmax(view, axis, typed_mut(out)?),
        }
    })
}

/// Sums along an axis.
pub fn sum<T: Reduce>(a: View<'_, T>, axis: usize, out: &mut [T::Sum]) -> Result<()> {
    let totals = checked_fold::<T, Sum<T::Total>, _>(a, axis, out)?;
    out.iter_mut().zip(totals).for_each(|(o, total)| *o = T::Sum::narrow(total.scalar()));
    Ok(())
}

/// Means along an axis, of floats only.
pub fn mean<T: Reduce>(a: View<'_, T>, axis: usize, out: &mut [T]) -> Result<()> {
    if !T::DTYPE.is_float() {
        return Err(Error::Unsupported { op: "mean", dtype: T::DTYPE });
    }
    let totals = checked_fold::<T, Sum<f64>, _>(a, axis, out)?;
    let length = a.layout().size_of(axis)? as f64;
    out.iter_mut().zip(totals).for_each(|(o, total)| *o = T::narrow(Scalar::Float(total / length)));
    Ok(())
}

/// The largest elements along an axis.
pub fn max<T: Element>(a: View<'_, T>, axis: usize, out: &mut [T]) -> Result<()> {
    check_not_empty("max", a, axis)?;
    let best = checked_fold::<T, Largest, _>(a, axis, out)?;
    out.iter_mut().zip(best).for_each(|(o, best)| *o = best.value);
    Ok(())
}

/// The positions of the largest elements along an axis.
pub fn argmax<T: Element>(a: View<'_, T>, axis: usize, out: &mut [i64]) -> Result<()> {
    check_not_empty("argmax", a, axis)?;
    let best = checked_fold::<T, Largest, _>(a, axis, out)?;
    // A position is below the length of an axis, which never reaches the sign bit.
    out.iter_mut().zip(best).for_each(|(o, best)| *o = i64::try_from(best.index).unwrap_or(i64::MAX));
    Ok(())
}

/// The types a sum goes through.
pub trait Reduce: Element {
    /// What a sum is kept in.
    type Total: Total;
    /// What a sum becomes.
    type Sum: Element;
}

macro_rules! reduce_types {
    ($($type:ty => $total:ty, $sum:ty;)*) => {$(
        impl Reduce for $type {
            type Total = $total;
            type Sum = $sum;
        }
    )*};
}

reduce_types! {
    f32 => f64, f32;
    f64 => f64, f64;
    f16 => f64, f16;
    bf16 => f64, bf16;
    i8 => i64, i64;
    i32 => i64, i64;
    i64 => i64, i64;
    u8 => i64, i64;
    Bool => i64, i64;
}

/// A running sum. Two implementors: doubles for floats, wrapping integers for the rest.
pub trait Total: Copy + Send + Sync {
    /// The sum of nothing.
    const ZERO: Self;
    /// The sum of two.
    fn plus(self, other: Self) -> Self;
    /// An element as a sum.
    fn of(value: Scalar) -> Self;
    /// The sum as a value to be rounded.
    fn scalar(self) -> Scalar;
}

impl Total for f64 {
    const ZERO: f64 = 0.0;
    #[inline(always)]
    fn plus(self, other: f64) -> f64 {
        self + other
    }
    #[inline(always)]
    fn of(value: Scalar) -> f64 {
        match value {
            Scalar::Float(x) => x,
            Scalar::Int(x) => x as f64,
        }
    }
    fn scalar(self) -> Scalar {
        Scalar::Float(self)
    }
}

impl Total for i64 {
    const ZERO: i64 = 0;
    #[inline(always)]
    fn plus(self, other: i64) -> i64 {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn of(value: Scalar) -> i64 {
        i64::narrow(value)
    }
    fn scalar(self) -> Scalar {
        Scalar::Int(self)
    }
}

struct Sum<S>(std::marker::PhantomData<S>);

impl<T: Element, S: Total> Fold<T> for Sum<S> {
    type State = S;
    fn empty() -> S {
        S::ZERO
    }
    #[inline(always)]
    fn take(state: &mut S, value: T, _: usize) {
        *state = state.plus(S::of(value.widen()));
    }
    #[inline(always)]
    fn join(state: &mut S, other: S) {
        *state = state.plus(other);
    }
}

/// The largest element so far and where it is; no element yet when the index is the largest there is.
#[derive(Clone, Copy)]
struct Best<T> {
    value: T,
    index: usize,
}

struct Largest;

impl<T: Element> Fold<T> for Largest {
    type State = Best<T>;
    fn empty() -> Best<T> {
        Best { value: T::default(), index: usize::MAX }
    }
    #[inline(always)]
    fn take(state: &mut Best<T>, value: T, index: usize) {
        <Largest as Fold<T>>::join(state, Best { value, index });
    }
    #[inline(always)]
    fn join(state: &mut Best<T>, other: Best<T>) {
        let nan = |x: T| x.partial_cmp(&x).is_none();
        let level = other.value == state.value || (nan(other.value) && nan(state.value));
        let larger = other.value > state.value || (nan(other.value) && !nan(state.value));
        let replaces = state.index == usize::MAX || larger || (level && other.index < state.index);
        if other.index != usize::MAX && replaces {
            *state = other;
        }
    }
}

fn checked_fold<T: Element, F: Fold<T>, O>(a: View<'_, T>, axis: usize, out: &[O]) -> Result<Vec<F::State>> {
    let outputs = a.layout().remove_axis(axis)?;
    check_output(out, outputs.count())?;
    Ok(fold_axis::<T, F>(a, axis, &outputs))
}

fn check_not_empty<T: Element>(op: &'static str, a: View<'_, T>, axis: usize) -> Result<()> {
    if a.layout().size_of(axis)? == 0 {
        return Err(Error::EmptyAxis { op, axis, shape: a.shape().to_vec() });
    }
    Ok(())
}
