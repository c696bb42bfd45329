//! Random numbers as a pure function of what they are for.
//!
//! A draw is named by a key and a counter, so any thread, on the CPU or on a GPU, computes any draw by itself and finds
//! the same number. The mixing function is SplitMix64's finaliser; `random.cuh` is its twin, and both are integers only.
//! Bounded draws are exact: Lemire's multiplication with rejection.

/// Name and text of the twin, for the sources of kernels that draw.
pub const CUDA_HEADER: (&str, &str) = ("random.cuh", include_str!("random.cuh"));

/// What makes two streams of draws different.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(u64);

/// An odd number far from any pattern: the golden ratio of 2^64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Key {
    /// A key from a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x6865_6164_7761_7465))
    }

    /// The key of a part: of an epoch, a batch, a hop, a node.
    #[must_use]
    pub const fn of(self, part: u64) -> Self {
        Self(mix(self.0.wrapping_add(STEP) ^ mix(part.wrapping_add(STEP))))
    }

    /// The bits of the key, for kernels.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The draw numbered `counter`: 64 random bits.
    #[must_use]
    #[inline]
    pub const fn draw(self, counter: u64) -> u64 {
        mix(self.0.wrapping_add(counter.wrapping_add(1).wrapping_mul(STEP)))
    }

    /// The draw numbered `counter`, uniform below `limit`, which is not 0.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "both halves of the product are meant")]
    pub const fn below(self, counter: u64, limit: u64) -> u64 {
        let wide = self.draw(counter) as u128 * limit as u128;
        let low = wide as u64;
        if low < limit { self.below_again(counter, limit, wide) } else { (wide >> 64) as u64 }
    }

    /// The rare part of `below`: the products that some results have one more of than others are drawn again.
    #[cold]
    #[expect(clippy::cast_possible_truncation, reason = "both halves of the product are meant")]
    const fn below_again(self, counter: u64, limit: u64, mut wide: u128) -> u64 {
        let uneven = limit.wrapping_neg() % limit;
        let mut again = self.of(counter);
        while (wide as u64) < uneven {
            again = again.of(0);
            wide = again.0 as u128 * limit as u128;
        }
        (wide >> 64) as u64
    }

    /// The draw numbered `counter`, uniform in [0, 1) in steps of 2^-53.
    #[must_use]
    pub const fn unit(self, counter: u64) -> f64 {
        (self.draw(counter) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

/// SplitMix64's finaliser: a bijection whose every output bit depends on every input bit.
#[must_use]
pub const fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
