//! Adam and AdamW, as `torch.optim` defines them: bias correction of both moments, and `epsilon` outside of the root.

use super::Now;

/// Settings of Adam and AdamW.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adam {
    /// How much of the mean of gradients stays at each step.
    pub beta1: f64,
    /// How much of the mean of their squares stays.
    pub beta2: f64,
    /// What keeps the quotient finite where gradients are 0.
    pub epsilon: f64,
}

impl Default for Adam {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }
    }
}

/// One step: the numbers that are the same for all elements, worked out in f64 once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// Share of the gradient in the new mean.
    pub(super) fresh_mean: f32,
    pub(super) beta2: f32,
    /// Share of the gradient's square in the new mean of squares.
    pub(super) fresh_square: f32,
    pub(super) epsilon: f32,
    /// The learning rate over the correction of the mean.
    pub(super) rate: f32,
    /// Root of the correction of the squares.
    pub(super) root: f32,
    /// Decay that is added to the gradient.
    decay: f32,
    /// What is left of the parameter by decay of its own.
    keep: f32,
}

impl Adam {
    /// A step whose decay is a part of the gradient.
    #[expect(clippy::cast_possible_truncation, reason = "parameters are f32")]
    pub(super) fn at(self, now: Now) -> Step {
        let exponent = now.step as f64;
        Step {
            fresh_mean: (1.0 - self.beta1) as f32,
            beta2: self.beta2 as f32,
            fresh_square: (1.0 - self.beta2) as f32,
            epsilon: self.epsilon as f32,
            rate: (now.rate / (1.0 - self.beta1.powf(exponent))) as f32,
            root: (1.0 - self.beta2.powf(exponent)).sqrt() as f32,
            decay: now.decay as f32,
            keep: 1.0,
        }
    }

    /// A step whose decay shrinks the parameter before it moves.
    #[expect(clippy::cast_possible_truncation, reason = "parameters are f32")]
    pub(super) fn decoupled_at(self, now: Now) -> Step {
        Step { decay: 0.0, keep: (1.0 - now.rate * now.decay) as f32, ..self.at(now) }
    }
}

impl Step {
    /// The step as `SparseAdam` takes it: without decay, and with `epsilon` inside of the correction.
    pub(super) fn on_rows(self) -> Self {
        Self { decay: 0.0, keep: 1.0, epsilon: self.epsilon / self.root, ..self }
    }

    pub(super) fn take(self, values: &mut [f32], gradient: &[f32], mean: &mut [f32], square: &mut [f32]) {
        let moments = mean.iter_mut().zip(square);
        for ((value, &gradient), (mean, square)) in values.iter_mut().zip(gradient).zip(moments) {
            let kept = self.keep * *value;
            let gradient = gradient + self.decay * kept;
            *mean += self.fresh_mean * (gradient - *mean);
            *square = self.beta2 * *square + self.fresh_square * gradient * gradient;
            *value = kept - self.rate * (*mean / (square.sqrt() / self.root + self.epsilon));
        }
    }
}
