//! Programs of kernels run on a GPU.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use std::sync::Arc;

use headwater_cuda::{Allocation, Defines, Element, Gemm, Grid, Kernel, Launched, Param, Source, Span, Stream};
use headwater_memory::{Lifetime, place_by_lifetime};

use super::depend::{self, Touched};
use super::graph::DeviceGraph;
use super::tell::{self, tell};
use super::text::{Blocks, Copied, Emitted, HEADERS, Launch, WarpgroupBlocks, emit};
use super::{Precision, product};
use crate::adjacency::{Adjacency, RelationEdges};
use crate::error::{Error, Result};
use crate::front::{self, Arguments, BUILTIN};
use crate::inter::Domain;
use crate::intra::{Buffer, BufferId, Program, Role};
use crate::pass::{Optimisations, Statistics, compile};

/// What every kernel takes. How far it reaches is in the tables behind these pointers.
const PARAMS: &[Param] = &[
    Param::Read("graph", Element::Bytes, &[]),
    Param::Read("buffers", Element::Bytes, &[]),
    Param::Read("step", Element::U64, &[]),
];
const THREADS: u32 = 256;
/// Those of a block that multiplies by tensor cores; as `mma.cuh` has it.
const TENSOR_THREADS: u32 = 128;
/// Rows are read in pieces of so many bytes.
const ALIGN_BYTES: u64 = 16;
/// The most texts that a program is compiled as.
const MOST_COMPILERS: usize = 8;
/// Blocks an SM is given; more only wait.
const BLOCKS_PER_SM: usize = 8;
/// Rows of a walk that a group of lanes has, where there are enough: more blocks than run at once even out how long they take.
const ROWS_A_GROUP: usize = 16;
/// The most blocks that share the rows of a walk, hubs aside: their threads are a stride that `graph.rs` knows.
const MOST_WALK_BLOCKS: usize = 1 << 12;

/// The texts of blocks and of told words.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let mut builds = super::block::kernel_builds();
    builds.extend(tell::kernel_builds());
    builds
}

/// The texts of all built-in layers.
pub fn layer_builds() -> Result<Vec<(&'static Source, Defines)>> {
    let mut builds = Vec::new();
    for (name, text) in BUILTIN {
        let sizes = [("d_in", 64), ("d_out", 32), ("heads", 2), ("d_hidden", 32)];
        let sizes = sizes.into_iter().map(|(name, size)| (name.to_owned(), size)).collect();
        let layer = front::read(name, text, &Arguments { sizes, ..Arguments::default() })?;
        let lists = |dst| RelationEdges { src_type: 1 - dst, dst_type: dst, offsets: &[0, 1, 2], sources: &[0, 1] };
        let graph = Adjacency::new(&[2, 2], &[2, 2], &[lists(0), lists(1)])?;
        // Small graphs have no products that are added up by node, which take many pairs of a type beside each other, and no products of
        // weights, which take more edges than types.
        let small = Statistics::of(&graph);
        let statistics = if ["rgcn", "rgat"].contains(&name) { with_long_runs(small) } else { small };
        let compiled = compile(&layer.program, &statistics, Optimisations::GPU)?;
        // Precisions differ in products alone, and in those that are added up: two layers show them.
        let precisions = [Precision::default(), Precision::F32, Precision::Tf32, Precision::Bf16];
        let precisions = if ["sage", "rgcn"].contains(&name) { &precisions[..] } else { &precisions[..1] };
        for program in [&compiled.forward, &compiled.backward] {
            let whole = |precision: &Precision| sources(&emit(program, *precision), 1).pop();
            builds.extend(precisions.iter().filter_map(whole).map(|source| (source, Defines::new())));
        }
    }
    Ok(builds)
}

/// A graph of the same types whose pairs lie in long runs of one type.
fn with_long_runs(small: Statistics) -> Statistics {
    let (nodes, pairs, runs) = (1e6, 4e6, 1.2e4);
    let small = Statistics { sources: nodes, destinations: nodes, edges: 2.0 * pairs, ..small };
    let small = Statistics { source_pairs: pairs, destination_pairs: pairs, ..small };
    Statistics { source_runs: runs, destination_runs: runs, ..small }
}

/// A program made ready to run on a GPU.
#[derive(Debug)]
pub struct Executor {
    emitted: Emitted,
    precision: Precision,
    /// What traces call it.
    label: String,
    kernels: Vec<Kernel>,
    /// The text of every kernel, with others.
    sources: Vec<&'static Source>,
}

/// Rows in GPU memory, or in host memory that a GPU reads.
#[derive(Debug, Clone)]
pub struct DeviceRows {
    /// Their elements.
    pub data: Span,
    /// Which rows stand for the first, the second and so on, as 32-bit numbers; all in order where there is no list.
    pub rows: Option<Span>,
}

impl From<Span> for DeviceRows {
    fn from(data: Span) -> Self {
        Self { data, rows: None }
    }
}

/// A program over a graph's room and memory for all of its buffers: ready to be queued any number of times.
#[derive(Debug)]
pub struct Bound {
    tables: Tables,
    ways: Vec<Way>,
    /// Which launches each waits for.
    waits: Vec<Vec<usize>>,
    outputs: Vec<(Buffer, Span)>,
    /// All memory that kernels reach through the tables.
    spans: Vec<Span>,
}

/// Addresses in GPU memory, through which kernels reach a graph and buffers. They say where these lie, and keep none of them.
#[derive(Debug)]
pub(super) struct Tables {
    graph: Span,
    buffers: Span,
    /// Words of the caller's behind them.
    pub more: Span,
    /// What kernels are compiled with: kinds of what the tables have, which they need not look at then.
    defines: Defines,
}

impl Bound {
    /// What it makes, and where.
    pub fn outputs(&self) -> impl Iterator<Item = (&Buffer, &Span)> {
        self.outputs.iter().map(|(buffer, span)| (buffer, span))
    }

    /// Which of the program's launches are made: one for rows that the graph does not have is not.
    pub fn launched(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ways.len()).filter(|at| !matches!(self.ways[*at], Way::Nothing))
    }
}

/// How a launch is made.
#[derive(Debug)]
pub(super) enum Way {
    Kernel(Grid),
    Cublas(Box<Gemm>),
    /// The graph has no rows that it would be for.
    Nothing,
}

/// Gives a buffer of the caller its memory.
pub type Give<'a> = &'a dyn Fn(&Buffer) -> Result<Option<DeviceRows>>;

impl Executor {
    /// Writes a program's text. It is compiled when it is first run.
    #[must_use]
    pub fn new(program: &Program) -> Self {
        Self::with_precision(program, Precision::default())
    }

    /// The same, with products as exact as is said.
    #[must_use]
    pub fn with_precision(program: &Program, precision: Precision) -> Self {
        Self::in_texts(program, precision, compilers())
    }

    /// The same, as at most so many texts.
    pub(super) fn in_texts(program: &Program, precision: Precision, most: usize) -> Self {
        let emitted = emit(program, precision);
        let sources = sources(&emitted, most);
        let kernel = |(launch, source): (&Launch, &&'static Source)| {
            // SAFETY: all entries of an emitted text have these parameters. They reach rows of domains below the counts in
            // the graph's table, along its maps and lists, and buffers of the other table at such rows; `bind` makes both
            // out of a graph whose rows fit its room and of buffers that are as long as that room.
            unsafe { Kernel::declare(source, String::leak(launch.entry.clone()), PARAMS) }
        };
        let kernels = emitted.launches.iter().zip(&sources).map(kernel).collect();
        Self { label: emitted.name.clone(), emitted, precision, kernels, sources }
    }

    /// The same, called so in traces.
    #[must_use]
    pub fn labelled(self, label: String) -> Self {
        Self { label, ..self }
    }

    /// What was written.
    #[must_use]
    pub fn emitted(&self) -> &Emitted {
        &self.emitted
    }

    /// Bytes that temporary buffers take for a graph's room.
    #[must_use]
    pub fn temporary_bytes(&self, graph: &DeviceGraph) -> usize {
        place_by_lifetime(&self.lives(graph)).1
    }

    /// Puts a program over a graph and memory. `temporaries` is memory for what only this program needs, and only while it
    /// runs; `give` says where every other buffer lies, which has to be as long as its rows could become.
    pub fn bind(&self, stream: &Stream, graph: &DeviceGraph, temporaries: &Span, give: Give<'_>) -> Result<Bound> {
        let own = self.rows(graph, &self.begins(graph), temporaries, &mut |buffer| give(buffer))?;
        let room = Span::whole(Allocation::on_stream(stream, self.table_bytes(0))?);
        let tables = self.tables(stream, graph, &own, (&room, &[]))?;
        let named = self.emitted.buffers.iter().zip(&own).filter(|(buffer, _)| buffer.role == Role::Output);
        let outputs = named.map(|(buffer, rows)| (buffer.clone(), rows.data.clone())).collect();
        let ways = self.ways(stream, graph, &own);
        Ok(Bound { tables, waits: self.waits(&ways, &own), ways, outputs, spans: reached(graph, &own) })
    }

    /// Queues all launches. `step` is where the key of the step lies.
    pub fn queue(&self, stream: &Stream, bound: &Bound, step: &Span) -> Result<()> {
        self.launch(stream, &bound.tables, (&bound.ways, &bound.spans), step, &|| bound.waits.clone())
    }

    /// Where temporary buffers begin.
    pub(super) fn begins(&self, graph: &DeviceGraph) -> Vec<usize> {
        let mut begins = place_by_lifetime(&self.lives(graph)).0;
        self.copies(graph).for_each(|Copied { from, to }| begins[to.at()] = begins[from.at()]);
        begins
    }

    /// Copies that are not made: both buffers are the same memory.
    fn copies(&self, graph: &DeviceGraph) -> impl Iterator<Item = Copied> + '_ {
        let is_whole = is_whole(graph);
        self.emitted.launches.iter().filter_map(move |launch| launch.copy.filter(|_| is_whole))
    }

    /// Memory of all buffers: temporary ones begin where `begins` says.
    pub(super) fn rows(
        &self,
        graph: &DeviceGraph,
        begins: &[usize],
        temporaries: &Span,
        give: &mut dyn FnMut(&Buffer) -> Result<Option<DeviceRows>>,
    ) -> Result<Vec<DeviceRows>> {
        let mut own = Vec::with_capacity(begins.len());
        for (at, (buffer, begin)) in self.emitted.buffers.iter().zip(begins).enumerate() {
            let bytes = 4 * self.room(graph, at) * buffer.shape.len();
            let rows = match buffer.role {
                Role::Temporary => temporaries.part(*begin, bytes).map(DeviceRows::from),
                _ => give(buffer)?,
            };
            let found = rows.as_ref().map_or(0, |rows| rows.data.bytes());
            let refused = || Error::Binding { name: buffer.name.clone(), expected: bytes / 4, found: found / 4 };
            let rows = rows.filter(|rows| rows.rows.is_some() || rows.data.bytes() >= bytes).ok_or_else(refused)?;
            let pointer = rows.data.pointer();
            if pointer % ALIGN_BYTES != 0 {
                let why = format!("its rows begin at {pointer:#x}, which {ALIGN_BYTES} does not divide");
                return Err(Error::Malformed { program: self.emitted.name.clone(), at: buffer.name.clone(), why });
            }
            own.push(rows);
        }
        Ok(own)
    }

    /// Bytes of the tables with so many words behind them.
    pub(super) fn table_bytes(&self, more: usize) -> usize {
        8 * (DeviceGraph::word_count(&self.emitted.table) + 2 * self.emitted.buffers.len() + more).max(1)
    }

    /// Tells the tables to memory for them, with words of the caller's behind.
    pub(super) fn tables(
        &self,
        stream: &Stream,
        graph: &DeviceGraph,
        own: &[DeviceRows],
        (room, more): (&Span, &[u64]),
    ) -> Result<Tables> {
        let is_picked = own.iter().map(|rows| rows.rows.is_some()).collect::<Vec<_>>();
        let defines = Defines::new().with("HW_KINDS", graph.kinds(&self.emitted.table, &is_picked));
        stream.gpu().prepare(&self.sources, &defines)?;
        let mut words = graph.words(&self.emitted.table, room.pointer())?;
        let graph_words = words.len();
        let addresses =
            |rows: &DeviceRows| [rows.data.pointer(), rows.rows.as_ref().map_or(0, |rows: &Span| rows.pointer())];
        words.extend(own.iter().flat_map(addresses));
        words.extend(more);
        tell(stream, &words, room)?;
        let short = || Error::Binding { name: "tables".to_owned(), expected: words.len(), found: room.bytes() / 8 };
        let part = |first: usize, count: usize| room.part(8 * first, 8 * count).ok_or_else(short);
        let (buffers, last) = (part(graph_words, 2 * own.len())?, graph_words + 2 * own.len());
        Ok(Tables { graph: part(0, graph_words)?, buffers, more: part(last, more.len())?, defines })
    }

    /// How every launch is made over these.
    pub(super) fn ways(&self, stream: &Stream, graph: &DeviceGraph, own: &[DeviceRows]) -> Vec<Way> {
        let way = |launch: &Launch| match launch.dense.and_then(|dense| dense.call(graph, self.precision, own)) {
            Some(call) => Way::Cublas(Box::new(call)),
            None if launch.copy.is_some() && is_whole(graph) => Way::Nothing,
            None => grid(stream, launch.blocks, graph).map_or(Way::Nothing, Way::Kernel),
        };
        self.emitted.launches.iter().map(way).collect()
    }

    /// Which launches before each it waits for, over memory of all buffers.
    pub(super) fn waits(&self, ways: &[Way], own: &[DeviceRows]) -> Vec<Vec<usize>> {
        let touched = |(launch, way): (&Launch, &Way)| -> Vec<Touched> {
            let range = |span: &Span| span.pointer()..span.pointer() + span.bytes() as u64;
            let all = launch.buffers.iter().filter(|_| !matches!(way, Way::Nothing)).flat_map(|id| {
                let rows = &own[id.at()];
                let data = Touched { at: range(&rows.data), is_written: launch.writes.contains(id) };
                std::iter::once(data)
                    .chain(rows.rows.as_ref().map(|rows| Touched { at: range(rows), is_written: false }))
            });
            // Products of cuBLAS share the workspace of their stream.
            let workspace = matches!(way, Way::Cublas(_)).then_some(Touched { at: 0..1, is_written: true });
            all.chain(workspace).collect()
        };
        depend::waits(&self.emitted.launches.iter().zip(ways).map(touched).collect::<Vec<_>>())
    }

    /// Queues all launches, which reach `spans` through the tables. Where they are captured, each waits for those that `waits` says.
    pub(super) fn launch(
        &self,
        stream: &Stream,
        tables: &Tables,
        (ways, spans): (&[Way], &[Span]),
        step: &Span,
        waits: &dyn Fn() -> Vec<Vec<usize>>,
    ) -> Result<()> {
        let one = |at: usize| -> Result<()> {
            let grid = match &ways[at] {
                Way::Kernel(grid) => grid,
                Way::Nothing => return Ok(()),
                Way::Cublas(call) => return Ok(call.run(stream)?),
            };
            let arguments =
                self.kernels[at].on(stream, &tables.defines, *grid).bytes(&tables.graph).bytes(&tables.buffers);
            let arguments = arguments.buffer(step, Element::U64).touching(spans);
            Ok(arguments.called(&|| format!("{}, {}", self.label, self.emitted.launches[at].what)).go()?)
        };
        match stream.branches()? {
            Some(mut branches) => {
                (0..).zip(waits()).try_for_each(|(at, after)| {
                    let is_own = matches!(ways[at], Way::Kernel(_));
                    branches.part(&after, if is_own { Launched::Early } else { Launched::After }, || one(at))
                })?;
                Ok(branches.join()?)
            }
            None => (0..ways.len()).try_for_each(one),
        }
    }

    /// How long every buffer is needed, and how large it may be. What the caller has takes nothing.
    fn lives(&self, graph: &DeviceGraph) -> Vec<Lifetime> {
        let life = |(at, buffer): (usize, &Buffer)| {
            let mut uses =
                (0..).zip(&self.emitted.launches).filter(|(_, launch)| launch.buffers.contains(&BufferId::new(at)));
            let first = uses.next().map_or(0, |(launch, _)| launch);
            let last = uses.last().map_or(first, |(launch, _)| launch);
            let is_own = buffer.role == Role::Temporary;
            Lifetime { bytes: if is_own { 4 * self.room(graph, at) * buffer.shape.len() } else { 0 }, first, last }
        };
        let mut lives: Vec<Lifetime> = self.emitted.buffers.iter().enumerate().map(life).collect();
        for Copied { from, to } in self.copies(graph) {
            lives[from.at()].last = lives[from.at()].last.max(lives[to.at()].last);
            lives[to.at()].bytes = 0;
        }
        lives
    }

    /// The most rows that a buffer can have.
    fn room(&self, graph: &DeviceGraph, at: usize) -> usize {
        match self.emitted.chunked.get(&BufferId::new(at)) {
            Some(tiling) => graph.most_tiles(*tiling),
            None => graph.room(self.emitted.buffers[at].domain),
        }
    }
}

/// Whether all nodes that are read are written, so that rows of both are the same.
fn is_whole(graph: &DeviceGraph) -> bool {
    graph.is_fixed && graph.room(Domain::SRC) == graph.room(Domain::DST)
}

/// All memory that kernels reach through tables over these, each piece once.
pub(super) fn reached(graph: &DeviceGraph, own: &[DeviceRows]) -> Vec<Span> {
    let mut spans = graph.spans.clone();
    for span in own.iter().flat_map(|rows| [Some(&rows.data), rows.rows.as_ref()]).flatten() {
        if !spans.iter().any(|known| Arc::ptr_eq(known.allocation(), span.allocation())) {
            spans.push(span.clone());
        }
    }
    spans
}

/// Texts that are compiled beside each other: a compiler uses one core, and half of them are left to others.
fn compilers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).clamp(1, MOST_COMPILERS))
}

/// The text that each kernel is a part of: at most so many, of about one length.
fn sources(emitted: &Emitted, most: usize) -> Vec<&'static Source> {
    let most = most.clamp(1, emitted.launches.len().max(1));
    let (mut texts, mut place) = (vec![String::new(); most], Vec::with_capacity(emitted.launches.len()));
    for launch in &emitted.launches {
        let shortest = (0..most).min_by_key(|at| texts[*at].len()).unwrap_or(0);
        texts[shortest] += &launch.text;
        place.push(shortest);
    }
    let written = |(at, text): (usize, &String)| {
        let name = if most == 1 { format!("{}.cu", emitted.name) } else { format!("{}.{at}.cu", emitted.name) };
        Source::written(&name, text, &HEADERS)
    };
    let written: Vec<&'static Source> = texts.iter().enumerate().map(written).collect();
    place.into_iter().map(|at| written[at]).collect()
}

/// Thread blocks of a launch, which walk what they are for with a stride; `None` where there is nothing.
fn grid(stream: &Stream, blocks: Blocks, graph: &DeviceGraph) -> Option<Grid> {
    let sms = stream.gpu().facts().sms as usize;
    let limited = |count: usize, most: usize| u32::try_from(count.clamp(1, most.max(1))).unwrap_or(1);
    let plain = |count: usize| Grid { blocks: limited(count, sms * BLOCKS_PER_SM), threads: THREADS, shared_bytes: 0 };
    let by_rows = |rows: Domain, a_block: usize, across: usize| graph.room(rows).div_ceil(a_block.max(1)) * across;
    Some(match blocks {
        Blocks::Rows(rows, a_block, across) => plain(by_rows(rows, a_block, across)),
        Blocks::Pieces(tiling, across) => plain(graph.most_tiles(tiling) * across),
        Blocks::Rest { of, after, .. } if graph.is_fixed && graph.room(of) == graph.room(after) => return None,
        Blocks::Rest { of, a_block, across, .. } => plain(by_rows(of, a_block, across)),
        Blocks::Walk { rows, groups, by, .. } => {
            let (room, hubs) = (graph.room(rows), by.map_or(0, |by| graph.hub_count(rows, by)));
            let at_once = room.div_ceil(groups).min(sms * BLOCKS_PER_SM);
            let blocks = room.div_ceil(groups * ROWS_A_GROUP).max(at_once).clamp(1, MOST_WALK_BLOCKS);
            Grid { blocks: limited(hubs + blocks, i32::MAX as usize), ..plain(1) }
        }
        Blocks::Sums { of, nodes, across, shared_bytes } => Grid {
            blocks: limited(by_rows(of, nodes, across), sms * product::BLOCKS_PER_SM),
            threads: TENSOR_THREADS,
            shared_bytes: u32::try_from(shared_bytes).unwrap_or(u32::MAX),
        },
        Blocks::Tensor { pieces, across, shared_bytes, group } => {
            let single = WarpgroupBlocks { at_once: product::BLOCKS_PER_SM, shared_bytes };
            let WarpgroupBlocks { at_once, shared_bytes } =
                group.filter(|_| stream.gpu().has_warpgroups()).unwrap_or(single);
            Grid {
                blocks: limited(graph.most_tiles(pieces) * across, sms * at_once),
                threads: TENSOR_THREADS,
                shared_bytes: u32::try_from(shared_bytes).unwrap_or(u32::MAX),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is compiled with a real compiler without a GPU has every kind of launch that layers have.
    #[test]
    fn builds_have_every_kind_of_launch() {
        let builds = layer_builds().unwrap();
        let texts: Vec<String> = builds.iter().map(|(source, _)| source.full_text()).collect();
        // Their definitions have no arguments in angle brackets.
        for call in ["hw_product<", "hw_outer<", "hw_add_products<", "hw_total<", "hw_weights<"] {
            assert!(texts.iter().any(|text| text.contains(call)), "{call}");
        }
        for mode in ["HW_TF32X3", "HW_TF32", "HW_BF16"] {
            assert!(texts.iter().any(|text| text.contains(&format!("hw_add_products<{mode},"))), "{mode}");
        }
    }
}
