//! The seven models: compiled with and without every optimisation they give the same numbers, and gradients are those of central
//! differences.

use std::collections::BTreeMap;

use crate::adjacency::Adjacency;
use crate::cpu::fast::{Array, Executor, Given, Run, Workspace};
use crate::front::{self, OptionValue};
use crate::inter::Program;
use crate::pass::autodiff::gradient_name;
use crate::pass::plans_test::{Case, fast};
use crate::pass::{Compiled, Optimisations, Statistics, compile};
use crate::testing::{Arrays, Recipe, check_gradients, given, is_thorough, numbers, odd_graphs};

fn layer(name: &str, options: &[(&str, OptionValue)]) -> Program {
    crate::testing::layer(name, &[("d_in", 4), ("d_out", 6), ("heads", 2), ("d_hidden", 5)], options)
}

pub(crate) fn variants() -> Vec<Program> {
    let text = |value: &str| OptionValue::Text(value.to_owned());
    let mut all: Vec<Program> = front::BUILTIN.iter().map(|(name, _)| layer(name, &[])).collect();
    all.push(layer("rgcn", &[("norm", text("none"))]));
    all.push(layer("rgcn", &[("features", OptionValue::Bool(false))]));
    all.push(layer("rgat", &[("vectors", text("shared")), ("by", text("etype"))]));
    all.push(layer("hgt", &[("variant", text("hector"))]));
    all.push(layer("sage", &[("aggregate", text("max"))]));
    all.push(layer(
        "gat",
        &[("concat_heads", OptionValue::Bool(false)), ("attention_dropout", OptionValue::Float(0.4))],
    ));
    all
}

pub(crate) fn run(compiled: &Compiled, graph: &Adjacency, arrays: &Arrays) -> BTreeMap<String, Vec<f64>> {
    let step = headwater_graph::random::Key::new(5);
    let mut found = crate::cpu::reference::run(&compiled.forward, graph, step, arrays).unwrap();
    let mut all = arrays.clone();
    all.extend(found.clone());
    found.extend(crate::cpu::reference::run(&compiled.backward, graph, step, &all).unwrap());
    found.retain(|name, _| !name.starts_with("saved."));
    found
}

#[test]
fn gradients_are_those_of_central_differences() {
    for program in variants() {
        for recipe in [Recipe::plain(6), Recipe::block()] {
            check_gradients(&program, &recipe.graph(3), 7);
        }
    }
}

/// All switches on, each of them off, each of them alone.
fn settings() -> Vec<Optimisations> {
    let each = |base: Optimisations, is_on: bool| Optimisations::SWITCHES.map(|switch| base.with(switch, is_on));
    [vec![Optimisations::ALL], each(Optimisations::ALL, false).into(), each(Optimisations::NONE, true).into()].concat()
}

/// What a program gives by a setting and by none at all.
fn check(program: &Program, graph: &Adjacency, statistics: &Statistics, settings: &[Optimisations]) {
    let mut arrays = given(program, graph, 4);
    let out = program.output("out").unwrap();
    let count = graph.rows(program[out].domain) * program[out].shape.len();
    arrays.insert(gradient_name("out"), numbers(4, "d.out", count));
    let wanted = run(&compile(program, statistics, Optimisations::NONE).unwrap(), graph, &arrays);
    for on in settings {
        let compiled = compile(program, statistics, *on).unwrap();
        crate::inter::verify(&compiled.values.forward).unwrap();
        crate::inter::verify(&compiled.values.backward).unwrap();
        let found = run(&compiled, graph, &arrays);
        assert_eq!(wanted.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
        for (name, wanted) in &wanted {
            let far = wanted.iter().zip(&found[name]).find(|(a, b)| (*a - *b).abs() > 1e-9 * (1.0 + a.abs()));
            assert!(far.is_none(), "{}, {on:?}, {name}: {far:?}", program.name);
        }
    }
}

/// Graphs of every kind: a block with an empty relation, isolated nodes and hubs; one relation; one node type; no edges.
fn graphs() -> Vec<Adjacency> {
    let one_type = Recipe { nodes: vec![(6, 5)], relations: vec![(0, 0); 3], ..Recipe::block() };
    let no_edges = Recipe { empty_every: 1, ..Recipe::block() };
    let hubs = Recipe { most_edges: 30, ..Recipe::block() };
    [Recipe::plain(9), one_type, no_edges, hubs].iter().map(|recipe| recipe.graph(2)).collect()
}

fn check_model(name: &str) {
    variants().iter().filter(|program| program.name == name).for_each(check_everywhere);
}

fn check_everywhere(program: &Program) {
    let block = Recipe::block().graph(2);
    check(program, &block, &Statistics::of(&block), &settings());
    for graph in graphs() {
        check(program, &graph, &Statistics::of(&graph), &[Optimisations::ALL]);
    }
    // What a program is compiled for decides how it computes, never what.
    let other = Statistics { destination_pairs: 1.0, source_pairs: 30.0, ..Statistics::of(&block) };
    check(program, &block, &other, &[Optimisations::ALL]);
}

#[test]
fn plain_models_give_the_same_numbers_optimised_or_not() {
    ["gcn", "sage", "gin", "gat"].into_iter().for_each(check_model);
}

#[test]
fn rgcn_gives_the_same_numbers_optimised_or_not() {
    check_model("rgcn");
}

#[test]
fn rgat_gives_the_same_numbers_optimised_or_not() {
    check_model("rgat");
}

#[test]
fn hgt_gives_the_same_numbers_optimised_or_not() {
    check_everywhere(&layer("hgt", &[]));
}

#[test]
fn hectors_hgt_gives_the_same_numbers_optimised_or_not() {
    check_everywhere(&layer("hgt", &[("variant", OptionValue::Text("hector".to_owned()))]));
}

#[test]
fn five_hundred_relations_give_the_same_numbers() {
    let relations = (0..500).map(|at| (at % 2, at / 2 % 2)).collect();
    let graph = Recipe { nodes: vec![(4, 3), (3, 2)], relations, most_edges: 1, empty_every: 2 }.graph(1);
    for program in variants() {
        check(&program, &graph, &Statistics::of(&graph), &[Optimisations::ALL]);
    }
}

/// Graphs that data sets have at their edges.
#[test]
fn odd_graphs_give_the_same_numbers() {
    let graphs = odd_graphs();
    for program in variants().iter().filter(|program| ["rgcn", "rgat", "hgt"].contains(&program.name.as_str())) {
        for graph in &graphs {
            check(program, graph, &Statistics::of(graph), &[Optimisations::GPU, Optimisations::CPU]);
        }
    }
}

/// One direction on the fast path, beside the interpreter's.
#[expect(clippy::cast_possible_truncation, reason = "the fast path computes in single precision")]
pub(crate) fn check_fast(kernels: &crate::intra::Program, graph: &Adjacency, arrays: &mut Arrays) {
    let step = headwater_graph::random::Key::new(5);
    let wanted = crate::cpu::reference::run(kernels, graph, step, arrays).unwrap();
    let single = |values: &[f64]| values.iter().map(|x| *x as f32).collect::<Vec<_>>();
    let given: BTreeMap<&str, Vec<f32>> = arrays.iter().map(|(name, values)| (name.as_str(), single(values))).collect();
    let lend = |name: &str| given.get(name).map(|values| Given::Dense(values));
    let found = Executor::new(kernels.clone()).run(Run { graph, step }, &lend, &mut Workspace::default()).unwrap();
    for (name, wanted) in &wanted {
        let Array::Dense(found) = &found[name] else { panic!("{name} is sparse") };
        let largest = wanted.iter().fold(1.0f64, |largest, x| largest.max(x.abs()));
        let far = wanted.iter().zip(found).find(|(a, b)| (**a - f64::from(**b)).abs() > 5e-5 * largest);
        assert!(far.is_none(), "{}, {name}: {far:?}", kernels.name);
    }
    arrays.extend(wanted);
}

#[test]
fn the_fast_path_runs_what_is_optimised() {
    for program in variants() {
        for recipe in [Recipe::plain(30), Recipe::block(), Recipe { most_edges: 30, ..Recipe::block() }] {
            let graph = recipe.graph(2);
            let compiled = compile(&program, &Statistics::of(&graph), Optimisations::ALL).unwrap();
            let mut arrays = given(&program, &graph, 4);
            let out = program.output("out").unwrap();
            let count = graph.rows(program[out].domain) * program[out].shape.len();
            arrays.insert(gradient_name("out"), numbers(4, "d.out", count));
            for kernels in [&compiled.inference, &compiled.forward, &compiled.backward] {
                check_fast(kernels, &graph, &mut arrays);
            }
        }
    }
}

/// A destination is one of the nodes that are read, but what a node sends is not what it gets: the destination's row is no
/// factor of the sum over a source's edges.
#[test]
fn a_factor_of_the_other_end_stays_in_its_sum() {
    let source = "def f(g, x: node[d], w: edge[1]):\n    for n in g.nodes():\n        n[\"t\"] = tanh(n.x)\n    \
                  for n in g.dst_nodes():\n        \
                  n[\"out\"] = sum(e.w * dot(e.src.x, e.dst[\"t\"]) for e in n.incoming_edges())\n";
    let program = crate::testing::read("f", source, &[("d", 8)], &[]);
    let graph = Recipe::plain(9).graph(2);
    check(&program, &graph, &Statistics::of(&graph), &settings());
}

/// Heads that are repeated by a factor are not heads of the weight.
#[test]
fn factors_that_repeat_rows_are_no_factors_of_them() {
    let source = "def f(g, x: node[2, d], W: matrix[2, d, d], a: edge[2, 1]):\n    for n in g.dst_nodes():\n        \
                  n[\"out\"] = sum(e.a * flatten(linear(e.src.x, W)) for e in n.incoming_edges())\n";
    let program = crate::testing::read("f", source, &[("d", 3)], &[]);
    let graph = Recipe::plain(9).graph(2);
    check(&program, &graph, &Statistics::of(&graph), &settings());
}

/// Widths that fill vectors, leave a rest of every size, and are 1: of inputs and of outputs.
#[test]
fn every_layer_of_every_width_gives_the_numbers_of_its_definition() {
    let graph = || Recipe::block().graph(2);
    let widths = if is_thorough() { (1..=33).collect() } else { vec![1, 2, 3, 5, 8, 16, 17, 31, 32, 33] };
    for width in widths {
        for layer in layers_of(34 - width, width) {
            let case = Case::new(layer, graph(), 4);
            let compiled = compile(&case.layer, &Statistics::of(&case.graph), Optimisations::ALL).unwrap();
            let found = crate::random_test::wrong(&case, &compiled, &[(&fast, 5e-5)]);
            assert!(found.is_none(), "{} to {width}: {found:?}", case.layer.name);
        }
    }
}

/// Every built-in layer with its usual options, from one width to another; heads divide the second.
pub(crate) fn layers_of(from: usize, to: usize) -> Vec<Program> {
    let heads = [3, 2, 1].into_iter().find(|heads| to.is_multiple_of(*heads)).unwrap_or(1);
    let sizes = [("d_in", from), ("d_out", to), ("heads", heads), ("d_hidden", to)];
    front::BUILTIN.iter().map(|(name, _)| crate::testing::layer(name, &sizes, &[])).collect()
}
