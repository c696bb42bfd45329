//! Paths that small models on small graphs do not take: many tiles and parts, odd widths, hubs, every precision.

use std::collections::BTreeSet;

use headwater_cuda::{Allocation, Span};
use headwater_graph::random::Key;

use super::device::{check, check_over, check_within, gpu};
use crate::adjacency::{Adjacency, RelationEdges, SelfLoops};
use crate::cpu::fast::Given;
use crate::cuda::{DeviceBlock, DeviceGraph, Executor, Lists, Precision, Room, Wants, chosen, emit};
use crate::inter::{Binary, Domain, Path, Program, Reduce, Shape, Side, Unary};
use crate::intra::{
    self, Body, Buffer, BufferId, Hop, Kernel, KernelSchedule, Read, Role, StepOp, Traverse, most_alone,
};
use crate::pass::autodiff::gradient_name;
use crate::pass::{Optimisations, Statistics, compile};
use crate::testing::{Arrays, Recipe, given, is_thorough, layer, numbers, odd_graphs, read, text};

const DST: Domain = Domain::Node(Side::Dst);

/// All directions of a program on a graph.
fn directions(program: &Program, graph: &Adjacency) -> (Vec<intra::Program>, Arrays) {
    optimised(program, graph, Optimisations::GPU)
}

fn optimised(program: &Program, graph: &Adjacency, on: Optimisations) -> (Vec<intra::Program>, Arrays) {
    let compiled = compile(program, &Statistics::of(graph), on).unwrap();
    let mut arrays = given(program, graph, 4);
    let out = program.output("out").unwrap();
    let count = graph.rows(program[out].domain) * program[out].shape.len();
    arrays.insert(gradient_name("out"), numbers(4, "d.out", count));
    (vec![compiled.inference, compiled.forward, compiled.backward], arrays)
}

/// Rows with more edges than a group of lanes has alone, beside others; widths that lanes have all of, and others.
#[test]
fn rows_with_very_many_edges() {
    let Some(gpu) = gpu() else { return };
    let graph = Recipe { most_edges: 2000, ..Recipe::plain(6) }.graph(2);
    let alone = most_alone(Domain::Edge, 6.0, graph.rows(Domain::Edge) as f64);
    for (side, has_others) in [(Side::Src, false), (Side::Dst, true)] {
        let members = graph.members(Domain::Node(side), Domain::Edge, Path::Only).unwrap();
        let counts: Vec<usize> = (0..6).map(|row| members.count(row)).collect();
        assert!(counts.iter().any(|count| *count as f64 > alone), "{counts:?}");
        assert_eq!(counts.iter().any(|count| *count as f64 <= alone), has_others, "{counts:?}");
    }
    let sizes = [("d_in", 5), ("d_out", 9), ("heads", 2)];
    for program in [layer("gat", &sizes, &[]), layer("sage", &sizes, &[("aggregate", text("max"))])] {
        let (all, mut arrays) = directions(&program, &graph);
        all.iter().for_each(|kernels| check(&gpu, kernels, &graph, &mut arrays));
    }
}

/// The same in a block of a sample, whose rows are in no list: a target and a source with very many edges, beside others.
#[test]
fn rows_of_a_block_with_very_many_edges() {
    let Some(gpu) = gpu() else { return };
    let (src, dst, many) = (40, 30, 700);
    let (mut offsets, mut sources, mut targets) = (vec![0], Vec::new(), Vec::new());
    for target in 0..dst {
        match target {
            0 => {}
            1 => sources.extend((0..many).map(|edge| if edge % 8 == 0 { edge / 8 % src } else { 3 })),
            _ => sources.extend((0..3).map(|edge| (7 * target + edge) % src)),
        }
        targets.resize(sources.len(), target);
        offsets.push(sources.len());
    }
    assert!(sources.iter().filter(|source| **source == 3).count() > 512);
    let relation = RelationEdges { src_type: 0, dst_type: 0, offsets: &offsets, sources: &sources };
    let graph = Adjacency::new(&[src as usize], &[dst as usize], &[relation]).unwrap();
    let stream = gpu.stream().unwrap();
    let room = Room { src: src as usize, dst: dst as usize, edges: sources.len() };
    let wants = Wants { by_source: true, self_loops: SelfLoops::AsTheyAre };
    let block = DeviceBlock::new(stream, room, wants).unwrap();
    let [from, to] = [&sources, &targets].map(|list| {
        let span = Span::whole(Allocation::on_stream(stream, 4 * list.len()).unwrap());
        stream.upload(bytemuck::cast_slice(list), &span).unwrap();
        span
    });
    let edges = u32::try_from(sources.len()).unwrap();
    block.fill(stream, &Lists { sources: &from, targets: &to, edges, src, dst }).unwrap();
    let placed = DeviceGraph::of_block(&block);
    let sizes = [("d_in", 5), ("d_out", 9), ("heads", 3)];
    for program in [layer("gat", &sizes, &[]), layer("sage", &sizes, &[("aggregate", text("max"))])] {
        let (all, mut arrays) = directions(&program, &graph);
        for kernels in &all {
            check_over(stream, kernels, (&graph, &placed), &mut arrays, (Precision::default(), 5e-5));
        }
    }
}

/// The same in nests of three levels: a node with one large pair and small ones, and a node with many small pairs.
#[test]
fn nodes_with_very_many_edges_of_several_types() {
    let Some(gpu) = gpu() else { return };
    let few = Recipe { nodes: vec![(5, 5)], relations: vec![(0, 0); 3], most_edges: 400, empty_every: 9 };
    let many = Recipe { nodes: vec![(40, 2)], relations: vec![(0, 0); 60], most_edges: 16, empty_every: 7 };
    for (recipe, is_large) in [(few, true), (many, false)] {
        let graph = recipe.graph(2);
        let most = |rows: Domain| {
            let starts = graph.edge_starts(rows).unwrap();
            starts.windows(2).map(|bounds| bounds[1] - bounds[0]).max().unwrap()
        };
        assert!(
            most(DST) as f64 > most_alone(Domain::Edge, graph.rows(DST) as f64, graph.rows(Domain::Edge) as f64),
            "{}",
            most(DST)
        );
        assert_eq!(most(Domain::Pair(Side::Dst)) > 64, is_large);
        for model in ["rgat", "hgt"] {
            let program = layer(model, &[("d_in", 12), ("d_out", 12), ("heads", 2)], &[]);
            for on in [Optimisations::ALL, Optimisations::GPU] {
                let (all, mut arrays) = optimised(&program, &graph, on);
                all.iter().for_each(|kernels| check(&gpu, kernels, &graph, &mut arrays));
            }
        }
    }
}

/// A softmax that is made pair by pair, as graphs of many edges a pair choose it: with one head the largest score of a pair is found in the walk
/// that adds up exponentials below it, with two before. Pairs with a few edges, with several chunks of them, and such as have a thread block.
#[test]
fn softmax_by_pairs() {
    let Some(gpu) = gpu() else { return };
    let relations = vec![(0, 0), (0, 1), (1, 0), (1, 1), (1, 1)];
    let graph = Recipe { nodes: vec![(30, 30), (20, 20)], relations, most_edges: 60, empty_every: 4 }.graph(2);
    let starts = graph.edge_starts(Domain::Pair(Side::Dst)).unwrap();
    let alone = most_alone(Domain::Edge, graph.rows(Domain::Pair(Side::Dst)) as f64, graph.rows(Domain::Edge) as f64);
    let counts = || starts.windows(2).map(|bounds| bounds[1] - bounds[0]);
    assert!(counts().any(|count| count as f64 > alone) && counts().any(|count| count > 32 && count as f64 <= alone));
    let (nodes, source_pairs, destination_pairs) = (1.9e6, 2.7e6, 2.1e6);
    let large = Statistics { sources: nodes, destinations: nodes, edges: 2.1e7, ..Statistics::of(&graph) };
    let large = Statistics { source_pairs, destination_pairs, source_runs: 8e3, destination_runs: 7e3, ..large };
    for (heads, edges, is_running) in [(1, 2.1e7, true), (2, 2e9, false)] {
        let large = Statistics { edges, ..large };
        let sizes = [("d_in", 24), ("d_out", 24), ("heads", heads)];
        let program = layer("hgt", &sizes, &[("variant", text("hector"))]);
        let compiled = compile(&program, &large, Optimisations::GPU).unwrap();
        let (_, mut arrays) = optimised(&program, &graph, Optimisations::GPU);
        let mut by_pairs = 0;
        let backward = is_thorough().then_some(&compiled.backward);
        for kernels in [&compiled.inference, &compiled.forward].into_iter().chain(backward) {
            let is_by_pairs = |kernel: &&Kernel| {
                let is_largest = |op: &StepOp| matches!(op, StepOp::Reduce(Reduce::Max, _));
                let Kernel::Traverse(Traverse { nest, body, .. }) = kernel else { return false };
                nest[..] == [Domain::Pair(Side::Dst), Domain::Edge]
                    && body.steps.iter().any(|step| is_largest(&step.op))
            };
            let found = kernels.kernels.iter().find(is_by_pairs);
            if let Some(Kernel::Traverse(Traverse { body, .. })) = found {
                assert_eq!(intra::running(body).is_some(), is_running, "{heads} heads");
                by_pairs += 1;
            }
            for lanes in if found.is_some() { &["fixed", "lanes=4"][..] } else { &["fixed"] } {
                check(&gpu, &chosen(kernels.clone(), lanes.parse().unwrap()), &graph, &mut arrays);
            }
        }
        assert!(by_pairs > 0, "{heads} heads");
    }
}

/// The largest of a node's scores, and the sum of exponentials below it and of rows times these.
fn exponentials(width: usize) -> intra::Program {
    let (shape, scalar) = (Shape::vector(width), Shape::SCALAR);
    let buffer = |name: &str, domain, shape, role| Buffer { name: name.to_owned(), domain, shape, role };
    let buffers = vec![
        buffer("l", Domain::Edge, scalar, Role::Input),
        buffer("x", Domain::SRC, shape, Role::Input),
        buffer("largest", DST, scalar, Role::Output),
        buffer("sum", DST, scalar, Role::Output),
        buffer("rows", DST, shape, Role::Output),
    ];
    let load = |from: usize, hops: Vec<Hop>| StepOp::Load(Read { from: BufferId::new(from), hops });
    let mut body = Body::default();
    let score = body.push(1, scalar, load(0, Vec::new()));
    let largest = body.push(0, scalar, StepOp::Reduce(Reduce::Max, score));
    body.push(0, scalar, StepOp::Store(largest, BufferId::new(2)));
    let spread = body.push(1, scalar, StepOp::Spread(largest));
    let below = body.push(1, scalar, StepOp::Binary(Binary::Sub, score, spread));
    let exponential = body.push(1, scalar, StepOp::Unary(Unary::Exp, below));
    let sum = body.push(0, scalar, StepOp::Reduce(Reduce::Sum, exponential));
    body.push(0, scalar, StepOp::Store(sum, BufferId::new(3)));
    let row = body.push(1, shape, load(1, vec![Hop { to: Domain::SRC, path: Path::Only }]));
    let weighted = body.push(1, shape, StepOp::Binary(Binary::Mul, row, exponential));
    let rows = body.push(0, shape, StepOp::Reduce(Reduce::Sum, weighted));
    body.push(0, shape, StepOp::Store(rows, BufferId::new(4)));
    assert_eq!(intra::running(&body), Some(intra::Running { largest, sums: vec![sum, rows] }));
    let kernels = vec![Kernel::Traverse(Traverse { nest: vec![DST, Domain::Edge], path: Path::Only, body })];
    intra::Program { name: "exponentials".to_owned(), buffers, kernels, schedules: Vec::new() }
}

/// Scores that rise and fall by hundreds over several chunks of a row, the first of which are minus infinity; a node of nothing else has no number;
/// nodes without edges have 0.
#[test]
fn exponentials_below_the_largest_so_far() {
    let Some(gpu) = gpu() else { return };
    let graph = Recipe { most_edges: 28, ..Recipe::plain(40) }.graph(2);
    let starts = graph.edge_starts(DST).unwrap();
    let mut scores: Vec<f64> = numbers(3, "l", graph.rows(Domain::Edge)).into_iter().map(|x| 300.0 * x).collect();
    for bounds in starts.windows(2).filter(|bounds| bounds[1] - bounds[0] > 9) {
        scores[bounds[0]..bounds[0] + 9].fill(f64::NEG_INFINITY);
    }
    for width in [24, 3] {
        let program = exponentials(width);
        let x = numbers(3, "x", width * graph.rows(Domain::SRC));
        let mut arrays: Arrays = [("l".to_owned(), scores.clone()), ("x".to_owned(), x.clone())].into_iter().collect();
        for schedule in ["fixed", "lanes=8", "lanes=4"] {
            check(&gpu, &chosen(program.clone(), schedule.parse().unwrap()), &graph, &mut arrays);
        }
        let (none, x) = (vec![f32::NEG_INFINITY; scores.len()], vec![1.0f32; x.len()]);
        let given = |name: &str| Some(Given::Dense(if name == "l" { &none } else { &x }));
        let found = Executor::new(&program).run(gpu.stream().unwrap(), &graph, Key::new(1), &given).unwrap();
        for (node, bounds) in starts.windows(2).enumerate() {
            let is_empty = bounds[0] == bounds[1];
            let own = [found["largest"][node], found["sum"][node], found["rows"][node * width]];
            assert!(if is_empty { own == [0.0; 3] } else { own[0] == f32::NEG_INFINITY }, "{own:?}");
            assert!(is_empty || (own[1].is_nan() && own[2].is_nan()), "{own:?}");
        }
    }
}

/// Nodes with more pairs than a group of lanes has alone, beside others with one: what pairs have is added up by node.
#[test]
fn nodes_with_very_many_pairs() {
    let Some(gpu) = gpu() else { return };
    let relations = [vec![(0, 0)], vec![(1, 1); 150]].concat();
    let graph = Recipe { nodes: vec![(60, 60), (3, 3)], relations, most_edges: 3, empty_every: 9 }.graph(2);
    let mut added_up = BTreeSet::new();
    for side in [Side::Src, Side::Dst] {
        let (node, pair) = (Domain::Node(side), Domain::Pair(side));
        let members = graph.members(node, pair, Path::Only).unwrap();
        let alone = most_alone(pair, graph.rows(node) as f64, graph.rows(pair) as f64);
        let hubs = (0..graph.rows(node)).filter(|row| members.count(*row) as f64 > alone).count();
        assert!((1..=3).contains(&hubs), "{hubs} of {side:?}");
    }
    for (model, heads) in [("rgcn", None), ("rgat", Some(2)), ("hgt", Some(2))] {
        let sizes: Vec<_> =
            [("d_in", 12), ("d_out", 12)].into_iter().chain(heads.map(|count| ("heads", count))).collect();
        let (all, mut arrays) = directions(&layer(model, &sizes, &[]), &graph);
        for kernels in &all {
            let nests = kernels.kernels.iter().map(Kernel::nest);
            added_up.extend(nests.filter(|nest| matches!(nest, [Domain::Node(_), Domain::Pair(_)])).map(<[_]>::to_vec));
            check(&gpu, kernels, &graph, &mut arrays);
        }
    }
    assert!(added_up.len() > 1, "{added_up:?}");
}

/// Outer products whose shares of the rows have several types, and types that have several shares.
#[test]
fn shares_of_several_types() {
    let Some(gpu) = gpu() else { return };
    let relations = vec![(0, 0); 5];
    let graph = Recipe { nodes: vec![(700, 700)], relations, most_edges: 2, empty_every: 9 }.graph(2);
    let (all, mut arrays) = directions(&layer("rgcn", &[("d_in", 12), ("d_out", 12)], &[]), &graph);
    let outers = all[2].kernels.iter().filter_map(|kernel| match kernel {
        Kernel::Outer(outer) if all[2][outer.to].domain == Domain::EdgeType => Some(outer),
        _ => None,
    });
    for outer in outers.clone() {
        let (tiles, shares) = graph.shares(outer.rows, (Domain::EdgeType, outer.path), 7, 128).unwrap();
        assert!(shares.windows(2).any(|two| two[1] - two[0] > 1), "{shares:?}");
        assert!(tiles.starts.windows(2).any(|two| two[1] - two[0] > 1), "{:?}", tiles.starts);
    }
    assert_eq!(outers.count(), 1);
    for chunks in ["chunks=1", "chunks=7", "chunks=264"] {
        let given = all.iter().map(|kernels| chosen(kernels.clone(), chunks.parse().unwrap()));
        given.for_each(|kernels| check(&gpu, &kernels, &graph, &mut arrays));
    }
}

/// Heads that fill the lanes of a group, some of them or none.
#[test]
fn heads_of_every_width() {
    let Some(gpu) = gpu() else { return };
    let graph = Recipe::plain(9).graph(2);
    for (width, into) in [(64, 32), (16, 64), (33, 3)] {
        let (all, mut arrays) =
            directions(&layer("gat", &[("d_in", into), ("d_out", width), ("heads", 2)], &[]), &graph);
        all.iter().for_each(|kernels| check(&gpu, kernels, &graph, &mut arrays));
    }
}

/// More than one tile of rows, of columns and of depth; widths that 4 divides and others.
#[test]
fn every_precision_is_as_exact_as_it_says() {
    let Some(gpu) = gpu() else { return };
    let graph = Recipe::plain(131).graph(2);
    let modes = [(Precision::Tf32x3, 5e-5), (Precision::Bf16, 4e-2), (Precision::Tf32, 4e-3), (Precision::F32, 5e-5)];
    for (model, sizes) in [("sage", [20, 68]), ("gcn", [35, 67])] {
        let sizes = [("d_in", sizes[0]), ("d_out", sizes[1])];
        let (all, arrays) = directions(&layer(model, &sizes, &[]), &graph);
        for mode in modes {
            let mut arrays = arrays.clone();
            all.iter().for_each(|kernels| check_within(&gpu, kernels, &graph, &mut arrays, mode));
        }
    }
}

/// Matrices of which shared memory keeps all slabs of columns, one of them, or a part of one.
#[test]
fn matrices_that_shared_memory_has_not_room_for() {
    let Some(gpu) = gpu() else { return };
    let graph = Recipe { nodes: vec![(40, 35)], relations: vec![(0, 0); 2], most_edges: 2, empty_every: 5 }.graph(2);
    for (into, from) in [(300, 70), (400, 66)] {
        let (all, mut arrays) = directions(&layer("rgcn", &[("d_in", into), ("d_out", from)], &[]), &graph);
        all.iter().for_each(|kernels| check(&gpu, kernels, &graph, &mut arrays));
    }
}

/// All schedules of every kernel, one after the other.
#[test]
fn every_schedule_gives_the_same_numbers() {
    let Some(gpu) = gpu() else { return };
    let graph =
        Recipe { nodes: vec![(30, 20), (9, 7)], relations: vec![(0, 1), (1, 0)], most_edges: 40, empty_every: 4 };
    let graph = graph.graph(2);
    for (model, width) in few_of([("rgat", 64), ("rgat", 12), ("hgt", 64)], 1) {
        let (all, arrays) = directions(&layer(model, &[("d_in", width), ("d_out", width), ("heads", 1)], &[]), &graph);
        let kinds =
            all.iter().flat_map(|program| &program.kernels).map(|kernel| KernelSchedule::all(kernel).len()).max();
        for at in few_of((0..kinds.unwrap_or(0)).collect::<Vec<_>>(), 3) {
            let mut arrays = arrays.clone();
            for program in &all {
                let one = |kernel: &Kernel| {
                    let all = KernelSchedule::all(kernel);
                    all[at % all.len()]
                };
                let schedules = program.kernels.iter().map(one).collect();
                let program = intra::Program { schedules, ..program.clone() };
                // Exponentials of sums of 64 products magnify how these are rounded.
                check_within(&gpu, &program, &graph, &mut arrays, (Precision::default(), 5e-4));
            }
        }
    }
}

/// All in the GPU suite, else every so many-th that so many are left.
fn few_of<T>(all: impl IntoIterator<Item = T>, few: usize) -> Vec<T> {
    let all: Vec<T> = all.into_iter().collect();
    let every = if is_thorough() { 1 } else { all.len().div_ceil(few).max(1) };
    all.into_iter().skip(every - 1).step_by(every).collect()
}

/// Bias, relu and dropout run where the product is made.
#[test]
fn what_follows_a_product_is_one_launch_with_it() {
    let source = "def f(g, x: node[d], W: matrix[d, k], b: vector[k]):\n    for n in g.dst_nodes():\n        \
                  n[\"out\"] = dropout(relu(linear(n.x, W) + b), 0.4)\n";
    for (d, k) in [(8, 12), (7, 5)] {
        let program = read("f", source, &[("d", d), ("k", k)], &[]);
        let graph = Recipe::plain(131).graph(2);
        let (all, mut arrays) = directions(&program, &graph);
        assert_eq!(emit(&all[1], Precision::Tf32).launches.len(), 1, "{}", intra::print(&all[1]));
        let Some(gpu) = gpu() else { return };
        all.iter().for_each(|kernels| check(&gpu, kernels, &graph, &mut arrays));
    }
}

/// Rows less their mean, over their deviation; the largest; and edges whose inner products are added up.
fn moments(width: usize) -> intra::Program {
    let shape = Shape::vector(width);
    let buffer = |name: &str, domain, shape, role| Buffer { name: name.to_owned(), domain, shape, role };
    let buffers = vec![
        buffer("x", DST, shape, Role::Input),
        buffer("normal", DST, shape, Role::Output),
        buffer("largest", Domain::Const, shape, Role::Output),
        buffer("mean", Domain::Const, shape, Role::Output),
        buffer("sum", Domain::Const, Shape::SCALAR, Role::Output),
    ];
    let (x, [normal, largest, mean, sum]) = (BufferId::new(0), [1, 2, 3, 4].map(BufferId::new));
    let mut body = Body::default();
    let own = body.push(1, shape, StepOp::Load(Read { from: x, hops: Vec::new() }));
    let average = body.push(0, shape, StepOp::Reduce(Reduce::Mean, own));
    let near = body.push(1, shape, StepOp::Spread(average));
    let apart = body.push(1, shape, StepOp::Binary(Binary::Sub, own, near));
    let squared = body.push(1, shape, StepOp::Binary(Binary::Mul, apart, apart));
    let variance = body.push(0, shape, StepOp::Reduce(Reduce::Mean, squared));
    let little = body.push(0, Shape::SCALAR, StepOp::Constant(1e-5));
    let safe = body.push(0, shape, StepOp::Binary(Binary::Add, variance, little));
    let factor = body.push(0, shape, StepOp::Unary(Unary::Rsqrt, safe));
    let factors = body.push(1, shape, StepOp::Spread(factor));
    let scaled = body.push(1, shape, StepOp::Binary(Binary::Mul, apart, factors));
    body.push(1, shape, StepOp::Store(scaled, normal));
    let most = body.push(0, shape, StepOp::Reduce(Reduce::Max, scaled));
    body.push(0, shape, StepOp::Store(most, largest));
    body.push(0, shape, StepOp::Store(average, mean));
    let hops = vec![Hop { to: DST, path: Path::Only }];
    let of_edge = body.push(2, shape, StepOp::Load(Read { from: x, hops }));
    let of_row = body.push(2, shape, StepOp::Spread(scaled));
    let inner = body.push(2, Shape::SCALAR, StepOp::Dot(of_edge, of_row));
    let total = body.push(0, Shape::SCALAR, StepOp::Reduce(Reduce::Sum, inner));
    body.push(0, Shape::SCALAR, StepOp::Store(total, sum));
    let nest = vec![Domain::Const, DST, Domain::Edge];
    let kernels = vec![Kernel::Traverse(Traverse { nest, path: Path::Only, body })];
    intra::Program { name: "moments".to_owned(), buffers, kernels, schedules: Vec::new() }
}

#[test]
fn sums_over_all_rows_that_depend_on_each_other() {
    let none = Recipe { nodes: vec![(0, 0)], ..Recipe::plain(1) };
    for (recipe, width) in [(none, 3), (Recipe::plain(1), 1), (Recipe::plain(90), 7), (Recipe::plain(150), 300)] {
        let (program, graph) = (moments(width), recipe.graph(2));
        intra::verify(&program).unwrap();
        let emitted = emit(&program, Precision::F32);
        assert!(emitted.table.members.iter().all(|(coarse, ..)| *coarse != Domain::Const), "{}", emitted.text());
        let Some(gpu) = gpu() else { return };
        let mut arrays = Arrays::from([("x".to_owned(), numbers(4, "x", graph.rows(DST) * width))]);
        check(&gpu, &program, &graph, &mut arrays);
    }
}

/// Types with rows for many tiles and chunks beside types with few and with none: gradients of weights and biases of types are sums of
/// chunks, and products go over a list of tiles.
#[test]
fn types_of_very_different_sizes() {
    let Some(gpu) = gpu() else { return };
    let relations = vec![(0, 0), (0, 1), (1, 0), (1, 1), (0, 0)];
    let graph = Recipe { nodes: vec![(500, 500), (9, 7)], relations, most_edges: 9, empty_every: 4 }.graph(2);
    let chunks = graph.tiles(Domain::Edge, Domain::EdgeType, Path::Only, 32).unwrap().starts;
    let counts: Vec<usize> = chunks.windows(2).map(|bounds| bounds[1] - bounds[0]).collect();
    assert!(counts.iter().any(|count| *count > 8) && counts.contains(&0), "{counts:?}");
    for (model, heads) in [("rgcn", None), ("rgat", Some(1)), ("rgat", Some(2)), ("hgt", Some(1)), ("hgt", Some(2))] {
        let sizes: Vec<_> =
            [("d_in", 8), ("d_out", 8)].into_iter().chain(heads.map(|heads| ("heads", heads))).collect();
        let (all, mut arrays) = directions(&layer(model, &sizes, &[]), &graph);
        all.iter().for_each(|kernels| check(&gpu, kernels, &graph, &mut arrays));
    }
}

/// Inner products with a product, of one head and of several, are made with it, and what is done with them.
#[test]
fn inner_products_are_made_with_the_product() {
    let source = "def f(g, x: node[heads, d], W: matrix[etype, heads, d, k], a: vector[etype, heads, k], c: vector[etype, heads, k]):\n    \
                  for e in g.edges():\n        e[\"z\"] = linear(e.src.x, W[e.etype])\n        \
                  e[\"s\"] = relu(dot(e[\"z\"], a[e.etype])) + dot(c[e.etype], e[\"z\"])\n    \
                  for n in g.dst_nodes():\n        \
                  n[\"out\"] = sum(e[\"s\"] * c[e.etype] for e in n.incoming_edges())\n";
    let graph = Recipe { nodes: vec![(60, 50)], relations: vec![(0, 0); 3], most_edges: 3, empty_every: 5 }.graph(2);
    for (heads, width, is_one) in [(1, 64, true), (3, 20, true), (2, 7, true), (1, 65, false)] {
        let program = read("f", source, &[("d", 9), ("k", width), ("heads", heads)], &[]);
        let on = Optimisations { dot_linear: false, compact: false, deep: false, ..Optimisations::ALL };
        let (all, mut arrays) = optimised(&program, &graph, on);
        let launches = |precision: Precision| emit(&all[1], precision).launches.len();
        assert_eq!(launches(Precision::Tf32x3) < launches(Precision::F32), is_one, "{}", intra::print(&all[1]));
        let Some(gpu) = gpu() else { continue };
        all.iter().for_each(|kernels| check_within(&gpu, kernels, &graph, &mut arrays, (Precision::default(), 1e-4)));
    }
}

/// Twice the rows of written nodes, those as rows of read ones, and these with what was there.
fn copied(width: usize) -> intra::Program {
    let shape = Shape::vector(width);
    let buffer = |name: &str, domain: Domain, role: Role| Buffer { name: name.to_owned(), domain, shape, role };
    let (input, own, output) = (Role::Input, Role::Temporary, Role::Output);
    let buffers = vec![
        buffer("y", DST, input),
        buffer("x", Domain::SRC, input),
        buffer("twice", DST, own),
        buffer("read", Domain::SRC, own),
        buffer("out", Domain::SRC, output),
    ];
    let plain = |from: usize| StepOp::Load(Read { from: BufferId::new(from), hops: Vec::new() });
    let traverse = |nest: Vec<Domain>, body: Body| Kernel::Traverse(Traverse { nest, path: Path::Only, body });
    let (mut doubled, mut moved, mut added) = (Body::default(), Body::default(), Body::default());
    let y = doubled.push(0, shape, plain(0));
    let twice = doubled.push(0, shape, StepOp::Binary(Binary::Add, y, y));
    doubled.push(0, shape, StepOp::Store(twice, BufferId::new(2)));
    let own = moved.push(1, shape, plain(2));
    let sum = moved.push(0, shape, StepOp::Reduce(Reduce::Sum, own));
    moved.push(0, shape, StepOp::Store(sum, BufferId::new(3)));
    let (read, x) = (added.push(0, shape, plain(3)), added.push(0, shape, plain(1)));
    let out = added.push(0, shape, StepOp::Binary(Binary::Add, read, x));
    added.push(0, shape, StepOp::Store(out, BufferId::new(4)));
    let kernels =
        vec![traverse(vec![DST], doubled), traverse(vec![Domain::SRC, DST], moved), traverse(vec![Domain::SRC], added)];
    intra::Program { name: "copied".to_owned(), buffers, kernels, schedules: Vec::new() }
}

/// Rows of written nodes are rows of read ones where all are written, and a copy with zeros where some are not: by one program.
#[test]
fn copies_to_read_nodes_are_left_out_where_all_are_written() {
    let program = copied(12);
    let emitted = emit(&program, Precision::default());
    let Some(copy) = emitted.launches[1].copy else { panic!("{}", intra::print(&program)) };
    let Some(gpu) = gpu() else { return };
    for (written, is_whole) in [([30, 20], true), ([30, 19], false), ([9, 20], false)] {
        let graph = Recipe { nodes: vec![(30, written[0]), (20, written[1])], ..Recipe::block() }.graph(3);
        let rows = |name: &str, domain: Domain| (name.to_owned(), numbers(3, name, 12 * graph.rows(domain)));
        let mut arrays: Arrays = [rows("x", Domain::SRC), rows("y", DST)].into_iter().collect();
        check(&gpu, &program, &graph, &mut arrays);
        let placed = DeviceGraph::of(gpu.stream().unwrap(), &graph, &[&emitted.table]).unwrap();
        let begins = Executor::new(&program).begins(&placed);
        assert_eq!(begins[copy.from.at()] == begins[copy.to.at()], is_whole, "{written:?}");
    }
}

/// One edge in all, and types without nodes among others.
#[test]
fn graphs_that_are_odd() {
    let Some(gpu) = gpu() else { return };
    let hector = [("variant", text("hector"))];
    let [rgat, hgt] = [("rgat", &[][..]), ("hgt", &hector[..])]
        .map(|(name, options)| layer(name, &[("d_in", 6), ("d_out", 4), ("heads", 2)], options));
    let [single, without, ..] = odd_graphs();
    for (program, graph) in [(&rgat, &single), (&rgat, &without), (&hgt, &without)] {
        let (kernels, mut arrays) = optimised(program, graph, Optimisations::GPU);
        kernels.iter().for_each(|kernels| check(&gpu, kernels, graph, &mut arrays));
    }
}
