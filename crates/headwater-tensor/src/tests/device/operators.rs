//! Every operator with operands in every mix of places, against the CPU.

use half::f16;

use super::super::places::*;
use crate::dtype::{DType, Scalar};
use crate::layout::Slice;
use crate::ops::elementwise::{BinaryOp, CompareOp, UnaryOp};
use crate::ops::reduce::ReduceOp;
use crate::ops::testing::Random;
use crate::{Device, KeepAxis, Tensor};

const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];

/// Functions that each side takes from its own mathematical library.
fn from_library(op: UnaryOp) -> bool {
    matches!(op, UnaryOp::Exp | UnaryOp::Log | UnaryOp::Sigmoid | UnaryOp::Tanh)
}

#[test]
fn unary_operators() {
    let Some(_) = gpu() else { return };
    for dtype in DType::ALL {
        // The 16-bit types share their arithmetic with float32 and differ in how they are rounded.
        let half = matches!(dtype, DType::F16 | DType::BF16);
        let defined = |op: &UnaryOp| op.compute_dtype(dtype).ok() == Some(dtype);
        let shown = |op: &UnaryOp| !half || matches!(op, UnaryOp::Neg | UnaryOp::Exp | UnaryOp::Relu | UnaryOp::Tanh);
        for op in UnaryOp::ALL.into_iter().filter(defined).filter(shown) {
            let agree = if from_library(op) { ulps(dtype) } else { Agree::Exactly };
            everywhere(op.name(), &[numbers(1, &[5, 7], dtype)], agree, |t| t[0].unary(op));
        }
    }
    // Integers become floats first, and views are read through their strides.
    everywhere("exp of int32", &[numbers(2, &[40], DType::I32)], ulps(DType::F32), |t| t[0].exp());
    let step = Slice { start: 1, end: 9, step: 3 };
    everywhere("a view", &[numbers(3, &[4, 9], DType::F32)], Agree::Exactly, |t| {
        t[0].slice(1, step)?.transpose(0, 1)?.neg()
    });
}

#[test]
fn binary_operators() {
    let Some(_) = gpu() else { return };
    for dtype in DType::ALL {
        for op in BinaryOp::ALL.into_iter().filter(|op| op.compute_dtype(dtype, dtype).ok() == Some(dtype)) {
            let operands = [numbers(4, &[5, 7], dtype), numbers(5, &[5, 7], dtype)];
            everywhere(op.name(), &operands, Agree::Exactly, |t| t[0].binary(op, &t[1]));
        }
    }
}

#[test]
fn comparisons() {
    let Some(_) = gpu() else { return };
    for dtype in DType::ALL {
        let special = Tensor::from_slice(&Random(6).specials::<f32>(33), &[33], Device::Cpu).unwrap();
        let operands = [special.cast(dtype).unwrap(), numbers(7, &[33], dtype)];
        // Each text is compiled for each operator; two types show all of them, the others enough.
        let all = matches!(dtype, DType::F32 | DType::I64);
        for op in CompareOp::ALL.into_iter().filter(|op| all || matches!(op, CompareOp::Ne | CompareOp::Lt)) {
            everywhere(op.name(), &operands, Agree::Exactly, |t| t[0].compare(op, &t[1]));
        }
    }
}

#[test]
fn operands_broadcast_and_meet_in_one_type() {
    let Some(_) = gpu() else { return };
    let add = |t: &[Tensor]| t[0].add(&t[1]);
    let f32s = |shape: &[usize]| numbers(8, shape, DType::F32);
    everywhere("broadcast", &[f32s(&[4, 1, 3]), f32s(&[5, 1])], Agree::Exactly, add);
    everywhere("scalar", &[f32s(&[6, 2]), f32s(&[])], Agree::Exactly, add);
    everywhere("two scalars", &[f32s(&[]), f32s(&[])], Agree::Exactly, add);
    everywhere("empty", &[f32s(&[0, 3]), f32s(&[3])], Agree::Exactly, add);
    everywhere("int and float", &[numbers(9, &[8], DType::I32), f32s(&[8])], Agree::Exactly, add);
    everywhere("halves", &[numbers(9, &[8], DType::F16), numbers(9, &[8], DType::BF16)], Agree::Exactly, |t| {
        t[0].div(&t[1])
    });
    everywhere("views", &[f32s(&[6, 4]), f32s(&[4, 6])], Agree::Exactly, |t| {
        t[0].transpose(0, 1)?
            .slice(0, Slice { start: 1, end: 4, step: 2 })?
            .mul(&t[1].slice(0, Slice { start: 2, end: 4, step: 1 })?)
    });
    // A scalar of the same kind does not widen: torch's rule.
    let half = numbers(9, &[8], DType::F16).to(Device::Cuda(0)).unwrap();
    let scalar = Tensor::from_slice(&[2.5f64], &[], Device::Cpu).unwrap();
    let sum = half.add(&scalar).unwrap();
    assert_eq!((sum.dtype(), sum.device()), (DType::F16, Device::Cuda(0)));
    let expected: Vec<f16> = half.to_vec::<f16>().unwrap().iter().map(|x| x + f16::from_f32(2.5)).collect();
    assert_eq!(sum.to_vec::<f16>().unwrap(), expected);
}

#[test]
fn selections() {
    let Some(_) = gpu() else { return };
    for dtype in [DType::F32, DType::F16, DType::I64, DType::U8] {
        let operands = [numbers(10, &[3, 1], DType::Bool), numbers(11, &[3, 4], dtype), numbers(12, &[4], dtype)];
        everywhere("where", &operands, Agree::Exactly, |t| t[0].where_(&t[1], &t[2]));
    }
    let packed = [DType::Bool, DType::F32, DType::F32].map(|dtype| numbers(13, &[9], dtype));
    everywhere("where, packed", &packed, Agree::Exactly, |t| t[0].where_(&t[1], &t[2]));
}

#[test]
fn casts() {
    let Some(_) = gpu() else { return };
    let special = Random(14).specials::<f64>(60).into_iter().map(|x| x * 40.0).collect::<Vec<_>>();
    let special = Tensor::from_slice(&special, &[6, 10], Device::Cpu).unwrap();
    for (i, from) in DType::ALL.into_iter().enumerate() {
        let a = special.cast(from).unwrap();
        // Two steps around the list reach every type from and to floats and integers; all pairs are compiled elsewhere.
        for to in [1, 4].map(|step| DType::ALL[(i + step) % DType::ALL.len()]) {
            let what = format!("{from} to {to}");
            everywhere(&what, std::slice::from_ref(&a), Agree::Exactly, |t| t[0].cast(to));
            everywhere(&what, std::slice::from_ref(&a), Agree::Exactly, |t| t[0].transpose(0, 1)?.cast(to));
        }
    }
}

#[test]
fn reductions() {
    let Some(_) = gpu() else { return };
    for dtype in DType::ALL {
        // The value and the position of a maximum come from one state; every type is met in one of them.
        let skipped = if dtype.is_float() { ReduceOp::ArgMax } else { ReduceOp::Max };
        let defined = |op: &ReduceOp| op.result_dtype(dtype).is_ok();
        for op in ReduceOp::ALL.into_iter().filter(defined).filter(|op| *op != skipped || dtype == DType::F32) {
            for axis in 0..3 {
                let what = format!("{} of {dtype} over axis {axis}", op.name());
                everywhere(&what, &[numbers(15, &[3, 37, 5], dtype)], Agree::Exactly, |t| {
                    t[0].reduce(op, axis, KeepAxis::Yes)
                });
            }
        }
    }
}

#[test]
fn long_and_odd_reductions() {
    let Some(_) = gpu() else { return };
    // Sums whose value depends on the order, over more than one block.
    let tenths: Vec<f32> = (0..9000u16).map(|i| 0.1 + f32::from(i % 97)).collect();
    let row = Tensor::from_slice(&tenths, &[1, 9000], Device::Cpu).unwrap();
    let columns = Tensor::from_slice(&tenths, &[4500, 2], Device::Cpu).unwrap();
    for op in ReduceOp::ALL {
        everywhere("a long row", std::slice::from_ref(&row), Agree::Exactly, |t| t[0].reduce(op, 1, KeepAxis::No));
        everywhere("long columns", std::slice::from_ref(&columns), Agree::Exactly, |t| {
            t[0].reduce(op, 0, KeepAxis::No)
        });
    }
    let special = Tensor::from_slice(&Random(16).specials::<f32>(70), &[7, 10], Device::Cpu).unwrap();
    everywhere("nan", std::slice::from_ref(&special), Agree::Exactly, |t| t[0].max(1));
    everywhere("where nan is", std::slice::from_ref(&special), Agree::Exactly, |t| t[0].argmax(0));
    everywhere("nothing", &[numbers(1, &[0, 3], DType::F32)], Agree::Exactly, |t| t[0].sum(0));
    everywhere("no outputs", &[numbers(1, &[3, 0], DType::F32)], Agree::Exactly, |t| t[0].mean(0));
    for device in PLACES {
        let empty = Tensor::zeros(&[0, 3], DType::F32, device).unwrap();
        assert!(matches!(empty.max(0), Err(crate::Error::EmptyAxis { .. })));
        assert!(empty.mean(0).unwrap().to_vec::<f32>().unwrap().iter().all(|x| x.is_nan()));
    }
}

#[test]
fn products() {
    let Some(_) = gpu() else { return };
    for dtype in FLOATS {
        let (a, b) = (numbers(17, &[33, 40], dtype), numbers(18, &[40, 5], dtype));
        everywhere("matmul", &[a, b], ulps(dtype), |t| t[0].matmul(&t[1]));
    }
    let f32s = |seed, shape: &[usize]| numbers(seed, shape, DType::F32);
    everywhere("a batch, turned", &[f32s(19, &[2, 3, 4]), f32s(20, &[2, 5, 3])], ulps(DType::F32), |t| {
        t[0].transpose(1, 2)?.matmul(&t[1].transpose(1, 2)?)
    });
    everywhere("one matrix for all", &[f32s(19, &[2, 3, 4]), f32s(20, &[4, 5])], ulps(DType::F32), |t| {
        t[0].matmul(&t[1].broadcast_to(&[2, 4, 5])?)
    });
    everywhere("no terms", &[f32s(1, &[3, 0]), f32s(1, &[0, 2])], Agree::Exactly, |t| t[0].matmul(&t[1]));
    everywhere("no rows", &[f32s(1, &[0, 3]), f32s(1, &[3, 2])], Agree::Exactly, |t| t[0].matmul(&t[1]));
    everywhere("two types", &[numbers(1, &[3, 3], DType::F16), f32s(2, &[3, 3])], ulps(DType::F32), |t| {
        t[0].matmul(&t[1])
    });
}

#[test]
fn joined_and_made_contiguous() {
    let Some(_) = gpu() else { return };
    for dtype in [DType::U8, DType::F16, DType::F32, DType::I64] {
        for axis in 0..3 {
            let mut shapes = [vec![2, 3, 4], vec![2, 3, 4]];
            shapes[1][axis] = 5;
            let operands = shapes.map(|shape| numbers(21, &shape, dtype));
            everywhere("concat", &operands, Agree::Exactly, |t| Tensor::concat(&[&t[0], &t[1]], axis));
        }
        let turned = numbers(22, &[3, 4, 5], dtype);
        for device in PLACES {
            let view = turned.to(device).unwrap().permute(&[2, 0, 1]).unwrap();
            let packed = view.contiguous().unwrap();
            assert_eq!((packed.device(), packed.is_contiguous()), (device, true));
            assert_agree(&packed, &turned.permute(&[2, 0, 1]).unwrap(), Agree::Exactly, "contiguous");
            assert_agree(&view.reshape(&[60]).unwrap(), &packed.reshape(&[60]).unwrap(), Agree::Exactly, "reshape");
        }
    }
    let mixed = [numbers(1, &[2, 2], DType::I32), numbers(2, &[0, 2], DType::F32)];
    everywhere("concat of two types", &mixed, Agree::Exactly, |t| {
        Tensor::concat(&[&t[0], &t[1].transpose(0, 1)?.reshape(&[0, 2])?], 0)
    });
}

#[test]
fn new_tensors_are_the_same_on_every_device() {
    let Some(_) = gpu() else { return };
    let same = |what: &str, make: &dyn Fn(Device) -> Tensor| {
        for device in PLACES {
            let made = make(device);
            assert_eq!(made.device(), device, "{what}");
            assert_agree(&made, &make(Device::Cpu), Agree::Exactly, what);
        }
    };
    for dtype in DType::ALL {
        same("zeros", &|device| Tensor::zeros(&[3, 5], dtype, device).unwrap());
        same("ones", &|device| Tensor::ones(&[3, 5], dtype, device).unwrap());
        same("full", &|device| Tensor::full(&[17], Scalar::Float(2.75), dtype, device).unwrap());
        let (start, end, step) = (Scalar::Int(-3), Scalar::Int(300), Scalar::Int(2));
        same("arange", &|device| Tensor::arange(start, end, step, dtype, device).unwrap());
        let tenth = (Scalar::Float(0.1), Scalar::Float(30.0), Scalar::Float(0.1));
        if dtype.is_float() {
            same("arange of floats", &|device| Tensor::arange(tenth.0, tenth.1, tenth.2, dtype, device).unwrap());
            same("rand", &|device| Tensor::rand(&[7, 131], 0x1234_5678_9abc_def0, dtype, device).unwrap());
        }
        same("nothing", &|device| Tensor::ones(&[0, 2], dtype, device).unwrap());
        same("from a slice", &|device| numbers(23, &[4, 3], dtype).to(device).unwrap());
    }
}
