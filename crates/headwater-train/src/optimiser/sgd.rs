//! Stochastic gradient descent, with momentum or without, as `torch.optim.SGD` defines it.

use super::Now;

/// Settings of SGD.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sgd {
    /// How much of the last step's direction stays; 0 keeps no memory.
    pub momentum: f64,
    /// Whether to look ahead: the gradient and the momentum it leads to.
    pub nesterov: bool,
}

/// One step with momentum.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    plain: Plain,
    pub(super) momentum: f32,
    nesterov: bool,
}

/// One step without.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain {
    rate: f32,
    decay: f32,
}

impl Sgd {
    #[expect(clippy::cast_possible_truncation, reason = "parameters are f32")]
    pub(super) fn at(self, now: Now) -> Step {
        Step { plain: Plain::new(now), momentum: self.momentum as f32, nesterov: self.nesterov }
    }
}

impl Step {
    /// The step without the momentum of rows that had no gradient for a while.
    pub(super) fn on_rows(self) -> Plain {
        self.plain.on_rows()
    }

    pub(super) fn take(self, values: &mut [f32], gradient: &[f32], momentum: &mut [f32]) {
        for ((value, &gradient), direction) in values.iter_mut().zip(gradient).zip(momentum) {
            let gradient = gradient + self.plain.decay * *value;
            // The first momentum is 0, so the first direction is the gradient.
            *direction = self.momentum * *direction + gradient;
            let way = if self.nesterov { gradient + self.momentum * *direction } else { *direction };
            *value -= self.plain.rate * way;
        }
    }
}

impl Plain {
    #[expect(clippy::cast_possible_truncation, reason = "parameters are f32")]
    pub(super) fn new(now: Now) -> Self {
        Self { rate: now.rate as f32, decay: now.decay as f32 }
    }

    /// The step without decay: rows that are seen more often would decay faster.
    pub(super) fn on_rows(self) -> Self {
        Self { decay: 0.0, ..self }
    }

    pub(super) fn take(self, values: &mut [f32], gradient: &[f32]) {
        for (value, &gradient) in values.iter_mut().zip(gradient) {
            *value -= self.rate * (gradient + self.decay * *value);
        }
    }
}
