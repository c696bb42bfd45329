//! Losses on the GPU: what [`Loss::of`](super::Loss::of) computes, of outputs that lie there.
//!
//! The gradient is equal to the last few bits; the mean is summed in f64, in the same order on every GPU. How many rows
//! there are and how many targets count is read from device memory, so that what was recorded serves every batch that
//! fits.
//!
//! Labels outside of the classes are reported by the next synchronisation of the stream and do not count. Whether
//! values are such as can be aimed at is for whoever brings them there to check.

mod cuda;
#[cfg(test)]
mod tests;

use headwater_cuda::{Span, Stream};

pub use cuda::kernel_builds;

use super::Loss;
use crate::array::check_length;
use crate::device::{PARTS_BYTES, copy_of, zeros};
use crate::error::{Error, Result};

/// What rows should be, in device memory.
#[derive(Debug, Clone, Copy)]
pub enum DeviceTargets<'a> {
    /// The class of each row, i32; -1 is none.
    Classes(&'a Span),
    /// A number for each output, f32. One that is not a number is none.
    Values(&'a Span),
}

/// Outputs of a model and what they should be, in device memory.
#[derive(Debug, Clone, Copy)]
pub struct DeviceRows<'a> {
    /// The outputs, f32, row by row; as many as there could be.
    pub outputs: &'a Span,
    /// What they should be.
    pub targets: DeviceTargets<'a>,
    /// How many rows there are: one u32.
    pub rows: &'a Span,
    /// How many targets count: one u32. Rows for losses of classes, single outputs for the others.
    pub counted: &'a Span,
    /// Where the gradient goes. What lies behind the last row stays.
    pub gradient: &'a Span,
}

/// A loss on one GPU.
#[derive(Debug)]
pub struct DeviceLoss {
    loss: Loss,
    columns: u32,
    yes_weights: Option<Span>,
    parts: Span,
    mean: Span,
}

impl DeviceLoss {
    /// Of rows of so many outputs. A yes in a column of [`Loss::Bce`] weighs as much as the column's weight says.
    pub fn new(stream: &Stream, loss: Loss, columns: usize, yes_weights: Option<&[f32]>) -> Result<Self> {
        let width = u32::try_from(columns).ok().filter(|columns| *columns > 0);
        let Some(width) = width else {
            let expected = "1 or more, and less than 2^32".to_owned();
            return Err(Error::Setting { field: "the number of outputs a row", value: columns.to_string(), expected });
        };
        // No other loss has weights.
        let yes_weights = yes_weights.filter(|_| loss == Loss::Bce);
        if let Some(weights) = yes_weights {
            check_length("the list of weights of columns", weights.len(), columns)?;
        }
        let copy = |weights: &[f32]| copy_of(stream, bytemuck::cast_slice(weights));
        let yes_weights = yes_weights.map(copy).transpose()?;
        Ok(Self { loss, columns: width, yes_weights, parts: zeros(stream, PARTS_BYTES)?, mean: zeros(stream, 8)? })
    }

    /// Queues the loss of these rows: its mean, and the gradient of that.
    pub fn of(&self, stream: &Stream, rows: DeviceRows<'_>) -> Result<()> {
        let by_class = matches!(self.loss, Loss::CrossEntropy | Loss::Nll);
        match (by_class, rows.targets) {
            (true, DeviceTargets::Values(_)) => return Err(self.unfit("one class a row", "a number for each output")),
            (false, DeviceTargets::Classes(_)) => return Err(self.unfit("a number for each output", "one class a row")),
            _ => {}
        }
        let room = rows.outputs.bytes() / (4 * self.columns as usize);
        cuda::queue(stream, self, &rows, room)
    }

    fn unfit(&self, expected: &'static str, found: &str) -> Error {
        Error::TargetKind { what: self.loss.name(), expected, found: found.to_owned() }
    }

    /// The mean over all targets of the last rows, one f64; 0 when there were none.
    #[must_use]
    pub fn mean(&self) -> &Span {
        &self.mean
    }
}
