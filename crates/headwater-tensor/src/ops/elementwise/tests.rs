//! Elementwise kernels against the operator written out over doubles, on views of every kind.

use half::{bf16, f16};

use super::cpu::{self, Elementwise};
use super::*;
use crate::dtype::{Bool, Element, Scalar};
use crate::layout::{Layout, Shape};
use crate::ops::testing::{Random, close, indices, real, same_for_any_thread_count};
use crate::view::View;

/// Pairs of shapes that broadcast, zero sizes included, and one large enough to be cut into parts.
const SHAPES: &[(&[usize], &[usize])] = &[
    (&[], &[]),
    (&[5], &[]),
    (&[4, 3], &[3]),
    (&[4, 1], &[1, 3]),
    (&[2, 1, 3], &[4, 1]),
    (&[0, 3], &[1, 3]),
    (&[7, 0], &[7, 1]),
    (&[300, 200], &[200]),
    (&[50, 40, 30], &[50, 1, 30]),
];

fn unary_reference(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Neg => -x,
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Relu if x.is_nan() => x,
        UnaryOp::Relu => x.max(0.0),
        UnaryOp::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        UnaryOp::Tanh => x.tanh(),
    }
}

fn binary_reference(op: BinaryOp, x: f64, y: f64) -> f64 {
    match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x * y,
        BinaryOp::Div => x / y,
    }
}

/// A random view of a shape over random data.
fn random_view<T: Element>(random: &mut Random, shape: &[usize]) -> (Vec<T>, Layout) {
    let layout = random.layout(shape);
    let count = layout.end() + 3;
    // Infinities would become the largest integers, whose sums wrap; that has a test of its own.
    let small = |random: &mut Random| T::narrow(Scalar::Float(random.value()));
    let data = if T::DTYPE.is_float() { random.specials(count) } else { (0..count).map(|_| small(random)).collect() };
    (data, layout)
}

fn check_unary<T: Elementwise>(relative: f64) {
    let mut random = Random(7);
    for (shape, _) in SHAPES {
        let (data, layout) = random_view::<T>(&mut random, shape);
        for op in UnaryOp::ALL {
            let mut out = vec![T::default(); layout.count()];
            cpu::unary(op, View::new(&data, layout).unwrap(), &mut out).unwrap();
            for (o, i) in out.iter().zip(indices(&layout)) {
                let expected = unary_reference(op, real(data[i]));
                assert!(close(real(*o), expected, relative), "{op:?} of {:?}: {o:?}, {expected}", data[i]);
            }
        }
    }
}

#[test]
fn unary_operators_on_floats() {
    check_unary::<f32>(1e-6);
    check_unary::<f64>(1e-14);
    check_unary::<f16>(1e-3);
    check_unary::<bf16>(8e-3);
}

fn check_binary<T: Elementwise>() {
    let mut random = Random(11);
    for (left, right) in SHAPES {
        let (a, a_layout) = random_view::<T>(&mut random, left);
        let (b, b_layout) = random_view::<T>(&mut random, right);
        let shape = Shape::broadcast(&[a_layout.shape(), b_layout.shape()]).unwrap();
        let a_at = indices(&a_layout.broadcast_to(&shape).unwrap());
        let b_at = indices(&b_layout.broadcast_to(&shape).unwrap());
        for op in BinaryOp::ALL {
            let mut out = vec![T::default(); a_at.len()];
            let views = (View::new(&a, a_layout).unwrap(), View::new(&b, b_layout).unwrap());
            if cpu::binary(op, views.0, views.1, &mut out).is_err() {
                assert!(op.compute_dtype(T::DTYPE, T::DTYPE).ok() != Some(T::DTYPE));
                continue;
            }
            for (i, o) in out.iter().enumerate() {
                // One rounding of the double result is the right one: the operands have few enough bits.
                let exact = binary_reference(op, real(a[a_at[i]]), real(b[b_at[i]]));
                assert!(close(real(*o), real(T::narrow(Scalar::Float(exact))), 0.0), "{op:?}: {o:?}, {exact}");
            }
        }
    }
}

#[test]
fn binary_operators_round_once() {
    check_binary::<f32>();
    check_binary::<f64>();
    check_binary::<f16>();
    check_binary::<bf16>();
    check_binary::<i32>();
    check_binary::<i64>();
    check_binary::<i8>();
    // Add is or and mul is and, which is also what not-zero makes of the sum and the product.
    check_binary::<Bool>();
}

#[test]
fn integers_wrap() {
    let run = |op, a: i8, b: i8| {
        let mut out = [0i8];
        cpu::binary(op, View::contiguous(&[a], &[]).unwrap(), View::contiguous(&[b], &[]).unwrap(), &mut out).unwrap();
        out[0]
    };
    assert_eq!((run(BinaryOp::Add, 127, 1), run(BinaryOp::Sub, -128, 1), run(BinaryOp::Mul, 64, 4)), (-128, 127, 0));
    let mut out = [0u8];
    cpu::unary(UnaryOp::Neg, View::contiguous(&[1u8], &[]).unwrap(), &mut out).unwrap();
    assert_eq!(out, [255]);
    assert!(cpu::unary(UnaryOp::Exp, View::contiguous(&[1u8], &[]).unwrap(), &mut out).is_err());
}

#[test]
fn compute_types_are_torchs() {
    assert_eq!(BinaryOp::Div.compute_dtype(DType::I64, DType::I32).unwrap(), DType::F32);
    assert_eq!(BinaryOp::Div.compute_dtype(DType::F16, DType::I32).unwrap(), DType::F16);
    assert_eq!(BinaryOp::Add.compute_dtype(DType::Bool, DType::U8).unwrap(), DType::U8);
    assert!(BinaryOp::Sub.compute_dtype(DType::Bool, DType::Bool).is_err());
    assert_eq!(UnaryOp::Exp.compute_dtype(DType::Bool).unwrap(), DType::F32);
    assert_eq!(UnaryOp::Relu.compute_dtype(DType::I8).unwrap(), DType::I8);
    assert!(UnaryOp::Neg.compute_dtype(DType::Bool).is_err());
}

#[test]
fn comparisons_know_nan() {
    let mut random = Random(3);
    let (a, b) = (random.specials::<f16>(4000), random.specials::<f16>(4000));
    for op in CompareOp::ALL {
        let mut out = vec![Bool(9); 4000];
        let views = (View::contiguous(&a, &[4000]).unwrap(), View::contiguous(&b, &[4000]).unwrap());
        cpu::compare(op, views.0, views.1, &mut out).unwrap();
        for i in 0..4000 {
            let (x, y) = (real(a[i]), real(b[i]));
            let expected = match op {
                CompareOp::Eq => x == y,
                CompareOp::Ne => x != y,
                CompareOp::Lt => x < y,
                CompareOp::Le => x <= y,
                CompareOp::Gt => x > y,
                CompareOp::Ge => x >= y,
            };
            assert_eq!(out[i].0, u8::from(expected), "{x} {op:?} {y}");
        }
    }
}

#[test]
fn select_broadcasts_three_ways() {
    let condition: Vec<Bool> = [1u8, 0, 200].map(Bool).to_vec();
    let (a, b) = ([1i64, 2], [10i64]);
    let mut out = [0; 6];
    let column = View::contiguous(&condition, &[3, 1]).unwrap();
    let (a, b) = (View::contiguous(&a, &[2]).unwrap(), View::contiguous(&b, &[]).unwrap());
    cpu::select(column, a, b, &mut out).unwrap();
    assert_eq!(out, [1, 2, 10, 10, 1, 2]);
    assert!(cpu::select(column, a, b, &mut out[..5]).is_err());
}

#[test]
fn casts_reach_every_type_from_every_type() {
    let mut random = Random(5);
    let values: Vec<f64> = (0..600).map(|_| random.special() * 40.0).collect();
    for from in DType::ALL {
        for to in DType::ALL {
            crate::dispatch!(from, S => {
                let data: Vec<S> = values.iter().map(|&x| S::narrow(Scalar::Float(x))).collect();
                let layout = Layout::contiguous(&[20, 30]).unwrap().transpose(0, 1).unwrap();
                crate::dispatch!(to, D => {
                    let mut out = vec![D::default(); 600];
                    cpu::cast(View::new(&data, layout).unwrap(), &mut out).unwrap();
                    for (o, i) in out.iter().zip(indices(&layout)) {
                        let expected = real(D::narrow(data[i].widen()));
                        assert!(close(real(*o), expected, 0.0), "{from} to {to}: {:?} to {o:?}", data[i]);
                    }
                });
            });
        }
    }
}

#[test]
fn threads_do_not_matter() {
    let mut random = Random(1);
    let data = random.values::<f32>(100_000);
    same_for_any_thread_count(|| {
        let mut out = vec![0f32; 100_000];
        cpu::unary(UnaryOp::Tanh, View::contiguous(&data, &[100_000]).unwrap(), &mut out).unwrap();
        bytemuck::cast_slice(&out).to_vec()
    });
}
