//! A stack of layers run by a GPU: recorded once and replayed for its time, and launch by launch for those of kernels.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use headwater::compile::adjacency::Adjacency;
use headwater::compile::cuda::{Bound, DeviceGraph, DeviceRows, Executor, Precision};
use headwater::compile::intra::{Buffer, Role};
use headwater::cuda::{Allocation, Event, Gpu, Graph, Span, Stream};

use super::figures::{KernelFigures, LaunchFigures, Measured};
use super::numbers::{mean_size, numbers};
use super::stack::{Pass, Stack};

/// Runs that times of kernels are taken from, at most.
const TRACED_ROUNDS: usize = 5;
/// Memory is asked for in pieces of at least so many bytes.
const LEAST_BYTES: usize = 16;

/// Where and how a stack is run.
pub struct On<'a> {
    pub gpu: &'a Gpu,
    pub precision: Precision,
    pub rounds: usize,
    pub seed: u64,
}

/// Runs a stack, once without being timed, and then so many times.
pub fn measure(stack: &Stack, graph: &Adjacency, on: &On<'_>) -> anyhow::Result<Measured> {
    let stream = Stream::new(on.gpu)?;
    let mut layers = Layers::new(stack, on.precision);
    let bytes = layers.place(&stream, graph, on.seed)?;
    layers.queue(&stream)?;
    stream.synchronize()?;
    let ms = replayed(&layers, &stream, on.rounds)?;
    let kernels = layers.kernels(&traced(&layers, on)?, stack);
    Ok(Measured {
        ms,
        launches: layers.launches(),
        peak_bytes: bytes.arrays + bytes.graph,
        graph_bytes: Some(bytes.graph),
        out_mean: layers.out_mean(&stream)?,
        kernels,
    })
}

/// Bytes that a stack has while it runs.
struct Bytes {
    arrays: usize,
    graph: usize,
}

/// Layers, and the memory that they run on.
struct Layers {
    layers: usize,
    forward: Executor,
    backward: Option<Executor>,
    /// Each direction of each layer over its memory.
    forward_bound: Vec<Bound>,
    backward_bound: Vec<Bound>,
    /// Where the key of dropouts lies, of which there are none.
    step: Option<Span>,
}

impl Layers {
    fn new(stack: &Stack, precision: Precision) -> Self {
        let executor = |pass: &Pass| Executor::with_precision(&pass.program, precision).labelled(pass.name.to_owned());
        Self {
            layers: stack.layers,
            forward: executor(&stack.forward),
            backward: stack.backward.as_ref().map(executor),
            forward_bound: Vec::new(),
            backward_bound: Vec::new(),
            step: None,
        }
    }

    /// Gives everything its memory.
    fn place(&mut self, stream: &Stream, graph: &Adjacency, seed: u64) -> anyhow::Result<Bytes> {
        let executors = || [Some(&self.forward), self.backward.as_ref()].into_iter().flatten();
        let tables: Vec<_> = executors().map(|executor| &executor.emitted().table).collect();
        let graph = DeviceGraph::of(stream, graph, &tables)?;
        let mut arena = Arena { stream, graph: &graph, seed, bytes: 0 };
        let most = executors().map(|executor| executor.temporary_bytes(&graph)).max().unwrap_or(0);
        let temporaries = arena.room(most)?;
        let step = arena.sent(&[0.0; 2])?;
        let mut made: Vec<Spans> = Vec::new();
        for layer in 0..self.layers {
            let mut own = made.first().map_or_else(Spans::new, |first| inputs(&self.forward, first));
            if let Some(out) = made.last().and_then(|before| before.get("out")) {
                own.insert("x".to_owned(), out.clone());
            }
            arena.fill(&self.forward, layer, &mut own)?;
            self.forward_bound.push(bind(&self.forward, stream, &graph, &temporaries, &own)?);
            made.push(own);
        }
        if let Some(backward) = &self.backward {
            let mut out = arena.out_gradient(&self.forward)?;
            for own in made.iter_mut().rev() {
                own.insert("d.out".to_owned(), out);
                arena.room_for_outputs(backward, own)?;
                self.backward_bound.push(bind(backward, stream, &graph, &temporaries, own)?);
                out = own.get("d.x").context("the layer has no gradient of `x`")?.clone();
            }
        }
        self.step = Some(step);
        Ok(Bytes { arrays: arena.bytes, graph: graph.bytes() })
    }

    /// Queues all layers forward and, in training, backward.
    fn queue(&self, stream: &Stream) -> Result<(), headwater::compile::Error> {
        let Some(step) = &self.step else { return Ok(()) };
        for bound in &self.forward_bound {
            self.forward.queue(stream, bound, step)?;
        }
        for (bound, backward) in self.backward_bound.iter().zip(std::iter::repeat(&self.backward)) {
            backward.iter().try_for_each(|backward| backward.queue(stream, bound, step))?;
        }
        Ok(())
    }

    /// All launches.
    fn launches(&self) -> usize {
        self.forward_bound.iter().chain(&self.backward_bound).map(|bound| bound.launched().count()).sum()
    }

    /// How large the last layer's numbers are.
    fn out_mean(&self, stream: &Stream) -> anyhow::Result<f64> {
        let last = self.forward_bound.last().context("there are no layers")?;
        let out = last.outputs().find(|(buffer, _)| buffer.name == "out").context("the layer writes no `out`")?.1;
        let mut values = vec![0.0f32; out.bytes() / 4];
        stream.download(out, bytemuck::cast_slice_mut(&mut values))?;
        Ok(mean_size(&values))
    }

    /// Kernels of both directions, with the times of their launches in all layers together.
    fn kernels(&self, traced: &[Launched], stack: &Stack) -> Vec<KernelFigures> {
        let first = self.forward_bound.iter().map(|bound| bound.launched().count()).sum();
        let (forward, backward) = traced.split_at(first);
        let mut found = kernels_of(&self.forward, &stack.forward, &self.forward_bound, forward);
        if let (Some(executor), Some(pass)) = (&self.backward, &stack.backward) {
            found.extend(kernels_of(executor, pass, &self.backward_bound, backward));
        }
        found
    }
}

/// When a launch ran, and who made it.
struct Launched {
    ms: f64,
    is_cublas: bool,
}

/// Memory by the names of buffers.
type Spans = BTreeMap<String, Span>;

/// Memory on a GPU, counted.
struct Arena<'a> {
    stream: &'a Stream,
    graph: &'a DeviceGraph,
    seed: u64,
    bytes: usize,
}

impl Arena<'_> {
    fn room(&mut self, bytes: usize) -> anyhow::Result<Span> {
        let bytes = bytes.max(LEAST_BYTES);
        self.bytes += bytes;
        Ok(Span::whole(Allocation::on_stream(self.stream, bytes)?))
    }

    fn sent(&mut self, values: &[f32]) -> anyhow::Result<Span> {
        let room = self.room(size_of_val(values))?;
        if let Some(own) = room.part(0, size_of_val(values)).filter(|_| !values.is_empty()) {
            self.stream.upload(bytemuck::cast_slice(values), &own)?;
        }
        Ok(room)
    }

    fn count(&self, buffer: &Buffer) -> usize {
        self.graph.room(buffer.domain) * buffer.shape.len()
    }

    /// Numbers for what a layer is given and room for what it makes, unless it is there.
    fn fill(&mut self, executor: &Executor, layer: usize, own: &mut Spans) -> anyhow::Result<()> {
        for buffer in &executor.emitted().buffers {
            if matches!(buffer.role, Role::Input | Role::Parameter) && !own.contains_key(&buffer.name) {
                let values = numbers(self.seed, layer, &buffer.name, self.count(buffer))?;
                own.insert(buffer.name.clone(), self.sent(&values)?);
            }
        }
        self.room_for_outputs(executor, own)
    }

    fn room_for_outputs(&mut self, executor: &Executor, own: &mut Spans) -> anyhow::Result<()> {
        for buffer in executor.emitted().buffers.iter().filter(|buffer| buffer.role == Role::Output) {
            let bytes = 4 * self.count(buffer);
            own.insert(buffer.name.clone(), self.room(bytes)?);
        }
        Ok(())
    }

    /// The gradient of what the last layer writes.
    fn out_gradient(&mut self, forward: &Executor) -> anyhow::Result<Span> {
        let out = forward.emitted().buffers.iter().find(|buffer| buffer.name == "out");
        let count = self.count(out.context("the layer writes no `out`")?);
        self.sent(&numbers(self.seed, 0, "d.out", count)?)
    }
}

/// What all layers read besides their rows and weights.
fn inputs(executor: &Executor, first: &Spans) -> Spans {
    let own = executor.emitted().buffers.iter().filter(|buffer| buffer.role == Role::Input && buffer.name != "x");
    own.filter_map(|buffer| Some((buffer.name.clone(), first.get(&buffer.name)?.clone()))).collect()
}

fn bind(
    executor: &Executor,
    stream: &Stream,
    graph: &DeviceGraph,
    temporaries: &Span,
    own: &Spans,
) -> anyhow::Result<Bound> {
    let give = |buffer: &Buffer| Ok(own.get(&buffer.name).cloned().map(DeviceRows::from));
    Ok(executor.bind(stream, graph, temporaries, &give)?)
}

/// Milliseconds of everything, recorded once and replayed.
fn replayed(layers: &Layers, stream: &Stream, rounds: usize) -> anyhow::Result<Vec<f64>> {
    let mut recorded = Graph::capture(stream, |stream| layers.queue(stream))?;
    recorded.launch(stream)?;
    stream.synchronize()?;
    let (begin, end) = (Event::timed(stream.gpu())?, Event::timed(stream.gpu())?);
    let mut ms = Vec::new();
    for _ in 0..rounds {
        begin.record_on(stream)?;
        recorded.launch(stream)?;
        end.record_on(stream)?;
        stream.synchronize()?;
        ms.push(f64::from(end.ms_since(&begin)?));
    }
    Ok(ms)
}

/// Every launch in order, each with the median of its times.
fn traced(layers: &Layers, on: &On<'_>) -> anyhow::Result<Vec<Launched>> {
    let stream = Stream::new(on.gpu)?;
    stream.trace_launches();
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); layers.launches()];
    let mut are_cublas = vec![false; layers.launches()];
    for _ in 0..on.rounds.min(TRACED_ROUNDS) {
        layers.queue(&stream)?;
        stream.synchronize()?;
        let run = stream.take_traced()?;
        ensure!(run.len() == times.len(), "{} launches were timed, and {} were made", run.len(), times.len());
        for (at, launch) in run.iter().enumerate() {
            times[at].push(f64::from(launch.end.ms_since(&launch.begin)?));
            are_cublas[at] = launch.name == "cuBLAS";
        }
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(0.0)
    };
    Ok(times.into_iter().zip(are_cublas).map(|(ms, is_cublas)| Launched { ms: median(ms), is_cublas }).collect())
}

/// Kernels of one direction of all layers, which make the same launches.
fn kernels_of(executor: &Executor, pass: &Pass, layers: &[Bound], traced: &[Launched]) -> Vec<KernelFigures> {
    let made: Vec<usize> = layers.first().map_or_else(Vec::new, |bound| bound.launched().collect());
    let (layers, each) = (layers.len(), made.len());
    let launch = |at: usize, what: &str| {
        let ms = traced.iter().skip(at).step_by(each.max(1)).map(|launched| launched.ms).sum();
        LaunchFigures::new(what, ms, traced.get(at).is_some_and(|launched| launched.is_cublas))
    };
    let all = made.iter().map(|at| &executor.emitted().launches[*at]).enumerate();
    let all: Vec<_> = all.map(|(at, own)| (own.kernel, launch(at, &own.what))).collect();
    let kernels = pass.program.kernels.iter().zip(&pass.costs).enumerate();
    kernels
        .map(|(at, (kernel, cost))| {
            let launches = all.iter().filter(|(kernel, _)| *kernel == at).map(|(_, launch)| launch.clone()).collect();
            KernelFigures::new(pass.name, (kernel, pass.program.schedule(at)), layers, cost, launches)
        })
        .collect()
}
