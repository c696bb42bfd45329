//! One batch: its memory, its seeds, its launches, and what came of it.

use std::sync::PoisonError;

use headwater_cuda::{Error as CudaError, Scratch, Span, Stream};
use headwater_memory::{Buffer, Pinned};

use super::super::exclude::Excluded;
use super::super::options::{Bias, EdgeIds, Recency, Replacement, Trees};
use super::super::seeds::{Seeds, check_seeds};
use super::cuda::{
    Batch, Buffers, Build, FAULT_FALLING_OFFSETS, FAULT_NEIGHBOUR, Launcher, PAIR_WORDS, count_tiles, number_tiles,
};
use super::ledger::{Dimensions, Ledger, Outcome};
use super::output::{DeviceNodes, DeviceSample};
use super::plan::{Asked, Plan, draws_in_rounds, lanes};
use super::visit::{BUCKETS, bucket_shift};
use super::{GpuNeighbourSampler, MOST_ROOM, bases};
use crate::error::{Error, Result};
use crate::placed::PlacedGraph;
use crate::random::{Key, mix};
use crate::topology::index;
use crate::width::IdWidth;

/// Parts of a block of memory begin at multiples of this.
const ALIGN_BYTES: usize = 256;

/// A batch whose kernels are queued. It borrows the sampler, and holds the graph whose addresses kernels follow.
#[derive(Debug)]
pub(super) struct UnderWay<'a> {
    job: Job<'a>,
    stream: Stream,
    /// Given up when it is over.
    parts: Option<Parts>,
    _graph: PlacedGraph,
}

/// Its memory.
#[derive(Debug)]
struct Parts {
    memory: Scratch,
    work: Work,
    letter: Buffer<u64, Pinned>,
}

impl<'a> UnderWay<'a> {
    /// Queues a batch with room for `room` edges a hop.
    pub fn begin(
        sampler: &'a GpuNeighbourSampler,
        stream: &Stream,
        seeds: &[Seeds<'_>],
        excluded: &Excluded,
        key: Key,
        room: u64,
    ) -> Result<Self> {
        let job = Job::new(sampler, seeds, excluded, room)?;
        let (memory, work) = job.memory(stream)?;
        let mut letter = job.letter(stream)?;
        letter.write(0, &job.words(seeds))?;
        let graph = sampler.placed.clone();
        let made = Self { job, stream: stream.clone(), parts: Some(Parts { memory, work, letter }), _graph: graph };
        // Where one launch fails, those before it are waited for when this is dropped.
        made.parts.iter().try_for_each(|parts| made.job.queue(stream, &parts.work, &parts.letter, key))?;
        Ok(made)
    }

    /// Waits for it; `None` when the room was too little.
    pub fn finish(mut self) -> Result<Option<DeviceSample>> {
        self.stream.synchronize().map_err(of_fault)?;
        let Some(Parts { memory, work, letter }) = self.parts.take() else { return Ok(None) };
        let job = &self.job;
        let mut cells = vec![0; job.cells];
        letter.read(0, &mut cells)?;
        let outcome = Outcome { of: job.of, ledger: job.ledger, cells: &cells, leaves_out: job.pair_slots() > 0 };
        let sample = match outcome.overflown_hop() {
            None => Some(job.sample(&self.stream, memory, &work.buffers, &outcome)?),
            Some(_) if job.plan.is_cut => None,
            Some(hop) => {
                let (found, expected) = (job.plan.edges[hop].saturating_add(1), job.plan.edges[hop]);
                return Err(Error::Length { name: "edges of a hop", found, expected, of: "rows that do not overlap" });
            }
        };
        job.sampler.kept.lock().unwrap_or_else(PoisonError::into_inner).push(letter);
        Ok(sample)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.parts.is_some() {
            // Kernels still write into this memory. What they met is nobody's business any more.
            let _ = self.stream.synchronize();
        }
    }
}

/// What a batch will do, decided before anything runs.
#[derive(Debug)]
struct Job<'a> {
    sampler: &'a GpuNeighbourSampler,
    plan: Plan,
    of: Dimensions,
    ledger: Ledger,
    cells: usize,
    seeds: usize,
    has_times: bool,
    is_disjoint: bool,
    /// Positions of edges are needed, as ids or while drawing.
    has_positions: bool,
    build: Build,
    /// The set of edges that must not be seen, as kernels read it; empty when there are none.
    pairs: Vec<u64>,
    /// Where each type begins in the list of nodes, and where the last ends.
    node_bases: Vec<u64>,
    /// Items of each hop whose rows are read in the order of addresses, else 0.
    order_rooms: Vec<u64>,
}

/// Memory that the kernels use.
#[derive(Debug)]
struct Work {
    buffers: Buffers,
    /// Ledger, seeds and times, in the order of the letter.
    letter: Span,
    // Behind the spans, so that they are gone when it is given back.
    _memory: Scratch,
}

impl<'a> Job<'a> {
    fn new(sampler: &'a GpuNeighbourSampler, seeds: &[Seeds<'_>], excluded: &Excluded, room: u64) -> Result<Self> {
        let options = &sampler.options;
        let has_times = check_seeds(seeds, sampler.placed.graph(), options)?;
        let mut type_seeds = vec![0u64; sampler.type_nodes.len()];
        seeds.iter().for_each(|seeds| type_seeds[seeds.node_type] += seeds.nodes.len() as u64);
        let (type_nodes, relations) = (&sampler.type_nodes, &sampler.ends);
        let asked = Asked { type_nodes, relations, options, seeds: &type_seeds, most_edges: room };
        let plan = Plan::new(&asked);
        if plan.all_nodes() > MOST_ROOM {
            return Err(Error::SampleTooLarge);
        }
        let (types, hops) = (type_nodes.len(), options.fanouts.len());
        let of = Dimensions { types, relations: relations.len(), hops, groups: seeds.len() };
        let (ledger, cells) = Ledger::new(of);
        let (nodes, trees) = (sampler.total_nodes(), asked.trees().unwrap_or(1).max(1));
        let most_key = nodes.checked_mul(trees).filter(|most| *most < u64::MAX);
        let most_key = most_key.ok_or(Error::TooManyTrees { nodes, trees })?;
        let key = if most_key < u64::from(u32::MAX) { IdWidth::U32 } else { IdWidth::U64 };
        let node_bases = bases(&plan.nodes).ok_or(Error::SampleTooLarge)?;
        let seeds = index(type_seeds.iter().sum());
        let has_positions = options.edge_ids == EdgeIds::Kept || draws_in_rounds(options);
        let is_disjoint = options.trees == Trees::Disjoint;
        let spread = sampler.placed.spread_rule();
        let build = Build { key, weighted: options.bias == Bias::Weights, spread };
        let pairs = pair_words(excluded);
        let in_order = |(hop, &items): (usize, &u64)| if sampler.is_by_address(hop, items) { items } else { 0 };
        let order_rooms = plan.items.iter().enumerate().map(in_order).collect();
        let made = Self {
            sampler,
            plan,
            of,
            ledger,
            cells,
            seeds,
            has_times,
            is_disjoint,
            has_positions,
            build,
            pairs,
            node_bases,
            order_rooms,
        };
        Ok(made)
    }

    /// 64-bit words that go to the GPU: the ledger, then keys, ids and nodes of the seeds, then their times,
    /// then the edges that must not be seen.
    fn letter_words(&self) -> usize {
        self.pairs_at() + self.pairs.len()
    }

    fn pairs_at(&self) -> usize {
        self.cells + self.seeds * if self.has_times { 4 } else { 3 }
    }

    fn pair_slots(&self) -> u64 {
        (self.pairs.len() / PAIR_WORDS) as u64
    }

    /// Pinned memory for them.
    fn letter(&self, stream: &Stream) -> Result<Buffer<u64, Pinned>> {
        let mut kept = self.sampler.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |letter: &Buffer<u64, Pinned>| letter.len() >= self.letter_words();
        match kept.iter().position(fits) {
            Some(at) => Ok(kept.swap_remove(at)),
            None => Ok(Buffer::<u64, Pinned>::new(stream.gpu(), self.letter_words().next_power_of_two())?),
        }
    }

    /// Memory of the sample, and of the work.
    fn memory(&self, stream: &Stream) -> Result<(Scratch, Work)> {
        let (nodes, edges) = (self.plan.all_nodes(), self.plan.all_edges());
        let (trees, index_room) = (self.tree_room(), self.id_room());
        let (memory, out) = carve(stream, &[(nodes, 8), (trees, 4), (edges, 4), (edges, 4), (index_room, 8)])?;
        let (items, hop_edges) = (most(&self.plan.items), most(&self.plan.edges));
        let (key_bytes, letter) = (self.build.key.bytes(), self.letter_words() as u64);
        let tables = [(self.slot_count(), 2 * key_bytes), (hop_edges, key_bytes), (hop_edges, 4), (nodes, key_bytes)];
        let words = [(count_tiles(items), 8), (number_tiles(hop_edges), 8)];
        let (order, buckets) = (most(&self.order_rooms), self.buckets());
        let rows = [(letter, 8), (items, 8), (items, 8), (items, 4), (order, 4), (buckets, 4)];
        let leaves_out = u64::from(!self.pairs.is_empty());
        let drawn = [(edges * leaves_out, 4), (index_room * leaves_out, 8), (number_tiles(hop_edges) * leaves_out, 8)];
        let (work, parts) = carve(stream, &[&rows[..], &tables, &words, &drawn].concat())?;
        let [nodes, trees, rows, cols, ids] = array(out)?;
        let [
            letter,
            row_starts,
            degrees,
            edge_firsts,
            order,
            buckets,
            slots,
            keys,
            places,
            found,
            count_words,
            number_words,
            cols_apart,
            ids_apart,
            keep_words,
        ] = array(parts)?;
        let (drawn_cols, drawn_ids) =
            if leaves_out > 0 { (cols_apart, ids_apart) } else { (cols.clone(), ids.clone()) };
        let cut = |at: usize| part(&letter, (self.cells + at * self.seeds) * 8, self.seeds * 8);
        let times = if self.has_times { cut(3)? } else { part(&letter, 0, 0)? };
        let buffers = Buffers {
            relations: self.sampler.directory.relations.whole().clone(),
            fanouts: self.sampler.fanouts.whole().clone(),
            ledger: part(&letter, 0, self.cells * 8)?,
            seed_keys: cut(0)?,
            seed_ids: cut(1)?,
            seed_nodes: cut(2)?,
            times,
            nodes,
            trees,
            row_starts,
            degrees,
            edge_firsts,
            order,
            buckets,
            slots,
            keys,
            places,
            found,
            rows,
            cols,
            ids,
            drawn_cols,
            drawn_ids,
            pairs: part(&letter, self.pairs_at() * 8, self.pairs.len() * 8)?,
            count_words,
            number_words,
            keep_words,
        };
        Ok((memory, Work { buffers, letter, _memory: work }))
    }

    /// Buckets that rows are put into, if any hop's are.
    fn buckets(&self) -> u64 {
        if most(&self.order_rooms) > 0 { BUCKETS } else { 0 }
    }

    fn tree_room(&self) -> u64 {
        if self.is_disjoint { self.plan.all_nodes() } else { 0 }
    }

    fn id_room(&self) -> u64 {
        if self.has_positions { self.plan.all_edges() } else { 0 }
    }

    /// At most half of the slots are ever taken.
    fn slot_count(&self) -> u64 {
        (2 * self.plan.all_nodes().max(1)).next_power_of_two()
    }

    /// What is known before the first hop.
    fn words(&self, seeds: &[Seeds<'_>]) -> Vec<u64> {
        let mut words = vec![0; self.letter_words()];
        let at = |part: u64, offset: usize| index(part) + offset;
        let (ledger, sampler) = (self.ledger, self.sampler);
        let tree_nodes = if self.is_disjoint { sampler.total_nodes() } else { 0 };
        let mut counts = vec![0u64; self.of.types];
        let mut number = 0;
        for (group, seeds) in seeds.iter().enumerate() {
            let local = &mut counts[seeds.node_type];
            words[at(ledger.firsts, group)] = number as u64;
            words[at(ledger.locals, group)] = *local;
            for (offset, &id) in seeds.nodes.iter().enumerate() {
                let key = number as u64 * tree_nodes + sampler.type_bases[seeds.node_type] + id;
                let node = self.node_bases[seeds.node_type] + *local;
                for (part, word) in [key, id, node].into_iter().enumerate() {
                    words[self.cells + part * self.seeds + number] = word;
                }
                if let Some(times) = seeds.times {
                    words[self.cells + 3 * self.seeds + number] = times[offset].cast_unsigned();
                }
                *local += 1;
                number += 1;
            }
        }
        words[self.pairs_at()..][..self.pairs.len()].copy_from_slice(&self.pairs);
        words[at(ledger.discovered, 0)] = number as u64;
        words[at(ledger.counts, 0)..][..counts.len()].copy_from_slice(&counts);
        words[at(ledger.node_base, 0)..][..counts.len()].copy_from_slice(&self.node_bases[..counts.len()]);
        words[at(ledger.type_base, 0)..][..counts.len()].copy_from_slice(&sampler.type_bases[..counts.len()]);
        let mut items = 0;
        for (relation, ends) in sampler.ends.iter().enumerate() {
            let is_followed = self.of.hops > 0 && sampler.is_followed(0, relation);
            items += if is_followed { counts[ends.asking] } else { 0 };
            words[at(ledger.items, relation + 1)] = items;
        }
        words
    }

    fn queue(&self, stream: &Stream, work: &Work, letter: &Buffer<u64, Pinned>, key: Key) -> Result<()> {
        let words = |count: usize| part(letter.whole(), 0, count * 8);
        stream.copy(&words(self.letter_words())?, &work.letter)?;
        stream.fill(&work.buffers.slots, 0xff)?;
        let launcher = Launcher::new(stream, &work.buffers, self.build);
        launcher.plant(&self.batch(0, key))?;
        (0..self.of.hops).try_for_each(|hop| launcher.hop(&self.batch(hop, key)))?;
        Ok(stream.copy(&work.buffers.ledger, &words(self.cells)?)?)
    }

    /// The numbers of a hop.
    fn batch(&self, hop: usize, key: Key) -> Batch {
        let (options, plan) = (&self.sampler.options, &self.plan);
        let hop_room = |rooms: &[u64]| rooms.get(hop).copied().unwrap_or(0);
        let has_hop = hop < self.of.hops;
        Batch {
            types: self.of.types as u64,
            relations: self.of.relations as u64,
            hops: self.of.hops as u64,
            groups: self.of.groups as u64,
            hop: hop as u64,
            hop_key: key.of(hop as u64).bits(),
            ledger: self.ledger,
            cells: self.cells as u64,
            item_room: hop_room(&plan.items),
            edge_room: hop_room(&plan.edges),
            edge_total: plan.all_edges(),
            key_room: plan.all_nodes(),
            node_room: plan.all_nodes(),
            slot_count: self.slot_count(),
            seeds: self.seeds as u64,
            count_tiles: count_tiles(most(&plan.items)),
            number_tiles: number_tiles(most(&plan.edges)),
            tree_room: self.tree_room(),
            id_room: self.id_room(),
            time_room: if self.has_times { self.seeds as u64 } else { 0 },
            pair_slots: self.pair_slots(),
            order_room: hop_room(&self.order_rooms),
            buckets: self.buckets(),
            tree_nodes: if self.is_disjoint { self.sampler.total_nodes() } else { 0 },
            choice: match (options.replacement, options.recency) {
                (Replacement::With, _) => 1,
                (_, Recency::Last) => 2,
                _ => 0,
            },
            lanes: if has_hop { lanes(options, hop, self.of.relations) } else { 1 },
            bucket_shift: bucket_shift(self.sampler.all_rows()),
        }
    }

    fn sample(&self, stream: &Stream, memory: Scratch, work: &Buffers, found: &Outcome<'_>) -> Result<DeviceSample> {
        let nodes = |node_type: usize| {
            let (first, count) = (index(self.node_bases[node_type]), found.nodes(self.of.hops, node_type));
            let after = |hops: usize| found.nodes(hops, node_type);
            let per_hop = (0..=self.of.hops).map(|hop| after(hop) - if hop > 0 { after(hop - 1) } else { 0 });
            let trees = self.is_disjoint.then(|| part(&work.trees, first * 4, count * 4)).transpose()?;
            Ok(DeviceNodes { ids: part(&work.nodes, first * 8, count * 8)?, trees, per_hop: per_hop.collect() })
        };
        let keeps_ids = self.sampler.options.edge_ids == EdgeIds::Kept;
        let edges = found.edges();
        let segments = |relation: usize| (0..self.of.hops).map(|hop| found.segment(hop, relation)).collect();
        Ok(DeviceSample {
            nodes: (0..self.of.types).map(nodes).collect::<Result<_>>()?,
            row: part(&work.rows, 0, edges * 4)?,
            col: part(&work.cols, 0, edges * 4)?,
            edge_ids: keeps_ids.then(|| part(&work.ids, 0, edges * 8)).transpose()?,
            segments: (0..self.of.relations).map(segments).collect(),
            stream: stream.clone(),
            _memory: memory,
        })
    }
}

/// An open-addressed set, at most half full, of edges as kernels look them up.
fn pair_words(excluded: &Excluded) -> Vec<u64> {
    let count = excluded.pairs().count();
    let slots = if count == 0 { 0 } else { (2 * count).next_power_of_two() };
    let mut words = vec![0; slots * PAIR_WORDS];
    for (relation, row, neighbour) in excluded.pairs() {
        let mut slot = index(mix(mix(mix(relation) ^ row) ^ neighbour)) & (slots - 1);
        while words[slot * PAIR_WORDS] != 0 {
            slot = (slot + 1) & (slots - 1);
        }
        words[slot * PAIR_WORDS..][..PAIR_WORDS].copy_from_slice(&[relation + 1, row, neighbour]);
    }
    words
}

/// One block of scratch memory cut into parts of so many elements of so many bytes.
fn carve(stream: &Stream, parts: &[(u64, usize)]) -> Result<(Scratch, Vec<Span>)> {
    let bytes = |&(count, each): &(u64, usize)| index(count).saturating_mul(each);
    let padded = |bytes: usize| bytes.div_ceil(ALIGN_BYTES).saturating_mul(ALIGN_BYTES);
    let total = parts.iter().fold(0, |sum: usize, each| sum.saturating_add(padded(bytes(each))));
    let memory = stream.scratch(total)?;
    let mut at = 0;
    let cut = |each: &(u64, usize)| {
        let span = part(&memory, at, bytes(each));
        at += padded(bytes(each));
        span
    };
    let spans = parts.iter().map(cut).collect::<Result<_>>()?;
    Ok((memory, spans))
}

fn array<const N: usize>(spans: Vec<Span>) -> Result<[Span; N]> {
    let found = spans.len() as u64;
    spans.try_into().map_err(|_| Error::Length { name: "parts of a block", found, expected: N as u64, of: "it" })
}

fn part(span: &Span, at: usize, bytes: usize) -> Result<Span> {
    let too_short = || Error::Length {
        name: "a part of a batch's memory",
        found: at.saturating_add(bytes) as u64,
        expected: span.bytes() as u64,
        of: "its block",
    };
    span.part(at, bytes).ok_or_else(too_short)
}

fn most(rooms: &[u64]) -> u64 {
    rooms.iter().copied().max().unwrap_or(0)
}

/// What a kernel met, as the error the CPU would return.
fn of_fault(why: CudaError) -> Error {
    match why {
        CudaError::Fault { code: FAULT_FALLING_OFFSETS, position, value, limit } => {
            Error::FallingOffsets { row: position, before: value.cast_unsigned(), after: limit }
        }
        CudaError::Fault { code: FAULT_NEIGHBOUR, position, value, limit } => {
            Error::IdOutOfRange { name: "neighbours", position, id: value.cast_unsigned(), limit }
        }
        other => other.into(),
    }
}
