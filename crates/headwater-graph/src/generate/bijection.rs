//! A keyed shuffle of the numbers below a count, without a table: both directions are computed.
//!
//! Rounds of addition, odd multiplication and a right shift, each of which can be undone, shuffle the next power of two.
//! A number that lands outside the count is shuffled again until it is inside, which is less than twice on average.

use crate::random::Key;

const ROUNDS: usize = 4;

/// One shuffle.
#[derive(Debug, Clone)]
pub struct Bijection {
    count: u64,
    mask: u64,
    shift: u32,
    rounds: Vec<Round>,
}

#[derive(Debug, Clone)]
struct Round {
    add: u64,
    multiply: u64,
    divide: u64,
}

impl Bijection {
    /// A shuffle of the numbers below `count`.
    #[must_use]
    pub fn new(key: Key, count: u64) -> Self {
        let round = |at| {
            let multiply = key.draw(2 * at) | 1;
            Round { add: key.draw(2 * at + 1), multiply, divide: inverse_of_odd(multiply) }
        };
        Self { rounds: (0..ROUNDS as u64).map(round).collect(), ..Self::identity(count) }
    }

    /// Nothing moves.
    #[must_use]
    pub fn identity(count: u64) -> Self {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        let mask = if bits == 0 { 0 } else { u64::MAX >> (64 - bits) };
        Self { count, mask, shift: bits.div_ceil(2), rounds: Vec::new() }
    }

    /// Where a number below the count goes.
    #[must_use]
    pub fn forward(&self, mut number: u64) -> u64 {
        loop {
            for round in &self.rounds {
                number = number.wrapping_add(round.add).wrapping_mul(round.multiply) & self.mask;
                number ^= number >> self.shift;
            }
            if number < self.count || self.count == 0 {
                return number;
            }
        }
    }

    /// Where it came from.
    #[must_use]
    pub fn back(&self, mut number: u64) -> u64 {
        loop {
            for round in self.rounds.iter().rev() {
                // The shift is at least half the width, so doing it again undoes it.
                number ^= number >> self.shift;
                number = number.wrapping_mul(round.divide).wrapping_sub(round.add) & self.mask;
            }
            if number < self.count || self.count == 0 {
                return number;
            }
        }
    }
}

/// The number that undoes multiplication by an odd number modulo 2^64. Each step doubles the bits that are right.
fn inverse_of_odd(odd: u64) -> u64 {
    let step = |inverse: u64, _| inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
    (0..6).fold(odd, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_met_once_and_found_again() {
        for count in [1, 2, 3, 7, 64, 65, 1000, 4096, 10_007] {
            let shuffle = Bijection::new(Key::new(count), count);
            let mut met: Vec<u64> = (0..count).map(|number| shuffle.forward(number)).collect();
            assert!((0..count).all(|number| shuffle.back(shuffle.forward(number)) == number), "{count}");
            if count > 100 {
                let stayed = met.iter().enumerate().filter(|(at, number)| *at as u64 == **number).count();
                assert!(stayed < 12, "{stayed} of {count} stayed");
            }
            met.sort_unstable();
            assert!(met.iter().copied().eq(0..count), "{count}");
        }
        let wide = Bijection::new(Key::new(1), (1 << 40) + 17);
        assert!((0..1000).all(|number| wide.back(wide.forward(number << 30)) == number << 30));
        assert_eq!(Bijection::identity(9).forward(5), 5);
    }
}
