//! Uniform random numbers from a counter: element `i` depends on the seed and on `i`, and on nothing else.
//!
//! **Generator.** Philox 4x32-10 (Salmon and others, 2011) with the seed's low and high halves as key. Block `b` is the
//! function of the counter (low half of `b`, high half of `b`, 0, 0) and gives four 32-bit words.
//!
//! **From bits to floats.** Element `i` of the types up to 32 bits takes word `i mod 4` of block `i / 4` and keeps its upper
//! bits, as many as the type's significand holds: 24 for float32, 11 for float16, 8 for bfloat16. That integer times
//! 2^-24, 2^-11 or 2^-8 is the number: a multiple of the step in [0, 1), each equally likely, never rounded up to 1.
//! Element `i` of float64 takes words `2 (i mod 2)` (low) and `2 (i mod 2) + 1` (high) of block `i / 2`; the upper 53 bits
//! of the 64 times 2^-53. Other types are refused.
//!
//! **Determinism.** The same bits for any number of threads and on every device. A longer tensor begins with the numbers
//! of a shorter one.

pub mod cpu;
mod cuda;

pub use cuda::kernel_builds;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::exec::{Placed, Side};
use crate::layout::Shape;
use crate::tensor::Tensor;

/// A new tensor of uniform numbers.
pub(crate) fn uniform(seed: u64, shape: &Shape, dtype: DType, placed: &Placed) -> Result<Tensor> {
    check(dtype)?;
    match &placed.side {
        Side::Cpu => placed.on_host(dtype, shape, |out| cpu::uniform(seed, dtype, out)),
        Side::Gpu(gpu) => placed.on_gpu(gpu, dtype, shape, |stream, out| cuda::uniform(stream, seed, dtype, out)),
    }
}

fn check(dtype: DType) -> Result<()> {
    if dtype.is_float() { Ok(()) } else { Err(Error::Unsupported { op: "rand", dtype }) }
}

#[cfg(test)]
mod tests;
