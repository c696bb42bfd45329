//! The launch of a gather over tiers, and the promise how far its text reaches.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Grid, Kernel, KernelStruct, Param, Scalar, Source, Span, Stream};
use headwater_tensor::gather::plan::Lanes;
use headwater_tensor::gather::{BUCKETS_LOG2, IdType, LINES_HEADER};

use super::layout::MOST_MEMBERS;
use crate::error::Result;
use crate::rows::Stored;

static TEXT: Source = Source { name: "serve.cu", text: include_str!("serve.cu"), headers: &[LINES_HEADER] };
static LOOKUP_TEXT: Source = Source { name: "lookup.cu", text: include_str!("lookup.cu"), headers: &[] };

// SAFETY: each part is read below its rows times the stride, ids and places below `count`, scales below `scale_rows`,
// bucket ends up to BUCKETS; output rows are written below `out_rows`, reads below `read_rows`.
static SERVE: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "serve",
        &[
            Param::Struct("tiers", size_of::<Tiers>()),
            Param::Read("replicated", Element::Bytes, &["tiers.0"]),
            Param::Read("m0", Element::Bytes, &["tiers.6"]),
            Param::Read("m1", Element::Bytes, &["tiers.7"]),
            Param::Read("m2", Element::Bytes, &["tiers.8"]),
            Param::Read("m3", Element::Bytes, &["tiers.9"]),
            Param::Read("m4", Element::Bytes, &["tiers.10"]),
            Param::Read("m5", Element::Bytes, &["tiers.11"]),
            Param::Read("m6", Element::Bytes, &["tiers.12"]),
            Param::Read("m7", Element::Bytes, &["tiers.13"]),
            Param::Read("host", Element::Bytes, &["tiers.1"]),
            Param::Read("scales", Element::F32, &["tiers.2"]),
            Param::Read("rows", Element::Bytes, &["tiers.3", "ROW_BYTES", "HAS_ROWS"]),
            Param::Read("places", Element::U32, &["tiers.3", "HAS_PLACES"]),
            Param::Read("bucket_ends", Element::U32, &["BUCKETS_AND_ONE", "HAS_BUCKETS"]),
            Param::Write("out", Element::Bytes, &["tiers.4", "OUT_BYTES"]),
            Param::Write("turn", Element::U64, &["TURN_WORDS"]),
            Param::Write("served", Element::U64, &["SERVED_WORDS"]),
            Param::Write("reads", Element::U32, &["tiers.5", "COUNTED"]),
            Param::Fault,
        ],
    )
};
// SAFETY: ids are read and rows written below `count`; the map is read below `known`.
static LOOKUP: Kernel = unsafe {
    Kernel::declare(
        &LOOKUP_TEXT,
        "lookup",
        &[
            Param::Read("ids", Element::Bytes, &["count", "ID_BYTES"]),
            Param::Value("count", Scalar::U64),
            Param::Read("map", Element::Bytes, &["known", "ROW_BYTES"]),
            Param::Value("known", Scalar::U64),
            Param::Write("rows", Element::Bytes, &["count", "ROW_BYTES"]),
            Param::Fault,
        ],
    )
};

/// Tiers that the kernel serves from.
pub(super) const TIERS: usize = 3;
/// Rows of each tier, then nanoseconds of GPU memory and of host memory.
pub(super) const SERVED_WORDS: usize = TIERS + 2;
/// A launch's own counters.
pub(super) const TURN_WORDS: usize = 5;
const LOOKUP_THREADS: u32 = 256;

/// The same struct stands in `serve.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Tiers {
    pub rows: u64,
    pub replicated_end: u64,
    pub interleaved_end: u64,
    pub host_end: u64,
    pub width: u64,
    pub stride: u64,
    pub elements: u64,
    pub count: u64,
    pub out_rows: u64,
    pub chunks: u64,
    pub cold_bucket: u64,
    pub link_blocks: u64,
    pub window: u64,
    pub scale_rows: u64,
    pub read_rows: u64,
    pub member_rows: [u64; MOST_MEMBERS],
}

// SAFETY: 64-bit words in the order of the text; the extents are the lengths the text compares with.
unsafe impl KernelStruct for Tiers {
    fn extents(&self) -> Vec<u64> {
        let bytes = |rows: u64| rows.saturating_mul(self.stride);
        let host = bytes(self.host_end.saturating_sub(self.interleaved_end));
        let out = self.out_rows.saturating_mul(self.elements);
        let fixed = [bytes(self.replicated_end), host, self.scale_rows, self.count, out, self.read_rows];
        fixed.into_iter().chain(self.member_rows.map(bytes)).collect()
    }
}

/// What a launch reads and writes.
pub(super) struct Buffers<'a> {
    pub replicated: &'a Span,
    pub members: &'a [Span],
    pub host: &'a Span,
    pub scales: &'a Span,
    pub list: List<'a>,
    pub out: &'a Span,
    pub turn: &'a Span,
    pub served: &'a Span,
    /// One a row, when reads are counted.
    pub reads: Option<&'a Span>,
}

/// Which rows go where.
#[derive(Debug, Clone, Copy)]
pub(super) enum List<'a> {
    /// Row `ids[i]` to place i.
    Ids(&'a Span),
    /// Rows in order, with their places and where buckets end.
    Ordered { rows: &'a Span, places: &'a Span, ends: &'a Span },
    /// Row i to place `places[i]`.
    Staged { places: &'a Span },
}

impl List<'_> {
    fn kind(&self) -> ListKind {
        match self {
            Self::Ids(_) => ListKind::Ids,
            Self::Ordered { .. } => ListKind::Ordered,
            Self::Staged { .. } => ListKind::Staged,
        }
    }
}

/// The same numbers stand in `serve.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListKind {
    Ids = 0,
    Ordered = 1,
    Staged = 2,
}

/// How the kernel is compiled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Build {
    pub row_type: IdType,
    pub lanes: Lanes,
    pub threads: u32,
    pub stored: Stored,
    pub out: Stored,
    pub members: u64,
    pub in_stretches: bool,
}

impl Build {
    fn defines(self, list: ListKind, counted: bool) -> Defines {
        let row = Defines::new().with("ROW", self.row_type.in_kernels()).with("ROW_BYTES", self.row_type.size_bytes());
        let lanes = row.with("LANES", self.lanes.per_row).with("DEPTH", self.lanes.depth);
        let lanes = lanes.with("PIECE_BYTES", self.lanes.piece_bytes).with("LIST", list as u32);
        let lists = lanes.with("HAS_ROWS", u32::from(list != ListKind::Staged));
        let lists = lists.with("HAS_PLACES", u32::from(list != ListKind::Ids));
        let lists = lists.with("HAS_BUCKETS", u32::from(list == ListKind::Ordered));
        let types = lists.with("STORED", self.stored.in_kernels()).with("OUT", self.out.in_kernels());
        let types = types.with("OUT_BYTES", self.out.bytes()).with("MEMBERS", self.members);
        let types = types.with("BLOCKS", u32::from(self.in_stretches)).with("COUNTED", u32::from(counted));
        let sizes = types.with("THREADS", self.threads).with("BUCKETS", 1u32 << BUCKETS_LOG2).with("TIERS", TIERS);
        let sizes = sizes.with("BUCKETS_AND_ONE", (1u32 << BUCKETS_LOG2) + 1);
        sizes.with("TURN_WORDS", TURN_WORDS).with("SERVED_WORDS", SERVED_WORDS)
    }
}

/// Queues the gather.
pub(super) fn serve(stream: &Stream, build: Build, blocks: u32, tiers: &Tiers, buffers: &Buffers<'_>) -> Result<()> {
    let defines = build.defines(buffers.list.kind(), buffers.reads.is_some());
    let grid = Grid { blocks, threads: build.threads, shared_bytes: 0 };
    let launch = SERVE.on(stream, &defines, grid).structure(tiers).bytes(buffers.replicated);
    // A list that is not read, and a member that is not there, still need an address.
    let any = buffers.turn;
    let members = buffers.members.iter().chain(std::iter::repeat(any)).take(MOST_MEMBERS);
    let launch = members.fold(launch, |launch, member| launch.bytes(member));
    let launch = launch.bytes(buffers.host).buffer(buffers.scales, Element::F32);
    let (rows, places, ends) = match buffers.list {
        List::Ids(ids) => (ids, any, any),
        List::Ordered { rows, places, ends } => (rows, places, ends),
        List::Staged { places } => (any, places, any),
    };
    let launch = launch.bytes(rows).buffer(places, Element::U32).buffer(ends, Element::U32).bytes(buffers.out);
    let launch = launch.buffer(any, Element::U64).buffer(buffers.served, Element::U64);
    Ok(launch.buffer(buffers.reads.unwrap_or(any), Element::U32).go()?)
}

/// Queues `rows[i] = map[ids[i]]`.
pub(super) fn lookup(stream: &Stream, ids: (&Span, IdType), map: (&Span, IdType), rows: &Span) -> Result<()> {
    let defines = lookup_defines(ids.1, map.1);
    let count = (ids.0.bytes() / ids.1.size_bytes()) as u64;
    let known = (map.0.bytes() / map.1.size_bytes()) as u64;
    let most = u64::from(stream.gpu().facts().sms) * 8;
    let blocks = count.div_ceil(u64::from(LOOKUP_THREADS)).clamp(1, most);
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    let grid = Grid { blocks, threads: LOOKUP_THREADS, shared_bytes: 0 };
    let launch = LOOKUP.on(stream, &defines, grid).bytes(ids.0).u64(count).bytes(map.0).u64(known);
    Ok(launch.bytes(rows).go()?)
}

fn lookup_defines(id_type: IdType, row_type: IdType) -> Defines {
    let ids = Defines::new().with("ID", id_type.in_kernels()).with("ID_BYTES", id_type.size_bytes());
    let rows = ids.with("ROW", row_type.in_kernels()).with("ROW_BYTES", row_type.size_bytes());
    rows.with("THREADS", LOOKUP_THREADS)
}

/// The texts with some of the defines they are launched with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let lanes = |piece_bytes| Lanes { per_row: 32, span_bytes: 512, depth: 4, piece_bytes };
    let build = |stored, out, row_type, piece_bytes| Build {
        row_type,
        lanes: lanes(piece_bytes),
        threads: 512,
        stored,
        out,
        members: 3,
        in_stretches: piece_bytes == 4,
    };
    let same = [
        (16, IdType::U32, ListKind::Ordered, true),
        (4, IdType::I64, ListKind::Ids, false),
        (1, IdType::U32, ListKind::Staged, false),
    ];
    let same = same.map(|(piece, row_type, list, counted)| {
        let stored = if piece == 1 { Stored::Raw } else { Stored::F16 };
        build(stored, stored, row_type, piece).defines(list, counted)
    });
    let others = Stored::ALL.into_iter().flat_map(|stored| {
        let outs = [Stored::F32, Stored::F16, Stored::Bf16].into_iter().filter(move |out| *out != stored);
        outs.map(move |out| build(stored, out, IdType::U32, 16).defines(ListKind::Ordered, false))
    });
    let lookups = [(IdType::U64, IdType::U32), (IdType::I32, IdType::U64)];
    let lookups = lookups.map(|(ids, rows)| (&LOOKUP_TEXT, lookup_defines(ids, rows)));
    same.into_iter().chain(others).map(|defines| (&TEXT, defines)).chain(lookups).collect()
}
