//! When to stop because nothing gets better.

use serde::{Deserialize, Serialize};

/// What is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// More, as of an accuracy.
    Maximise,
    /// Less, as of a loss.
    Minimise,
}

/// How long to wait for what.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Patience {
    /// Epochs that may be no better than the best before the run stops.
    pub epochs: u64,
    /// A value must beat the best by more than this to be better.
    pub min_delta: f64,
}

/// The best value so far, and how long ago it was. Checkpoints keep it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlyStop {
    best: Option<f64>,
    /// Epochs since then, as of the last value.
    waited: u64,
    /// The epoch of the best, from 1; 0 before there is one.
    #[serde(default)]
    reached: u64,
}

/// What a value means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is the best so far.
    Better,
    /// It is not; there is patience left.
    Wait,
    /// It is not, and that has been so for too long.
    Stop,
}

impl EarlyStop {
    /// Takes in the value after so many epochs. One that is not finite is never better. Epochs without a value count too:
    /// they brought nothing better.
    pub fn see(&mut self, value: f64, epoch: u64, goal: Goal, patience: &Patience) -> Verdict {
        let gain = self.best.map(|best| match goal {
            Goal::Maximise => value - best,
            Goal::Minimise => best - value,
        });
        if value.is_finite() && gain.is_none_or(|gain| gain > patience.min_delta) {
            *self = Self { best: Some(value), waited: 0, reached: epoch };
            return Verdict::Better;
        }
        // Of a best whose epoch was not kept, values are counted.
        let is_known = self.best.is_none() || self.reached > 0;
        self.waited = if is_known { epoch.saturating_sub(self.reached) } else { self.waited.saturating_add(1) };
        if self.waited >= patience.epochs { Verdict::Stop } else { Verdict::Wait }
    }

    /// The best value so far.
    #[must_use]
    pub fn best(&self) -> Option<f64> {
        self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Better, Stop, Wait};

    #[test]
    fn verdicts() {
        let nan = f64::NAN;
        let cases = [
            (
                Goal::Maximise,
                2,
                0.0,
                &[(0.5, Better), (0.5, Wait), (0.6, Better), (0.1, Wait), (0.6, Stop)][..],
                Some(0.6),
            ),
            (Goal::Minimise, 2, 0.0, &[(0.5, Better), (0.4, Better), (0.4, Wait), (0.5, Stop)], Some(0.4)),
            (Goal::Maximise, 2, 0.125, &[(0.5, Better), (0.625, Wait), (0.626, Better)], Some(0.626)),
            (Goal::Minimise, 1, 0.125, &[(0.5, Better), (0.4, Stop)], Some(0.5)),
            (Goal::Minimise, 2, 0.0, &[(nan, Wait), (3.0, Better), (nan, Wait), (f64::NEG_INFINITY, Stop)], Some(3.0)),
            (Goal::Maximise, 0, 0.0, &[(nan, Stop)], None),
        ];
        for (goal, rounds, min_delta, values, best) in cases {
            let (mut state, patience) = (EarlyStop::default(), Patience { epochs: rounds, min_delta });
            for (epoch, (value, expected)) in (1..).zip(values) {
                // Every state goes through a file on its way.
                let text = serde_json::to_string(&state).unwrap();
                state = serde_json::from_str(&text).unwrap();
                assert_eq!(state.see(*value, epoch, goal, &patience), *expected, "{goal:?} {value}");
            }
            assert_eq!(state.best(), best);
        }
    }

    #[test]
    fn patience_is_counted_in_epochs_whenever_values_come() {
        let patience = Patience { epochs: 6, min_delta: 0.0 };
        let mut state = EarlyStop::default();
        let mut see = |epoch: u64, value: f64| state.see(value, epoch, Goal::Maximise, &patience);
        assert_eq!([see(5, 0.5), see(10, 0.4), see(11, 0.3), see(15, 0.5)], [Better, Wait, Stop, Stop]);
        // One that was kept before epochs were goes on by values.
        let mut old: EarlyStop = serde_json::from_str(r#"{"best": 0.5, "waited": 4}"#).unwrap();
        assert_eq!([100, 105].map(|epoch| old.see(0.4, epoch, Goal::Maximise, &patience)), [Wait, Stop]);
        // Without anything good from the beginning, all epochs were waited for.
        assert_eq!(EarlyStop::default().see(f64::NAN, 6, Goal::Maximise, &patience), Stop);
    }
}
