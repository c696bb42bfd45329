//! One subgraph on the GPU: its memory, its launches, its waits, and what came of it.
//!
//! The host waits for numbers twice, because two lists are too long to be made for the worst case: what the rows of all
//! nodes have, and what of that stays. Between and after those it waits for nothing but the end.

use headwater_cuda::{Error as CudaError, FAULT_TOO_MANY, Scratch, Span, Stream};
use headwater_memory::{Buffer, Device};

use super::super::gpu::{DeviceNodes, DeviceSample, FAULT_FALLING_OFFSETS, GpuNeighbourSampler, bases};
use super::super::seeds::Seeds;
use super::cuda::{Buffers, Launcher, Ledger, Part};
use super::{Subgraph, check_nodes, everything};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::placed::PlacedGraph;
use crate::random::Key;
use crate::topology::index;
use crate::unique::{GpuUnique, Hop};
use crate::width::IdWidth;

/// Subgraphs of a graph that a GPU reads. Shared by any number of threads, each with a stream.
#[derive(Debug)]
pub struct GpuSubgraphs {
    /// Reaches the nodes of k hops, and has the kernels' table of relations.
    sampler: GpuNeighbourSampler,
}

/// A part of a graph in GPU memory: what [`Subgraph`] is in host memory.
#[derive(Debug)]
pub struct DeviceSubgraph {
    /// Its nodes, each once, and every edge among them.
    pub sample: DeviceSample,
    /// For every type, the local numbers of the nodes that were asked for, u32 each.
    pub mapping: Vec<Span>,
}

impl DeviceSubgraph {
    /// The same part in host memory.
    pub fn to_host(&self) -> Result<Subgraph> {
        let mapping = self.mapping.iter().map(|mapping| {
            let mut numbers = vec![0u32; mapping.bytes() / 4];
            self.sample.stream().download(mapping, bytemuck::cast_slice_mut(&mut numbers))?;
            Ok(numbers)
        });
        Ok(Subgraph { mapping: mapping.collect::<Result<_>>()?, sample: self.sample.to_host()? })
    }
}

impl GpuSubgraphs {
    /// `hops` is how far [`GpuSubgraphs::khop`] reaches. Fails when the graph does not lie where a GPU reads it.
    pub fn new(placed: PlacedGraph, hops: usize) -> Result<Self> {
        Ok(Self { sampler: GpuNeighbourSampler::new(placed, everything(hops)?)? })
    }

    /// The graph in its place.
    #[must_use]
    pub fn placed(&self) -> &PlacedGraph {
        self.sampler.placed()
    }

    /// What [`induced_subgraph`](super::induced_subgraph) returns, to the bit, made on `stream`.
    pub fn induced(&self, stream: &Stream, nodes: &[&[u64]]) -> Result<DeviceSubgraph> {
        self.placed().check_stream(stream)?;
        check_nodes(self.placed().graph(), nodes)?;
        let counts: Vec<u64> = nodes.iter().map(|nodes| nodes.len() as u64).collect();
        let wanted = Buffer::<u64, Device>::from_slice(stream, &nodes.concat())?;
        self.between(stream, wanted.whole(), &counts)
    }

    /// What [`khop_subgraph`](super::khop_subgraph) returns, to the bit, made on `stream`. The nodes stay on the GPU.
    pub fn khop(&self, stream: &Stream, seeds: Seeds<'_>) -> Result<DeviceSubgraph> {
        let reached = self.sampler.sample(stream, seeds, Key::new(0))?;
        let counts: Vec<u64> = reached.nodes.iter().map(|nodes| (nodes.ids.bytes() / 8) as u64).collect();
        let wanted = Buffer::<u64, Device>::on_stream(stream, index(counts.iter().sum()))?;
        let mut at = 0;
        for nodes in &reached.nodes {
            stream.copy(&nodes.ids, &part_of(wanted.whole(), at, nodes.ids.bytes())?)?;
            at += nodes.ids.bytes();
        }
        let mut subgraph = self.between(stream, wanted.whole(), &counts)?;
        // Only the seeds were asked for.
        for (at, mapping) in subgraph.mapping.iter_mut().enumerate() {
            let count = if at == seeds.node_type { seeds.nodes.len() } else { 0 };
            *mapping = part_of(mapping, 0, count * 4)?;
        }
        Ok(subgraph)
    }

    /// Every edge between `wanted` nodes, so many of each type.
    fn between(&self, stream: &Stream, wanted: &Span, counts: &[u64]) -> Result<DeviceSubgraph> {
        let job = Job::new(&self.sampler, counts)?;
        let made = job.run(stream, wanted);
        // Kernels follow addresses that only the sampler keeps alive, so nothing may be running when this returns.
        let done = stream.synchronize().map_err(Error::from);
        made.and_then(|made| done.map(|()| made)).map_err(of_fault)
    }
}

/// What is known before anything runs.
struct Job<'a> {
    sampler: &'a GpuNeighbourSampler,
    part: Part,
    /// What the host knows of the ledger.
    cells: Vec<u64>,
    key: IdWidth,
}

impl<'a> Job<'a> {
    fn new(sampler: &'a GpuNeighbourSampler, counts: &[u64]) -> Result<Self> {
        let (graph, keys) = (sampler.placed().graph(), sampler.type_bases());
        let (types, relations) = (counts.len(), graph.relations().len());
        let sums = |counts: &[u64]| bases(counts).ok_or(Error::SampleTooLarge);
        let starts = sums(counts)?;
        let row_starts = sums(&(0..relations).map(|at| rows_of(graph, at, counts)).collect::<Vec<_>>())?;
        let ledger = Ledger::new(types as u64, relations as u64);
        let mut cells = [&starts[..], &keys[..types], &row_starts[..relations]].concat();
        cells.resize(index(ledger.cells), 0);
        let key = if keys[types] < u64::from(u32::MAX) { IdWidth::U32 } else { IdWidth::U64 };
        let part = Part {
            types: types as u64,
            relations: relations as u64,
            wanted: starts[types],
            rows: row_starts[relations],
            candidates: 0,
            edges: 0,
            slot_count: 0,
            ledger,
        };
        Ok(Self { sampler, part, cells, key })
    }

    fn run(&self, stream: &Stream, wanted: &Span) -> Result<DeviceSubgraph> {
        let buffers = self.buffers(stream, wanted)?;
        let launcher = Launcher::new(stream, &buffers, self.key, self.sampler.placed().spread_rule());
        let unique = GpuUnique::new(stream, self.key, self.part.wanted)?;
        let (slots, slot_count) = unique.table();
        let mut part = Part { slot_count, ..self.part };
        launcher.key_nodes(&part)?;
        self.number(stream, &unique, &buffers)?;
        launcher.settle(&part)?;
        launcher.count(&part)?;
        part.candidates = self.read(stream, &buffers)?[index(part.ledger.found)];
        let rows = stream.scratch(index(part.candidates).saturating_mul(4))?;
        if part.candidates > 0 {
            launcher.look(&part, slots, &rows)?;
        }
        let cells = self.read(stream, &buffers)?;
        part.edges = cells[index(part.ledger.kept)..].iter().sum();
        let edges = Edges::new(stream, part.edges)?;
        if part.edges > 0 {
            launcher.keep(&part, &rows, [&edges.row, &edges.col, &edges.ids])?;
        }
        self.subgraph(stream, &buffers, edges, &cells)
    }

    fn buffers(&self, stream: &Stream, wanted: &Span) -> Result<Buffers> {
        let (count, rows) = (index(self.part.wanted), index(self.part.rows));
        Ok(Buffers {
            relations: self.sampler.relation_table().clone(),
            ledger: Buffer::<u64, Device>::from_slice(stream, &self.cells)?.whole().clone(),
            wanted: wanted.clone(),
            keys: room(stream, count, self.key.bytes())?,
            numbers: room(stream, count, 4)?,
            nodes: room(stream, count, 8)?,
            mapping: room(stream, count, 4)?,
            list_starts: room(stream, rows, 8)?,
            candidate_firsts: room(stream, rows, 8)?,
        })
    }

    /// Queues the numbering of all keys.
    fn number(&self, stream: &Stream, unique: &GpuUnique<'_>, buffers: &Buffers) -> Result<()> {
        let cell = |at: u64| part_of(&buffers.ledger, index(at) * 8, 8);
        let Part { types, ledger, .. } = self.part;
        // There are none before: what `count` will find is still 0.
        let (count, before, after) = (cell(ledger.starts + types)?, cell(ledger.found)?, cell(ledger.firsts + types)?);
        let found = room(stream, index(self.part.wanted), self.key.bytes())?;
        let (keys, nodes, local) = (&buffers.keys, &found, &buffers.numbers);
        unique.append(&Hop { keys, count: &count, nodes, before: &before, after: &after, local })
    }

    /// Waits for the ledger.
    fn read(&self, stream: &Stream, buffers: &Buffers) -> Result<Vec<u64>> {
        let mut cells = vec![0; self.cells.len()];
        stream.download(&buffers.ledger, bytemuck::cast_slice_mut(&mut cells))?;
        Ok(cells)
    }

    fn subgraph(&self, stream: &Stream, made: &Buffers, edges: Edges, cells: &[u64]) -> Result<DeviceSubgraph> {
        let Part { types, ledger, .. } = self.part;
        let run_of = |first: u64, at: usize| {
            let [start, end] = [0, 1].map(|next| index(cells[index(first) + at + next]));
            (start, end.saturating_sub(start))
        };
        let nodes = (0..index(types)).map(|at| {
            let (start, count) = run_of(ledger.firsts, at);
            Ok(DeviceNodes { ids: part_of(&made.nodes, start * 8, count * 8)?, trees: None, per_hop: vec![count] })
        });
        let mapping = (0..index(types)).map(|at| {
            let (start, count) = run_of(ledger.starts, at);
            part_of(&made.mapping, start * 4, count * 4)
        });
        let ends = bases(&cells[index(ledger.kept)..]).ok_or(Error::SampleTooLarge)?;
        let one_hop = |ends: &[u64]| std::iter::once(index(ends[0])..index(ends[1])).collect();
        let (nodes, mapping) = (nodes.collect::<Result<_>>()?, mapping.collect::<Result<_>>()?);
        let segments = ends.windows(2).map(one_hop).collect();
        let Edges { row, col, ids, memory: _memory } = edges;
        let sample = DeviceSample { nodes, row, col, edge_ids: Some(ids), segments, stream: stream.clone(), _memory };
        Ok(DeviceSubgraph { sample, mapping })
    }
}

/// Memory of a subgraph's edges.
struct Edges {
    row: Span,
    col: Span,
    ids: Span,
    // Behind the spans, so that they are gone when it is given back.
    memory: Scratch,
}

impl Edges {
    fn new(stream: &Stream, count: u64) -> Result<Self> {
        let count = index(count);
        let memory = stream.scratch(count.saturating_mul(16))?;
        let (ids, row, col) = (
            part_of(&memory, 0, count * 8)?,
            part_of(&memory, count * 8, count * 4)?,
            part_of(&memory, count * 12, count * 4)?,
        );
        Ok(Self { row, col, ids, memory })
    }
}

/// Rows of a relation, were every node asked for another one.
fn rows_of(graph: &Graph, at: usize, counts: &[u64]) -> u64 {
    if graph.relation(at).edges() > 0 { counts[graph.ends(at).0] } else { 0 }
}

/// Memory for so many elements of so many bytes.
fn room(stream: &Stream, count: usize, each_bytes: usize) -> Result<Span> {
    Ok(Buffer::<u8, Device>::on_stream(stream, count.saturating_mul(each_bytes))?.whole().clone())
}

fn part_of(span: &Span, at: usize, bytes: usize) -> Result<Span> {
    let (found, expected) = (at.saturating_add(bytes) as u64, span.bytes() as u64);
    let too_short = Error::Length { name: "a part of a subgraph's memory", found, expected, of: "its block" };
    span.part(at, bytes).ok_or(too_short)
}

/// What a kernel met, as the error the CPU would return.
fn of_fault(why: Error) -> Error {
    match why {
        Error::Cuda(CudaError::Fault { code: FAULT_FALLING_OFFSETS, position, value, limit }) => {
            Error::FallingOffsets { row: position, before: value.cast_unsigned(), after: limit }
        }
        Error::Cuda(CudaError::Fault { code: FAULT_TOO_MANY, .. }) => Error::SampleTooLarge,
        other => other,
    }
}
