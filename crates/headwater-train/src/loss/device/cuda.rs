//! The launches of a loss, and the promises about their reach.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Kernel, Param, Scalar, Source, Stream};

use super::{DeviceLoss, DeviceRows, DeviceTargets};
use crate::device::{ONE_BLOCK, SUM, defines, parts_grid};
use crate::error::Result;
use crate::loss::Loss;

static TEXT: Source = Source { name: "loss.cu", text: include_str!("loss.cu"), headers: &[SUM] };

// SAFETY: rows below `room` are touched, `columns` wide; a label is followed only below `columns`.
static CLASSES: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "loss_of_classes",
        &[
            Param::Read("outputs", Element::F32, &["room", "columns"]),
            Param::Read("labels", Element::U32, &["room"]),
            Param::Value("room", Scalar::U64),
            Param::Value("columns", Scalar::U32),
            Param::Read("rows", Element::U32, &[]),
            Param::Read("counted", Element::U32, &[]),
            Param::Write("gradient", Element::F32, &["room", "columns"]),
            Param::Write("parts", Element::Bytes, &["PARTS_BYTES"]),
            Param::Fault,
        ],
    )
};
// SAFETY: as above; weights are read below `columns`, and only with IS_WEIGHTED.
static VALUES: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "loss_of_values",
        &[
            Param::Read("outputs", Element::F32, &["room", "columns"]),
            Param::Read("targets", Element::F32, &["room", "columns"]),
            Param::Read("yes_weights", Element::F32, &["columns", "IS_WEIGHTED"]),
            Param::Value("room", Scalar::U64),
            Param::Value("columns", Scalar::U32),
            Param::Read("rows", Element::U32, &[]),
            Param::Read("counted", Element::U32, &[]),
            Param::Write("gradient", Element::F32, &["room", "columns"]),
            Param::Write("parts", Element::Bytes, &["PARTS_BYTES"]),
            Param::Fault,
        ],
    )
};
// SAFETY: sums below PARTS are read, one number written.
static MEAN: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "mean_loss",
        &[
            Param::Read("parts", Element::Bytes, &["PARTS_BYTES"]),
            Param::Value("blocks", Scalar::U32),
            Param::Read("counted", Element::U32, &[]),
            Param::Write("mean", Element::U64, &[]),
        ],
    )
};

/// Queues the loss of some rows.
pub(super) fn queue(stream: &Stream, loss: &DeviceLoss, rows: &DeviceRows<'_>, room: usize) -> Result<()> {
    // A warp a row of classes, a thread a value.
    let threads = match rows.targets {
        DeviceTargets::Classes(_) => 32 * room,
        DeviceTargets::Values(_) => loss.columns as usize * room,
    };
    let summing = parts_grid(threads);
    let defines = loss_defines(loss.loss, loss.yes_weights.is_some());
    match rows.targets {
        DeviceTargets::Classes(labels) => {
            CLASSES.on(stream, &defines, summing).buffer(rows.outputs, Element::F32).buffer(labels, Element::U32)
        }
        DeviceTargets::Values(values) => VALUES
            .on(stream, &defines, summing)
            .buffer(rows.outputs, Element::F32)
            .buffer(values, Element::F32)
            .buffer(loss.yes_weights.as_ref().unwrap_or(&loss.mean), Element::F32),
    }
    .u64(room as u64)
    .u32(loss.columns)
    .buffer(rows.rows, Element::U32)
    .buffer(rows.counted, Element::U32)
    .buffer(rows.gradient, Element::F32)
    .bytes(&loss.parts)
    .go()?;
    MEAN.on(stream, &defines, ONE_BLOCK)
        .bytes(&loss.parts)
        .u32(summing.blocks)
        .buffer(rows.counted, Element::U32)
        .buffer(&loss.mean, Element::U64)
        .go()?;
    Ok(())
}

fn loss_defines(loss: Loss, is_weighted: bool) -> Defines {
    let kinds = defines().with("IS_LOG", u32::from(loss == Loss::Nll)).with("IS_BINARY", u32::from(loss == Loss::Bce));
    kinds.with("IS_WEIGHTED", u32::from(is_weighted))
}

/// The text with every loss.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let plain = [Loss::CrossEntropy, Loss::Nll, Loss::Bce].map(|loss| (&TEXT, loss_defines(loss, false)));
    plain.into_iter().chain([(&TEXT, loss_defines(Loss::Bce, true))]).collect()
}
