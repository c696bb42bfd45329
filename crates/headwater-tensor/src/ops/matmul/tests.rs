//! Products against three plain loops over doubles.

use half::{bf16, f16};

use super::cpu::{self, Multiply};
use super::*;
use crate::dtype::{Bool, Element, Scalar};
use crate::layout::Layout;
use crate::ops::testing::{Random, close, indices, real, same_for_any_thread_count};
use crate::view::View;

const SIZES: &[(usize, usize, usize)] =
    &[(1, 1, 1), (3, 4, 5), (2, 3, 0), (0, 3, 2), (3, 0, 2), (17, 33, 65), (1, 70, 300), (90, 1, 31), (64, 80, 700)];

/// The products and the sums of their terms' sizes, which the error bound is made of.
fn reference<T: Element>(a: &[T], b: &[T], m: usize, n: usize, k: usize) -> Vec<(f64, f64)> {
    let entry = |i: usize, j: usize| (0..k).map(move |l| real(a[i * k + l]) * real(b[l * n + j]));
    let each = (0..m).flat_map(|i| (0..n).map(move |j| (i, j)));
    each.map(|(i, j)| (entry(i, j).sum(), entry(i, j).map(f64::abs).sum())).collect()
}

fn packed<T: Element>(data: &[T], layout: &Layout) -> Vec<T> {
    indices(layout).into_iter().map(|i| data[i]).collect()
}

fn check_products<T: Multiply>(unit: f64, sum_unit: f64) {
    let mut random = Random(41);
    for &(m, n, k) in SIZES {
        for batch in [None, Some(0), Some(3)] {
            let dims = |rows, columns| batch.into_iter().chain([rows, columns]).collect::<Vec<_>>();
            let (left, right) = (random.layout(&dims(m, k)), random.layout(&dims(k, n)));
            let rough = |random: &mut Random, n| -> Vec<T> {
                (0..n).map(|_| T::narrow(Scalar::Float(random.value() * 0.3))).collect()
            };
            let (a, b) = (rough(&mut random, left.end()), rough(&mut random, right.end()));
            let count = batch.unwrap_or(1);
            let mut out = vec![T::narrow(Scalar::Float(9.0)); count * m * n];
            cpu::matmul(View::new(&a, left).unwrap(), View::new(&b, right).unwrap(), &mut out).unwrap();
            let (a, b) = (packed(&a, &left), packed(&b, &right));
            for i in 0..count {
                let expected = reference(&a[i * m * k..][..m * k], &b[i * k * n..][..k * n], m, n, k);
                for (found, (value, size)) in out[i * m * n..].iter().zip(expected) {
                    let bound = sum_unit * (k as f64) * size + unit * value.abs();
                    assert!((real(*found) - value).abs() <= bound, "{m}x{k}x{n}: {found:?}, {value}");
                }
            }
        }
    }
}

#[test]
fn products_are_within_the_bound() {
    check_products::<f32>(0.0, 2f64.powi(-24));
    check_products::<f64>(0.0, 2f64.powi(-52));
    check_products::<f16>(2f64.powi(-11), 2f64.powi(-24));
    check_products::<bf16>(2f64.powi(-8), 2f64.powi(-24));
}

#[test]
fn nan_and_infinity_spread() {
    let a = [f32::NAN, 1.0, 1.0, 1.0];
    let b = [1.0, 2.0, f32::INFINITY, 4.0];
    let mut out = [0f32; 4];
    let (left, right) = (View::contiguous(&a, &[2, 2]).unwrap(), View::contiguous(&b, &[2, 2]).unwrap());
    cpu::matmul(left, right, &mut out).unwrap();
    assert!(out[0].is_nan() && out[1].is_nan() && close(f64::from(out[2]), f64::INFINITY, 0.0) && out[3] == 6.0);
}

#[test]
fn types_and_shapes_are_checked() {
    let shape = |dims: &[usize]| Shape::new(dims).unwrap();
    let of = |left: &[usize], right: &[usize]| check(DType::F32, &shape(left), &shape(right));
    assert_eq!(of(&[2, 3, 4], &[2, 4, 5]).unwrap().1[..], [2, 3, 5]);
    assert!(matches!(of(&[2, 3], &[4, 5]), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(of(&[2, 3, 4], &[3, 4, 5]), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(of(&[3], &[3, 4]), Err(Error::Shape { .. })));
    assert!(matches!(of(&[usize::MAX, 1], &[1, 2]), Err(Error::TooLarge { .. })));
    assert!(matches!(check(DType::I64, &shape(&[1, 1]), &shape(&[1, 1])), Err(Error::Unsupported { .. })));
    let one = [Bool(1)];
    let view = View::contiguous(&one, &[1, 1]).unwrap();
    assert!(cpu::matmul(view, view, &mut [Bool(0)]).is_err());
    let one = [1f32];
    let view = View::contiguous(&one, &[1, 1]).unwrap();
    assert!(matches!(cpu::matmul(view, view, &mut []), Err(Error::Length { .. })));
}

#[test]
fn threads_do_not_matter() {
    let mut random = Random(43);
    let (m, n, k) = (150, 130, 900);
    let rough = |random: &mut Random, n| -> Vec<f32> {
        (0..n).map(|_| f32::narrow(Scalar::Float(random.value() * 0.3))).collect()
    };
    let (a, b) = (rough(&mut random, m * k), rough(&mut random, k * n));
    same_for_any_thread_count(|| {
        let mut out = vec![0f32; m * n];
        let (a, b) = (View::contiguous(&a, &[m, k]).unwrap(), View::contiguous(&b, &[k, n]).unwrap());
        cpu::matmul(a, b, &mut out).unwrap();
        bytemuck::cast_slice(&out).to_vec()
    });
}

#[test]
fn the_kernels_argument_has_twelve_words() {
    let left = Layout::contiguous(&[2, 3]).unwrap().transpose(0, 1).unwrap();
    let right = Layout::contiguous(&[4, 2, 5]).unwrap();
    let arg = MatmulArg::new(MatmulSizes { batch: 1, m: 3, n: 5, k: 2 }, &left, &right);
    assert_eq!(size_of_val(&arg), 12 * 8);
    assert_eq!((arg.left_strides, arg.right_strides), ([0, 1, 3], [10, 5, 1]));
}

#[test]
fn products_into_rows_of_a_larger_array_stay_there() {
    use super::{Before, Strided, product_into};
    let (a, b) = ([1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0f32, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let (left, right) = (Strided::packed(&a, 2, 3), Strided::packed(&b, 3, 2));
    let mut out = [9.0f32; 8];
    product_into(left, right, &mut out, 4, Before::Replaced).unwrap();
    assert_eq!(out, [4.0, 5.0, 9.0, 9.0, 10.0, 11.0, 9.0, 9.0]);
    product_into(left, right, &mut out, 4, Before::Kept).unwrap();
    assert_eq!(out[..2], [8.0, 10.0]);
    let wide = Strided { column_stride: 2, ..left };
    assert!(product_into(wide, right, &mut out, 4, Before::Kept).is_err(), "outside its slice");
    assert!(product_into(left, right, &mut out[..5], 4, Before::Kept).is_err(), "no room for the product");
    assert!(product_into(left, left, &mut out, 4, Before::Kept).is_err(), "sizes that do not fit");
    let flipped = product_into(right.transposed(), left.transposed(), &mut out, 4, Before::Replaced);
    assert!(flipped.is_ok() && out[..2] == [4.0, 10.0] && out[4..6] == [5.0, 11.0], "{out:?}");
}
