//! Running moments on the GPU: what [`Running`](super::Running) makes of the same batches, to the bit.

mod cuda;
#[cfg(test)]
mod tests;

use headwater_cuda::{Span, Stream};

pub use cuda::kernel_builds;

use crate::device::copy_of;
use crate::error::{Error, Result};

/// Running mean and variance of the columns of a layer's output, in device memory.
#[derive(Debug)]
pub struct DeviceRunning {
    width: u32,
    mean: Span,
    variance: Span,
}

/// The moments of a batch, in device memory.
#[derive(Debug, Clone, Copy)]
pub struct BatchMoments<'a> {
    /// The mean of each column, f32.
    pub mean: &'a Span,
    /// The variance of each column over all rows.
    pub variance: &'a Span,
    /// How many rows there were: one u32.
    pub rows: &'a Span,
}

impl DeviceRunning {
    /// A copy of these moments.
    pub fn new(stream: &Stream, mean: &[f32], variance: &[f32]) -> Result<Self> {
        crate::array::check_length("the running variance", variance.len(), mean.len())?;
        let width = u32::try_from(mean.len()).map_err(|_| Error::Setting {
            field: "the number of columns",
            value: mean.len().to_string(),
            expected: "less than 2^32".to_owned(),
        })?;
        let copy = |values: &[f32]| copy_of(stream, bytemuck::cast_slice(values));
        Ok(Self { width, mean: copy(mean)?, variance: copy(variance)? })
    }

    /// Queues that a batch is taken in. Of less than two rows nothing is learnt.
    pub fn see(&self, stream: &Stream, batch: BatchMoments<'_>) -> Result<()> {
        cuda::see(stream, self, &batch)
    }

    /// The running mean, f32.
    #[must_use]
    pub fn mean(&self) -> &Span {
        &self.mean
    }

    /// The running variance, f32.
    #[must_use]
    pub fn variance(&self) -> &Span {
        &self.variance
    }
}
