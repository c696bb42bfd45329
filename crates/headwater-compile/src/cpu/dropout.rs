//! Which elements a dropout keeps: a pure function of the step, the dropout, the row and the element, so that any thread, the
//! backward pass and a GPU find the same ones.
//!
//! One draw of 64 bits serves four elements. A probability is rounded to a multiple of 2^-16, and what is kept is scaled by
//! the rounded one, so the mean is exact.

use headwater_graph::random::Key;

/// One dropout in one step of a run.
#[derive(Debug, Clone, Copy)]
pub struct Dropout {
    key: Key,
    /// Draws of 16 bits below this are dropped.
    threshold: u64,
}

impl Dropout {
    /// The dropout numbered `key` of the step whose draws come from `step`.
    #[must_use]
    pub fn new(step: Key, key: u64, probability: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 65536")]
        let threshold = (probability.clamp(0.0, 1.0) * 65536.0).round() as u64;
        Self { key: step.of(key), threshold }
    }

    /// Whether element `at`, counted over all rows, is kept.
    #[must_use]
    pub fn keeps(self, at: usize) -> bool {
        let draw = self.key.draw(at as u64 / 4);
        (draw >> (16 * (at % 4))) & 0xffff >= self.threshold
    }

    /// Factors of elements `first` to `first + factors.len()`: 0 or `scale`.
    #[inline(always)]
    pub fn factors(self, first: usize, scale: f32, factors: &mut [f32]) {
        // Whole draws at a time, sixteen of them: a loop that vectors take.
        const DRAWS: usize = 16;
        let skipped = first % 4;
        let mut draw = first as u64 / 4;
        let (mut at, mut from) = (0, skipped);
        while at < factors.len() {
            let mut bits = [0u64; DRAWS];
            for (number, bits) in (draw..).zip(&mut bits) {
                *bits = self.key.draw(number).to_le();
            }
            let parts: [u16; 4 * DRAWS] = bytemuck::cast(bits);
            let own = &mut factors[at..];
            for (factor, part) in own.iter_mut().zip(&parts[from..]) {
                *factor = if u64::from(u16::from_le(*part)) >= self.threshold { scale } else { 0.0 };
            }
            at += 4 * DRAWS - from;
            (from, draw) = (0, draw + DRAWS as u64);
        }
    }

    /// Factors of some elements of a row whose first is element `first`: 0 or `scale`.
    #[inline(always)]
    pub fn factors_at(self, first: usize, columns: &[u32], scale: f32, factors: &mut [f32]) {
        for (factor, column) in factors.iter_mut().zip(columns) {
            let at = first as u64 + u64::from(*column);
            let draw = self.key.draw(at / 4) >> (16 * (at % 4));
            *factor = if draw & 0xffff >= self.threshold { scale } else { 0.0 };
        }
    }

    /// Draws of 16 bits below this are dropped.
    #[must_use]
    pub fn threshold(self) -> u64 {
        self.threshold
    }

    /// What kept elements are multiplied by.
    #[must_use]
    pub fn scale(self) -> f64 {
        if self.threshold < 65536 { 65536.0 / (65536 - self.threshold) as f64 } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_as_many_as_asked_for_and_always_the_same() {
        for probability in [0.0, 0.1, 0.5, 0.6, 0.95] {
            let dropout = Dropout::new(Key::new(7).of(3), 1, probability);
            let kept = (0..100_000).filter(|at| dropout.keeps(*at)).count() as f64 / 1e5;
            let deviation = (probability * (1.0 - probability) / 1e5).sqrt();
            assert!((kept - (1.0 - probability)).abs() <= 5.0 * deviation + 1e-5, "{probability}: {kept}");
            assert!((dropout.scale() * (1.0 - probability) - 1.0).abs() < 2e-4);
        }
        let dropout = Dropout::new(Key::new(7), 1, 0.3);
        for (first, count) in [(0, 200), (1, 63), (2, 64), (3, 1), (130, 67)] {
            let mut factors = vec![9.0; count];
            dropout.factors(first, 2.0, &mut factors);
            let wanted: Vec<f32> = (first..first + count).map(|at| if dropout.keeps(at) { 2.0 } else { 0.0 }).collect();
            assert_eq!(factors, wanted, "from {first}");
            let columns: Vec<u32> = (0..).take(count).collect();
            dropout.factors_at(first, &columns, 2.0, &mut factors);
            assert_eq!(factors, wanted, "one by one from {first}");
        }
        let (one, other) = (Dropout::new(Key::new(7), 1, 0.5), Dropout::new(Key::new(7), 2, 0.5));
        let same = (0..10_000).filter(|at| one.keeps(*at) == other.keeps(*at)).count();
        assert!((4700..5300).contains(&same), "two dropouts of a step are independent: {same}");
    }
}
