//! Words written by the CPU.

/// Puts the words at the beginning of `to`, and leaves the rest as it is.
pub fn tell(words: &[u64], to: &mut [u64]) {
    to[..words.len()].copy_from_slice(words);
}
