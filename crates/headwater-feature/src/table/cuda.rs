//! The launch of a gather over tiers, and the promise how far its text reaches.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Grid, Kernel, KernelStruct, Param, Source, Span, Stream};
use headwater_tensor::gather::plan::Lanes;
use headwater_tensor::gather::{BUCKETS_LOG2, IdType, LINES_HEADER};

use super::layout::MOST_MEMBERS;
use crate::error::Result;
use crate::rows::Stored;

static TEXT: Source = Source { name: "serve.cu", text: include_str!("serve.cu"), headers: &[LINES_HEADER] };

const MEMBER: &[&str] = &["tiers.1"];
// SAFETY: each part is read below its rows times the stride, ids and places below `count`, scales below `scale_rows`,
// bucket ends below BUCKETS; output rows are written below `count`.
static SERVE: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "serve",
        &[
            Param::Struct("tiers", size_of::<Tiers>()),
            Param::Read("replicated", Element::Bytes, &["tiers.0"]),
            Param::Read("m0", Element::Bytes, MEMBER),
            Param::Read("m1", Element::Bytes, MEMBER),
            Param::Read("m2", Element::Bytes, MEMBER),
            Param::Read("m3", Element::Bytes, MEMBER),
            Param::Read("m4", Element::Bytes, MEMBER),
            Param::Read("m5", Element::Bytes, MEMBER),
            Param::Read("m6", Element::Bytes, MEMBER),
            Param::Read("m7", Element::Bytes, MEMBER),
            Param::Read("host", Element::Bytes, &["tiers.2"]),
            Param::Read("scales", Element::F32, &["tiers.3"]),
            Param::Read("rows", Element::Bytes, &["tiers.4", "ROW_BYTES"]),
            Param::Read("places", Element::U32, &["tiers.4", "ORDERED"]),
            Param::Read("bucket_ends", Element::U32, &["BUCKETS", "ORDERED"]),
            Param::Write("out", Element::Bytes, &["tiers.5", "OUT_BYTES"]),
            Param::Write("claimed", Element::U64, &[]),
            Param::Write("served", Element::U64, &["TIERS"]),
            Param::Fault,
        ],
    )
};

/// Tiers that the kernel serves from.
pub(super) const TIERS: usize = 3;

/// The same struct stands in `serve.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Tiers {
    pub rows: u64,
    pub replicated_end: u64,
    pub interleaved_end: u64,
    pub width: u64,
    pub stride: u64,
    pub elements: u64,
    pub count: u64,
    pub chunks: u64,
    pub link_blocks: u64,
    pub cold_bucket: u64,
    pub replicated_rows: u64,
    pub share_rows: u64,
    pub host_rows: u64,
    pub scale_rows: u64,
}

// SAFETY: 64-bit words in the order of the text; the extents are the lengths the text compares with.
unsafe impl KernelStruct for Tiers {
    fn extents(&self) -> Vec<u64> {
        let bytes = |rows: u64| rows.saturating_mul(self.stride);
        let out = self.count.saturating_mul(self.elements);
        let parts = [bytes(self.replicated_rows), bytes(self.share_rows), bytes(self.host_rows)];
        [&parts[..], &[self.scale_rows, self.count, out]].concat()
    }
}

/// What a launch reads and writes.
pub(super) struct Buffers<'a> {
    pub replicated: &'a Span,
    pub members: &'a [Span],
    pub host: &'a Span,
    pub scales: &'a Span,
    pub rows: &'a Span,
    /// Places and ends of buckets, when rows are in order.
    pub order: Option<(&'a Span, &'a Span)>,
    pub out: &'a Span,
    pub claimed: &'a Span,
    pub served: &'a Span,
}

/// How the kernel is compiled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Build {
    pub row_type: IdType,
    pub ordered: bool,
    pub lanes: Lanes,
    pub threads: u32,
    pub stored: Stored,
    pub out: Stored,
    pub members: u64,
}

impl Build {
    fn defines(self) -> Defines {
        let row = Defines::new().with("ROW", self.row_type.in_kernels()).with("ROW_BYTES", self.row_type.size_bytes());
        let lanes = row.with("LANES", self.lanes.per_row).with("DEPTH", self.lanes.depth);
        let lanes = lanes.with("PIECE_BYTES", self.lanes.piece_bytes).with("ORDERED", u32::from(self.ordered));
        let types = lanes.with("STORED", self.stored.in_kernels()).with("OUT", self.out.in_kernels());
        let types = types.with("OUT_BYTES", self.out.bytes()).with("MEMBERS", self.members);
        types.with("THREADS", self.threads).with("BUCKETS", 1u32 << BUCKETS_LOG2).with("TIERS", TIERS)
    }
}

/// Queues the gather.
pub(super) fn serve(stream: &Stream, build: Build, blocks: u32, tiers: &Tiers, buffers: &Buffers<'_>) -> Result<()> {
    let defines = build.defines();
    let grid = Grid { blocks, threads: build.threads, shared_bytes: 0 };
    let launch = SERVE.on(stream, &defines, grid).structure(tiers).bytes(buffers.replicated);
    let members = buffers.members.iter().cycle().take(MOST_MEMBERS);
    let launch = members.fold(launch, |launch, member| launch.bytes(member));
    let launch = launch.bytes(buffers.host).buffer(buffers.scales, Element::F32).bytes(buffers.rows);
    // Lists that are not read still need an address.
    let (places, ends) = buffers.order.unwrap_or((buffers.claimed, buffers.claimed));
    let launch = launch.buffer(places, Element::U32).buffer(ends, Element::U32).bytes(buffers.out);
    Ok(launch.buffer(buffers.claimed, Element::U64).buffer(buffers.served, Element::U64).go()?)
}

/// The text with some of the defines it is launched with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let lanes = |piece_bytes| Lanes { per_row: 32, span_bytes: 512, depth: 4, piece_bytes };
    let build = |stored, out, ordered, piece_bytes| {
        let row_type = if ordered { IdType::U32 } else { IdType::I64 };
        Build { row_type, ordered, lanes: lanes(piece_bytes), threads: 512, stored, out, members: 3 }
    };
    let same =
        [(16, true), (4, false), (1, true)].map(|(piece, ordered)| build(Stored::F16, Stored::F16, ordered, piece));
    let others = Stored::ALL.into_iter().flat_map(|stored| {
        let outs = [Stored::F32, Stored::F16, Stored::Bf16].into_iter().filter(move |out| *out != stored);
        outs.map(move |out| build(stored, out, true, 16))
    });
    same.into_iter().chain(others).map(|build| (&TEXT, build.defines())).collect()
}
