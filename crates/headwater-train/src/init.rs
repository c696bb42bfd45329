//! What parameters are before anything is learned.
//!
//! Every number is a pure function of the seed, the parameter's name and the number's position. So a parameter begins the
//! same whatever other parameters the model has, in whatever order they are made and by however many threads.
//!
//! A weight takes rows to rows, `y = x W`: its last two extents are inputs and outputs. The formulas are those of PyG's
//! `inits`.

use headwater_graph::random::Key;
use headwater_tensor::parallel;

/// How a parameter begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// All the same number.
    Constant(f64),
    /// Uniform within `sqrt(6 / (inputs + outputs))`, which keeps the variance of rows in both directions.
    Glorot,
    /// Uniform within `sqrt(6 / ((1 + 5) inputs))`: Kaiming's with slope `sqrt(5)`, what `Linear` layers begin with.
    Kaiming,
    /// Uniform within `1 / sqrt(fan_in)`: what the bias of a `Linear` layer with so many inputs begins with.
    FanIn {
        /// Inputs of the layer.
        fan_in: usize,
    },
    /// Normal around 0.
    Normal {
        /// Standard deviation.
        deviation: f64,
    },
}

impl Init {
    /// The first values of the parameter of this name and shape.
    #[must_use]
    pub fn values(self, seed: u64, name: &str, shape: &[usize]) -> Vec<f32> {
        let key = key_of(seed, name);
        let count = shape.iter().product();
        match self {
            Self::Zeros => vec![0.0; count],
            Self::Ones => vec![1.0; count],
            Self::Constant(number) => fill(count, |_| number),
            Self::Normal { deviation } => fill(count, |at| deviation * normal(key, at)),
            Self::Glorot | Self::Kaiming | Self::FanIn { .. } => {
                let bound = self.bound(shape);
                fill(count, |at| bound * (2.0 * key.unit(at) - 1.0))
            }
        }
    }

    /// Uniform values lie within this.
    fn bound(self, shape: &[usize]) -> f64 {
        let (inputs, outputs) = match *shape {
            [.., inputs, outputs] => (inputs, outputs),
            [outputs] => (1, outputs),
            [] => (1, 1),
        };
        let fan = match self {
            Self::Glorot => (inputs + outputs) as f64 / 6.0,
            Self::FanIn { fan_in } => fan_in as f64,
            _ => inputs as f64,
        };
        // A layer without inputs has a bias of zeros.
        if fan > 0.0 { fan.sqrt().recip() } else { 0.0 }
    }
}

/// The key of a parameter's draws.
fn key_of(seed: u64, name: &str) -> Key {
    let hash = blake3::hash(name.as_bytes());
    let first = hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    Key::new(seed).of(first)
}

/// The draw numbered `at` of the normal distribution, by Box and Muller.
fn normal(key: Key, at: u64) -> f64 {
    // The logarithm wants a number above 0, and the draw is below 1.
    let radius = (-2.0 * (1.0 - key.unit(2 * at)).ln()).sqrt();
    radius * (std::f64::consts::TAU * key.unit(2 * at + 1)).cos()
}

#[expect(clippy::cast_possible_truncation, reason = "parameters are f32")]
fn fill(count: usize, value: impl Fn(u64) -> f64 + Sync) -> Vec<f32> {
    parallel::tabulate(count, |at| value(at as u64) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(values: &[f32]) -> (f64, f64) {
        let count = values.len() as f64;
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / count;
        (mean, values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / count)
    }

    #[test]
    fn uniform_ones_fill_their_bounds() {
        for (init, shape, bound) in [
            (Init::Glorot, vec![300, 100], (6.0f64 / 400.0).sqrt()),
            (Init::Glorot, vec![4, 150, 50], (6.0f64 / 200.0).sqrt()),
            (Init::Glorot, vec![29_999], (6.0f64 / 30_000.0).sqrt()),
            (Init::Kaiming, vec![300, 100], 300.0f64.sqrt().recip()),
            (Init::FanIn { fan_in: 64 }, vec![30_000], 0.125),
        ] {
            let values = init.values(7, "w", &shape);
            let most = values.iter().fold(0.0f32, |most, v| most.max(v.abs()));
            assert!(f64::from(most) <= bound * 1.000_001 && f64::from(most) > bound * 0.999, "{init:?} {most} {bound}");
            let (mean, variance) = moments(&values);
            assert!(mean.abs() < bound * 0.02 && (variance / (bound * bound / 3.0) - 1.0).abs() < 0.03, "{init:?}");
        }
    }

    #[test]
    fn normal_ones_have_the_moments() {
        let values = Init::Normal { deviation: 0.5 }.values(1, "embedding", &[1000, 64]);
        let (mean, variance) = moments(&values);
        assert!(mean.abs() < 0.01 && (variance / 0.25 - 1.0).abs() < 0.03, "{mean} {variance}");
        // A normal number is beyond two deviations with probability 0.0455.
        let far = values.iter().filter(|v| v.abs() > 1.0).count() as f64 / values.len() as f64;
        assert!((far - 0.0455).abs() < 0.004, "{far}");
    }

    #[test]
    fn each_name_and_seed_has_its_own_whatever_the_threads() {
        let shape = [400, 130];
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let many = rayon::ThreadPoolBuilder::new().num_threads(5).build().unwrap();
        for init in [Init::Glorot, Init::Kaiming, Init::Normal { deviation: 1.0 }] {
            let values = one.install(|| init.values(3, "a", &shape));
            assert_eq!(values, many.install(|| init.values(3, "a", &shape)));
            assert_ne!(values, init.values(3, "b", &shape));
            assert_ne!(values, init.values(4, "a", &shape));
        }
    }

    #[test]
    fn plain_and_empty_ones() {
        assert_eq!(Init::Zeros.values(0, "b", &[2, 2]), [0.0; 4]);
        assert_eq!(Init::Ones.values(0, "b", &[3]), [1.0; 3]);
        assert_eq!(Init::Glorot.values(0, "w", &[0, 0]), [0.0; 0]);
        assert_eq!(Init::FanIn { fan_in: 0 }.values(0, "b", &[2]), [0.0; 2]);
        assert_eq!(Init::Glorot.values(0, "scale", &[]).len(), 1);
    }
}
