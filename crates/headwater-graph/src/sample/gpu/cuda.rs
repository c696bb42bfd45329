//! The sampler's launches, and the promises about the kernels' reach.
//!
//! Kernels reach a graph's arrays by addresses in the table of relations and not by arguments, because there may be any
//! number of them. Whoever launches keeps the arrays alive until the stream is done.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Grid, Kernel, KernelStruct, Launch, Param, Source, Span, Stream};

use super::directory::{RELATION, RELATION_WORDS, spread_defines};
use super::ledger::Ledger;
use crate::error::Result;
use crate::interleave::{HEADER as ADDRESSES, Interleave};
use crate::placed::PlacedGraph;
use crate::random::CUDA_HEADER;
use crate::scan::{HEADER as SCAN, persistent_grid};
use crate::unique::TABLE;
use crate::width::IdWidth;

const BATCH: (&str, &str) = ("batch.cuh", include_str!("batch.cuh"));
const CHOOSE: (&str, &str) = ("choose.cuh", include_str!("choose.cuh"));

static COUNT_TEXT: Source = Source {
    name: "count.cu",
    text: include_str!("count.cu"),
    headers: &[CUDA_HEADER, SCAN, ADDRESSES, RELATION, BATCH],
};
static ORDER_TEXT: Source = Source {
    name: "order.cu",
    text: include_str!("order.cu"),
    headers: &[CUDA_HEADER, SCAN, ADDRESSES, RELATION, BATCH],
};
static DRAW_TEXT: Source = Source {
    name: "draw.cu",
    text: include_str!("draw.cu"),
    headers: &[CUDA_HEADER, SCAN, TABLE, ADDRESSES, RELATION, BATCH, CHOOSE],
};
static NUMBER_TEXT: Source = Source {
    name: "number.cu",
    text: include_str!("number.cu"),
    headers: &[CUDA_HEADER, SCAN, TABLE, ADDRESSES, RELATION, BATCH],
};

// The lengths of buffers, as the extents of `Batch` give them.
const RELATIONS: Param = Param::Read("relations", Element::U64, &["batch.0"]);
const FANOUTS: Param = Param::Read("fanouts", Element::U64, &["batch.1"]);
const LEDGER: Param = Param::Write("ledger", Element::U64, &["batch.2"]);
const NODES: Param = Param::Write("nodes", Element::U64, &["batch.7"]);
const TREES: Param = Param::Write("trees", Element::U32, &["batch.12"]);
const TIMES: Param = Param::Read("times", Element::I64, &["batch.14"]);
const ROW_STARTS: Param = Param::Write("row_starts", Element::U64, &["batch.3"]);
const DEGREES: Param = Param::Write("degrees", Element::U64, &["batch.3"]);
const EDGE_FIRSTS: Param = Param::Write("edge_firsts", Element::U32, &["batch.3"]);
const ORDER: Param = Param::Write("order", Element::U32, &["batch.17"]);
const BUCKETS: Param = Param::Write("buckets", Element::U32, &["batch.18"]);
const SLOTS: Param = Param::Write("slots", Element::Bytes, &["batch.8", "SLOT_BYTES"]);
const KEYS: Param = Param::Write("keys", Element::Bytes, &["batch.4", "KEY_BYTES"]);
const PLACES: Param = Param::Write("places", Element::U32, &["batch.4"]);
const FOUND: Param = Param::Write("found", Element::Bytes, &["batch.6", "KEY_BYTES"]);
const COUNT_WORDS: Param = Param::Write("count_words", Element::U64, &["batch.10"]);
const NUMBER_WORDS: Param = Param::Write("number_words", Element::U64, &["batch.11"]);
const KEEP_WORDS: Param = Param::Write("keep_words", Element::U64, &["batch.16"]);
const ROWS: Param = Param::Write("rows", Element::U32, &["batch.5"]);
const COLS: Param = Param::Write("cols", Element::U32, &["batch.5"]);
const IDS: Param = Param::Write("ids", Element::U64, &["batch.13"]);
const THE_BATCH: Param = Param::Struct("batch", size_of::<Batch>());

// SAFETY: holds for all nine. Positions in every buffer are compared with its length in `Batch`, or come from loops
// bounded by it; places in the ledger are those of `Ledger::new`. Graph arrays are followed only to rows below `rows`
// and to positions below `edges`, which `Directory` takes from arrays of those lengths.
static PLANT: Kernel = unsafe {
    Kernel::declare(
        &NUMBER_TEXT,
        "plant",
        &[
            THE_BATCH,
            Param::Read("seed_keys", Element::U64, &["batch.9"]),
            Param::Read("seed_ids", Element::U64, &["batch.9"]),
            Param::Read("seed_nodes", Element::U64, &["batch.9"]),
            SLOTS,
            FOUND,
            NODES,
            TREES,
            COUNT_WORDS,
            BUCKETS,
            Param::Fault,
        ],
    )
};
// SAFETY: as above.
static RANK: Kernel = unsafe {
    Kernel::declare(
        &ORDER_TEXT,
        "rank",
        &[THE_BATCH, RELATIONS, LEDGER, NODES, Param::Write("ranks", Element::U32, &["batch.17"]), BUCKETS],
    )
};
// SAFETY: as above.
static ARRANGE: Kernel = unsafe {
    Kernel::declare(
        &ORDER_TEXT,
        "arrange",
        &[THE_BATCH, RELATIONS, LEDGER, NODES, Param::Read("ranks", Element::U32, &["batch.17"]), BUCKETS, ORDER],
    )
};
// SAFETY: as above.
static VISIT: Kernel = unsafe {
    Kernel::declare(
        &COUNT_TEXT,
        "visit",
        &[
            THE_BATCH,
            RELATIONS,
            FANOUTS,
            LEDGER,
            NODES,
            TREES,
            TIMES,
            ORDER,
            ROW_STARTS,
            DEGREES,
            EDGE_FIRSTS,
            BUCKETS,
            Param::Fault,
        ],
    )
};
// SAFETY: as above.
static COUNT: Kernel = unsafe {
    Kernel::declare(
        &COUNT_TEXT,
        "count",
        &[
            THE_BATCH,
            RELATIONS,
            FANOUTS,
            LEDGER,
            NODES,
            TREES,
            TIMES,
            ROW_STARTS,
            DEGREES,
            EDGE_FIRSTS,
            COUNT_WORDS,
            Param::Fault,
        ],
    )
};
// SAFETY: as above.
static DRAW: Kernel = unsafe {
    Kernel::declare(
        &DRAW_TEXT,
        "draw",
        &[
            THE_BATCH,
            RELATIONS,
            FANOUTS,
            LEDGER,
            NODES,
            TREES,
            ROW_STARTS,
            DEGREES,
            EDGE_FIRSTS,
            ORDER,
            SLOTS,
            KEYS,
            PLACES,
            COLS,
            IDS,
            Param::Read("pairs", Element::U64, &["batch.15"]),
            COUNT_WORDS,
            NUMBER_WORDS,
            KEEP_WORDS,
            Param::Fault,
        ],
    )
};
// SAFETY: as above.
static NUMBER: Kernel = unsafe {
    Kernel::declare(
        &NUMBER_TEXT,
        "number",
        &[THE_BATCH, RELATIONS, FANOUTS, LEDGER, KEYS, PLACES, SLOTS, FOUND, NUMBER_WORDS, Param::Fault],
    )
};
// SAFETY: as above.
static SETTLE: Kernel = unsafe {
    Kernel::declare(
        &NUMBER_TEXT,
        "settle",
        &[THE_BATCH, RELATIONS, LEDGER, PLACES, SLOTS, FOUND, NODES, TREES, ROWS, Param::Fault],
    )
};
// SAFETY: as above.
static KEEP: Kernel = unsafe {
    Kernel::declare(
        &NUMBER_TEXT,
        "keep",
        &[
            THE_BATCH,
            LEDGER,
            PLACES,
            SLOTS,
            Param::Read("drawn_cols", Element::U32, &["batch.4"]),
            Param::Read("drawn_ids", Element::U64, &["batch.13"]),
            ROWS,
            COLS,
            IDS,
            KEEP_WORDS,
            Param::Fault,
        ],
    )
};

const THREADS: u32 = 256;
/// Counting waits for the bus, so its runs are short; numbering's are as long as in `unique`.
const COUNT_ITEMS: u32 = 2;
const NUMBER_ITEMS: u32 = 8;
/// Words of an edge that must not be seen.
pub(super) const PAIR_WORDS: usize = 3;
/// A row whose offsets fall: position is the row, value and limit its ends. The same numbers stand in `relation.cuh`.
pub(super) const FAULT_FALLING_OFFSETS: u32 = 16;
/// A neighbour that is no node: position in the lists, id, and limit.
pub(super) const FAULT_NEIGHBOUR: u32 = 17;

/// The sizes of a batch and of its hop, as `batch.cuh` has them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    pub types: u64,
    pub relations: u64,
    pub hops: u64,
    pub groups: u64,
    pub hop: u64,
    pub hop_key: u64,
    pub ledger: Ledger,
    pub cells: u64,
    pub item_room: u64,
    pub edge_room: u64,
    pub edge_total: u64,
    pub key_room: u64,
    pub node_room: u64,
    pub slot_count: u64,
    pub seeds: u64,
    pub count_tiles: u64,
    pub number_tiles: u64,
    pub tree_room: u64,
    pub id_room: u64,
    pub time_room: u64,
    pub pair_slots: u64,
    pub order_room: u64,
    pub buckets: u64,
    pub tree_nodes: u64,
    pub choice: u64,
    pub lanes: u64,
    pub bucket_shift: u64,
}

// SAFETY: the struct is 64-bit words, in the order of the text; the extents are the lengths the text compares with.
unsafe impl KernelStruct for Batch {
    fn extents(&self) -> Vec<u64> {
        let words = self.relations.saturating_mul(RELATION_WORDS as u64);
        let fanouts = self.hops.saturating_mul(self.relations);
        let sizes = [self.cells, self.item_room, self.edge_room, self.edge_total, self.key_room, self.node_room];
        let tables = [self.slot_count, self.seeds, self.count_tiles, self.number_tiles];
        let keep_words = if self.pair_slots > 0 { self.number_tiles } else { 0 };
        let pairs = self.pair_slots.saturating_mul(PAIR_WORDS as u64);
        let choices = [self.tree_room, self.id_room, self.time_room, pairs, keep_words];
        [&[words, fanouts][..], &sizes, &tables, &choices, &[self.order_room, self.buckets]].concat()
    }
}

/// Everything the kernels of a batch touch.
#[derive(Debug)]
pub(super) struct Buffers {
    pub relations: Span,
    pub fanouts: Span,
    pub ledger: Span,
    pub seed_keys: Span,
    pub seed_ids: Span,
    pub seed_nodes: Span,
    pub times: Span,
    pub nodes: Span,
    pub trees: Span,
    pub row_starts: Span,
    pub degrees: Span,
    pub edge_firsts: Span,
    pub order: Span,
    pub buckets: Span,
    pub slots: Span,
    pub keys: Span,
    pub places: Span,
    pub found: Span,
    pub rows: Span,
    pub cols: Span,
    pub ids: Span,
    /// Where `draw` writes: the three above, unless some edges are left out.
    pub drawn_cols: Span,
    pub drawn_ids: Span,
    pub pairs: Span,
    pub count_words: Span,
    pub number_words: Span,
    pub keep_words: Span,
}

/// How a sampler's kernels are compiled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Build {
    pub key: IdWidth,
    pub weighted: bool,
    /// How the graph is spread over a group, when it is.
    pub spread: Option<Interleave>,
}

impl Build {
    fn defines(self, items: u32) -> Defines {
        let key = Defines::new().with("KEY", self.key.in_kernels()).with("KEY_BYTES", self.key.bytes());
        let table = key.with("SLOT_BYTES", 2 * self.key.bytes()).with("WEIGHTED", u32::from(self.weighted));
        let sizes = table.with("THREADS", THREADS).with("ITEMS", items);
        spread_defines(self.spread, sizes)
    }
}

/// Launches of one batch on one stream.
#[derive(Debug)]
pub(super) struct Launcher<'a> {
    pub stream: &'a Stream,
    pub buffers: &'a Buffers,
    count: Defines,
    rest: Defines,
}

impl<'a> Launcher<'a> {
    pub fn new(stream: &'a Stream, buffers: &'a Buffers, build: Build) -> Self {
        Self { stream, buffers, count: build.defines(COUNT_ITEMS), rest: build.defines(NUMBER_ITEMS) }
    }

    /// Queues the seeds.
    pub fn plant(&self, batch: &Batch) -> Result<()> {
        let b = self.buffers;
        let grid = self.grid(batch.seeds.max(batch.count_tiles));
        let launch = PLANT.on(self.stream, &self.rest, grid).structure(batch);
        let launch = words(launch, &[&b.seed_keys, &b.seed_ids, &b.seed_nodes]).bytes(&b.slots).bytes(&b.found);
        let launch = words(launch, &[&b.nodes]).buffer(&b.trees, Element::U32);
        Ok(words(launch, &[&b.count_words]).buffer(&b.buckets, Element::U32).go()?)
    }

    /// Queues a hop of at most this many items and edges: four launches, whatever the number of relations, three more
    /// when rows are put into order, and one more when some edges must not be seen.
    pub fn hop(&self, batch: &Batch) -> Result<()> {
        if batch.order_room > 0 {
            self.order(batch)?;
            self.visit(batch)?;
        }
        self.count(batch)?;
        self.draw(batch)?;
        self.number(batch)?;
        if batch.pair_slots > 0 {
            self.keep(batch)?;
        }
        self.settle(batch)
    }

    fn order(&self, batch: &Batch) -> Result<()> {
        let (b, grid) = (self.buffers, self.grid(batch.order_room));
        // What an item gives is not known yet, so its rank may stand where that will.
        let launch =
            words(RANK.on(self.stream, &self.rest, grid).structure(batch), &[&b.relations, &b.ledger, &b.nodes]);
        launch.buffer(&b.edge_firsts, Element::U32).buffer(&b.buckets, Element::U32).go()?;
        let launch = ARRANGE.on(self.stream, &self.rest, grid).structure(batch);
        let launch = words(launch, &[&b.relations, &b.ledger, &b.nodes]).buffer(&b.edge_firsts, Element::U32);
        Ok(launch.buffer(&b.buckets, Element::U32).buffer(&b.order, Element::U32).go()?)
    }

    fn visit(&self, batch: &Batch) -> Result<()> {
        let b = self.buffers;
        let launch = VISIT.on(self.stream, &self.count, self.grid(batch.order_room)).structure(batch);
        let launch = words(launch, &[&b.relations, &b.fanouts, &b.ledger, &b.nodes]).buffer(&b.trees, Element::U32);
        let launch = launch.buffer(&b.times, Element::I64).buffer(&b.order, Element::U32);
        let launch = words(launch, &[&b.row_starts, &b.degrees]).buffer(&b.edge_firsts, Element::U32);
        Ok(launch.buffer(&b.buckets, Element::U32).go()?)
    }

    fn count(&self, batch: &Batch) -> Result<()> {
        let b = self.buffers;
        let grid = persistent_grid(self.stream, count_tiles(batch.item_room), THREADS);
        let launch = COUNT.on(self.stream, &self.count, grid).structure(batch);
        let launch = words(launch, &[&b.relations, &b.fanouts, &b.ledger, &b.nodes]).buffer(&b.trees, Element::U32);
        let launch = words(launch.buffer(&b.times, Element::I64), &[&b.row_starts, &b.degrees]);
        Ok(words(launch.buffer(&b.edge_firsts, Element::U32), &[&b.count_words]).go()?)
    }

    fn draw(&self, batch: &Batch) -> Result<()> {
        let b = self.buffers;
        let grid = self.grid(batch.item_room.saturating_mul(batch.lanes));
        let launch = DRAW.on(self.stream, &self.rest, grid).structure(batch);
        let launch = words(launch, &[&b.relations, &b.fanouts, &b.ledger, &b.nodes]).buffer(&b.trees, Element::U32);
        let launch = words(launch, &[&b.row_starts, &b.degrees]).buffer(&b.edge_firsts, Element::U32);
        let launch = launch.buffer(&b.order, Element::U32).bytes(&b.slots).bytes(&b.keys);
        let launch = launch.buffer(&b.places, Element::U32);
        let launch = words(launch.buffer(&b.drawn_cols, Element::U32), &[&b.drawn_ids, &b.pairs]);
        Ok(words(launch, &[&b.count_words, &b.number_words, &b.keep_words]).go()?)
    }

    fn number(&self, batch: &Batch) -> Result<()> {
        let b = self.buffers;
        let grid = persistent_grid(self.stream, number_tiles(batch.edge_room), THREADS);
        let launch = NUMBER.on(self.stream, &self.rest, grid).structure(batch);
        let launch = words(launch, &[&b.relations, &b.fanouts, &b.ledger]).bytes(&b.keys);
        let launch = launch.buffer(&b.places, Element::U32).bytes(&b.slots).bytes(&b.found);
        Ok(words(launch, &[&b.number_words]).go()?)
    }

    fn keep(&self, batch: &Batch) -> Result<()> {
        let b = self.buffers;
        let grid = persistent_grid(self.stream, number_tiles(batch.edge_room), THREADS);
        let launch = words(KEEP.on(self.stream, &self.rest, grid).structure(batch), &[&b.ledger]);
        let launch = launch.buffer(&b.places, Element::U32).bytes(&b.slots).buffer(&b.drawn_cols, Element::U32);
        let launch = words(launch, &[&b.drawn_ids]).buffer(&b.rows, Element::U32).buffer(&b.cols, Element::U32);
        Ok(words(launch, &[&b.ids, &b.keep_words]).go()?)
    }

    fn settle(&self, batch: &Batch) -> Result<()> {
        let b = self.buffers;
        let launch = SETTLE.on(self.stream, &self.rest, self.grid(batch.edge_room)).structure(batch);
        let launch = words(launch, &[&b.relations, &b.ledger]).buffer(&b.places, Element::U32);
        let launch = words(launch.bytes(&b.slots).bytes(&b.found), &[&b.nodes]);
        Ok(launch.buffer(&b.trees, Element::U32).buffer(&b.rows, Element::U32).go()?)
    }

    fn grid(&self, threads: u64) -> Grid {
        persistent_grid(self.stream, threads.div_ceil(u64::from(THREADS)), THREADS)
    }
}

fn words<'a>(launch: Launch<'a>, spans: &[&Span]) -> Launch<'a> {
    spans.iter().fold(launch, |launch, span| launch.buffer(span, Element::U64))
}

/// Tiles of the scan over so many items.
pub(super) fn count_tiles(items: u64) -> u64 {
    items.div_ceil(u64::from(THREADS * COUNT_ITEMS)).max(1)
}

/// Tiles of the scan over so many edges.
pub(super) fn number_tiles(edges: u64) -> u64 {
    edges.div_ceil(u64::from(THREADS * NUMBER_ITEMS)).max(1)
}

/// The texts of this folder with the defines they are launched with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let of = |key| [false, true].map(|weighted| Build { key, weighted, spread: None });
    let spread = Build { key: IdWidth::U64, weighted: true, spread: Interleave::new(4, PlacedGraph::BLOCK_LOG2) };
    let builds = IdWidth::ALL.into_iter().flat_map(of).chain([spread]);
    let texts = |build: Build| {
        let (count, rest) = (build.defines(COUNT_ITEMS), build.defines(NUMBER_ITEMS));
        [(&COUNT_TEXT, count), (&ORDER_TEXT, rest.clone()), (&DRAW_TEXT, rest.clone()), (&NUMBER_TEXT, rest)]
    };
    let mut all: Vec<_> = builds.flat_map(texts).collect();
    all.sort_by_key(|(source, _)| source.name);
    all
}
