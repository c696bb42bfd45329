//! The launch of the scales, and the promise about its reach.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_compile::inter::{Domain, Side};
use headwater_cuda::{Defines, Element, Kernel, Param, Scalar, Source, Span, Stream};

use super::DeviceScales;
use crate::device::{defines, grid};
use crate::error::Result;

static TEXT: Source = Source { name: "scales.cu", text: include_str!("scales.cu"), headers: &[] };

// SAFETY: degrees are read below `nodes`, ids and scales of sources touched below `src_room`, scales of targets below
// `dst_room`, and starts below `dst_slots`.
static SCALES: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "scales",
        &[
            Param::Read("degrees", Element::F32, &["nodes"]),
            Param::Value("nodes", Scalar::U64),
            Param::Read("ids", Element::U64, &["src_room"]),
            Param::Value("src_room", Scalar::U32),
            Param::Read("counts", Element::U32, &["COUNTS"]),
            Param::Read("dst_starts", Element::U32, &["dst_slots"]),
            Param::Value("dst_slots", Scalar::U32),
            Param::Value("dst_room", Scalar::U32),
            Param::Write("src_scale", Element::F32, &["src_room"]),
            Param::Write("dst_scale", Element::F32, &["dst_room"]),
            Param::Write("self_scale", Element::F32, &["dst_room"]),
            Param::Fault,
        ],
    )
};

/// What scales are made of: degrees of all nodes, ids of a block's, its counts, and where its targets' edges begin.
pub(super) struct Inputs<'a> {
    pub degrees: &'a Span,
    pub ids: &'a Span,
    pub counts: &'a Span,
    pub dst_starts: &'a Span,
}

/// Queues the scales.
pub(super) fn queue(stream: &Stream, scales: &DeviceScales, from: &Inputs<'_>) -> Result<()> {
    let words = |span: &Span| u32::try_from(span.bytes() / 4).unwrap_or(u32::MAX);
    let ids = u32::try_from(from.ids.bytes() / 8).unwrap_or(u32::MAX);
    let src_room = words(&scales.src).min(ids);
    SCALES
        .on(stream, &scales_defines(), grid(stream, src_room as usize))
        .buffer(from.degrees, Element::F32)
        .u64((from.degrees.bytes() / 4) as u64)
        .buffer(from.ids, Element::U64)
        .u32(src_room)
        .buffer(from.counts, Element::U32)
        .buffer(from.dst_starts, Element::U32)
        .u32(words(from.dst_starts))
        .u32(words(&scales.dst))
        .buffer(&scales.src, Element::F32)
        .buffer(&scales.dst, Element::F32)
        .buffer(&scales.own, Element::F32)
        .go()?;
    Ok(())
}

fn scales_defines() -> Defines {
    let at = |domain| Domain::ALL.iter().position(|own| *own == domain).unwrap_or(0);
    let places = defines().with("SRC_AT", at(Domain::Node(Side::Src))).with("DST_AT", at(Domain::Node(Side::Dst)));
    places.with("COUNTS", Domain::ALL.len())
}

/// The text with the defines it is launched with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    vec![(&TEXT, scales_defines())]
}
