//! The sum as a loop.

use crate::column::Id;

/// The sum of the counts before each, in as many offsets; returns the sum of all.
pub fn scan<O: Id>(counts: &[u32], offsets: &mut [O]) -> u64 {
    let mut sum = 0;
    for (count, offset) in counts.iter().zip(offsets) {
        *offset = O::narrow(sum);
        sum += u64::from(*count);
    }
    sum
}
