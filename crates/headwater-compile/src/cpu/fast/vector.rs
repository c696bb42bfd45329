//! Loops over elements and rows, compiled for every vector width and chosen when they run.

use std::ops::Range;

use super::ahead::Ahead;
use crate::inter::{Binary, Reduce, Shape, Unary};

/// What a step reads: rows one after the other, one row for all of them, or one number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operand<'a> {
    /// A row each.
    Rows(&'a [f32]),
    /// The same row for all.
    Same(&'a [f32]),
    /// The same number for all.
    Number(f32),
}

impl Operand<'_> {
    fn number(self) -> Option<f32> {
        match self {
            Operand::Number(number) => Some(number),
            _ => None,
        }
    }
}

/// What can be had once. A closure that gives it away can be called once, and is then inlined where it is called; one that can
/// be called again is reached through a function of its own, which is compiled for the narrowest vectors.
pub(super) struct Once;

impl Once {
    /// Gives it away.
    #[inline(always)]
    pub fn spend(self) {}
}

/// Runs code compiled for the widest vectors there are.
macro_rules! widest {
    ($body:expr) => {{
        let once = $crate::cpu::fast::vector::Once;
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || {
                once.spend();
                $body
            },
        )
    }};
}
pub(super) use widest;

/// Heads and width of a row.
pub(super) fn sizes(shape: Shape) -> (usize, usize) {
    (shape.heads(), shape.len() / shape.heads().max(1))
}

/// `out = f(x)`.
pub(super) fn unary(f: Unary, x: Operand<'_>, out: &mut [f32]) {
    match f {
        Unary::Neg => map(x, out, |x| -x),
        Unary::Exp => map(x, out, exp),
        // Comparisons decide where NaN goes; see cpu/scalar.rs.
        Unary::Relu => map(x, out, |x| if x <= 0.0 { 0.0 } else { x }),
        Unary::LeakyRelu(slope) => {
            let slope = single(slope);
            map(x, out, move |x| if x > 0.0 { x } else { slope * x });
        }
        Unary::Elu(a) => {
            let a = single(a);
            map(x, out, move |x| if x <= 0.0 { a * (exp(x) - 1.0) } else { x });
        }
        Unary::Sigmoid => map(x, out, |x| 1.0 / (1.0 + exp(-x))),
        Unary::Sqrt => map(x, out, f32::sqrt),
        Unary::Rsqrt => map(x, out, |x| 1.0 / x.sqrt()),
        Unary::Recip => map(x, out, |x| 1.0 / x),
        Unary::Abs => map(x, out, f32::abs),
        Unary::Step => map(x, out, |x| if x <= 0.0 { 0.0 } else { 1.0 }),
        Unary::LeakyStep(slope) => {
            let slope = single(slope);
            map(x, out, move |x| if x > 0.0 { 1.0 } else { slope });
        }
        Unary::EluSlope(a) => {
            let a = single(a);
            map(x, out, move |x| if x > 0.0 { 1.0 } else { a * exp(x) });
        }
        Unary::Sign => map(x, out, |x| {
            if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else {
                0.0
            }
        }),
        // Not for inner loops: as the interpreter has them.
        Unary::Log | Unary::Tanh | Unary::Gelu | Unary::GeluSlope => {
            map(x, out, move |x| single(crate::cpu::scalar::unary(f, f64::from(x))));
        }
    }
}

/// A number in single precision.
#[expect(clippy::cast_possible_truncation, reason = "rounding is meant")]
pub(super) fn single(x: f64) -> f32 {
    x as f32
}

fn map(x: Operand<'_>, out: &mut [f32], f: impl Fn(f32) -> f32 + Copy) {
    widest!(match x {
        Operand::Rows(x) => out.iter_mut().zip(x).for_each(|(out, x)| *out = f(*x)),
        Operand::Same(x) => {
            for out in out.chunks_exact_mut(x.len().max(1)) {
                out.iter_mut().zip(x).for_each(|(out, x)| *out = f(*x));
            }
        }
        Operand::Number(x) => out.fill(f(x)),
    });
}

/// The exponential function, within two units of the last place; below the smallest normal number it is 0.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts: the first has so few bits that a small multiple of it is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let clamped = x.clamp(-87.5, 88.8);
    let n = (clamped * LOG2_E).round_ties_even();
    let r = (clamped - n * LN2_HIGH) - n * LN2_LOW;
    let p = 1.987_569_2e-4f32;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let y = p * r * r + r + 1.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "n is between -127 and 128")]
    let half = |n: f32| f32::from_bits(((n as i32 + 127) as u32) << 23);
    // Two factors, because 2^128 is none.
    let low = (n * 0.5).floor();
    let scaled = y * half(low) * half(n - low);
    if x < -87.336_54 {
        0.0
    } else if x.is_nan() {
        x
    } else {
        scaled
    }
}

/// `out = f(x, y)` for rows of a shape, heads and widths of 1 repeated.
pub(super) fn binary(f: Binary, x: (Operand<'_>, Shape), y: (Operand<'_>, Shape), out: &mut [f32], shape: Shape) {
    match f {
        Binary::Add => zip(x, y, out, shape, |x, y| x + y),
        Binary::Sub => zip(x, y, out, shape, |x, y| x - y),
        Binary::Mul => zip(x, y, out, shape, |x, y| x * y),
        Binary::Div => zip(x, y, out, shape, |x, y| x / y),
        Binary::Max => zip(x, y, out, shape, larger),
        Binary::Min => zip(x, y, out, shape, |x, y| -larger(-x, -y)),
        Binary::Equal => zip(x, y, out, shape, |x, y| if x == y { 1.0 } else { 0.0 }),
        Binary::Greater => zip(x, y, out, shape, |x, y| if x > y { 1.0 } else { 0.0 }),
    }
}

/// The larger; NaN where either is, unlike `f32::max`.
#[inline(always)]
fn larger(x: f32, y: f32) -> f32 {
    if x > y || x.is_nan() { x } else { y }
}

fn zip(
    x: (Operand<'_>, Shape),
    y: (Operand<'_>, Shape),
    out: &mut [f32],
    shape: Shape,
    f: impl Fn(f32, f32) -> f32 + Copy,
) {
    let is_whole = |operand: (Operand<'_>, Shape)| operand.1.len() == shape.len();
    match (x.0, y.0) {
        (Operand::Rows(a), Operand::Rows(b)) if is_whole(x) && is_whole(y) => {
            widest!(out.iter_mut().zip(a.iter().zip(b)).for_each(|(out, (a, b))| *out = f(*a, *b)));
        }
        (a, Operand::Number(b)) if is_whole(x) => map(a, out, move |a| f(a, b)),
        (Operand::Number(a), b) if is_whole(y) => map(b, out, move |b| f(a, b)),
        _ => {
            let (a, b) = (x.0.number().map(|number| [number]), y.0.number().map(|number| [number]));
            let x = (a.as_ref().map_or(x.0, |a| Operand::Same(a)), x.1);
            let y = (b.as_ref().map_or(y.0, |b| Operand::Same(b)), y.1);
            widest!(zip_rows(x, y, out, shape, f));
        }
    }
}

#[inline(always)]
fn zip_rows(
    x: (Operand<'_>, Shape),
    y: (Operand<'_>, Shape),
    out: &mut [f32],
    shape: Shape,
    f: impl Fn(f32, f32) -> f32 + Copy,
) {
    let (heads, width) = sizes(shape);
    for (row, out) in out.chunks_exact_mut((heads * width).max(1)).enumerate() {
        for (head, out) in out.chunks_exact_mut(width.max(1)).enumerate() {
            let (a, b) = (part(x, row, head), part(y, row, head));
            known_width!(
                width,
                WIDTH => zip_vector(a, b, &mut out.as_chunks_mut::<WIDTH>().0[0], f),
                zip_vector(a, b, out, f)
            );
        }
    }
}

#[inline(always)]
fn zip_vector(a: &[f32], b: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32 + Copy) {
    match (a.len(), b.len()) {
        (1, 1) => out.fill(f(a[0], b[0])),
        (_, 1) => out.iter_mut().zip(a).for_each(|(out, a)| *out = f(*a, b[0])),
        (1, _) => out.iter_mut().zip(b).for_each(|(out, b)| *out = f(a[0], *b)),
        _ => out.iter_mut().zip(a.iter().zip(b)).for_each(|(out, (a, b))| *out = f(*a, *b)),
    }
}

/// The vector of a row's head.
#[inline(always)]
fn part<'a>(operand: (Operand<'a>, Shape), row: usize, head: usize) -> &'a [f32] {
    let (heads, width) = sizes(operand.1);
    let head = if heads == 1 { 0 } else { head };
    match operand.0 {
        Operand::Rows(rows) => &rows[(row * heads + head) * width..][..width],
        Operand::Same(row) => &row[head * width..][..width],
        Operand::Number(_) => &[],
    }
}

/// The inner product of two vectors.
#[inline(always)]
fn dot(x: &[f32], y: &[f32]) -> f32 {
    // Sixteen sums at a time: one for every lane of the widest vectors.
    let mut sums = [0.0f32; 16];
    let (xs, ys) = (x.chunks_exact(16), y.chunks_exact(16));
    let rest: f32 = xs.remainder().iter().zip(ys.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in xs.zip(ys) {
        for lane in 0..16 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// Runs `$body` with `$width` as a constant where it is one of a few small numbers: loops over that many elements have no
/// overhead then.
macro_rules! known_width {
    ($width:expr, $known:ident => $body:expr, $other:expr) => {
        $crate::cpu::fast::vector::known_width!(@of [2 4 8 16 32 64] $width, $known => $body, $other)
    };
    (@of [$($number:literal)*] $width:expr, $known:ident => $body:expr, $other:expr) => {
        match $width {
            $($number => {
                const $known: usize = $number;
                $body
            })*
            _ => $other,
        }
    };
}
pub(super) use known_width;

/// Every element less the largest of its column. There may be no rows. NaN is passed over here, and makes the column's sum NaN.
#[inline(always)]
pub(super) fn subtract_largest(rows: &mut [f32], len: usize) {
    known_width!(
        len,
        LEN => {
            let rows = rows.as_chunks_mut::<LEN>().0;
            let mut largest = [f32::NEG_INFINITY; LEN];
            for row in rows.iter() {
                (0..LEN).for_each(|at| largest[at] = largest[at].max(row[at]));
            }
            for row in rows {
                (0..LEN).for_each(|at| row[at] -= largest[at]);
            }
        },
        for at in 0..len {
            let largest = rows.iter().skip(at).step_by(len).copied().fold(f32::NEG_INFINITY, f32::max);
            rows.iter_mut().skip(at).step_by(len).for_each(|x| *x -= largest);
        }
    );
}

/// Every element over the sum of its column.
#[inline(always)]
pub(super) fn divide_by_sum(rows: &mut [f32], len: usize) {
    known_width!(
        len,
        LEN => {
            let rows = rows.as_chunks_mut::<LEN>().0;
            let mut factor = [0.0f32; LEN];
            for row in rows.iter() {
                (0..LEN).for_each(|at| factor[at] += row[at]);
            }
            (0..LEN).for_each(|at| factor[at] = 1.0 / factor[at]);
            for row in rows {
                (0..LEN).for_each(|at| row[at] *= factor[at]);
            }
        },
        for at in 0..len {
            let factor = 1.0 / rows.iter().skip(at).step_by(len).sum::<f32>();
            rows.iter_mut().skip(at).step_by(len).for_each(|x| *x *= factor);
        }
    );
}

/// The exponentials of all elements.
pub(super) fn exp_all(values: &mut [f32]) {
    widest!(values.iter_mut().for_each(|x| *x = exp(*x)));
}

/// Rows of a table, `len` elements each, one after the other: row `from(at)` at place `at`.
pub(super) fn copy_rows(table: &[f32], len: usize, out: &mut [f32], from: impl Fn(usize) -> usize) {
    let (ahead, count) = (Ahead::new(table, len), out.len() / len.max(1));
    known_width!(
        len,
        LEN => {
            let (rows, outs) = (table.as_chunks::<LEN>().0, out.as_chunks_mut::<LEN>().0);
            for (at, out) in outs.iter_mut().enumerate() {
                ahead.ask(at, count, &from);
                *out = rows[from(at)];
            }
        },
        for (at, out) in out.chunks_exact_mut(len.max(1)).enumerate() {
            ahead.ask(at, count, &from);
            out.copy_from_slice(&table[from(at) * len..][..len]);
        }
    );
}

/// Adds a row, each head of `width` elements times its own scale.
#[inline(always)]
pub(super) fn add_scaled(scales: &[f32], width: usize, row: &[f32], out: &mut [f32]) {
    known_width!(
        width,
        WIDTH => {
            let (rows, outs) = (row.as_chunks::<WIDTH>().0, out.as_chunks_mut::<WIDTH>().0);
            for ((out, row), scale) in outs.iter_mut().zip(rows).zip(scales) {
                for at in 0..WIDTH {
                    out[at] += scale * row[at];
                }
            }
        },
        for ((out, row), scale) in out.chunks_exact_mut(width.max(1)).zip(row.chunks_exact(width.max(1))).zip(scales) {
            out.iter_mut().zip(row).for_each(|(out, x)| *out += scale * x);
        }
    );
}

/// The inner products of all heads of two rows, `width` elements each.
#[inline(always)]
pub(super) fn dots(x: &[f32], y: &[f32], width: usize, out: &mut [f32]) {
    known_width!(
        width,
        WIDTH => {
            let (xs, ys) = (x.as_chunks::<WIDTH>().0, y.as_chunks::<WIDTH>().0);
            for ((out, x), y) in out.iter_mut().zip(xs).zip(ys) {
                *out = (0..WIDTH).map(|at| x[at] * y[at]).sum();
            }
        },
        for ((out, x), y) in out.iter_mut().zip(x.chunks_exact(width.max(1))).zip(y.chunks_exact(width.max(1))) {
            *out = dot(x, y);
        }
    );
}

/// The width of rows whose sums are kept in registers, though it is not one of the small ones.
const REGISTERS: usize = 128;

/// Combines all rows into `out`, if there are any.
#[inline(always)]
pub(super) fn combine_rows<'a>(how: Reduce, rows: Range<usize>, row: impl Fn(usize) -> &'a [f32], out: &mut [f32]) {
    if let (true, Ok(out)) = (how != Reduce::Max, <&mut [f32; REGISTERS]>::try_from(&mut *out)) {
        let mut sums = [0.0f32; REGISTERS];
        for at in rows {
            let row = &row(at).as_chunks::<REGISTERS>().0[0];
            (0..REGISTERS).for_each(|at| sums[at] += row[at]);
        }
        *out = sums;
        return;
    }
    for at in rows.clone() {
        combine(how, at == rows.start, row(at), out);
    }
}

/// Combines a row into `out`.
#[inline(always)]
pub(super) fn combine(how: Reduce, is_first: bool, row: &[f32], out: &mut [f32]) {
    if is_first {
        out.copy_from_slice(row);
    } else if how == Reduce::Max {
        out.iter_mut().zip(row).for_each(|(out, x)| *out = larger(*out, *x));
    } else {
        out.iter_mut().zip(row).for_each(|(out, x)| *out += x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of a node without edges are none.
    #[test]
    fn columns_of_any_number_and_length_add_up_to_one() {
        for len in 1..=70usize {
            for count in 0..4usize {
                let mut rows: Vec<f32> = (0..len * count).map(|at| (at * 7 % 11) as f32).collect();
                subtract_largest(&mut rows, len);
                assert!((0..len * count.min(1)).all(|at| (0..count).any(|row| rows[row * len + at] == 0.0)), "{len}");
                exp_all(&mut rows);
                divide_by_sum(&mut rows, len);
                for at in 0..len * count.min(1) {
                    let sum: f32 = (0..count).map(|row| rows[row * len + at]).sum();
                    assert!((sum - 1.0).abs() < 1e-6, "{len} columns of {count}: {sum}");
                }
            }
        }
    }

    #[test]
    fn exponentials_are_right_to_two_units() {
        for at in -90_000..=89_000 {
            let x = at as f32 / 1000.0;
            let (wanted, found) = (f64::from(x).exp(), f64::from(exp(x)));
            let is_small = wanted < f64::from(f32::MIN_POSITIVE);
            let is_huge = wanted > f64::from(f32::MAX);
            let is_right = if is_small {
                found <= 2.0 * f64::from(f32::MIN_POSITIVE)
            } else if is_huge {
                found.is_infinite() || found > 3e38
            } else {
                (found / wanted - 1.0).abs() < 2.5e-7
            };
            assert!(is_right, "e^{x} is {wanted}, found {found}");
        }
        assert!(exp(f32::NAN).is_nan());
        assert_eq!((exp(f32::NEG_INFINITY), exp(0.0)), (0.0, 1.0));
    }
}
