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
    /// Values in a row that may be no better than the best before the run stops.
    pub rounds: u64,
    /// A value must beat the best by more than this to be better.
    pub min_delta: f64,
}

/// The best value so far, and how long ago it was. Checkpoints keep it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlyStop {
    best: Option<f64>,
    waited: u64,
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
    /// Takes in the next value. One that is not finite is never better.
    pub fn see(&mut self, value: f64, goal: Goal, patience: &Patience) -> Verdict {
        let gain = self.best.map(|best| match goal {
            Goal::Maximise => value - best,
            Goal::Minimise => best - value,
        });
        if value.is_finite() && gain.is_none_or(|gain| gain > patience.min_delta) {
            *self = Self { best: Some(value), waited: 0 };
            return Verdict::Better;
        }
        self.waited = self.waited.saturating_add(1);
        if self.waited >= patience.rounds { Verdict::Stop } else { Verdict::Wait }
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
            let (mut state, patience) = (EarlyStop::default(), Patience { rounds, min_delta });
            for (value, expected) in values {
                // Every state goes through a file on its way.
                let text = serde_json::to_string(&state).unwrap();
                state = serde_json::from_str(&text).unwrap();
                assert_eq!(state.see(*value, goal, &patience), *expected, "{goal:?} {value}");
            }
            assert_eq!(state.best(), best);
        }
    }
}
