//! The exponential of what is not positive.
//!
//! Losses only ever need that half: outputs are shifted by their maximum, or taken by their size. It is a polynomial
//! without branches or calls, so loops over it become vectors, and it gives the same bits whatever C library there is.

/// Below this the result is no normal number; it counts as 0.
const LEAST: f32 = -87.3;
/// Added to a small number, it leaves that number rounded in its lowest bits.
const ROUNDING: f32 = 12_582_912.0;
/// The logarithm of 2 as a sum whose first part has few bits, so that small multiples of it are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// 1 / k! from k = 7 down to 0: within half of ln 2 the rest is below the last bit.
const TERMS: [f32; 8] = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];

/// `exp(x)` for x up to 0, to two units in the last place. What is not a number stays so.
pub(super) fn exp_of_negative(x: f32) -> f32 {
    // With n = x / ln 2 rounded: exp(x) = 2^n exp(x - n ln 2).
    let bounded = if x < LEAST { LEAST } else { x };
    let shifted = bounded * std::f32::consts::LOG2_E + ROUNDING;
    let whole = shifted - ROUNDING;
    let rest = (bounded - whole * LN_2_HIGH) - whole * LN_2_LOW;
    let power = TERMS.iter().fold(0.0, |sum, term| sum * rest + term);
    // The lowest bits of `shifted` are n, and the exponent of a float begins at bit 23.
    let scaled = f32::from_bits(power.to_bits().wrapping_add(shifted.to_bits() << 23));
    if x < LEAST {
        0.0
    } else if x.is_nan() {
        x
    } else {
        scaled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_exponential() {
        for i in 0..50_000u16 {
            let x = -f32::from(i) * 87.25 / 50_000.0;
            let (found, expected) = (f64::from(exp_of_negative(x)), f64::from(x).exp());
            assert!((found - expected).abs() <= 2.0 * f64::from(f32::EPSILON) * expected, "{x}: {found} {expected}");
        }
        for (x, expected) in [(0.0, 1.0), (-0.0, 1.0), (-88.0, 0.0), (f32::MIN, 0.0), (f32::NEG_INFINITY, 0.0)] {
            assert_eq!(exp_of_negative(x), expected, "{x}");
        }
        assert!(exp_of_negative(f32::NAN).is_nan() && exp_of_negative(-f32::NAN).is_nan());
    }
}
