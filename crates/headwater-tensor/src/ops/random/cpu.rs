//! Uniform numbers on the CPU, and the generator written out.

use half::{bf16, f16};

use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::ops::map::in_parts;
use crate::read::typed_mut;

const ROUNDS: u32 = 10;
const MULTIPLIERS: (u32, u32) = (0xD251_1F53, 0xCD9E_8D57);
const WEYL: (u32, u32) = (0x9E37_79B9, 0xBB67_AE85);

/// Fills `out`, which holds whole elements of `dtype`.
pub fn uniform(seed: u64, dtype: DType, out: &mut [u8]) -> Result<()> {
    match dtype {
        DType::F32 => from_words::<f32>(seed, out, |word| (word >> 8) as f32 * 2f32.powi(-24)),
        DType::F16 => from_words(seed, out, |word| f16::from_f32((word >> 21) as f32 * 2f32.powi(-11))),
        DType::BF16 => from_words(seed, out, |word| bf16::from_f32((word >> 24) as f32 * 2f32.powi(-8))),
        DType::F64 => {
            in_parts(typed_mut::<f64>(out)?, &|start, part| {
                for (i, to) in (start as u64..).zip(part) {
                    let words = philox(seed, i / 2);
                    let (low, high) = if i % 2 == 0 { (words[0], words[1]) } else { (words[2], words[3]) };
                    let bits = u64::from(high) << 32 | u64::from(low);
                    *to = (bits >> 11) as f64 * 2f64.powi(-53);
                }
            });
            Ok(())
        }
        _ => Err(Error::Unsupported { op: "rand", dtype }),
    }
}

fn from_words<T: Element>(seed: u64, out: &mut [u8], number: impl Fn(u32) -> T + Sync) -> Result<()> {
    in_parts(typed_mut::<T>(out)?, &|start, part| {
        // Parts begin at a multiple of four, so a block is never computed twice.
        for (block, four) in (start as u64 / 4..).zip(part.chunks_mut(4)) {
            four.iter_mut().zip(philox(seed, block)).for_each(|(to, word)| *to = number(word));
        }
    });
    Ok(())
}

/// The four words of a block.
pub fn philox(seed: u64, block: u64) -> [u32; 4] {
    let (mut key, mut counter) = (halves(seed), {
        let (low, high) = halves(block);
        [low, high, 0, 0]
    });
    for _ in 0..ROUNDS {
        counter = round(counter, key);
        key = (key.0.wrapping_add(WEYL.0), key.1.wrapping_add(WEYL.1));
    }
    counter
}

pub(super) fn round(c: [u32; 4], key: (u32, u32)) -> [u32; 4] {
    let (low0, high0) = halves(u64::from(MULTIPLIERS.0) * u64::from(c[0]));
    let (low1, high1) = halves(u64::from(MULTIPLIERS.1) * u64::from(c[2]));
    [high1 ^ c[1] ^ key.0, low1, high0 ^ c[3] ^ key.1, low0]
}

#[expect(clippy::cast_possible_truncation, reason = "the halves of a number are what is wanted")]
fn halves(x: u64) -> (u32, u32) {
    (x as u32, (x >> 32) as u32)
}
