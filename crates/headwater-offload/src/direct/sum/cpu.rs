//! The sum on the host.

use super::folded;

/// What the kernel computes.
pub fn sum_of(bytes: &[u8]) -> u32 {
    let word = |part: &[u8]| part.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    let factor = |place: u64| {
        let x = (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) | 1
    };
    let words = bytes.chunks(4).zip(0..).map(|(part, place)| word(part).wrapping_mul(factor(place)));
    folded(words.fold(0, u64::wrapping_add))
}
