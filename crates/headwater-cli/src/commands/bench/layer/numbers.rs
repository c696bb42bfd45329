//! Rows and weights: numbers of no meaning, the same for a seed.

use headwater::graph::random::Key;
use headwater::memory::host_bytes_available;
use rayon::prelude::*;

/// Numbers that one thread draws at least.
const DRAWN_TOGETHER: usize = 1 << 14;

/// So many numbers between -0.1 and 0.1, so that sums over many edges and layers stay small.
pub fn numbers(seed: u64, layer: usize, name: &str, count: usize) -> anyhow::Result<Vec<f32>> {
    let free = host_bytes_available() / size_of::<f32>();
    anyhow::ensure!(count < free, "`{name}` has {count} numbers, and host memory has room for {free}");
    let key = name.bytes().fold(Key::new(seed).of(layer as u64), |key, letter| key.of(u64::from(letter)));
    Ok((0..count).into_par_iter().with_min_len(DRAWN_TOGETHER).map(|at| number(key, at)).collect())
}

#[expect(clippy::cast_possible_truncation, reason = "kernels compute in single precision")]
fn number(key: Key, at: usize) -> f32 {
    (0.2 * key.unit(at as u64) - 0.1) as f32
}

/// The mean distance from zero: what shows that results are results.
pub fn mean_size(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(value.abs())).sum::<f64>() / values.len().max(1) as f64
}
