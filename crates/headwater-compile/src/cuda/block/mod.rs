//! One block of a sample as kernels read it, made on the GPU out of the sampler's lists.
//!
//! In: for each edge the local numbers of its source and of its target, targets in order. Out: the tables that
//! [`Adjacency`](crate::adjacency::Adjacency) makes on the host for one node type and one relation: rows of every
//! domain, both ends of each edge, where each target's edges begin, and where asked for the edges of each source.
//! Memory is for a capacity and is filled again and again; nothing waits for the host.
//!
//! Edges of a target to itself may be left out, and each target may get one as its last. How many edges that leaves is known
//! on the device alone, so kernels read it there.
//!
//! Lists that are none (a number outside, targets that fall) are reported by the next synchronisation of the stream,
//! and the block has no edges.

mod cuda;
#[cfg(test)]
mod tests;

use headwater_cuda::{Allocation, Error as CudaError, Span, Stream};

pub use cuda::kernel_builds;
use cuda::{COUNTS, DIGITS, FAULT_FALLING_TARGETS, RANGES, TILE};

use crate::adjacency::SelfLoops;
use crate::error::{Error, Result};

/// Words of tiles hold counts of 30 bits.
const MOST_EDGES: u32 = (1 << 30) - 1;

/// The largest block that there is memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Nodes that are read.
    pub src: usize,
    /// Nodes that are written: the first of those.
    pub dst: usize,
    /// Edges as the sampler gives them.
    pub edges: usize,
}

/// What a block is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wants {
    /// The edges of each source too, which gradients run along.
    pub by_source: bool,
    /// Edges of targets to themselves.
    pub self_loops: SelfLoops,
}

/// The lists of one block.
#[derive(Debug, Clone, Copy)]
pub struct Lists<'a> {
    /// The source of each edge, u32: a number below `src`. There may be more behind those that count.
    pub sources: &'a Span,
    /// The target of each edge, u32: a number below `dst`, not below the one before.
    pub targets: &'a Span,
    /// Edges that count.
    pub edges: u32,
    /// Nodes that are read.
    pub src: u32,
    /// Nodes that are written.
    pub dst: u32,
}

/// A block in device memory.
#[derive(Debug)]
pub struct DeviceBlock {
    room: Room,
    tables: Tables,
    sorted: Option<BySource>,
    /// What is zero before each filling.
    zeroed: Span,
}

/// Edges by target, and what their kernels tell each other.
#[derive(Debug)]
struct Tables {
    loops: SelfLoops,
    /// Edges that there is room for, loops among them.
    room: u32,
    counts: Span,
    /// The last of the counts.
    edge_count: Span,
    ranges: Span,
    src: Span,
    dst: Span,
    dst_starts: Span,
    /// Where loops go: how many edges stay before each.
    before: Span,
    ticket: Span,
    words: Span,
    tiles: u32,
    is_bad: Span,
}

/// Edges by source.
#[derive(Debug)]
struct BySource {
    passes: u32,
    starts: Span,
    edges: Span,
    /// Sources in the order of a pass, in turns.
    keys: [Span; 2],
    spare: Span,
    totals: Span,
    /// For each pass, who takes which tile and what was counted there.
    tickets: Vec<(Span, Span)>,
}

impl DeviceBlock {
    /// Memory for a block, which is empty until it is filled. It is there from now on in the order of the stream.
    pub fn new(stream: &Stream, room: Room, wants: Wants) -> Result<Self> {
        let edges = room.edges.saturating_add(if wants.self_loops.adds() { room.dst } else { 0 });
        let numbers = (u32::try_from(edges), u32::try_from(room.src), u32::try_from(room.dst));
        let (Ok(edges), Ok(src), Ok(dst)) = numbers else { return Err(too_large(room)) };
        if edges > MOST_EDGES || src == u32::MAX || dst > src {
            return Err(too_large(room));
        }
        let (tiles, passes) = (edges.div_ceil(TILE).max(1), passes(src));
        let mut parts = Parts { memory: words(stream, zeroed_words(tiles, passes, wants))?, at: 0 };
        let zeroed = parts.memory.clone();
        let counts = words(stream, COUNTS)?;
        let tables = Tables {
            loops: wants.self_loops,
            room: edges,
            edge_count: part(&counts, 4 * (COUNTS - 1), 4),
            counts,
            ranges: words(stream, RANGES)?,
            src: words(stream, edges as usize)?,
            dst: words(stream, edges as usize)?,
            dst_starts: words(stream, dst as usize + 1)?,
            before: words(stream, if wants.self_loops.drops() { room.edges + 1 } else { 0 })?,
            ticket: parts.next(2),
            words: parts.next(2 * tiles as usize),
            tiles,
            is_bad: parts.next(2),
        };
        let sorted = if wants.by_source { Some(BySource::new(stream, &tables, src, &mut parts)?) } else { None };
        stream.fill(&tables.counts, 0)?;
        stream.fill(&tables.ranges, 0)?;
        Ok(Self { room, tables, sorted, zeroed })
    }

    /// Queues the tables of a block in the place of what was there.
    pub fn fill(&self, stream: &Stream, lists: &Lists<'_>) -> Result<()> {
        let (edges, src, dst) = (lists.edges as usize, lists.src as usize, lists.dst as usize);
        if edges > self.room.edges || src > self.room.src || dst > self.room.dst.min(src) {
            let Room { src: most_src, dst: most_dst, edges: most } = self.room;
            let why = format!(
                "{edges} edges of {dst} written and {src} read nodes; the block has room for {most} of {most_dst} and \
                 {most_src}, and written nodes are among those that are read"
            );
            return Err(Error::Graph { relation: 0, why });
        }
        stream.fill(&self.zeroed, 0)?;
        cuda::by_target(stream, &self.tables, lists)?;
        if let Some(sorted) = &self.sorted {
            let most = lists.edges + if self.tables.loops.adds() { lists.dst } else { 0 };
            cuda::by_source(stream, &self.tables, sorted, most, lists.src)?;
        }
        Ok(())
    }

    /// The largest block that it can be.
    #[must_use]
    pub fn room(&self) -> Room {
        self.room
    }

    /// Edges that the arrays have room for: with self loops more than were asked for.
    #[must_use]
    pub fn most_edges(&self) -> usize {
        self.tables.room as usize
    }

    /// Rows of every domain, u32 each, in the order of [`Domain::ALL`](crate::inter::Domain::ALL). Pairs are none.
    #[must_use]
    pub fn counts(&self) -> &Span {
        &self.tables.counts
    }

    /// Where the rows of the one type begin and end: among sources, targets and edges, two words each.
    #[must_use]
    pub fn ranges(&self) -> &Span {
        &self.tables.ranges
    }

    /// The source of each edge.
    #[must_use]
    pub fn src(&self) -> &Span {
        &self.tables.src
    }

    /// The target of each edge.
    #[must_use]
    pub fn dst(&self) -> &Span {
        &self.tables.dst
    }

    /// Where each target's edges begin, and where the last one's end.
    #[must_use]
    pub fn dst_starts(&self) -> &Span {
        &self.tables.dst_starts
    }

    /// Where each source's edges begin in [`src_edges`](Self::src_edges), where that was asked for.
    #[must_use]
    pub fn src_starts(&self) -> Option<&Span> {
        self.sorted.as_ref().map(|sorted| &sorted.starts)
    }

    /// Edges source by source, those of one source in their order.
    #[must_use]
    pub fn src_edges(&self) -> Option<&Span> {
        self.sorted.as_ref().map(|sorted| &sorted.edges)
    }
}

impl BySource {
    fn new(stream: &Stream, tables: &Tables, src: u32, parts: &mut Parts) -> Result<Self> {
        let (passes, edges, tiles) = (passes(src), tables.room as usize, tables.tiles as usize);
        Ok(Self {
            passes,
            starts: words(stream, src as usize + 1)?,
            edges: words(stream, edges)?,
            keys: [words(stream, edges)?, words(stream, edges)?],
            spare: words(stream, edges)?,
            totals: parts.next(passes as usize * DIGITS as usize),
            tickets: (0..passes).map(|_| (parts.next(2), parts.next(tiles * DIGITS as usize))).collect(),
        })
    }
}

/// Digits of numbers below `src`.
fn passes(src: u32) -> u32 {
    (u32::BITS - src.saturating_sub(1).leading_zeros()).div_ceil(DIGITS.ilog2()).max(1)
}

/// Words that tickets, flags and counts of digits take together.
fn zeroed_words(tiles: u32, passes: u32, wants: Wants) -> usize {
    let (tiles, passes, digits) = (tiles as usize, passes as usize, DIGITS as usize);
    let sorting = passes * (digits + 2 + tiles * digits);
    2 + 2 * tiles + 2 + if wants.by_source { sorting } else { 0 }
}

/// Memory that is handed out piece by piece.
struct Parts {
    memory: Span,
    at: usize,
}

impl Parts {
    /// The next `words` words; an even number of them, so that all begin on eight bytes.
    fn next(&mut self, words: usize) -> Span {
        let found = part(&self.memory, self.at, 4 * words);
        self.at += 4 * words;
        found
    }
}

/// A part of memory that was made as large as its parts together.
fn part(memory: &Span, at: usize, bytes: usize) -> Span {
    memory.part(at, bytes).unwrap_or_else(|| memory.clone())
}

fn words(stream: &Stream, count: usize) -> Result<Span> {
    Ok(Span::whole(Allocation::on_stream(stream, 4 * count.max(2))?))
}

/// What was wrong with the lists, where a stream reports that a block could not be made of them.
#[must_use]
pub fn explained(fault: CudaError) -> Error {
    match fault {
        CudaError::Fault { code: FAULT_FALLING_TARGETS, position, value, limit } => {
            let why = format!("edge {position} has target {value} after target {limit}; targets do not fall");
            Error::Graph { relation: 0, why }
        }
        other => other.into(),
    }
}

fn too_large(room: Room) -> Error {
    let why = format!("{room:?}; a block has less than 2^30 edges, and written nodes are among those that are read");
    Error::Graph { relation: 0, why }
}
