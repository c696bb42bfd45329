//! Calls at the same addresses again and again, on a GPU or on the emulator.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use headwater_cuda::{Allocation, Gpu, Graph, Span, Stream};
use headwater_graph::random::Key;

use super::super::{Arrays, Bound, DevicePlan, Direction};
use super::{GAT, arrays, bound, wish};
use crate::adjacency::Adjacency;
use crate::cpu::fast::{Run, Workspace};
use crate::cuda::{CallMemory, DeviceGraph, Precision, RepeatCounts, StepKey};
use crate::front::OptionValue;
use crate::pass::Statistics;
use crate::testing::Recipe;

/// A layer with dropouts, its kernels for a GPU, and what it reads.
struct Layer {
    layer: Bound,
    plan: Arc<DevicePlan>,
    graph: Adjacency,
    given: Arrays,
}

impl Layer {
    fn new() -> Self {
        let options = [("attention_dropout", OptionValue::Float(0.5))];
        let layer = bound("gat", &GAT, &options, &wish(&[], true)).unwrap();
        let graph = Recipe::plain(40).graph(1);
        let plan = layer.device_plan(&Statistics::of(&graph), Precision::default(), &Ok, |make| make()).unwrap();
        Self { given: arrays(&layer, &graph), layer, plan, graph }
    }

    fn on_gpu(&self, stream: &Stream, graph: &Adjacency) -> Arc<DeviceGraph> {
        Arc::new(DeviceGraph::of(stream, graph, &self.plan.tables()).unwrap())
    }

    /// What the CPU gives for arrays and a key.
    fn wanted(&self, graph: &Adjacency, given: &Arrays, key: u64) -> Vec<f32> {
        let plan = self.layer.plan(&Statistics::of(graph), |make| make()).unwrap();
        let run = Run { graph, step: Key::new(key) };
        let find = |name: &str| given.get(name).map(Vec::as_slice);
        plan.forward(run, &find, &mut Workspace::default()).unwrap()["out"].clone()
    }

    fn counts(&self) -> RepeatCounts {
        self.plan.repeats(Direction::Forward).unwrap()
    }
}

/// Memory for the calls of a layer.
struct Memory {
    given: Vec<Span>,
    out: Span,
    temporaries: Span,
}

impl Memory {
    fn new(stream: &Stream, own: &Layer, graph: &DeviceGraph) -> Self {
        let room = |bytes: usize| Span::whole(Allocation::on_stream(stream, bytes.max(16)).unwrap());
        let made: BTreeMap<&str, usize> = own.plan.makes(Direction::Forward, graph).into_iter().collect();
        let count = |name: &str| made.get(name).copied().unwrap_or_else(|| own.given[name].len());
        let takes = own.plan.takes(Direction::Forward);
        let given: Vec<Span> = takes.iter().map(|name| room(4 * count(name))).collect();
        let out = given[takes.iter().position(|name| *name == "out").unwrap()].clone();
        let temporaries = room(own.plan.temporary_bytes(Direction::Forward, graph));
        let memory = Self { given, out, temporaries };
        memory.fill(stream, own, &own.given);
        memory
    }

    fn fill(&self, stream: &Stream, own: &Layer, values: &Arrays) {
        for (name, span) in own.plan.takes(Direction::Forward).into_iter().zip(&self.given) {
            if let Some(values) = values.get(name) {
                stream.upload(bytemuck::cast_slice(values), &span.part(0, 4 * values.len()).unwrap()).unwrap();
            }
        }
    }

    fn queue(&self, stream: &Stream, own: &Layer, graph: &Arc<DeviceGraph>, key: StepKey<'_>) {
        let memory = CallMemory { given: &self.given, temporaries: &self.temporaries, key };
        own.plan.queue(Direction::Forward, stream, graph, memory).unwrap();
    }

    fn out(&self, stream: &Stream) -> Vec<f32> {
        let mut values = vec![0.0; self.out.bytes() / 4];
        stream.download(&self.out, bytemuck::cast_slice_mut(&mut values)).unwrap();
        values
    }

    fn watch(&self) -> Vec<Weak<Allocation>> {
        self.given.iter().chain([&self.temporaries]).map(|span| Arc::downgrade(span.allocation())).collect()
    }
}

fn told(key: u64) -> StepKey<'static> {
    StepKey::Told(Key::new(key))
}

fn assert_near(found: &[f32], wanted: &[f32]) {
    assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?}\n{wanted:?}");
}

#[test]
fn a_second_call_is_recorded_and_reads_what_is_there_by_then() {
    let Ok(gpu) = Gpu::open(0) else { return };
    let (own, stream) = (Layer::new(), gpu.stream().unwrap());
    let graph = own.on_gpu(stream, &own.graph);
    let memory = Memory::new(stream, &own, &graph);
    for call in 0..5u8 {
        let mut given = own.given.clone();
        given.get_mut("x").unwrap().iter_mut().for_each(|x| *x += f32::from(call));
        memory.fill(stream, &own, &given);
        memory.queue(stream, &own, &graph, told(u64::from(call / 2)));
        assert_near(&memory.out(stream), &own.wanted(&own.graph, &given, u64::from(call / 2)));
    }
    assert_eq!(own.counts(), RepeatCounts { kept: 1, bound: 1, repeated: 4, launched_as_one: 4 });
}

#[test]
fn both_directions_of_a_call_repeat() {
    let layer = bound("gat", &GAT, &[], &wish(&["x", "W", "al"], true)).unwrap();
    both_directions(&layer, &Recipe::plain(40).graph(1));
}

/// Many launches, of which some run beside others: products of weights, of nodes and of their gradients.
#[test]
fn launches_that_do_not_wait_for_each_other_repeat() {
    let matrix: &[usize] = &[4, 4];
    let of_heads: &[usize] = &[2, 2, 2];
    let rows: [(&str, &[usize]); 9] = [
        ("x", &[4]),
        ("K", matrix),
        ("Q", matrix),
        ("V", matrix),
        ("A", matrix),
        ("W_att", of_heads),
        ("W_msg", of_heads),
        ("mu", &[2, 1]),
        ("skip", &[1]),
    ];
    let hector = [("variant", crate::testing::text("hector"))];
    let layer = bound("hgt", &rows, &hector, &wish(&rows.map(|(name, _)| name), true)).unwrap();
    both_directions(
        &layer,
        &Recipe { nodes: vec![(9, 9), (7, 7)], relations: vec![(0, 1), (1, 0), (0, 0)], most_edges: 5, empty_every: 6 }
            .graph(2),
    );
}

/// Outputs and gradients of three calls, all but the first of which are recorded.
fn both_directions(layer: &Bound, graph: &Adjacency) {
    let Ok(gpu) = Gpu::open(0) else { return };
    let stream = gpu.stream().unwrap();
    let plan = layer.device_plan(&Statistics::of(graph), Precision::default(), &Ok, |make| make()).unwrap();
    let placed = Arc::new(DeviceGraph::of(stream, graph, &plan.tables()).unwrap());
    let (out, gradients) = super::run(layer, graph, 3);
    let room = |bytes: usize| Span::whole(Allocation::on_stream(stream, bytes.max(16)).unwrap());
    let mut spans: BTreeMap<String, Span> = BTreeMap::new();
    let mut given = arrays(layer, graph);
    given.insert("d.out".to_owned(), vec![1.0; out.len()]);
    for (name, values) in &given {
        spans.insert(name.clone(), room(4 * values.len()));
        stream.upload(bytemuck::cast_slice(values), &spans[name].part(0, 4 * values.len()).unwrap()).unwrap();
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let made = plan.makes(direction, &placed).into_iter();
        spans.extend(made.map(|(name, count)| (name.to_owned(), room(4 * count))));
    }
    let temporaries = room(
        [Direction::Forward, Direction::Backward].map(|to| plan.temporary_bytes(to, &placed))[1]
            .max(plan.temporary_bytes(Direction::Forward, &placed)),
    );
    for _ in 0..3 {
        for name in gradients.keys() {
            stream.fill(&spans[name], 0xFF).unwrap();
        }
        for direction in [Direction::Forward, Direction::Backward] {
            let own: Vec<Span> = plan.takes(direction).into_iter().map(|name| spans[name].clone()).collect();
            let memory = CallMemory { given: &own, temporaries: &temporaries, key: told(3) };
            plan.queue(direction, stream, &placed, memory).unwrap();
        }
        for (name, wanted) in &gradients {
            let mut found = vec![0.0f32; wanted.len()];
            let span = spans[name].part(0, 4 * wanted.len()).unwrap();
            stream.download(&span, bytemuck::cast_slice_mut(&mut found)).unwrap();
            assert_near(&found, wanted);
        }
    }
    for direction in [Direction::Forward, Direction::Backward] {
        assert_eq!(plan.repeats(direction).unwrap().launched_as_one, 2);
    }
}

#[test]
fn other_addresses_are_another_place_and_no_memory_is_kept() {
    let Ok(gpu) = Gpu::open(0) else { return };
    let (own, stream) = (Layer::new(), gpu.stream().unwrap());
    let graph = own.on_gpu(stream, &own.graph);
    let wanted = own.wanted(&own.graph, &own.given, 1);
    let (one, mut other) = (Memory::new(stream, &own, &graph), Memory::new(stream, &own, &graph));
    for memory in [&one, &other, &one, &other, &one] {
        stream.fill(&memory.out, 0xFF).unwrap();
        memory.queue(stream, &own, &graph, told(1));
        assert_near(&memory.out(stream), &wanted);
    }
    assert_eq!(own.counts(), RepeatCounts { kept: 2, bound: 2, repeated: 3, launched_as_one: 3 });
    // One address among many is enough.
    other.temporaries = one.temporaries.clone();
    other.queue(stream, &own, &graph, told(1));
    assert_near(&other.out(stream), &wanted);
    assert_eq!(own.counts().bound, 3);
    let watched = [one.watch(), other.watch()].concat();
    drop((one, other));
    assert!(watched.iter().all(|memory| memory.strong_count() == 0), "memory of the caller's is kept");
    // Other memory, most of which lies where the first lay.
    let again = Memory::new(stream, &own, &graph);
    for _ in 0..3 {
        stream.fill(&again.out, 0xFF).unwrap();
        again.queue(stream, &own, &graph, told(1));
        assert_near(&again.out(stream), &wanted);
    }
}

#[test]
fn places_are_bounded_and_those_that_go_may_still_be_running() {
    use crate::cuda::MOST_PLACES;
    let Ok(gpu) = Gpu::open(0) else { return };
    let (own, stream) = (Layer::new(), gpu.stream().unwrap());
    let graph = own.on_gpu(stream, &own.graph);
    let all: Vec<Memory> = (0..MOST_PLACES + 3).map(|_| Memory::new(stream, &own, &graph)).collect();
    // Nobody waits in between: what goes has launches that are queued.
    for key in 0..2 {
        for memory in &all {
            memory.queue(stream, &own, &graph, told(key));
        }
    }
    let wanted = own.wanted(&own.graph, &own.given, 1);
    for memory in &all {
        assert_near(&memory.out(stream), &wanted);
    }
    let bound = 2 * all.len() as u64;
    assert_eq!(own.counts(), RepeatCounts { kept: MOST_PLACES, bound, repeated: 0, launched_as_one: 0 });
    all[all.len() - 1].queue(stream, &own, &graph, told(0));
    assert_eq!(own.counts().repeated, 1);
}

#[test]
fn streams_have_places_of_their_own() {
    let Ok(gpu) = Gpu::open(0) else { return };
    let (own, first) = (Layer::new(), gpu.stream().unwrap());
    let second = &Stream::new(&gpu).unwrap();
    let graph = own.on_gpu(first, &own.graph);
    let memory = Memory::new(first, &own, &graph);
    for (call, (stream, before)) in (0..).zip([(first, second), (second, first)].repeat(3)) {
        stream.wait_for(before).unwrap();
        memory.queue(stream, &own, &graph, told(call));
        assert_near(&memory.out(stream), &own.wanted(&own.graph, &own.given, call));
    }
    assert_eq!(own.counts(), RepeatCounts { kept: 2, bound: 2, repeated: 4, launched_as_one: 4 });
}

#[test]
fn graphs_have_places_of_their_own_which_go_with_them() {
    let Ok(gpu) = Gpu::open(0) else { return };
    let (own, stream) = (Layer::new(), gpu.stream().unwrap());
    let other = Recipe::plain(40).graph(2);
    let memory = Memory::new(stream, &own, &own.on_gpu(stream, &own.graph));
    for _ in 0..3 {
        // Made anew each time, and where the one before lay.
        for graph in [&own.graph, &other] {
            let placed = own.on_gpu(stream, graph);
            let watched = Arc::downgrade(&placed);
            for _ in 0..2 {
                stream.fill(&memory.out, 0xFF).unwrap();
                memory.queue(stream, &own, &placed, told(1));
                assert_near(&memory.out(stream), &own.wanted(graph, &own.given, 1));
            }
            drop(placed);
            assert_eq!(watched.strong_count(), 0);
        }
    }
    assert_eq!(own.counts(), RepeatCounts { kept: 1, bound: 6, repeated: 6, launched_as_one: 6 });
}

#[test]
fn launches_that_are_traced_are_made_one_by_one() {
    let Ok(gpu) = Gpu::open(0) else { return };
    let (own, stream) = (Layer::new(), Stream::new(&gpu).unwrap());
    let graph = own.on_gpu(&stream, &own.graph);
    let memory = Memory::new(&stream, &own, &graph);
    for _ in 0..2 {
        memory.queue(&stream, &own, &graph, told(1));
    }
    stream.trace_launches();
    memory.queue(&stream, &own, &graph, told(2));
    assert_near(&memory.out(&stream), &own.wanted(&own.graph, &own.given, 2));
    let named = stream.take_traced().unwrap().into_iter().filter(|launch| launch.name.starts_with("layer")).count();
    assert!(named > 1);
    assert_eq!(own.counts(), RepeatCounts { kept: 1, bound: 1, repeated: 2, launched_as_one: 1 });
}

#[test]
fn a_call_is_part_of_a_graph_that_others_record() {
    let Ok(gpu) = Gpu::open(0) else { return };
    let (own, stream) = (Layer::new(), Stream::new(&gpu).unwrap());
    let graph = own.on_gpu(&stream, &own.graph);
    let memory = Memory::new(&stream, &own, &graph);
    memory.queue(&stream, &own, &graph, told(0));
    let key = Span::whole(Allocation::on_stream(&stream, 8).unwrap());
    let mut with_key = Graph::capture::<headwater_cuda::Error>(&stream, |stream| {
        memory.queue(stream, &own, &graph, StepKey::Lies(&key));
        Ok(())
    })
    .unwrap();
    let mut plain = Graph::capture::<headwater_cuda::Error>(&stream, |stream| {
        memory.queue(stream, &own, &graph, told(7));
        Ok(())
    })
    .unwrap();
    let before = own.counts();
    drop(graph);
    for step in 1..4 {
        stream.upload(bytemuck::cast_slice(&[Key::new(step).bits()]), &key).unwrap();
        with_key.launch(&stream).unwrap();
        assert_near(&memory.out(&stream), &own.wanted(&own.graph, &own.given, step));
        plain.launch(&stream).unwrap();
        assert_near(&memory.out(&stream), &own.wanted(&own.graph, &own.given, 7));
    }
    assert_eq!(own.counts(), before);
}

#[test]
fn threads_call_one_plan_together() {
    let Ok(gpu) = Gpu::open(0) else { return };
    let (own, first) = (Layer::new(), gpu.stream().unwrap());
    let graph = own.on_gpu(first, &own.graph);
    first.synchronize().unwrap();
    let wanted: Vec<Vec<f32>> = (0..4).map(|key| own.wanted(&own.graph, &own.given, key)).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (own, graph, wanted, gpu) = (&own, &graph, &wanted, &gpu);
            scope.spawn(move || {
                // Two threads a stream, each with memory of its own.
                let stream = if thread < 2 { gpu.stream().unwrap().clone() } else { Stream::new(gpu).unwrap() };
                let memory = Memory::new(&stream, own, graph);
                for key in [0, 1, 2, 3, 2, 1].repeat(3) {
                    memory.queue(&stream, own, graph, told(key));
                    assert_near(&memory.out(&stream), &wanted[usize::try_from(key).unwrap()]);
                }
            });
        }
    });
    let counts = own.counts();
    assert_eq!((counts.kept, counts.bound, counts.repeated), (4, 4, 68));
    assert!(counts.launched_as_one > 50, "{counts:?}");
}

#[test]
fn memory_that_does_not_fit_is_refused_by_name() {
    let Ok(gpu) = Gpu::open(0) else { return };
    let (own, stream) = (Layer::new(), gpu.stream().unwrap());
    let graph = own.on_gpu(stream, &own.graph);
    let mut memory = Memory::new(stream, &own, &graph);
    let queue = |memory: &Memory, count: usize| {
        let memory = CallMemory { given: &memory.given[..count], temporaries: &memory.temporaries, key: told(1) };
        own.plan.queue(Direction::Forward, stream, &graph, memory).unwrap_err().to_string()
    };
    let count = memory.given.len();
    assert!(queue(&memory, count - 1).contains("has 0 numbers"));
    memory.given.push(memory.temporaries.clone());
    assert!(queue(&memory, count + 1).contains("memory of a call"));
    memory.given[0] = memory.given[0].part(0, 16).unwrap();
    assert!(queue(&memory, count).contains("has 4 numbers; expected"));
    assert_eq!(own.counts().kept, 0);
}
