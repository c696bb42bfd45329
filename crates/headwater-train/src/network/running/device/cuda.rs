//! The launch that takes in a batch, and the promise about its reach.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Kernel, Param, Scalar, Source, Stream};

use super::super::MOMENTUM;
use super::{BatchMoments, DeviceRunning};
use crate::device::{ONE_BLOCK, defines};
use crate::error::Result;

static TEXT: Source = Source { name: "running.cu", text: include_str!("running.cu"), headers: &[] };

// SAFETY: columns below `width` are touched.
static SEE: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "see",
        &[
            Param::Read("batch_mean", Element::F32, &["width"]),
            Param::Read("batch_variance", Element::F32, &["width"]),
            Param::Value("width", Scalar::U32),
            Param::Read("rows", Element::U32, &[]),
            Param::Value("momentum", Scalar::F64),
            Param::Write("mean", Element::F32, &["width"]),
            Param::Write("variance", Element::F32, &["width"]),
        ],
    )
};

/// Queues a batch.
pub(super) fn see(stream: &Stream, running: &DeviceRunning, batch: &BatchMoments<'_>) -> Result<()> {
    SEE.on(stream, &defines(), ONE_BLOCK)
        .buffer(batch.mean, Element::F32)
        .buffer(batch.variance, Element::F32)
        .u32(running.width)
        .buffer(batch.rows, Element::U32)
        .f64(MOMENTUM)
        .buffer(&running.mean, Element::F32)
        .buffer(&running.variance, Element::F32)
        .go()?;
    Ok(())
}

/// The text with the defines it is launched with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    vec![(&TEXT, defines())]
}
