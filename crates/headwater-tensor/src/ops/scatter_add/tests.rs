//! Scatter-add against the loop it stands for, row by row and in order.

use half::{bf16, f16};

use super::cpu::{self, Addable};
use super::plan::{by_counting, by_sorting};
use super::*;
use crate::dtype::{Bool, Element};
use crate::layout::Layout;
use crate::ops::testing::{Random, close, indices, real, same_for_any_thread_count};
use crate::view::View;

fn check_against_the_loop<T: Addable>() {
    let mut random = Random(31);
    for (rows, columns, count) in
        [(5, 3, 20), (1, 7, 9), (4, 0, 3), (6, 2, 0), (0, 3, 0), (900, 65, 3000), (9000, 4, 50)]
    {
        let ids: Vec<u32> = (0..count).map(|_| u32::try_from(random.below(rows)).unwrap()).collect();
        let layout = random.layout(&[count, columns]);
        let data: Vec<T> = random.values(layout.end());
        let mut out: Vec<T> = random.values(rows * columns);
        // Values are multiples of 1/8 and small, so sums in f32 and f64 are exact; 16-bit types round once.
        let mut expected: Vec<T::Sum> = out.iter().map(|x| x.lift()).collect();
        let at = indices(&layout);
        for (i, &id) in ids.iter().enumerate() {
            for c in 0..columns {
                let slot = &mut expected[usize::try_from(id).unwrap() * columns + c];
                *slot = T::plus(*slot, data[at[i * columns + c]].lift());
            }
        }
        let plan = ScatterPlan::new(IdSlice::U32(&ids), rows).unwrap();
        cpu::scatter_add(View::new(&data, layout).unwrap(), &plan, &mut out).unwrap();
        for (found, expected) in out.iter().zip(expected) {
            assert!(close(real(*found), real(T::settle(expected)), 0.0));
        }
    }
}

#[test]
fn equals_the_loop_for_every_type() {
    check_against_the_loop::<f32>();
    check_against_the_loop::<f64>();
    check_against_the_loop::<f16>();
    check_against_the_loop::<bf16>();
    check_against_the_loop::<i8>();
    check_against_the_loop::<i32>();
    check_against_the_loop::<i64>();
    check_against_the_loop::<u8>();
}

#[test]
fn sources_are_added_in_the_order_they_come() {
    let source = [1e8f32, 1.0, -1e8, 1.0];
    let plan = ScatterPlan::new(IdSlice::I64(&[0, 0, 0, 0]), 1).unwrap();
    let mut out = [0f32];
    cpu::scatter_add(View::contiguous(&source, &[4, 1]).unwrap(), &plan, &mut out).unwrap();
    assert_eq!(out, [((0.0 + 1e8f32) + 1.0 - 1e8) + 1.0]);
}

#[test]
fn nan_and_infinity_stay_in_their_rows() {
    let source = [f32::NAN, f32::INFINITY, 1.0];
    let plan = ScatterPlan::new(IdSlice::I32(&[2, 0, 1]), 4).unwrap();
    let mut out = [1f32; 4];
    cpu::scatter_add(View::contiguous(&source, &[3, 1]).unwrap(), &plan, &mut out).unwrap();
    assert!(out[0].is_infinite() && out[1] == 2.0 && out[2].is_nan() && out[3] == 1.0);
}

#[test]
fn bad_ids_are_named() {
    let message = |ids: IdSlice, rows| ScatterPlan::new(ids, rows).unwrap_err().to_string();
    let text = message(IdSlice::I32(&[0, 3, -1]), 3);
    assert_eq!(text, "ids[1] is 3, which is not a row of a target with 3 rows");
    assert!(message(IdSlice::I64(&[i64::MIN]), 3).contains("-9223372036854775808"));
    assert!(message(IdSlice::U64(&[u64::MAX]), 3).contains("18446744073709551615"));
    assert!(message(IdSlice::U32(&[0]), 0).contains("ids[0]"));
}

#[test]
fn shapes_and_types_are_checked() {
    let shape = |dims: &[usize]| Shape::new(dims).unwrap();
    assert!(check(DType::F32, &shape(&[2, 3]), 2, &shape(&[9, 3])).is_ok());
    assert!(matches!(check(Bool::DTYPE, &shape(&[2, 3]), 2, &shape(&[9, 3])), Err(Error::Unsupported { .. })));
    assert!(matches!(check(DType::F32, &shape(&[2]), 2, &shape(&[9, 3])), Err(Error::Shape { .. })));
    assert!(matches!(check(DType::F32, &shape(&[2, 3]), 2, &shape(&[9, 4])), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(check(DType::F32, &shape(&[2, 3]), 3, &shape(&[9, 3])), Err(Error::Length { .. })));
    let plan = ScatterPlan::new(IdSlice::U32(&[0]), 2).unwrap();
    let source = View::contiguous(&[1f32], &[1, 1]).unwrap();
    assert!(matches!(cpu::scatter_add(source, &plan, &mut [0f32; 3]), Err(Error::Length { .. })));
}

#[test]
fn both_ways_to_group_agree() {
    let mut random = Random(8);
    let ids: Vec<usize> = (0..5000).map(|_| random.below(700)).collect();
    assert_eq!(by_counting(&ids, 700), by_sorting(&ids));
    let plan = ScatterPlan::new(IdSlice::I32(&[2, 0, 2]), 1 << 40).unwrap();
    assert_eq!((plan.rows(), plan.offsets(), plan.order()), (&[0, 2][..], &[0, 1, 3][..], &[1, 0, 2][..]));
}

#[test]
fn threads_do_not_matter() {
    let mut random = Random(6);
    let ids: Vec<u32> = (0..20_000).map(|_| u32::try_from(random.below(100) * random.below(3)).unwrap()).collect();
    let data: Vec<f32> = (0..20_000 * 12).map(|_| 0.1 * f32::from(i16::try_from(random.below(99)).unwrap())).collect();
    let layout = Layout::contiguous(&[20_000, 12]).unwrap();
    same_for_any_thread_count(|| {
        let mut out = vec![0f32; 300 * 12];
        let plan = ScatterPlan::new(IdSlice::U32(&ids), 300).unwrap();
        cpu::scatter_add(View::new(&data, layout).unwrap(), &plan, &mut out).unwrap();
        bytemuck::cast_slice(&out).to_vec()
    });
}
