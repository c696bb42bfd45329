//! Copies against index arithmetic.

use half::f16;

use super::*;
use crate::dtype::{Bool, Element, Scalar};
use crate::layout::Layout;
use crate::ops::testing::{Random, indices, same_for_any_thread_count};
use crate::view::View;

fn check_copy<T: Element>() {
    let mut random = Random(2);
    for shape in [&[][..], &[0], &[5], &[4, 0, 3], &[3, 4, 5], &[301, 203], &[2, 3, 2, 3, 2, 3, 2, 3]] {
        for _ in 0..4 {
            let layout = random.layout(shape);
            let data: Vec<T> = random.specials(layout.end() + 1);
            let mut out = vec![T::default(); layout.count()];
            cpu::copy(View::new(&data, layout).unwrap(), &mut out).unwrap();
            let expected: Vec<T> = indices(&layout).into_iter().map(|i| data[i]).collect();
            assert_eq!(bytemuck::cast_slice::<T, u8>(&out), bytemuck::cast_slice::<T, u8>(&expected));
        }
    }
}

#[test]
fn copies_are_exact() {
    check_copy::<f32>();
    check_copy::<f16>();
    check_copy::<i64>();
    check_copy::<u8>();
    check_copy::<Bool>();
}

#[test]
fn concat_joins_any_axis() {
    let mut random = Random(4);
    for (dims, axis) in [(&[3usize, 4, 5][..], 0), (&[3, 4, 5], 1), (&[3, 4, 5], 2), (&[7], 0), (&[90, 500], 1)] {
        let sizes = [2usize, 0, 3, 1];
        let mut expected: Vec<Option<i32>> = vec![];
        let mut inputs = vec![];
        for size in sizes {
            let mut shape = dims.to_vec();
            shape[axis] = size;
            let layout = random.layout(&shape);
            inputs.push((random.values::<i32>(layout.end()), layout));
        }
        let joined = concat_shape(&inputs.iter().map(|(_, l)| l.shape()).collect::<Vec<_>>(), axis).unwrap();
        expected.resize(joined.count().unwrap(), None);
        let whole = Layout::contiguous(&joined).unwrap();
        let mut base = 0;
        for (data, layout) in &inputs {
            for (number, from) in indices(layout).into_iter().enumerate() {
                let mut rest = number;
                let mut position = vec![0; dims.len()];
                for i in (0..dims.len()).rev() {
                    position[i] = rest % layout.shape()[i];
                    rest /= layout.shape()[i];
                }
                position[axis] += base;
                expected[whole.index_of(&position).unwrap()] = Some(data[from]);
            }
            base += layout.shape()[axis];
        }
        let views: Vec<View<i32>> = inputs.iter().map(|(d, l)| View::new(d, *l).unwrap()).collect();
        let mut out = vec![0; expected.len()];
        cpu::concat(&views, axis, &mut out).unwrap();
        assert_eq!(out.into_iter().map(Some).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn concat_checks_its_shapes() {
    let shape = |dims: &[usize]| Shape::new(dims).unwrap();
    assert!(matches!(concat_shape(&[], 0), Err(Error::Length { .. })));
    assert!(matches!(concat_shape(&[&shape(&[2])], 1), Err(Error::NoSuchAxis { .. })));
    assert!(matches!(concat_shape(&[&shape(&[2, 3]), &shape(&[2, 4])], 0), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(concat_shape(&[&shape(&[2, 3]), &shape(&[2])], 0), Err(Error::ShapeMismatch { .. })));
    let huge = shape(&[usize::MAX]);
    assert!(matches!(concat_shape(&[&huge, &huge], 0), Err(Error::TooLarge { .. })));
    assert_eq!(concat_shape(&[&shape(&[0, 3]), &shape(&[0, 3])], 0).unwrap()[..], [0, 3]);
}

#[test]
fn ranges_and_fills() {
    let mut out = [0i64; 4];
    cpu::arange(Scalar::Int(i64::MAX - 1), Scalar::Int(1), &mut out).unwrap();
    assert_eq!(out, [i64::MAX - 1, i64::MAX, i64::MIN, i64::MIN + 1]);
    assert!(cpu::arange(Scalar::Float(0.5), Scalar::Int(1), &mut out).is_err());
    let mut out = [0f32; 3];
    cpu::arange(Scalar::Float(0.1), Scalar::Float(0.1), &mut out).unwrap();
    assert_eq!(out, [0.1, 0.2, 0.3]);
    let mut out = vec![0u8; 70_000];
    cpu::fill(7, &mut out);
    assert!(out.iter().all(|&x| x == 7));
    assert_eq!(arange_count(0.0, 1.0, 0.3).unwrap(), 4);
    assert_eq!(arange_count(5.0, 0.0, -1.0).unwrap(), 5);
    for (start, end, step) in [(0.0, 1.0, 0.0), (0.0, 1.0, -1.0), (0.0, f64::NAN, 1.0), (0.0, 1e300, 1.0)] {
        assert!(arange_count(start, end, step).is_err());
    }
}

#[test]
fn threads_do_not_matter() {
    let data: Vec<f32> = Random(1).values(90_000);
    let layout = Layout::contiguous(&[300, 300]).unwrap().transpose(0, 1).unwrap();
    same_for_any_thread_count(|| {
        let mut out = vec![0f32; 180_000];
        let view = View::new(&data, layout).unwrap();
        cpu::concat(&[view, view], 1, &mut out).unwrap();
        bytemuck::cast_slice(&out).to_vec()
    });
}
