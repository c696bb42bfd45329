//! The launches that make a block, and the promises about their reach.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Grid, Kernel, Param, Scalar, Source, Stream};
use headwater_graph::scan::CUDA_HEADER;

use super::{BySource, Lists, Tables};
use crate::adjacency::SelfLoops;
use crate::error::Result;

/// A fault: a target that is below the one before it.
pub(super) const FAULT_FALLING_TARGETS: u32 = 24;

static BLOCK: Source = Source { name: "block.cu", text: include_str!("block.cu"), headers: &[CUDA_HEADER] };
static SORT: Source = Source { name: "sort.cu", text: include_str!("sort.cu"), headers: &[] };

// SAFETY: lists are read below `edges`; edges are written below `room`, sums below `slots` and only with DROPS, words
// below `tiles`.
static PLACE: Kernel = unsafe {
    Kernel::declare(
        &BLOCK,
        "place",
        &[
            Param::Read("sources", Element::U32, &["edges"]),
            Param::Read("targets", Element::U32, &["edges"]),
            Param::Value("edges", Scalar::U32),
            Param::Value("src", Scalar::U32),
            Param::Value("dst", Scalar::U32),
            Param::Write("edge_src", Element::U32, &["room"]),
            Param::Write("edge_dst", Element::U32, &["room"]),
            Param::Value("room", Scalar::U32),
            Param::Write("before", Element::U32, &["slots", "DROPS"]),
            Param::Value("slots", Scalar::U32),
            Param::Write("ticket", Element::U64, &[]),
            Param::Write("words", Element::U64, &["tiles"]),
            Param::Value("tiles", Scalar::U64),
            Param::Write("is_bad", Element::U32, &[]),
            Param::Fault,
        ],
    )
};
// SAFETY: as above; starts are written below `dst_slots`, and the two tables have as many words as the text writes.
static STARTS: Kernel = unsafe {
    Kernel::declare(
        &BLOCK,
        "starts",
        &[
            Param::Read("targets", Element::U32, &["edges"]),
            Param::Value("edges", Scalar::U32),
            Param::Value("src", Scalar::U32),
            Param::Value("dst", Scalar::U32),
            Param::Read("before", Element::U32, &["slots", "DROPS"]),
            Param::Value("slots", Scalar::U32),
            Param::Read("is_bad", Element::U32, &[]),
            Param::Write("edge_src", Element::U32, &["room"]),
            Param::Write("edge_dst", Element::U32, &["room"]),
            Param::Value("room", Scalar::U32),
            Param::Write("dst_starts", Element::U32, &["dst_slots"]),
            Param::Value("dst_slots", Scalar::U32),
            Param::Write("counts", Element::U32, &["COUNTS"]),
            Param::Write("ranges", Element::U32, &["RANGES"]),
        ],
    )
};
// SAFETY: keys are read below `room`, starts written below `src_slots`.
static SOURCE_STARTS: Kernel = unsafe {
    Kernel::declare(
        &BLOCK,
        "source_starts",
        &[
            Param::Read("sorted", Element::U32, &["room"]),
            Param::Value("room", Scalar::U32),
            Param::Read("count", Element::U32, &[]),
            Param::Write("src_starts", Element::U32, &["src_slots"]),
            Param::Value("src_slots", Scalar::U32),
        ],
    )
};
// SAFETY: keys are read below `room`; a digit is below DIGITS and a pass below PASSES.
static COUNT_DIGITS: Kernel = unsafe {
    Kernel::declare(
        &SORT,
        "count_digits",
        &[
            Param::Read("keys", Element::U32, &["room"]),
            Param::Value("room", Scalar::U32),
            Param::Read("count", Element::U32, &[]),
            Param::Write("totals", Element::U32, &["PASSES", "DIGITS"]),
        ],
    )
};
// SAFETY: keys and edges are read and written below `room`, words of tiles below `tiles`; the pass is kept below
// PASSES.
static SORT_PASS: Kernel = unsafe {
    Kernel::declare(
        &SORT,
        "sort_pass",
        &[
            Param::Read("keys", Element::U32, &["room"]),
            Param::Read("edges", Element::U32, &["room"]),
            Param::Value("room", Scalar::U32),
            Param::Read("count", Element::U32, &[]),
            Param::Value("pass", Scalar::U32),
            Param::Read("totals", Element::U32, &["PASSES", "DIGITS"]),
            Param::Write("keys_out", Element::U32, &["room"]),
            Param::Write("edges_out", Element::U32, &["room"]),
            Param::Write("ticket", Element::U32, &[]),
            Param::Write("words", Element::U32, &["tiles", "DIGITS"]),
            Param::Value("tiles", Scalar::U32),
        ],
    )
};

/// Rows of every domain, and where types begin and end among sources, targets and edges.
pub(super) const COUNTS: usize = 8;
pub(super) const RANGES: usize = 6;
/// Values of a digit; a block has a thread for each.
pub(super) const DIGITS: u32 = 256;
const THREADS: u32 = DIGITS;
/// As in the scan of counts: enough loads in flight to cover memory's latency.
const ITEMS: u32 = 16;
/// Edges that a block of threads takes at a time.
pub(super) const TILE: u32 = THREADS * ITEMS;

/// Queues the edges by target, and how many rows there are of everything.
pub(super) fn by_target(stream: &Stream, tables: &Tables, lists: &Lists<'_>) -> Result<()> {
    let (edges, src, dst) = (lists.edges, lists.src, lists.dst);
    let (defines, slots) = (block_defines(tables.loops), edges + 1);
    PLACE
        .on(stream, &defines, grid(stream, edges.div_ceil(TILE)))
        .buffer(lists.sources, Element::U32)
        .buffer(lists.targets, Element::U32)
        .u32(edges)
        .u32(src)
        .u32(dst)
        .buffer(&tables.src, Element::U32)
        .buffer(&tables.dst, Element::U32)
        .u32(tables.room)
        .buffer(&tables.before, Element::U32)
        .u32(slots)
        .buffer(&tables.ticket, Element::U64)
        .buffer(&tables.words, Element::U64)
        .u64(u64::from(tables.tiles))
        .buffer(&tables.is_bad, Element::U32)
        .go()?;
    STARTS
        .on(stream, &defines, grid(stream, (dst + 1).div_ceil(THREADS)))
        .buffer(lists.targets, Element::U32)
        .u32(edges)
        .u32(src)
        .u32(dst)
        .buffer(&tables.before, Element::U32)
        .u32(slots)
        .buffer(&tables.is_bad, Element::U32)
        .buffer(&tables.src, Element::U32)
        .buffer(&tables.dst, Element::U32)
        .u32(tables.room)
        .buffer(&tables.dst_starts, Element::U32)
        .u32(dst + 1)
        .buffer(&tables.counts, Element::U32)
        .buffer(&tables.ranges, Element::U32)
        .go()?;
    Ok(())
}

/// Queues the edges by source, of at most `most` edges by target.
pub(super) fn by_source(stream: &Stream, tables: &Tables, sorted: &BySource, most: u32, src: u32) -> Result<()> {
    let defines = sort_defines(sorted.passes);
    COUNT_DIGITS
        .on(stream, &defines, grid(stream, most.div_ceil(TILE)))
        .buffer(&tables.src, Element::U32)
        .u32(tables.room)
        .buffer(&tables.edge_count, Element::U32)
        .buffer(&sorted.totals, Element::U32)
        .go()?;
    let (mut keys, mut edges) = (&tables.src, &tables.src);
    for (pass, (ticket, words)) in (0..).zip(&sorted.tickets) {
        // The last pass writes where the result is wanted, and those before it in turns.
        let is_even = (sorted.passes - pass).is_multiple_of(2);
        let keys_out = &sorted.keys[usize::from(is_even)];
        let edges_out = if is_even { &sorted.spare } else { &sorted.edges };
        SORT_PASS
            .on(stream, &defines, grid(stream, most.div_ceil(TILE)))
            .buffer(keys, Element::U32)
            .buffer(edges, Element::U32)
            .u32(tables.room)
            .buffer(&tables.edge_count, Element::U32)
            .u32(pass)
            .buffer(&sorted.totals, Element::U32)
            .buffer(keys_out, Element::U32)
            .buffer(edges_out, Element::U32)
            .buffer(ticket, Element::U32)
            .buffer(words, Element::U32)
            .u32(tables.tiles)
            .go()?;
        (keys, edges) = (keys_out, edges_out);
    }
    SOURCE_STARTS
        .on(stream, &block_defines(tables.loops), grid(stream, (src + 1).div_ceil(THREADS)))
        .buffer(keys, Element::U32)
        .u32(tables.room)
        .buffer(&tables.edge_count, Element::U32)
        .buffer(&sorted.starts, Element::U32)
        .u32(src + 1)
        .go()?;
    Ok(())
}

/// Blocks that stay and take one piece of work after the other: as many as the GPU holds, or as there are pieces.
fn grid(stream: &Stream, pieces: u32) -> Grid {
    let facts = stream.gpu().facts();
    let most = facts.sms * (facts.threads_per_sm / THREADS).max(1);
    Grid { blocks: pieces.clamp(1, most), threads: THREADS, shared_bytes: 0 }
}

fn block_defines(loops: SelfLoops) -> Defines {
    let sizes =
        Defines::new().with("THREADS", THREADS).with("ITEMS", ITEMS).with("COUNTS", COUNTS).with("RANGES", RANGES);
    let kinds = sizes.with("DROPS", u32::from(loops.drops())).with("ADDS", u32::from(loops.adds()));
    kinds.with("FAULT_FALLING_TARGETS", FAULT_FALLING_TARGETS)
}

fn sort_defines(passes: u32) -> Defines {
    Defines::new().with("THREADS", THREADS).with("ITEMS", ITEMS).with("DIGITS", DIGITS).with("PASSES", passes)
}

/// The texts of this folder with the defines they are launched with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let blocks = SelfLoops::ALL.map(|loops| (&BLOCK, block_defines(loops)));
    let sorts = [1, 2, 3, 4].map(|passes| (&SORT, sort_defines(passes)));
    blocks.into_iter().chain(sorts).collect()
}
