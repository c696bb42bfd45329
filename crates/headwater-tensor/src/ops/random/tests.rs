//! The generator against its published vectors, and the numbers against their promises.

use super::cpu::{philox, uniform};
use super::*;
use crate::ops::testing::same_for_any_thread_count;

#[test]
fn words_are_the_published_ones() {
    // From the Random123 distribution, kat_vectors: counter and key all zero.
    assert_eq!(philox(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
}

#[test]
fn numbers_are_in_range_and_spread() {
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
        let numbers = Tensor::rand(&[100_000], 7, dtype, crate::Device::Cpu).unwrap();
        let numbers = numbers.cast(DType::F64).unwrap().to_vec::<f64>().unwrap();
        assert!(numbers.iter().all(|x| (0.0..1.0).contains(x)), "{dtype}");
        let mut counts = [0u32; 8];
        for x in &numbers {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below eight")]
            let bin = (x * 8.0) as usize;
            counts[bin] += 1;
        }
        // Chi-square with 7 degrees of freedom; 24.3 is exceeded once in a thousand seeds.
        let chi: f64 = counts.iter().map(|&c| (f64::from(c) - 12_500.0).powi(2) / 12_500.0).sum();
        assert!(chi < 24.3, "{dtype}: {chi}");
    }
}

#[test]
fn threads_and_length_do_not_matter() {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        same_for_any_thread_count(|| {
            let mut out = headwater_memory::Buffer::<u64, headwater_memory::Host>::new(50_000).unwrap();
            uniform(3, dtype, bytemuck::cast_slice_mut(out.as_mut_slice())).unwrap();
            bytemuck::cast_slice(out.as_slice()).to_vec()
        });
    }
    let rand =
        |count: usize| Tensor::rand(&[count], 5, DType::F32, crate::Device::Cpu).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(rand(40_001)[..7], rand(7)[..]);
    assert_ne!(rand(7), Tensor::rand(&[7], 6, DType::F32, crate::Device::Cpu).unwrap().to_vec::<f32>().unwrap());
}

#[test]
fn integers_are_refused() {
    assert!(matches!(Tensor::rand(&[1], 0, DType::I32, crate::Device::Cpu), Err(Error::Unsupported { .. })));
}
