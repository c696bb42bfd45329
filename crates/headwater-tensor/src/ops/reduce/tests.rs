//! Reductions against plain loops over doubles, and the order of summation against its definition in words.

use half::{bf16, f16};

use super::cpu::{self, Reduce};
use super::*;
use crate::dtype::{Bool, Element, Scalar};
use crate::layout::Layout;
use crate::ops::testing::{Random, close, indices, real, same_for_any_thread_count};
use crate::view::View;

const SHAPES: &[&[usize]] = &[
    &[1],
    &[7],
    &[4, 3],
    &[3, 0],
    &[0, 3],
    &[2, 33, 5],
    &[70, 40],
    &[3, 5000, 2],
    &[2, 9000],
    &[5000, 19],
    &[64, 1, 64],
];

/// The storage indices of the elements behind each output, in order.
fn columns(layout: &Layout, axis: usize) -> Vec<Vec<usize>> {
    let starts = indices(&layout.remove_axis(axis).unwrap());
    let steps = (0..layout.shape()[axis]).map(|i| i * layout.strides()[axis]);
    starts.into_iter().map(|start| steps.clone().map(|step| start + step).collect()).collect()
}

/// The order of summation as `mod.rs` words it.
fn by_the_rule(values: &[f64]) -> f64 {
    if values.len() > BLOCK {
        return by_the_rule(&values.chunks(BLOCK).map(by_the_rule).collect::<Vec<_>>());
    }
    let mut lanes = [0.0; LANES];
    for (i, value) in values.iter().enumerate() {
        lanes[i % LANES] += value;
    }
    for half in [16, 8, 4, 2, 1] {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
    }
    lanes[0]
}

fn check_sums<T: Reduce>(values: impl Fn(&mut Random, usize) -> Vec<T>) {
    let mut random = Random(21);
    for shape in SHAPES {
        for axis in 0..shape.len() {
            let layout = random.layout(shape);
            let data = values(&mut random, layout.end());
            let view = View::new(&data, layout).unwrap();
            let columns = columns(&layout, axis);
            let mut sums = vec![T::Sum::default(); columns.len()];
            cpu::sum(view, axis, &mut sums).unwrap();
            let mut means = vec![T::default(); columns.len()];
            let mean = cpu::mean(view, axis, &mut means);
            assert_eq!(mean.is_ok(), T::DTYPE.is_float());
            for (i, column) in columns.iter().enumerate() {
                let total = by_the_rule(&column.iter().map(|&at| real(data[at])).collect::<Vec<_>>());
                let expected = real(T::Sum::narrow(Scalar::Float(total)));
                assert!(close(real(sums[i]), expected, 0.0), "{shape:?} axis {axis}: {:?}, {expected}", sums[i]);
                let expected = real(T::narrow(Scalar::Float(total / column.len() as f64)));
                assert!(mean.is_err() || close(real(means[i]), expected, 0.0), "{:?}, {expected}", means[i]);
            }
        }
    }
}

#[test]
fn sums_follow_the_rule_to_the_bit() {
    // Not exact in binary, so that a different order shows.
    let rough = |random: &mut Random, n| (0..n).map(|_| random.value() * 0.1).collect::<Vec<f64>>();
    check_sums::<f64>(rough);
    check_sums::<f32>(|random, n| rough(random, n).into_iter().map(|x| f32::narrow(Scalar::Float(x))).collect());
    check_sums::<f32>(|random, n| random.specials(n));
    check_sums::<f16>(|random, n| random.values(n));
    check_sums::<bf16>(|random, n| random.values(n));
    check_sums::<i32>(|random, n| random.values(n));
    check_sums::<u8>(|random, n| random.values(n));
    check_sums::<Bool>(|random, n| random.values(n));
}

fn check_largest<T: Element>() {
    let mut random = Random(22);
    for shape in SHAPES {
        for axis in 0..shape.len() {
            let layout = random.layout(shape);
            let data: Vec<T> = random.specials(layout.end());
            let view = View::new(&data, layout).unwrap();
            let columns = columns(&layout, axis);
            let (mut values, mut places) = (vec![T::default(); columns.len()], vec![0; columns.len()]);
            if shape[axis] == 0 {
                assert!(matches!(cpu::max(view, axis, &mut values), Err(Error::EmptyAxis { .. })));
                assert!(cpu::argmax(view, axis, &mut places).is_err());
                continue;
            }
            cpu::max(view, axis, &mut values).unwrap();
            cpu::argmax(view, axis, &mut places).unwrap();
            for (i, column) in columns.iter().enumerate() {
                let mut best = 0;
                for (at, &index) in column.iter().enumerate() {
                    let (x, y) = (real(data[index]), real(data[column[best]]));
                    if !y.is_nan() && (x > y || x.is_nan()) {
                        best = at;
                    }
                }
                assert_eq!(places[i], i64::try_from(best).unwrap(), "{shape:?} axis {axis}");
                assert!(close(real(values[i]), real(data[column[best]]), 0.0));
            }
        }
    }
}

#[test]
fn the_first_largest_wins_and_nan_is_largest() {
    check_largest::<f32>();
    check_largest::<f16>();
    check_largest::<i64>();
    check_largest::<Bool>();
}

#[test]
fn empty_axes_and_wrong_axes() {
    let data: [f32; 0] = [];
    let view = View::contiguous(&data, &[2, 0]).unwrap();
    let mut out = [1f32; 2];
    cpu::sum(view, 1, &mut out).unwrap();
    assert_eq!(out, [0.0, 0.0]);
    cpu::mean(view, 1, &mut out).unwrap();
    assert!(out.iter().all(|x| x.is_nan()));
    assert!(matches!(cpu::sum(view, 2, &mut out), Err(Error::NoSuchAxis { .. })));
    assert!(matches!(cpu::sum(view, 0, &mut out), Err(Error::Length { .. })));
    assert_eq!(ReduceOp::Sum.result_dtype(DType::Bool).unwrap(), DType::I64);
    assert!(ReduceOp::Mean.result_dtype(DType::I32).is_err());
}

#[test]
fn threads_and_strides_do_not_matter() {
    let data: Vec<f64> =
        Random(9).specials::<f32>(300_000).iter().map(|x| f64::from(*x).clamp(-3.0, 3.0) * 0.1).collect();
    let data: Vec<f32> =
        data.into_iter().map(|x| f32::narrow(Scalar::Float(if x.is_nan() { 0.7 } else { x }))).collect();
    same_for_any_thread_count(|| {
        let mut out = vec![0f32; 1];
        cpu::sum(View::contiguous(&data, &[300_000]).unwrap(), 0, &mut out).unwrap();
        bytemuck::cast_slice(&out).to_vec()
    });
    let (mut rows, mut columns) = (vec![0f32; 3], vec![0f32; 3]);
    cpu::sum(View::contiguous(&data, &[3, 100_000]).unwrap(), 1, &mut rows).unwrap();
    let mut turned = vec![0f32; 300_000];
    let view = View::new(&data, Layout::contiguous(&[3, 100_000]).unwrap().transpose(0, 1).unwrap()).unwrap();
    crate::ops::copy::cpu::copy(view, &mut turned).unwrap();
    cpu::sum(View::contiguous(&turned, &[100_000, 3]).unwrap(), 0, &mut columns).unwrap();
    assert_eq!(rows, columns);
}
