//! Programs of kernels run on a GPU.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use std::collections::BTreeMap;

use headwater_cuda::{Allocation, Defines, Element, Grid, Kernel, Param, Source, Span, Stream};
use headwater_graph::random::Key;

use super::Precision;
use super::graph::Numbers;
use super::text::{Emitted, HEADERS, Launch, emit};
use crate::adjacency::{Adjacency, RelationEdges};
use crate::cpu::fast::Given;
use crate::error::{Error, Result};
use crate::front::{self, Arguments, BUILTIN};
use crate::intra::{Buffer, Program, Role};
use crate::pass::{Optimisations, Statistics, compile};

/// What every kernel takes. How far it reaches is in the tables behind these pointers.
const PARAMS: &[Param] = &[
    Param::Read("graph", Element::Bytes, &[]),
    Param::Read("buffers", Element::Bytes, &[]),
    Param::Read("step", Element::U64, &[]),
];
const THREADS: u32 = 256;
/// Blocks an SM is given; more only wait.
const BLOCKS_PER_SM: usize = 8;

/// The texts of all built-in layers, for a small graph.
pub fn kernel_builds() -> Result<Vec<(&'static Source, Defines)>> {
    let mut builds = Vec::new();
    for (name, text) in BUILTIN {
        let sizes = [("d_in", 64), ("d_out", 32), ("heads", 2), ("d_hidden", 32)];
        let sizes = sizes.into_iter().map(|(name, size)| (name.to_owned(), size)).collect();
        let layer = front::read(name, text, &Arguments { sizes, ..Arguments::default() })?;
        let lists = |dst| RelationEdges { src_type: 1 - dst, dst_type: dst, offsets: &[0, 1, 2], sources: &[0, 1] };
        let graph = Adjacency::new(&[2, 2], &[2, 2], &[lists(0), lists(1)])?;
        let compiled = compile(&layer.program, &Statistics::of(&graph), Optimisations::ALL)?;
        for program in [&compiled.forward, &compiled.backward] {
            let precisions = [Precision::default(), Precision::F32, Precision::Tf32, Precision::Bf16];
            // The others differ in products alone, which one layer shows.
            let some = if name == "sage" { &precisions[..] } else { &precisions[..1] };
            builds.extend(some.iter().map(|precision| (source(&emit(program, *precision)), Defines::new())));
        }
    }
    Ok(builds)
}

/// A program made ready to run on a GPU.
#[derive(Debug)]
pub struct Executor {
    emitted: Emitted,
    kernels: Vec<Kernel>,
}

impl Executor {
    /// Writes a program's text. It is compiled when it is first run.
    #[must_use]
    pub fn new(program: &Program) -> Self {
        Self::with_precision(program, Precision::default())
    }

    /// The same, with products as exact as is said.
    #[must_use]
    pub fn with_precision(program: &Program, precision: Precision) -> Self {
        let emitted = emit(program, precision);
        let source = source(&emitted);
        let kernel = |launch: &Launch| {
            // SAFETY: all entries of an emitted text have these parameters. They reach rows of domains below the counts in
            // the graph's table, along its maps and lists, and buffers of the other table at such rows; `run` makes both
            // out of a checked graph and of buffers that are as long as their domains.
            unsafe { Kernel::declare(source, String::leak(launch.entry.clone()), PARAMS) }
        };
        let kernels = emitted.launches.iter().map(kernel).collect();
        Self { emitted, kernels }
    }

    /// What was written.
    #[must_use]
    pub fn emitted(&self) -> &Emitted {
        &self.emitted
    }

    /// Runs it on arrays of the host: they go there and outputs come back.
    pub fn run<'g>(
        &self,
        stream: &Stream,
        graph: &Adjacency,
        step: Key,
        given: &dyn Fn(&str) -> Option<Given<'g>>,
    ) -> Result<BTreeMap<String, Vec<f32>>> {
        let memory = Memory { stream };
        let mut spans = Vec::new();
        let mut words = Vec::new();
        for buffer in &self.emitted.buffers {
            let (data, rows) = memory.buffer(buffer, graph, given)?;
            words.extend([data.pointer(), rows.as_ref().map_or(0, Span::pointer)]);
            spans.extend([Some(data), rows].into_iter().flatten());
        }
        let buffers = memory.of(bytemuck::cast_slice(&words))?;
        let numbers = Numbers::new(graph, &self.emitted.table)?;
        let lists = memory.of(bytemuck::cast_slice(&numbers.all))?;
        let table = memory.room(8 * numbers.count())?;
        stream.upload(bytemuck::cast_slice(&numbers.words(lists.pointer(), table.pointer())), &table)?;
        let step = memory.of(bytemuck::cast_slice(&[step.bits()]))?;
        spans.push(lists);
        let defines = Defines::new();
        for (launch, kernel) in self.emitted.launches.iter().zip(&self.kernels) {
            let grid = grid(stream, launch, graph);
            let arguments = kernel.on(stream, &defines, grid).bytes(&table).bytes(&buffers);
            arguments.buffer(&step, Element::U64).touching(&spans).go()?;
        }
        self.outputs(stream, graph, &words, &spans)
    }

    fn outputs(
        &self,
        stream: &Stream,
        graph: &Adjacency,
        words: &[u64],
        spans: &[Span],
    ) -> Result<BTreeMap<String, Vec<f32>>> {
        let mut found = BTreeMap::new();
        for (at, buffer) in self.emitted.buffers.iter().enumerate().filter(|(_, buffer)| buffer.role == Role::Output) {
            let mut values = vec![0.0f32; graph.rows(buffer.domain) * buffer.shape.len()];
            let span = spans.iter().find(|span| span.pointer() == words[2 * at]);
            if let Some(own) = span.and_then(|span| span.part(0, 4 * values.len())).filter(|_| !values.is_empty()) {
                stream.download(&own, bytemuck::cast_slice_mut(&mut values))?;
            }
            found.insert(buffer.name.clone(), values);
        }
        Ok(found)
    }
}

fn source(emitted: &Emitted) -> &'static Source {
    Source::written(&format!("{}.cu", emitted.name), &emitted.text, &HEADERS)
}

/// Blocks for the rows of a launch, which walk them with a stride.
fn grid(stream: &Stream, launch: &Launch, graph: &Adjacency) -> Grid {
    let tiles = graph.rows(launch.rows).div_ceil(launch.rows_a_block.max(1)) * launch.across;
    let most = stream.gpu().facts().sms as usize * BLOCKS_PER_SM;
    let blocks = u32::try_from(tiles.clamp(1, most.max(1))).unwrap_or(1);
    Grid { blocks, threads: THREADS, shared_bytes: 0 }
}

struct Memory<'a> {
    stream: &'a Stream,
}

impl Memory<'_> {
    /// Room for some bytes, and never for none.
    fn room(&self, bytes: usize) -> Result<Span> {
        Ok(Span::whole(Allocation::on_stream(self.stream, bytes.max(16))?))
    }

    fn of(&self, bytes: &[u8]) -> Result<Span> {
        let room = self.room(bytes.len())?;
        if let Some(own) = room.part(0, bytes.len()).filter(|_| !bytes.is_empty()) {
            self.stream.upload(bytes, &own)?;
        }
        Ok(room)
    }

    /// A buffer, and which rows of it are meant where it is a larger table.
    fn buffer<'g>(
        &self,
        buffer: &Buffer,
        graph: &Adjacency,
        given: &dyn Fn(&str) -> Option<Given<'g>>,
    ) -> Result<(Span, Option<Span>)> {
        let expected = graph.rows(buffer.domain) * buffer.shape.len();
        if !matches!(buffer.role, Role::Input | Role::Parameter) {
            return Ok((self.room(4 * expected)?, None));
        }
        let refused = |found| Err(Error::Binding { name: buffer.name.clone(), expected, found });
        match given(&buffer.name) {
            Some(Given::Dense(values)) if values.len() == expected => {
                Ok((self.of(bytemuck::cast_slice(values))?, None))
            }
            Some(Given::Picked { table, rows }) => {
                let is_inside = |row: &u32| (*row as usize + 1) * buffer.shape.len() <= table.len();
                if buffer.role != Role::Input
                    || !rows.iter().all(is_inside)
                    || rows.len() * buffer.shape.len() != expected
                {
                    return refused(0);
                }
                Ok((self.of(bytemuck::cast_slice(table))?, Some(self.of(bytemuck::cast_slice(rows))?)))
            }
            Some(Given::Dense(values)) => refused(values.len()),
            _ => refused(0),
        }
    }
}
