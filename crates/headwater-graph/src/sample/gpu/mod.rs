//! The neighbour sampler on the GPU: what [`NeighbourSampler`](super::NeighbourSampler) returns, to the bit.
//!
//! The graph lies in GPU memory or in pinned host memory, the sample in GPU memory. A hop is four launches, whatever
//! the number of relations: `count` how many neighbours each frontier node gives, `draw` them and bring them to a hash
//! table, `number` the new ones in the order a loop would meet them, `settle` nodes and edges in local numbers. Sizes
//! stay on the GPU; the host waits once, at the end, for the ledger that says how much was found. Edges that must not
//! be seen take one launch more, `keep`, which closes the gaps they leave. Large frontiers in large pinned graphs take
//! three more before the others, `rank`, `arrange` and `visit`, which read rows in the order of their addresses.
//!
//! Buffers are as long as their contents could become. Where that is too much they are cut, and a batch that meets
//! the cut runs again with longer ones, so -1 as fan-out and graphs of hundreds of relations cost a second run at most
//! a few times in a sampler's life.
//!
//! Seeds are checked on the host. Neighbours that are no nodes and offsets that fall are found when they are met, and
//! come out as the errors they are on the CPU; nothing outside the arrays is read.

mod columns;
mod cuda;
mod directory;
mod ledger;
mod output;
mod plan;
mod run;
#[cfg(test)]
mod tests;
mod visit;

pub use cuda::kernel_builds;
pub(super) use directory::{RELATION, RELATION_WORDS, spread_defines};
pub use output::{DeviceNodes, DeviceSample};
pub use visit::Visit;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater_cuda::{Span, Stream};
use headwater_memory::{Buffer, Device, Pinned};

use self::directory::Directory;
use self::plan::{Ends, is_followed};
use self::run::UnderWay;
use super::exclude::Excluded;
use super::options::{Fanout, SampleOptions};
use super::seeds::Seeds;
use crate::error::{Error, Result};
use crate::place::Storage;
use crate::placed::PlacedGraph;
use crate::random::Key;
use crate::topology::Topology;

/// What the kernels that read rows report when offsets fall.
pub(super) const FAULT_FALLING_OFFSETS: u32 = cuda::FAULT_FALLING_OFFSETS;

/// Edges a hop gets room for at first; more when a batch needs it.
const FIRST_ROOM: u64 = 1 << 22;
/// How much more that is each time.
const GROWTH: u64 = 8;
/// Positions and numbers keep clear of the highest bit, and slots of the highest place.
const MOST_ROOM: u64 = 1 << 30;

/// Draws neighbourhoods out of a graph that a GPU reads. Shared by any number of threads, each with a stream.
#[derive(Debug)]
pub struct GpuNeighbourSampler {
    placed: PlacedGraph,
    options: SampleOptions,
    visit: Visit,
    ends: Vec<Ends>,
    /// Nodes of each type.
    type_nodes: Vec<u64>,
    /// Where the ids of each type begin among the keys, and where the last ends.
    type_bases: Vec<u64>,
    directory: Directory,
    fanouts: Buffer<u64, Device>,
    /// Edges a hop gets room for.
    room: AtomicU64,
    /// Pinned memory between batches; as many as ever ran at once.
    kept: Mutex<Vec<Buffer<u64, Pinned>>>,
}

/// A neighbourhood that is being drawn. Its stream may be given other work meanwhile.
#[derive(Debug)]
pub struct Begun<'a> {
    sampler: &'a GpuNeighbourSampler,
    under_way: UnderWay<'a>,
    stream: Stream,
    node_type: usize,
    nodes: Vec<u64>,
    times: Option<Vec<i64>>,
    key: Key,
    room: u64,
}

impl Begun<'_> {
    /// Waits for it, and for whatever its stream was given since. One that had too little room is drawn again.
    pub fn finish(self) -> Result<DeviceSample> {
        let Self { sampler, under_way, stream, node_type, nodes, times, key, room } = self;
        if let Some(sample) = under_way.finish()? {
            return Ok(sample);
        }
        sampler.grow(room)?;
        sampler.sample(&stream, Seeds { node_type, nodes: &nodes, times: times.as_deref() }, key)
    }
}

impl GpuNeighbourSampler {
    /// Fails when the graph cannot be sampled this way, or does not lie where a GPU reads it.
    pub fn new(placed: PlacedGraph, options: SampleOptions) -> Result<Self> {
        let graph = placed.graph();
        options.check(graph)?;
        let Some(gpu) = placed.gpu().filter(|_| placed.storage() != Storage::Cpu) else {
            return Err(Error::Options { why: "a GPU samples graphs in cuda or zero-copy storage only" });
        };
        let type_nodes: Vec<u64> = graph.schema().node_types().iter().map(|node_type| node_type.count).collect();
        let type_bases = bases(&type_nodes).ok_or(Error::SampleTooLarge)?;
        let ends = |at: usize| {
            let (asking, found) = graph.ends(at);
            Ends { asking, found, edges: graph.relation(at).edges() }
        };
        let ends: Vec<Ends> = (0..graph.relations().len()).map(ends).collect();
        let hops = 0..options.fanouts.len();
        let fanouts = hops.flat_map(|hop| (0..ends.len()).map(move |at| (hop, at)));
        let fanouts: Vec<u64> = fanouts.map(|(hop, at)| fanout_word(options.fanout(hop, at))).collect();
        let stream = Stream::new(gpu)?;
        let directory = Directory::new(&stream, &placed, &type_bases)?;
        let fanouts = Buffer::from_slice(&stream, &fanouts)?;
        let (room, kept) = (AtomicU64::new(FIRST_ROOM), Mutex::default());
        Ok(Self { placed, options, visit: Visit::Auto, ends, type_nodes, type_bases, directory, fanouts, room, kept })
    }

    /// The same sampler, with rows visited in another order.
    #[must_use]
    pub fn visiting(self, visit: Visit) -> Self {
        Self { visit, ..self }
    }

    /// The graph in its place.
    #[must_use]
    pub fn placed(&self) -> &PlacedGraph {
        &self.placed
    }

    /// What was asked for.
    #[must_use]
    pub fn options(&self) -> &SampleOptions {
        &self.options
    }

    /// The neighbourhood of `seeds` under `key`, drawn on `stream`. Returns when it is there.
    pub fn sample(&self, stream: &Stream, seeds: Seeds<'_>, key: Key) -> Result<DeviceSample> {
        self.sample_types(stream, &[seeds], key)
    }

    /// The neighbourhood of seeds of several types.
    pub fn sample_types(&self, stream: &Stream, seeds: &[Seeds<'_>], key: Key) -> Result<DeviceSample> {
        self.sample_without(stream, seeds, &Excluded::none(), key)
    }

    /// As [`GpuNeighbourSampler::sample_types`], without the edges that `excluded` names.
    pub fn sample_without(
        &self,
        stream: &Stream,
        seeds: &[Seeds<'_>],
        excluded: &Excluded,
        key: Key,
    ) -> Result<DeviceSample> {
        self.placed.check_stream(stream)?;
        loop {
            let room = self.room.load(Ordering::Relaxed);
            if let Some(sample) = UnderWay::begin(self, stream, seeds, excluded, key, room)?.finish()? {
                return Ok(sample);
            }
            self.grow(room)?;
        }
    }

    /// Queues the neighbourhood of `seeds` under `key` on `stream`, and does not wait for it.
    pub fn begin(&self, stream: &Stream, seeds: Seeds<'_>, key: Key) -> Result<Begun<'_>> {
        self.placed.check_stream(stream)?;
        let room = self.room.load(Ordering::Relaxed);
        let under_way = UnderWay::begin(self, stream, &[seeds], &Excluded::none(), key, room)?;
        let (nodes, times) = (seeds.nodes.to_vec(), seeds.times.map(<[i64]>::to_vec));
        Ok(Begun {
            sampler: self,
            under_way,
            stream: stream.clone(),
            node_type: seeds.node_type,
            nodes,
            times,
            key,
            room,
        })
    }

    /// More room for the edges of a hop than this.
    fn grow(&self, room: u64) -> Result<()> {
        if room >= MOST_ROOM {
            return Err(Error::SampleTooLarge);
        }
        self.room.fetch_max(room.saturating_mul(GROWTH).min(MOST_ROOM), Ordering::Relaxed);
        Ok(())
    }

    /// Where the ids of each type begin among the keys, and where the last ends.
    pub(super) fn type_bases(&self) -> &[u64] {
        &self.type_bases
    }

    /// The kernels' table of relations, as `relation.cuh` reads it.
    pub(super) fn relation_table(&self) -> &Span {
        self.directory.relations.whole()
    }

    /// Nodes of all types.
    fn total_nodes(&self) -> u64 {
        self.type_bases.last().copied().unwrap_or(0)
    }

    /// Rows of all relations.
    fn all_rows(&self) -> u64 {
        self.placed.graph().relations().iter().map(Topology::rows).fold(0, u64::saturating_add)
    }

    /// Whether the rows of a hop with so many items are read in the order of addresses.
    fn is_by_address(&self, hop: usize, items: u64) -> bool {
        let relations = self.placed.graph().relations().iter().enumerate();
        let followed = relations.filter(|(at, _)| self.is_followed(hop, *at));
        let bytes = followed.map(|(_, topology)| topology.bytes()).sum();
        // Places in the order are 32 bits wide.
        items <= MOST_ROOM && self.visit.is_by_address(self.placed.storage(), items, bytes)
    }

    /// Whether a hop looks at a relation at all.
    fn is_followed(&self, hop: usize, relation: usize) -> bool {
        is_followed(&self.options, hop, relation, &self.ends[relation])
    }
}

/// As kernels read it: all neighbours are more than any number.
fn fanout_word(fanout: Fanout) -> u64 {
    match fanout {
        Fanout::All => u64::MAX,
        Fanout::Most(most) => u64::from(most),
    }
}

/// Sums of what came before, and of all; `None` when that is more than 64 bits.
pub(super) fn bases(counts: &[u64]) -> Option<Vec<u64>> {
    counts.iter().try_fold(vec![0u64], |mut bases, &count| {
        bases.push(bases.last()?.checked_add(count)?);
        Some(bases)
    })
}
