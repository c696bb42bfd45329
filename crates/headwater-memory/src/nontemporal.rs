//! Copies that do not go through the cache.
//!
//! A gather writes far more than the cache holds and reads none of it back. Stores that bypass the cache save the read of
//! every line that an ordinary store begins with.

/// Bytes the CPU moves at a time.
const VECTOR_BYTES: usize = 16;

/// Copies `from` to `to`, around the cache where the machine can. Lengths must agree; the shorter one decides.
pub fn stream_copy(to: &mut [u8], from: &[u8]) {
    let length = to.len().min(from.len());
    let (to, from) = (&mut to[..length], &from[..length]);
    #[cfg(target_arch = "x86_64")]
    {
        let head = to.as_ptr().align_offset(VECTOR_BYTES).min(length);
        let vectors = (length - head) / VECTOR_BYTES;
        to[..head].copy_from_slice(&from[..head]);
        // SAFETY: `head` aligns the destination; both slices hold `vectors` vectors after it. SSE2 is part of x86-64.
        unsafe { stream_vectors(to[head..].as_mut_ptr(), from[head..].as_ptr(), vectors) };
        let tail = head + vectors * VECTOR_BYTES;
        to[tail..].copy_from_slice(&from[tail..]);
    }
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}

/// Makes streamed stores visible to everybody, a GPU included, before what follows.
pub fn stream_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: an instruction without operands that every x86-64 has.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Asks for a line of memory ahead of its use.
pub fn prefetch(line: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; any address is allowed.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_NTA }>(line.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Asks for the line of one element ahead of its use, to be kept in every cache. Past the end it does nothing harmful.
#[inline]
pub fn prefetch_element<T>(elements: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; any address is allowed, and none is formed by arithmetic that could be undefined.
    unsafe {
        let address = elements.as_ptr().wrapping_add(at);
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (elements, at);
}

/// # Safety
/// `to` is aligned to a vector, and both ranges hold `vectors` vectors and do not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn stream_vectors(to: *mut u8, from: *const u8, vectors: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    for i in 0..vectors {
        // SAFETY: inside both ranges; the destination is aligned, the load need not be.
        unsafe {
            let value = _mm_loadu_si128(from.add(i * VECTOR_BYTES).cast::<__m128i>());
            _mm_stream_si128(to.add(i * VECTOR_BYTES).cast::<__m128i>(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_copied_exactly() {
        let from: Vec<u8> = (0..400u32).map(|i| i.to_le_bytes()[0].wrapping_mul(37)).collect();
        for (start, length) in (0..33).flat_map(|start| (0..130).map(move |length| (start, length))) {
            let mut to = vec![0xee; 400];
            stream_copy(&mut to[start..start + length], &from[7..7 + length]);
            stream_fence();
            assert_eq!(to[start..start + length], from[7..7 + length]);
            assert!(to[..start].iter().chain(&to[start + length..]).all(|byte| *byte == 0xee));
        }
    }
}
