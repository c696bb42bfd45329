//! Slices cut into parts that many threads fill at once.

use std::mem;

/// Cuts a slice into parts of these lengths, one after the other.
pub(crate) fn cut<T>(mut rest: &mut [T], lengths: impl Iterator<Item = usize>) -> Vec<&mut [T]> {
    lengths.map(|length| take(&mut rest, length)).collect()
}

/// Cuts the first elements off a slice.
pub(crate) fn take<'a, T>(rest: &mut &'a mut [T], length: usize) -> &'a mut [T] {
    let (first, others) = mem::take(rest).split_at_mut(length);
    *rest = others;
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other() {
        let mut numbers = [1, 2, 3, 4, 5];
        let parts = cut(&mut numbers, [2, 0, 3].into_iter());
        assert_eq!(parts, [&[1, 2][..], &[], &[3, 4, 5]]);
    }
}
