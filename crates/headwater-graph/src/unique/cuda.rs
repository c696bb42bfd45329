//! The numbering on the GPU: the table, the launches, and the promises about the kernels' reach.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Grid, Kernel, Param, Scalar, Scratch, Source, Span, Stream};

use crate::error::{Error, Result};
use crate::random::CUDA_HEADER;
use crate::scan::{HEADER, Tickets, persistent_grid};
use crate::topology::index;
use crate::width::IdWidth;

/// The table as other kernels build on it; the headers of random numbers and of the scan come before it.
pub(crate) const TABLE: (&str, &str) = ("unique.cuh", include_str!("unique.cuh"));

static TEXT: Source =
    Source { name: "unique.cu", text: include_str!("unique.cu"), headers: &[CUDA_HEADER, HEADER, TABLE] };

// SAFETY: keys and places are touched below `capacity`, words below `tiles`, and slots at places masked by
// `slot_count - 1`.
static INSERT: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "insert",
        &[
            Param::Read("keys", Element::Bytes, &["capacity", "KEY_BYTES"]),
            Param::Value("capacity", Scalar::U64),
            Param::Read("count", Element::U64, &[]),
            Param::Write("slots", Element::Bytes, &["slot_count", "SLOT_BYTES"]),
            Param::Value("slot_count", Scalar::U64),
            Param::Write("places", Element::U32, &["capacity"]),
            Param::Write("ticket", Element::U64, &[]),
            Param::Write("words", Element::U64, &["tiles"]),
            Param::Value("tiles", Scalar::U64),
            Param::Fault,
        ],
    )
};
// SAFETY: as above; places are followed only below `slot_count`, and nodes written only below `room`.
static NUMBER: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "number",
        &[
            Param::Read("keys", Element::Bytes, &["capacity", "KEY_BYTES"]),
            Param::Value("capacity", Scalar::U64),
            Param::Read("count", Element::U64, &[]),
            Param::Write("slots", Element::Bytes, &["slot_count", "SLOT_BYTES"]),
            Param::Value("slot_count", Scalar::U64),
            Param::Read("places", Element::U32, &["capacity"]),
            Param::Write("nodes", Element::Bytes, &["room", "KEY_BYTES"]),
            Param::Value("room", Scalar::U64),
            Param::Read("before", Element::U64, &[]),
            Param::Write("after", Element::U64, &[]),
            Param::Write("ticket", Element::U64, &[]),
            Param::Write("words", Element::U64, &["tiles"]),
            Param::Value("tiles", Scalar::U64),
            Param::Fault,
        ],
    )
};
// SAFETY: places are read and local ids written below `capacity`; places are followed only below `slot_count`.
static LOOKUP: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "lookup",
        &[
            Param::Value("capacity", Scalar::U64),
            Param::Read("count", Element::U64, &[]),
            Param::Read("slots", Element::Bytes, &["slot_count", "SLOT_BYTES"]),
            Param::Value("slot_count", Scalar::U64),
            Param::Read("places", Element::U32, &["capacity"]),
            Param::Write("local", Element::U32, &["capacity"]),
            Param::Fault,
        ],
    )
};

const THREADS: u32 = 256;
/// Fewer than a plain scan has: what is loaded lies anywhere in the table, so more blocks help more than long runs.
const ITEMS: u32 = 8;
/// Positions and numbers keep clear of the highest bit, and slots of the highest place.
const MOST: u64 = 1 << 30;

/// The nodes of one batch on one stream.
#[derive(Debug)]
pub struct GpuUnique<'a> {
    stream: &'a Stream,
    width: IdWidth,
    room: u64,
    table: Scratch,
    slot_count: u64,
}

/// What one hop brings, and where the results go.
#[derive(Debug, Clone, Copy)]
pub struct Hop<'a> {
    /// As many keys as there could be.
    pub keys: &'a Span,
    /// How many there are: one u64.
    pub count: &'a Span,
    /// All keys by local id. The same list in every hop.
    pub nodes: &'a Span,
    /// How many nodes there were: one u64.
    pub before: &'a Span,
    /// How many there are now: one u64, another one than `before`.
    pub after: &'a Span,
    /// The local id of each key, u32 each.
    pub local: &'a Span,
}

impl<'a> GpuUnique<'a> {
    /// An empty table with room for `room` different keys.
    pub fn new(stream: &'a Stream, width: IdWidth, room: u64) -> Result<Self> {
        at_most("nodes of a batch", room)?;
        let slot_count = (2 * room.max(1)).next_power_of_two();
        let table = stream.scratch(index(slot_count) * 2 * width.bytes())?;
        stream.fill(&table, 0xff)?;
        Ok(Self { stream, width, room, table, slot_count })
    }

    /// The table, and how many slots it has, for kernels that look keys up.
    pub(crate) fn table(&self) -> (&Span, u64) {
        (&self.table, self.slot_count)
    }

    /// Queues the numbering of a hop's keys.
    pub fn append(&self, hop: &Hop<'_>) -> Result<()> {
        let capacity = self.width.elements("keys", hop.keys)?;
        let nodes = self.width.elements("nodes", hop.nodes)?;
        at_most("keys of a hop", capacity)?;
        let places = self.stream.scratch(index(capacity) * 4)?;
        let tickets = Tickets::new(self.stream, capacity.div_ceil(u64::from(THREADS * ITEMS)))?;
        let defines = defines(self.width);
        let wide = persistent_grid(self.stream, capacity.div_ceil(u64::from(THREADS)), THREADS);
        let keys = |kernel: &'static Kernel, grid: Grid| {
            let launch = kernel.on(self.stream, &defines, grid).bytes(hop.keys).u64(capacity);
            launch.buffer(hop.count, Element::U64).bytes(&self.table).u64(self.slot_count).buffer(&places, Element::U32)
        };
        keys(&INSERT, wide)
            .buffer(&tickets.ticket, Element::U64)
            .buffer(&tickets.words, Element::U64)
            .u64(tickets.tiles)
            .go()?;
        keys(&NUMBER, persistent_grid(self.stream, tickets.tiles, THREADS))
            .bytes(hop.nodes)
            .u64(nodes.min(self.room))
            .buffer(hop.before, Element::U64)
            .buffer(hop.after, Element::U64)
            .buffer(&tickets.ticket, Element::U64)
            .buffer(&tickets.words, Element::U64)
            .u64(tickets.tiles)
            .go()?;
        let lookup = LOOKUP.on(self.stream, &defines, wide).u64(capacity).buffer(hop.count, Element::U64);
        let lookup = lookup.bytes(&self.table).u64(self.slot_count).buffer(&places, Element::U32);
        lookup.buffer(hop.local, Element::U32).go()?;
        Ok(())
    }
}

fn at_most(name: &'static str, found: u64) -> Result<()> {
    if found <= MOST { Ok(()) } else { Err(Error::Length { name, found, expected: MOST, of: "a batch at most" }) }
}

fn defines(width: IdWidth) -> Defines {
    let keys = Defines::new().with("KEY", width.in_kernels()).with("KEY_BYTES", width.bytes());
    keys.with("SLOT_BYTES", 2 * width.bytes()).with("THREADS", THREADS).with("ITEMS", ITEMS)
}

/// The texts of this folder with the defines they are launched with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    IdWidth::ALL.map(|width| (&TEXT, defines(width))).into()
}
