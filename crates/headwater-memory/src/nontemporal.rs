//! Copies that do not go through the cache.
//!
//! A gather writes far more than the cache holds and reads none of it back. Stores that bypass the cache save the read of
//! every line that an ordinary store begins with.

/// Bytes every CPU moves at a time.
const VECTOR_BYTES: usize = 16;
/// Bytes a CPU with AVX-512 moves at a time, which fill a line of the cache: nothing needs to be put together.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Copies `from` to `to`, around the cache where the machine can. Lengths must agree; the shorter one decides.
pub fn stream_copy(to: &mut [u8], from: &[u8]) {
    let length = to.len().min(from.len());
    let (to, from) = (&mut to[..length], &from[..length]);
    #[cfg(target_arch = "x86_64")]
    {
        if is_whole_lines(to) && std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the machine has AVX-512; the destination begins on a line, and both slices are as many lines long.
            unsafe { stream_lines(to.as_mut_ptr(), from.as_ptr(), length / LINE_BYTES) };
            return;
        }
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

#[cfg(target_arch = "x86_64")]
fn is_whole_lines(bytes: &[u8]) -> bool {
    bytes.len().is_multiple_of(LINE_BYTES) && bytes.as_ptr().addr().is_multiple_of(LINE_BYTES)
}

/// # Safety
/// `to` is aligned to a line, and both ranges hold `lines` lines and do not overlap.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn stream_lines(to: *mut u8, from: *const u8, lines: usize) {
    use std::arch::x86_64::{__m512i, _mm512_loadu_si512, _mm512_stream_si512};
    for i in 0..lines {
        // SAFETY: inside both ranges; the destination is aligned, the load need not be.
        unsafe {
            let value = _mm512_loadu_si512(from.add(i * LINE_BYTES).cast::<__m512i>());
            _mm512_stream_si512(to.add(i * LINE_BYTES).cast::<__m512i>(), value);
        }
    }
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
        #[repr(align(64))]
        struct Aligned([u8; 400]);
        let from: Vec<u8> = (0..400u32).map(|i| i.to_le_bytes()[0].wrapping_mul(37)).collect();
        for (start, length) in (0..67).flat_map(|start| (0..260).map(move |length| (start, length))) {
            let mut aligned = Aligned([0xee; 400]);
            let to = &mut aligned.0;
            stream_copy(&mut to[start..start + length], &from[7..7 + length]);
            stream_fence();
            assert_eq!(to[start..start + length], from[7..7 + length]);
            assert!(to[..start].iter().chain(&to[start + length..]).all(|byte| *byte == 0xee));
        }
    }
}
