//! Draws on the GPU are the CPU's draws, to the bit.

use headwater::cuda::{Defines, Element, Kernel, Param, Scalar, Source, Stream};
use headwater::graph::random::{CUDA_HEADER, Key};
use headwater::memory::{Buffer, Device};

use crate::kernels::{gpu, grid};

pub static DRAWS: Source = Source { name: "draws.cu", text: include_str!("kernels/draws.cu"), headers: &[CUDA_HEADER] };

// SAFETY: draw i, below `count`, reads three words and writes four.
static DRAW_ALL: Kernel = unsafe {
    Kernel::declare(
        &DRAWS,
        "draws",
        &[
            Param::Read("in", Element::U64, &["count", "IN_WORDS"]),
            Param::Value("count", Scalar::U64),
            Param::Write("out", Element::U64, &["count", "OUT_WORDS"]),
        ],
    )
};

/// Limits of every kind: the ones just above a power of two reject almost half of all draws.
fn limit(i: u64) -> u64 {
    let log2 = i % 64;
    let power = 1u64 << log2;
    [power, power.saturating_add(1), u64::MAX - log2, 3 + i, (1 << 63) + 1][(i % 5) as usize]
}

#[test]
fn every_draw_is_the_cpus() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let count = 6000;
    let asked: Vec<(Key, u64, u64)> = (0..count).map(|i| (Key::new(i / 3).of(i), i % 7 * i, limit(i))).collect();
    let words: Vec<u64> = asked.iter().flat_map(|(key, counter, limit)| [key.bits(), *counter, *limit]).collect();
    let words = Buffer::<u64, Device>::from_slice(&stream, &words).unwrap();
    let out = Buffer::<u64, Device>::on_stream(&stream, count as usize * 4).unwrap();
    let defines = Defines::new().with("IN_WORDS", 3).with("OUT_WORDS", 4);
    let launch = DRAW_ALL.on(&stream, &defines, grid(count as usize)).buffer(words.whole(), Element::U64);
    launch.u64(count).buffer(out.whole(), Element::U64).go().unwrap();
    let of = |(key, counter, limit): &(Key, u64, u64)| {
        let bounded = key.below(*counter, *limit);
        assert!(bounded < *limit);
        [key.of(*counter).bits(), key.draw(*counter), bounded, key.unit(*counter).to_bits()]
    };
    let want: Vec<u64> = asked.iter().flat_map(of).collect();
    assert_eq!(out.to_vec(&stream).unwrap(), want);
    // The test would prove little if nothing had been drawn twice.
    let again = asked.iter().filter(|(key, counter, limit)| {
        let product = u128::from(key.draw(*counter)) * u128::from(*limit);
        (product as u64) < limit.wrapping_neg() % limit
    });
    assert!(again.count() > 500);
}
