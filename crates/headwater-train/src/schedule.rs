//! How large a step is when: the learning rate as a pure function of the step.

use std::f64::consts::PI;

/// A learning rate over a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// The full rate.
    pub rate: f64,
    /// What becomes of it.
    pub course: Course,
    /// Steps in which it grows linearly to its full size; 0 begins with all of it.
    pub warmup_steps: u64,
    /// Steps of the whole run.
    pub total_steps: u64,
    /// Steps of an epoch.
    pub epoch_steps: u64,
}

/// What becomes of the full rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Course {
    /// It stays.
    Constant,
    /// It is multiplied by `gamma` after every so many epochs.
    Step {
        /// Epochs between two multiplications; 0 never multiplies.
        every_epochs: u64,
        /// The factor.
        gamma: f64,
    },
    /// It falls along half a cosine, from the end of the warm-up to the end of the run.
    Cosine {
        /// The rate at the end.
        floor: f64,
    },
}

impl Schedule {
    /// The rate of the step numbered `step`, from 0. After the end of the run it stays as it was at the end.
    #[must_use]
    pub fn at(&self, step: u64) -> f64 {
        let full = match self.course {
            Course::Constant => self.rate,
            Course::Step { every_epochs, gamma } => {
                let epoch = step.checked_div(self.epoch_steps).unwrap_or(0);
                let times = epoch.checked_div(every_epochs).unwrap_or(0);
                self.rate * gamma.powf(times as f64)
            }
            Course::Cosine { floor } => floor + (self.rate - floor) * (1.0 + (PI * self.way(step)).cos()) / 2.0,
        };
        if step < self.warmup_steps { full * (step + 1) as f64 / self.warmup_steps as f64 } else { full }
    }

    /// How much of the run after the warm-up is over, from 0 to 1.
    fn way(&self, step: u64) -> f64 {
        let length = self.total_steps.saturating_sub(self.warmup_steps);
        let done = step.saturating_sub(self.warmup_steps).min(length);
        if length == 0 { 0.0 } else { done as f64 / length as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schedule: &Schedule, expected: &[f64]) {
        for (step, &expected) in (0u64..).zip(expected) {
            let found = schedule.at(step);
            assert!((found - expected).abs() < 1e-12, "{schedule:?} at {step}: {found}, expected {expected}");
        }
    }

    #[test]
    fn courses_are_torchs() {
        let plain = Schedule { rate: 0.1, course: Course::Constant, warmup_steps: 0, total_steps: 8, epoch_steps: 1 };
        check(&plain, &[0.1; 9]);
        check(
            &Schedule { course: Course::Cosine { floor: 0.01 }, ..plain },
            &[
                0.1,
                0.0965745789630079,
                0.08681980515339463,
                0.07222075445642905,
                0.055,
                0.03777924554357096,
                0.023180194846605363,
                0.013425421036992097,
                0.01,
                0.01,
            ],
        );
        let halved = Schedule { course: Course::Step { every_epochs: 3, gamma: 0.5 }, ..plain };
        check(&halved, &[0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025]);
        check(&Schedule { epoch_steps: 2, ..halved }, &[0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05]);
    }

    #[test]
    fn warm_up_is_linear_and_comes_first() {
        let plain = Schedule { rate: 0.4, course: Course::Constant, warmup_steps: 4, total_steps: 8, epoch_steps: 1 };
        check(&plain, &[0.1, 0.2, 0.3, 0.4, 0.4]);
        // The cosine begins when the warm-up ends: its middle is two steps later.
        check(&Schedule { course: Course::Cosine { floor: 0.0 }, ..plain }, &[0.1, 0.2, 0.3, 0.4, 0.4]);
        assert!((Schedule { course: Course::Cosine { floor: 0.0 }, ..plain }.at(6) - 0.2).abs() < 1e-12);
        let halved = Schedule { course: Course::Step { every_epochs: 1, gamma: 0.5 }, warmup_steps: 2, ..plain };
        check(&halved, &[0.2, 0.2, 0.1]);
    }

    #[test]
    fn lengths_of_nothing_divide_nothing() {
        for course in [Course::Constant, Course::Step { every_epochs: 0, gamma: 0.5 }, Course::Cosine { floor: 0.0 }] {
            let none = Schedule { rate: 0.1, course, warmup_steps: 0, total_steps: 0, epoch_steps: 0 };
            for step in [0, 1, u64::MAX] {
                assert_eq!(none.at(step), 0.1, "{course:?}");
            }
        }
    }
}
