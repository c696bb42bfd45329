//! The launches of a subgraph, and the promises about the kernels' reach.
//!
//! Kernels reach a graph's arrays by addresses in the sampler's table of relations. Whoever launches keeps the arrays
//! alive until the stream is done.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Grid, Kernel, KernelStruct, Launch, Param, Scalar, Source, Span, Stream};

use super::super::gpu::{RELATION, RELATION_WORDS, spread_defines};
use crate::error::Result;
use crate::interleave::{HEADER as ADDRESSES, Interleave};
use crate::random::CUDA_HEADER;
use crate::scan::{HEADER as SCAN, Tickets, persistent_grid};
use crate::unique::TABLE;
use crate::width::IdWidth;

static TEXT: Source = Source {
    name: "subgraph.cu",
    text: include_str!("subgraph.cu"),
    headers: &[CUDA_HEADER, SCAN, TABLE, ADDRESSES, RELATION],
};

// The lengths of buffers, as the extents of `Part` give them.
const PART: Param = Param::Struct("part", size_of::<Part>());
const RELATIONS: Param = Param::Read("relations", Element::Bytes, &["part.0", "RELATION_BYTES"]);
const LEDGER: Param = Param::Write("ledger", Element::U64, &["part.1"]);
const WANTED: Param = Param::Read("wanted", Element::U64, &["part.2"]);
const KEYS: Param = Param::Write("keys", Element::Bytes, &["part.2", "KEY_BYTES"]);
const NUMBERS: Param = Param::Read("numbers", Element::U32, &["part.2"]);
const NODES: Param = Param::Write("nodes", Element::U64, &["part.2"]);
const MAPPING: Param = Param::Write("mapping", Element::U32, &["part.2"]);
const LIST_STARTS: Param = Param::Write("list_starts", Element::U64, &["part.3"]);
const CANDIDATE_FIRSTS: Param = Param::Write("candidate_firsts", Element::U64, &["part.3"]);
const SLOTS: Param = Param::Read("slots", Element::Bytes, &["part.6", "SLOT_BYTES"]);
const ROWS: Param = Param::Write("rows", Element::U32, &["part.4"]);
const TICKET: Param = Param::Write("ticket", Element::U64, &[]);
const WORDS: Param = Param::Write("words", Element::U64, &["tiles"]);
const TILES: Param = Param::Value("tiles", Scalar::U64);

// SAFETY: holds for all five. Positions in every buffer are compared with its length in `Part`, or come from loops bounded
// by it; places in the ledger are those of `Ledger::new`. Graph arrays are followed only to rows below `rows` and to
// positions below `edges` of their relation.
static KEY_NODES: Kernel = unsafe { Kernel::declare(&TEXT, "key_nodes", &[PART, LEDGER, WANTED, KEYS]) };
// SAFETY: as above.
static SETTLE: Kernel = unsafe { Kernel::declare(&TEXT, "settle", &[PART, LEDGER, WANTED, NUMBERS, NODES, MAPPING]) };
// SAFETY: as above.
static COUNT: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "count",
        &[PART, RELATIONS, LEDGER, NODES, LIST_STARTS, CANDIDATE_FIRSTS, TICKET, WORDS, TILES, Param::Fault],
    )
};
// SAFETY: as above.
static LOOK: Kernel =
    unsafe { Kernel::declare(&TEXT, "look", &[PART, RELATIONS, LEDGER, LIST_STARTS, CANDIDATE_FIRSTS, SLOTS, ROWS]) };
// SAFETY: as above.
static KEEP: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "keep",
        &[
            PART,
            RELATIONS,
            LEDGER,
            LIST_STARTS,
            CANDIDATE_FIRSTS,
            ROWS,
            Param::Write("kept_rows", Element::U32, &["part.5"]),
            Param::Write("kept_cols", Element::U32, &["part.5"]),
            Param::Write("kept_ids", Element::U64, &["part.5"]),
            TICKET,
            WORDS,
            TILES,
        ],
    )
};

const THREADS: u32 = 256;
const ITEMS: u32 = 8;
/// Candidates a warp takes at a time.
const STRETCH: u64 = 256;
/// Of a relation in the table.
const RELATION_BYTES: usize = 8 * RELATION_WORDS;

/// Sizes, and where in the ledger things stand. The same struct stands in `subgraph.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub types: u64,
    pub relations: u64,
    pub wanted: u64,
    pub rows: u64,
    pub candidates: u64,
    pub edges: u64,
    pub slot_count: u64,
    pub ledger: Ledger,
}

/// The first cell of each part of the ledger, and how many cells there are.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Ledger {
    /// Where the nodes of each type begin, and where the last end.
    pub starts: u64,
    /// Where the keys of each type begin.
    pub bases: u64,
    /// Where the rows of each relation begin.
    pub row_starts: u64,
    /// Where the numbers of each type begin, and where the last end.
    pub firsts: u64,
    /// How many candidates there are.
    pub found: u64,
    /// For each relation, how many stay.
    pub kept: u64,
    pub cells: u64,
}

impl Ledger {
    pub fn new(types: u64, relations: u64) -> Self {
        let (starts, bases) = (0, types + 1);
        let row_starts = bases + types;
        let firsts = row_starts + relations;
        let found = firsts + types + 1;
        Self { starts, bases, row_starts, firsts, found, kept: found + 1, cells: found + 1 + relations }
    }
}

// SAFETY: 64-bit words, in the order of the text; the extents are the lengths the text compares with.
unsafe impl KernelStruct for Part {
    fn extents(&self) -> Vec<u64> {
        let Self { relations, wanted, rows, candidates, edges, slot_count, .. } = *self;
        vec![relations, self.ledger.cells, wanted, rows, candidates, edges, slot_count]
    }
}

/// What several kernels of a subgraph touch.
#[derive(Debug)]
pub(super) struct Buffers {
    pub relations: Span,
    pub ledger: Span,
    pub wanted: Span,
    pub keys: Span,
    pub numbers: Span,
    pub nodes: Span,
    pub mapping: Span,
    pub list_starts: Span,
    pub candidate_firsts: Span,
}

/// Launches of one subgraph on one stream.
#[derive(Debug)]
pub(super) struct Launcher<'a> {
    pub stream: &'a Stream,
    pub buffers: &'a Buffers,
    defines: Defines,
}

impl<'a> Launcher<'a> {
    pub fn new(stream: &'a Stream, buffers: &'a Buffers, key: IdWidth, spread: Option<Interleave>) -> Self {
        Self { stream, buffers, defines: defines(key, spread) }
    }

    /// Queues the keys of all nodes.
    pub fn key_nodes(&self, part: &Part) -> Result<()> {
        let (b, grid) = (self.buffers, self.grid(part.wanted));
        let launch = KEY_NODES.on(self.stream, &self.defines, grid).structure(part);
        Ok(words(launch, &[&b.ledger, &b.wanted]).bytes(&b.keys).go()?)
    }

    /// Queues the numbers of each type.
    pub fn settle(&self, part: &Part) -> Result<()> {
        let (b, grid) = (self.buffers, self.grid(part.wanted.max(part.types)));
        let launch = words(SETTLE.on(self.stream, &self.defines, grid).structure(part), &[&b.ledger, &b.wanted]);
        let launch = words(launch.buffer(&b.numbers, Element::U32), &[&b.nodes]);
        Ok(launch.buffer(&b.mapping, Element::U32).go()?)
    }

    /// Queues the lengths of all rows.
    pub fn count(&self, part: &Part) -> Result<()> {
        let b = self.buffers;
        let tickets = self.tickets(part.rows)?;
        let launch = COUNT.on(self.stream, &self.defines, persistent_grid(self.stream, tickets.tiles, THREADS));
        let launch = words(launch.structure(part).bytes(&b.relations), &[&b.ledger, &b.nodes]);
        let launch = words(launch, &[&b.list_starts, &b.candidate_firsts, &tickets.ticket, &tickets.words]);
        Ok(launch.u64(tickets.tiles).go()?)
    }

    /// Queues the numbers of all candidates.
    pub fn look(&self, part: &Part, slots: &Span, rows: &Span) -> Result<()> {
        let b = self.buffers;
        let grid = self.grid(part.candidates.div_ceil(STRETCH).saturating_mul(32));
        let launch = LOOK.on(self.stream, &self.defines, grid).structure(part).bytes(&b.relations);
        let launch = words(launch, &[&b.ledger, &b.list_starts, &b.candidate_firsts]);
        Ok(launch.bytes(slots).buffer(rows, Element::U32).go()?)
    }

    /// Queues the edges: neighbours, nodes that own them, ids.
    pub fn keep(&self, part: &Part, rows: &Span, [row, col, ids]: [&Span; 3]) -> Result<()> {
        let b = self.buffers;
        let tickets = self.tickets(part.candidates)?;
        let launch = KEEP.on(self.stream, &self.defines, persistent_grid(self.stream, tickets.tiles, THREADS));
        let launch = words(launch.structure(part).bytes(&b.relations), &[&b.ledger, &b.list_starts]);
        let launch = words(launch, &[&b.candidate_firsts]).buffer(rows, Element::U32);
        let launch = launch.buffer(row, Element::U32).buffer(col, Element::U32);
        Ok(words(launch, &[ids, &tickets.ticket, &tickets.words]).u64(tickets.tiles).go()?)
    }

    fn tickets(&self, elements: u64) -> Result<Tickets> {
        let tickets = Tickets::new(self.stream, elements.div_ceil(u64::from(THREADS * ITEMS)))?;
        self.stream.fill(&tickets.memory, 0)?;
        Ok(tickets)
    }

    fn grid(&self, threads: u64) -> Grid {
        persistent_grid(self.stream, threads.div_ceil(u64::from(THREADS)), THREADS)
    }
}

fn words<'a>(launch: Launch<'a>, spans: &[&Span]) -> Launch<'a> {
    spans.iter().fold(launch, |launch, span| launch.buffer(span, Element::U64))
}

fn defines(key: IdWidth, spread: Option<Interleave>) -> Defines {
    let keys = Defines::new().with("KEY", key.in_kernels()).with("KEY_BYTES", key.bytes());
    let sizes = keys.with("SLOT_BYTES", 2 * key.bytes()).with("RELATION_BYTES", RELATION_BYTES);
    spread_defines(spread, sizes.with("STRETCH", STRETCH).with("THREADS", THREADS).with("ITEMS", ITEMS))
}

/// The texts of this folder with the defines they are launched with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let spread = defines(IdWidth::U64, Interleave::new(3, 4));
    IdWidth::ALL.map(|key| defines(key, None)).into_iter().chain([spread]).map(|defines| (&TEXT, defines)).collect()
}
