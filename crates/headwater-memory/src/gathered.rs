//! Sums of values that lists of positions name.
//!
//! A loop over such a list waits for one value after the other. AVX-512 asks for eight at once, leaves out positions that
//! are none without a branch, and rounds and adds eight at once.

/// Adds to every sum the whole parts of the values its list names. The list of `sums[row]` is
/// `positions[offsets[row]..offsets[row + 1]]`; a list that leads out of `positions` is empty, and a position that is none
/// adds nothing. Values are from 0 to below 2^63, and sums wrap. Returns false, and adds nothing, where the machine has no
/// instructions for it.
#[must_use]
pub fn add_gathered(values: &[f32], positions: &[u32], offsets: &[u64], sums: &mut [u64]) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        // Positions are signed for the instruction, so higher ones would be negative.
        let Ok(limit) = i32::try_from(values.len()) else { return false };
        let can = has!("avx512f") && has!("avx512dq") && has!("avx512vl");
        if can {
            // SAFETY: the machine has the instructions.
            unsafe { add_lists(values, limit, positions, offsets, sums) };
        }
        can
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (values, positions, offsets, sums);
        false
    }
}

/// Values that are asked for at once.
#[cfg(target_arch = "x86_64")]
const TOGETHER: usize = 8;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn add_lists(values: &[f32], limit: i32, positions: &[u32], offsets: &[u64], sums: &mut [u64]) {
    use std::arch::x86_64::{_mm512_add_epi64, _mm512_reduce_add_epi64, _mm512_setzero_si512};
    for (sum, bounds) in sums.iter_mut().zip(offsets.windows(2)) {
        let bounds = [bounds[0], bounds[1]].map(|bound| usize::try_from(bound).unwrap_or(usize::MAX));
        let list = positions.get(bounds[0]..bounds[1]).unwrap_or_default();
        let mut total = _mm512_setzero_si512();
        for part in list.chunks(TOGETHER) {
            total = _mm512_add_epi64(total, whole_parts(values, limit, part));
        }
        *sum = sum.wrapping_add(_mm512_reduce_add_epi64(total).cast_unsigned());
    }
}

/// The whole parts of the values at up to eight positions, and zeros after the last. `limit` is how many values there are.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
#[inline]
fn whole_parts(values: &[f32], limit: i32, part: &[u32]) -> std::arch::x86_64::__m512i {
    use std::arch::x86_64::{
        _mm256_mask_cmplt_epu32_mask, _mm256_maskz_loadu_epi32, _mm256_mmask_i32gather_ps, _mm256_set1_epi32,
        _mm256_setzero_ps, _mm512_cvttps_epi64, _mm512_setzero_si512,
    };
    if part.is_empty() || part.len() > TOGETHER {
        return _mm512_setzero_si512();
    }
    let lanes = u8::MAX >> (TOGETHER - part.len());
    // SAFETY: only the lanes of `part` are read from it, and only those below `limit` from the values.
    let gathered = unsafe {
        let at = _mm256_maskz_loadu_epi32(lanes, part.as_ptr().cast());
        let sound = _mm256_mask_cmplt_epu32_mask(lanes, at, _mm256_set1_epi32(limit));
        _mm256_mmask_i32gather_ps::<4>(_mm256_setzero_ps(), sound, at, values.as_ptr())
    };
    _mm512_cvttps_epi64(gathered)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::cast_possible_truncation, reason = "numbers in tests are small")]

    use super::*;

    #[test]
    fn sums_are_those_of_a_loop() {
        let values: Vec<f32> = (0..100u8).map(|at| f32::from(at) * 1.75e9 + 0.5).collect();
        // Lists of every length up to 40; every 11th position is none.
        let none = |at: u32| if at.is_multiple_of(22) { u32::MAX } else { 100 };
        let position = |at: u32| if at.is_multiple_of(11) { none(at) } else { at * 37 % 100 };
        let positions: Vec<u32> = (0..820).map(position).collect();
        let mut offsets: Vec<u64> = (0..=40u64).map(|length| length * (length + 1) / 2).collect();
        // A list that falls and one that leads out.
        offsets.extend([10, 5000]);
        let mut sums = vec![7u64; offsets.len() - 1];
        if !add_gathered(&values, &positions, &offsets, &mut sums) {
            assert!(sums.iter().all(|sum| *sum == 7));
            return;
        }
        for (sum, bounds) in sums.iter().zip(offsets.windows(2)) {
            let list = positions.get(bounds[0] as usize..bounds[1] as usize).unwrap_or_default();
            let found = list.iter().filter_map(|at| values.get(*at as usize));
            assert_eq!(*sum, 7 + found.map(|value| *value as u64).sum::<u64>(), "list {bounds:?}");
        }
        assert!(add_gathered(&[], &positions, &offsets, &mut sums[..1]));
    }
}
