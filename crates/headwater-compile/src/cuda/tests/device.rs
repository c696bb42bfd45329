//! On a GPU, or on the emulator.

use std::collections::BTreeMap;

use headwater_cuda::{Gpu, Stream};
use headwater_graph::random::Key;

use crate::adjacency::Adjacency;
use crate::cpu::fast::Given;
use crate::cpu::reference;
use crate::cuda::{DeviceGraph, Executor, Precision, emit};
use crate::front::BUILTIN;
use crate::intra::Program;
use crate::models_test::variants;
use crate::pass::autodiff::gradient_name;
use crate::pass::{Optimisations, Statistics, compile};
use crate::testing::{Arrays, Recipe, given, numbers};

pub(super) fn gpu() -> Option<Gpu> {
    Gpu::open(0).inspect_err(|why| eprintln!("no GPU: skipped ({why})")).ok()
}

/// One direction on the GPU, beside the interpreter's.
pub(super) fn check(gpu: &Gpu, kernels: &Program, graph: &Adjacency, arrays: &mut Arrays) {
    check_within(gpu, kernels, graph, arrays, (Precision::default(), 5e-5));
}

/// The same with products of some precision, where results may be so far off.
pub(super) fn check_within(
    gpu: &Gpu,
    kernels: &Program,
    graph: &Adjacency,
    arrays: &mut Arrays,
    within: (Precision, f64),
) {
    let stream = gpu.stream().unwrap();
    let table = emit(kernels, within.0).table;
    let placed = DeviceGraph::of(stream, graph, &[&table]).unwrap();
    check_over(stream, kernels, (graph, &placed), arrays, within);
}

/// The same over a graph that lies there already.
#[expect(clippy::cast_possible_truncation, reason = "kernels compute in single precision")]
pub(super) fn check_over(
    stream: &Stream,
    kernels: &Program,
    (graph, placed): (&Adjacency, &DeviceGraph),
    arrays: &mut Arrays,
    (precision, far): (Precision, f64),
) {
    let step = Key::new(5);
    let wanted = reference::run(kernels, graph, step, arrays).unwrap();
    let single = |values: &[f64]| values.iter().map(|x| *x as f32).collect::<Vec<_>>();
    let given: BTreeMap<&str, Vec<f32>> = arrays.iter().map(|(name, values)| (name.as_str(), single(values))).collect();
    let lend = |name: &str| given.get(name).map(|values| Given::Dense(values));
    let executor = Executor::with_precision(kernels, precision);
    let found = executor.run_over(stream, (graph, placed), step, &lend).unwrap();
    for (name, wanted) in &wanted {
        let largest = wanted.iter().fold(1.0f64, |largest, x| largest.max(x.abs()));
        assert_eq!(wanted.len(), found[name].len(), "{}, {name}", kernels.name);
        let is_far = |(a, b): &(&f64, &f32)| (**a - f64::from(**b)).abs() > far * largest || b.is_nan();
        let far = wanted.iter().zip(&found[name]).find(is_far);
        assert!(far.is_none(), "{}, {name}: {far:?}\n{}", kernels.name, executor.emitted().text());
    }
    arrays.extend(wanted);
}

/// Models that take longest, which have tests of their own so that these run side by side.
const RELATIONAL: [&str; 2] = ["rgcn", "rgat"];
const TRANSFORMERS: [&str; 1] = ["hgt"];

/// All variants of some built-in models, as they are optimised and as they are written.
fn check_models(is_meant: impl Fn(&str) -> bool) {
    let Some(gpu) = gpu() else { return };
    let names: Vec<&str> = BUILTIN.iter().map(|(name, _)| *name).filter(|name| is_meant(name)).collect();
    let all: Vec<_> = variants().into_iter().filter(|program| names.contains(&program.name.as_str())).collect();
    let is_checked = |name: &&str| all.iter().any(|program| program.name == *name);
    assert!(!names.is_empty() && names.iter().all(is_checked), "{names:?}");
    for program in all {
        for (recipe, on) in [
            (Recipe::plain(30), Optimisations::GPU),
            (Recipe::block(), Optimisations::GPU),
            (Recipe::block(), Optimisations::ALL),
            (Recipe::block(), Optimisations::NONE),
        ] {
            let graph = recipe.graph(2);
            let compiled = compile(&program, &Statistics::of(&graph), on).unwrap();
            let mut arrays = given(&program, &graph, 4);
            let out = program.output("out").unwrap();
            let count = graph.rows(program[out].domain) * program[out].shape.len();
            arrays.insert(gradient_name("out"), numbers(4, "d.out", count));
            for kernels in [&compiled.inference, &compiled.forward, &compiled.backward] {
                check(&gpu, kernels, &graph, &mut arrays);
            }
        }
    }
}

#[test]
fn models_of_one_relation_are_what_they_are_on_the_cpu() {
    check_models(|name| !RELATIONAL.contains(&name) && !TRANSFORMERS.contains(&name));
}

#[test]
fn relational_models_are_what_they_are_on_the_cpu() {
    check_models(|name| RELATIONAL.contains(&name));
}

#[test]
fn transformers_are_what_they_are_on_the_cpu() {
    check_models(|name| TRANSFORMERS.contains(&name));
}

/// Texts that are compiled beside each other have all kernels of the program between them.
#[test]
fn a_program_in_several_texts_gives_the_same_bits() {
    let Some(gpu) = gpu() else { return };
    let program = crate::testing::layer("sage", &[("d_in", 6), ("d_out", 5)], &[]);
    let graph = Recipe::plain(20).graph(2);
    let compiled = compile(&program, &Statistics::of(&graph), Optimisations::GPU).unwrap();
    let arrays = given(&program, &graph, 4);
    #[expect(clippy::cast_possible_truncation, reason = "kernels compute in single precision")]
    let single: BTreeMap<&str, Vec<f32>> =
        arrays.iter().map(|(name, values)| (name.as_str(), values.iter().map(|x| *x as f32).collect())).collect();
    let lend = |name: &str| single.get(name).map(|values| Given::Dense(values));
    let run = |most: usize| {
        let executor = Executor::in_texts(&compiled.inference, Precision::default(), most);
        executor.run(gpu.stream().unwrap(), &graph, Key::new(5), &lend).unwrap()
    };
    let launches = emit(&compiled.inference, Precision::default()).launches.len();
    assert!(launches > 1);
    let whole = run(1);
    [2, 9].into_iter().for_each(|most| assert_eq!(run(most), whole, "{most} texts"));
}

/// Long rows, many rows, and rows of a table that lie the other way round.
#[test]
fn large_graphs_and_rows_of_a_table() {
    let Some(gpu) = gpu() else { return };
    let program = crate::testing::layer("gat", &[("d_in", 24), ("d_out", 20), ("heads", 3)], &[]);
    let graph = Recipe { most_edges: 40, ..Recipe::plain(700) }.graph(2);
    let compiled = compile(&program, &Statistics::of(&graph), Optimisations::ALL).unwrap();
    let mut arrays = given(&program, &graph, 4);
    check(&gpu, &compiled.inference, &graph, &mut arrays);
    #[expect(clippy::cast_possible_truncation, reason = "kernels compute in single precision")]
    let single: BTreeMap<&str, Vec<f32>> =
        arrays.iter().map(|(name, values)| (name.as_str(), values.iter().map(|x| *x as f32).collect())).collect();
    let table: Vec<f32> = single["x"].chunks(24).rev().flatten().copied().collect();
    let rows: Vec<u32> = (0..700).rev().collect();
    let executor = Executor::new(&compiled.inference);
    let dense = |name: &str| single.get(name).map(|values| Given::Dense(values));
    let picked = |name: &str| match name {
        "x" => Some(Given::Picked { table: &table, rows: &rows }),
        _ => dense(name),
    };
    let stream = gpu.stream().unwrap();
    let wanted = executor.run(stream, &graph, Key::new(5), &dense).unwrap();
    assert_eq!(wanted, executor.run(stream, &graph, Key::new(5), &picked).unwrap());
    assert_eq!(wanted, executor.run(stream, &graph, Key::new(5), &dense).unwrap(), "another time");
}

#[test]
fn arrays_of_other_sizes_are_refused_by_name() {
    let Some(gpu) = gpu() else { return };
    let program = crate::testing::layer("gcn", &[("d_in", 4), ("d_out", 6)], &[]);
    let graph = Recipe::plain(30).graph(2);
    let compiled = compile(&program, &Statistics::of(&graph), Optimisations::ALL).unwrap();
    let executor = Executor::new(&compiled.inference);
    let short = [0.0f32; 7];
    let error = executor.run(gpu.stream().unwrap(), &graph, Key::new(5), &|_| Some(Given::Dense(&short))).unwrap_err();
    assert_eq!(error.to_string(), "`x` has 7 numbers; expected 120");
}
