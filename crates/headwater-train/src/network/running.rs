//! Moments of the batches that a layer has seen. Inference normalises by them, as torch's `BatchNorm1d` does.

pub mod device;

use crate::array::{Array, check_length};
use crate::error::{Error, Result};

/// The weight of the newest batch.
const MOMENTUM: f64 = 0.1;

/// Running mean and variance of the columns of a layer's output.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Running {
    pub mean: Array,
    pub variance: Array,
}

impl Running {
    /// Of no batch yet: a mean of 0 and a variance of 1.
    pub fn new(layer: usize, width: usize) -> Self {
        let array = |name: &str, value: f32| Array {
            name: format!("layers.{layer}.{name}"),
            shape: vec![width],
            values: vec![value; width],
        };
        Self { mean: array("running_mean", 0.0), variance: array("running_variance", 1.0) }
    }

    /// Takes in a batch of so many rows with these moments. The variance over all rows becomes that of what they are drawn
    /// from; of one row nothing is learnt.
    pub fn see(&mut self, mean: &[f32], variance: &[f32], rows: usize) -> Result<()> {
        check_length("the means of a batch", mean.len(), self.mean.values.len())?;
        check_length("the variances of a batch", variance.len(), self.variance.values.len())?;
        if rows > 1 {
            let unbiased = rows as f64 / (rows - 1) as f64;
            blend(&mut self.mean.values, mean, 1.0);
            blend(&mut self.variance.values, variance, unbiased);
        }
        Ok(())
    }

    /// Takes over what was saved under the same names.
    pub fn restore(&mut self, saved: &mut Vec<Array>) -> Result<()> {
        for own in [&mut self.mean, &mut self.variance] {
            let found = saved.iter().position(|array| array.name == own.name && array.shape == own.shape);
            let Some(at) = found else {
                let difference = format!("it has no buffer {:?} of shape {:?}", own.name, own.shape);
                return Err(Error::OtherModel { difference });
            };
            *own = saved.swap_remove(at);
        }
        Ok(())
    }
}

#[expect(clippy::cast_possible_truncation, reason = "moments are f32")]
fn blend(running: &mut [f32], batch: &[f32], scale: f64) {
    for (running, batch) in running.iter_mut().zip(batch) {
        *running = ((1.0 - MOMENTUM) * f64::from(*running) + MOMENTUM * scale * f64::from(*batch)) as f32;
    }
}
