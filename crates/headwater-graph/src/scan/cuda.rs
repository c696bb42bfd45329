//! The scan on the GPU: launch, scratch memory, and the promise about the kernel's reach.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Grid, Kernel, Param, Scalar, Scratch, Source, Span, Stream};

use crate::error::Result;
use crate::width::IdWidth;

/// The scan as other kernels build on it.
pub const HEADER: (&str, &str) = ("scan.cuh", include_str!("scan.cuh"));

static SCAN_TEXT: Source = Source { name: "scan.cu", text: include_str!("scan.cu"), headers: &[HEADER] };

// SAFETY: at most `capacity` counts are read, at most `slots` offsets written, and words below `tiles`.
static SCAN: Kernel = unsafe {
    Kernel::declare(
        &SCAN_TEXT,
        "scan",
        &[
            Param::Read("counts", Element::U32, &["capacity"]),
            Param::Value("capacity", Scalar::U64),
            Param::Read("count", Element::U64, &[]),
            Param::Write("offsets", Element::Bytes, &["slots", "OFFSET_BYTES"]),
            Param::Value("slots", Scalar::U64),
            Param::Write("total", Element::U64, &[]),
            Param::Write("ticket", Element::U64, &[]),
            Param::Write("words", Element::U64, &["tiles"]),
            Param::Value("tiles", Scalar::U64),
            Param::Fault,
        ],
    )
};

const THREADS: u32 = 256;
/// Enough loads in flight to cover memory's latency with a quarter of the threads an SM can hold.
const ITEMS: u32 = 16;

/// A scan on one stream.
#[derive(Debug, Clone, Copy)]
pub struct GpuScan<'a> {
    /// Where it runs.
    pub stream: &'a Stream,
    /// u32 each; as many as there could be.
    pub counts: &'a Span,
    /// How many there are: one u64.
    pub count: &'a Span,
    /// As many as counts, or one more.
    pub offsets: &'a Span,
    /// Their type.
    pub width: IdWidth,
    /// One u64.
    pub total: &'a Span,
}

impl GpuScan<'_> {
    /// Queues the scan.
    pub fn run(&self) -> Result<()> {
        let capacity = IdWidth::U32.elements("counts", self.counts)?;
        let slots = self.width.elements("offsets", self.offsets)?;
        let tickets = Tickets::new(self.stream, capacity.div_ceil(u64::from(THREADS * ITEMS)))?;
        self.stream.fill(&tickets.memory, 0)?;
        SCAN.on(self.stream, &defines(self.width), persistent_grid(self.stream, tickets.tiles, THREADS))
            .buffer(self.counts, Element::U32)
            .u64(capacity)
            .buffer(self.count, Element::U64)
            .bytes(self.offsets)
            .u64(slots)
            .buffer(self.total, Element::U64)
            .buffer(&tickets.ticket, Element::U64)
            .buffer(&tickets.words, Element::U64)
            .u64(tickets.tiles)
            .go()?;
        Ok(())
    }
}

/// What the blocks of a scan tell each other: who takes which tile, and what its sum is. To be zeroed before.
pub(crate) struct Tickets {
    pub memory: Scratch,
    pub ticket: Span,
    pub words: Span,
    pub tiles: u64,
}

impl Tickets {
    /// For `tiles` tiles, at least one.
    pub fn new(stream: &Stream, tiles: u64) -> Result<Self> {
        let tiles = tiles.max(1);
        let bytes = crate::topology::index(tiles.saturating_mul(8));
        let memory = stream.scratch(bytes.saturating_add(8))?;
        let whole: &Span = &memory;
        let part = |at, bytes| whole.part(at, bytes).unwrap_or_else(|| whole.clone());
        let (ticket, words) = (part(0, 8), part(8, bytes));
        Ok(Self { memory, ticket, words, tiles })
    }
}

/// Blocks that stay and take one piece of work after the other: as many as the GPU holds, or as there are pieces.
pub(crate) fn persistent_grid(stream: &Stream, pieces: u64, threads: u32) -> Grid {
    let facts = stream.gpu().facts();
    let most = facts.sms * (facts.threads_per_sm / threads).max(1);
    Grid { blocks: u32::try_from(pieces).unwrap_or(u32::MAX).clamp(1, most), threads, shared_bytes: 0 }
}

fn defines(width: IdWidth) -> Defines {
    let offsets = Defines::new().with("OFFSET", width.in_kernels()).with("OFFSET_BYTES", width.bytes());
    offsets.with("THREADS", THREADS).with("ITEMS", ITEMS)
}

/// The texts of this folder with the defines they are launched with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    IdWidth::ALL.map(|width| (&SCAN_TEXT, defines(width))).into()
}
