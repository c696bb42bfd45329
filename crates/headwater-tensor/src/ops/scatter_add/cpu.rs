//! Scatter-add on the CPU: the plan's rows are split between threads, and so is the table they are in.

use half::{bf16, f16};

use super::{ScatterPlan, check};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::layout::Shape;
use crate::ops::map::PART;
use crate::read::{HostOperand, typed_mut};
use crate::view::View;

/// Adds rows of any type but truth values, which `check` has refused.
pub(super) fn run(source: &HostOperand<'_>, plan: &ScatterPlan, out: &mut [u8]) -> Result<()> {
    match source.dtype() {
        DType::F32 => scatter_add::<f32>(source.view()?, plan, typed_mut(out)?),
        DType::F16 => scatter_add::<f16>(source.view()?, plan, typed_mut(out)?),
        DType::BF16 => scatter_add::<bf16>(source.view()?, plan, typed_mut(out)?),
        DType::F64 => scatter_add::<f64>(source.view()?, plan, typed_mut(out)?),
        DType::I8 => scatter_add::<i8>(source.view()?, plan, typed_mut(out)?),
        DType::I32 => scatter_add::<i32>(source.view()?, plan, typed_mut(out)?),
        DType::I64 => scatter_add::<i64>(source.view()?, plan, typed_mut(out)?),
        DType::U8 => scatter_add::<u8>(source.view()?, plan, typed_mut(out)?),
        dtype @ DType::Bool => Err(Error::Unsupported { op: "scatter_add", dtype }),
    }
}

/// `out[ids[i], :] += source[i, :]`, with the ids as a plan. `out` is packed: the plan's target rows by the columns.
pub fn scatter_add<T: Addable>(source: View<'_, T>, plan: &ScatterPlan, out: &mut [T]) -> Result<()> {
    let columns = source.shape().get(1).copied().unwrap_or(0);
    let target = Shape::new(&[plan.target_rows(), columns])?;
    check(T::DTYPE, source.shape(), plan.order().len(), &target)?;
    if out.len() != target.count()? {
        return Err(Error::Length { what: "output elements", expected: target.count()?, found: out.len() });
    }
    if columns > 0 {
        let table = Table { source, plan, columns };
        table.add_groups(0, plan.rows().len(), 0, out);
    }
    Ok(())
}

/// Element types that rows can be added in.
pub trait Addable: Element {
    /// What a row is added in.
    type Sum: Copy + Send;
    /// The element as a sum.
    fn lift(self) -> Self::Sum;
    /// The sum of two.
    fn plus(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    /// The sum, rounded.
    fn settle(sum: Self::Sum) -> Self;
}

macro_rules! addable {
    ($($type:ty as $sum:ty: $lift:expr, $plus:expr, $settle:expr;)*) => {$(
        impl Addable for $type {
            type Sum = $sum;
            #[inline(always)]
            fn lift(self) -> $sum {
                $lift(self)
            }
            #[inline(always)]
            fn plus(a: $sum, b: $sum) -> $sum {
                $plus(a, b)
            }
            #[inline(always)]
            fn settle(sum: $sum) -> $type {
                $settle(sum)
            }
        }
    )*};
}

addable! {
    f32 as f32: |x| x, |a, b| a + b, |x| x;
    f64 as f64: |x| x, |a, b| a + b, |x| x;
    f16 as f32: f16::to_f32, |a, b| a + b, f16::from_f32;
    bf16 as f32: bf16::to_f32, |a, b| a + b, bf16::from_f32;
    i8 as i8: |x| x, i8::wrapping_add, |x| x;
    i32 as i32: |x| x, i32::wrapping_add, |x| x;
    i64 as i64: |x| x, i64::wrapping_add, |x| x;
    u8 as u8: |x| x, u8::wrapping_add, |x| x;
}

struct Table<'a, T> {
    source: View<'a, T>,
    plan: &'a ScatterPlan,
    columns: usize,
}

impl<T: Addable> Table<'_, T> {
    /// Adds the groups `low..high` of the plan to `out`, which begins with row `first_row`. Halves the groups, and with
    /// them the table, until a piece is small; the rows are ascending, so the halves do not meet.
    fn add_groups(&self, low: usize, high: usize, first_row: usize, out: &mut [T]) {
        let offsets = self.plan.offsets();
        let work = (offsets[high] - offsets[low]).saturating_mul(self.columns as u64);
        if high - low < 2 || work <= PART as u64 {
            let mut sums = Vec::with_capacity(self.columns);
            (low..high).for_each(|group| self.add_group(group, first_row, out, &mut sums));
            return;
        }
        let middle = low + (high - low) / 2;
        let row = self.row(middle);
        let (above, below) = out.split_at_mut((row - first_row) * self.columns);
        rayon::join(|| self.add_groups(low, middle, first_row, above), || self.add_groups(middle, high, row, below));
    }

    fn add_group(&self, group: usize, first_row: usize, out: &mut [T], sums: &mut Vec<T::Sum>) {
        let start = (self.row(group) - first_row) * self.columns;
        let target = &mut out[start..start + self.columns];
        sums.clear();
        sums.extend(target.iter().map(|x| x.lift()));
        for &position in &self.plan.order()[self.members(group)] {
            self.add_source(index(position), sums);
        }
        target.iter_mut().zip(sums).for_each(|(x, sum)| *x = T::settle(*sum));
    }

    fn add_source(&self, position: usize, sums: &mut [T::Sum]) {
        let layout = self.source.layout();
        let (row_stride, stride) = (layout.strides()[0], layout.strides()[1]);
        let row = &self.source.data()[layout.offset() + position * row_stride..];
        match stride {
            1 => sums.iter_mut().zip(row).for_each(|(sum, x)| *sum = T::plus(*sum, x.lift())),
            _ => sums.iter_mut().enumerate().for_each(|(i, sum)| *sum = T::plus(*sum, row[i * stride].lift())),
        }
    }

    fn row(&self, group: usize) -> usize {
        index(self.plan.rows()[group])
    }

    fn members(&self, group: usize) -> std::ops::Range<usize> {
        index(self.plan.offsets()[group])..index(self.plan.offsets()[group + 1])
    }
}

#[expect(clippy::cast_possible_truncation, reason = "every number in a plan was made from a usize")]
fn index(number: u64) -> usize {
    number as usize
}
