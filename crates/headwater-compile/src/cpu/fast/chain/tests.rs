//! Kernels together against the same kernels one by one.

use std::collections::BTreeMap;

use headwater_graph::random::Key;

use super::super::{Array, Executor, Given, Run, Workspace};
use crate::adjacency::Adjacency;
use crate::front::BUILTIN;
use crate::inter::{Binary, Builder, Domain, Shape, Unary};
use crate::pass::autodiff::gradient_name;
use crate::pass::select::{Fusion, select};
use crate::pass::{Optimisations, Statistics, compile};
use crate::testing::{Arrays, Recipe, given, layer, numbers};

type Singles = BTreeMap<String, Vec<f32>>;

fn single(arrays: &Arrays) -> Singles {
    let single = |values: &Vec<f64>| values.iter().map(|x| super::super::vector::single(*x)).collect();
    arrays.iter().map(|(name, values)| (name.clone(), single(values))).collect()
}

fn run(executor: &Executor, graph: &Adjacency, arrays: &Singles) -> Singles {
    let lend = |name: &str| arrays.get(name).map(|values| Given::Dense(values));
    let found = executor.run(Run { graph, step: Key::new(5) }, &lend, &mut Workspace::default()).unwrap();
    found.into_iter().map(|(name, array)| (name, array.into_values())).collect()
}

/// Graphs whose rows are many blocks: of one type, a block of two, and one where most rows get no product.
fn graphs() -> Vec<Adjacency> {
    let two = Recipe { nodes: vec![(2300, 1700), (900, 700)], ..Recipe::block() };
    let few_written = Recipe { nodes: vec![(2500, 300)], ..Recipe::plain(0) };
    [Recipe::plain(2100), two, few_written].iter().map(|recipe| recipe.graph(3)).collect()
}

#[test]
fn kernels_together_give_what_they_give_one_by_one() {
    let mut together = 0;
    for (name, _) in BUILTIN {
        let program = layer(name, &[("d_in", 48), ("d_out", 64), ("heads", 2), ("d_hidden", 40)], &[]);
        for graph in graphs() {
            let compiled = compile(&program, &Statistics::of(&graph), Optimisations::ALL).unwrap();
            let out = program.output("out").unwrap();
            let mut arrays = given(&program, &graph, 4);
            let count = graph.rows(program[out].domain) * program[out].shape.len();
            arrays.insert(gradient_name("out"), numbers(4, "d.out", count));
            let mut arrays = single(&arrays);
            for kernels in [compiled.inference, compiled.forward, compiled.backward] {
                let chained = Executor::new(kernels.clone());
                let mut apart = Executor::new(kernels);
                apart.chains = (0..apart.program.kernels.len()).map(|at| at..at + 1).collect();
                together += chained.chains.iter().filter(|chain| chain.len() > 1).count();
                let (wanted, found) = (run(&apart, &graph, &arrays), run(&chained, &graph, &arrays));
                check(&wanted, &found, &chained);
                arrays.extend(wanted);
            }
        }
    }
    assert!(together > 30, "only {together} chains: this tests nothing");
}

/// Rows of nodes are the same to the bit; those of weights are sums over all rows, added up in another order.
fn check(wanted: &Singles, found: &Singles, executor: &Executor) {
    assert_eq!(wanted.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
    // Of all: some gradients are sums of large terms that are 0 together.
    let largest = wanted.values().flatten().fold(1.0f32, |largest, x| largest.max(x.abs()));
    for (name, wanted) in wanted {
        let is_weight = executor.program.buffer(name).is_some_and(|id| executor.program[id].domain.is_type());
        let room = if is_weight { 2e-5 * largest } else { 0.0 };
        let far = wanted.iter().zip(&found[name]).find(|(a, b)| (*a - *b).abs() > room || b.is_nan());
        assert!(far.is_none(), "{}, {name}: {far:?}", executor.program.name);
    }
}

#[test]
fn a_layer_of_graphsage_is_one_chain_each_way_and_threads_do_not_matter() {
    let program = layer("sage", &[("d_in", 48), ("d_out", 64)], &[]);
    let graph = Recipe::plain(2100).graph(3);
    let compiled = compile(&program, &Statistics::of(&graph), Optimisations::ALL).unwrap();
    let forward = Executor::new(compiled.forward);
    assert_eq!(forward.chains.first(), Some(&(0..3)));
    assert_eq!(forward.chains.len(), 1);
    let arrays = single(&given(&program, &graph, 4));
    let mut all = arrays.clone();
    all.extend(run(&forward, &graph, &arrays));
    all.insert(gradient_name("out"), vec![0.25; all["out"].len()]);
    let backward = Executor::new(compiled.backward);
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| (run(&forward, &graph, &all), run(&backward, &graph, &all)))
    };
    let wanted = with(1);
    assert!([2, 3, 5].into_iter().all(|threads| with(threads) == wanted));
}

#[test]
fn what_only_a_chain_reads_is_never_stored() {
    let program = layer("sage", &[("d_in", 48), ("d_out", 64)], &[]);
    let graph = Recipe::plain(2100).graph(3);
    let compiled = compile(&program, &Statistics::of(&graph), Optimisations::ALL).unwrap();
    let arrays = single(&given(&program, &graph, 4));
    let mut workspace = Workspace::default();
    let lend = |name: &str| arrays.get(name).map(|values| Given::Dense(values));
    let run = Run { graph: &graph, step: Key::new(5) };
    let found = Executor::new(compiled.inference).run(run, &lend, &mut workspace).unwrap();
    let Array::Dense(out) = &found["out"] else { panic!("a sparse output") };
    assert_eq!(workspace.peak_bytes(), 4 * out.len());
}

#[test]
fn a_product_may_be_added_to_the_rows_it_is_of() {
    let mut b = Builder::new("residual");
    let x = b.input("x", Domain::SRC, Shape::vector(24));
    let w = b.parameter("W", Domain::Const, Shape::matrix(24, 24));
    let y = b.unary(Unary::Relu, x);
    let product = b.linear(y, w).unwrap();
    let out = b.binary(Binary::Add, product, y).unwrap();
    b.output("out", out);
    let program = b.finish();
    let graph = Recipe::plain(700).graph(3);
    let arrays = single(&given(&program, &graph, 4));
    let chained = Executor::new(select(&program, Fusion::On).unwrap());
    assert_eq!(chained.chains.len(), 1);
    let mut apart = Executor::new(select(&program, Fusion::On).unwrap());
    apart.chains = (0..apart.program.kernels.len()).map(|at| at..at + 1).collect();
    assert!(apart.chains.len() > 1);
    assert_eq!(run(&apart, &graph, &arrays), run(&chained, &graph, &arrays));
}
