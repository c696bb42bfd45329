//! The fast path against the interpreter: the same programs, the same graphs, both directions.

use std::collections::BTreeMap;

use headwater_graph::random::Key;

use super::{Array, Executor, Given, Run, SparseRows, Workspace};
use crate::adjacency::Adjacency;
use crate::cpu::reference;
use crate::inter::{Binary, Builder, Domain, Path, Program, Reduce, Shape, Side, Unary};
use crate::intra::Role;
use crate::pass::autodiff::gradients;
use crate::pass::domains::coarsen;
use crate::pass::select::{Fusion, select};
use crate::pass::simplify::simplify;
use crate::testing::{Arrays, Recipe, UNARY, given};

fn run_fast(
    executor: &Executor,
    graph: &Adjacency,
    arrays: &Arrays,
    workspace: &mut Workspace,
) -> BTreeMap<String, Vec<f32>> {
    let single: BTreeMap<&str, Vec<f32>> = arrays
        .iter()
        .map(|(name, values)| (name.as_str(), values.iter().map(|x| super::vector::single(*x)).collect()))
        .collect();
    let run = Run { graph, step: Key::new(5) };
    let found = executor.run(run, &|name| single.get(name).map(|values| Given::Dense(values)), workspace).unwrap();
    found.into_iter().map(|(name, array)| (name, dense(array))).collect()
}

/// The same with every input read out of a table that has its rows the other way round.
fn run_picked(executor: &Executor, graph: &Adjacency, arrays: &Arrays) -> BTreeMap<String, Vec<f32>> {
    let mut tables: BTreeMap<&str, (Vec<f32>, Vec<u32>)> = BTreeMap::new();
    for buffer in executor.program().buffers.iter().filter(|buffer| buffer.role == Role::Input) {
        let rows = arrays[&buffer.name].chunks(buffer.shape.len()).rev();
        let table = rows.flatten().map(|x| super::vector::single(*x)).collect();
        let count = u32::try_from(graph.rows(buffer.domain)).unwrap();
        tables.insert(&buffer.name, (table, (0..count).rev().collect()));
    }
    let lent: BTreeMap<&str, Vec<f32>> = arrays
        .iter()
        .map(|(name, values)| (name.as_str(), values.iter().map(|x| super::vector::single(*x)).collect()))
        .collect();
    let given = |name: &str| match tables.get(name) {
        Some((table, rows)) => Some(Given::Picked { table, rows }),
        None => lent.get(name).map(|values| Given::Dense(values)),
    };
    let run = Run { graph, step: Key::new(5) };
    let found = executor.run(run, &given, &mut Workspace::default()).unwrap();
    found.into_iter().map(|(name, array)| (name, dense(array))).collect()
}

fn dense(array: Array) -> Vec<f32> {
    match array {
        Array::Dense(values) => values,
        Array::Sparse(sparse) => {
            let mut values = vec![0.0; sparse.rows() * sparse.width];
            sparse.dense_into(&mut values);
            values
        }
    }
}

/// Compares both on several graphs, with and without shared kernels, forward and backward.
fn check(program: &Program) {
    let joint = simplify(&gradients(program, "out").unwrap()).unwrap();
    let coarse = simplify(&coarsen(&joint, |_| true).unwrap()).unwrap();
    let mut workspace = Workspace::default();
    for recipe in [Recipe::plain(40), Recipe::block(), Recipe { most_edges: 40, ..Recipe::block() }] {
        let graph = recipe.graph(3);
        let arrays = given(&joint, &graph, 8);
        for (program, fusion) in [(&joint, Fusion::Off), (&joint, Fusion::On), (&coarse, Fusion::On)] {
            let kernels = select(program, fusion).unwrap();
            let wanted = reference::run(&kernels, &graph, Key::new(5), &arrays).unwrap();
            let executor = Executor::new(kernels);
            let found = run_fast(&executor, &graph, &arrays, &mut workspace);
            assert_eq!(wanted.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
            assert_eq!(found, run_picked(&executor, &graph, &arrays), "{}", crate::intra::print(executor.program()));
            for (name, wanted) in &wanted {
                let largest = wanted.iter().fold(1.0f64, |largest, x| largest.max(x.abs()));
                let far = wanted.iter().zip(&found[name]).find(|(a, b)| (**a - f64::from(**b)).abs() > 2e-5 * largest);
                assert!(far.is_none(), "{name}: {far:?}\n{}", crate::intra::print(executor.program()));
            }
        }
    }
}

#[test]
fn every_operator() {
    for f in UNARY {
        let mut b = Builder::new("unary");
        let x = b.parameter("x", Domain::SRC, Shape::Row { heads: 2, width: 5 });
        let square = b.binary(Binary::Mul, x, x).unwrap();
        let one = b.constant(1.0);
        let positive = b.binary(Binary::Add, square, one).unwrap();
        let out = b.unary(f, positive);
        b.output("out", out);
        check(&b.finish());
    }
    for f in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max, Binary::Min] {
        let mut b = Builder::new("binary");
        let x = b.parameter("x", Domain::SRC, Shape::Row { heads: 3, width: 4 });
        let (narrow, one_head) = (b.sum_width(x).unwrap(), b.sum_heads(x).unwrap());
        let u = b.binary(f, x, narrow).unwrap();
        let v = b.binary(f, one_head, u).unwrap();
        let three = b.constant(3.0);
        let w = b.binary(f, v, three).unwrap();
        b.output("out", w);
        check(&b.finish());
    }
}

#[test]
fn vectors_apart_and_together() {
    let mut b = Builder::new("vectors");
    let x = b.parameter("x", Domain::SRC, Shape::Row { heads: 2, width: 3 });
    let c = b.parameter("c", Domain::Const, Shape::Row { heads: 2, width: 3 });
    let both = b.concat(x, c).unwrap();
    let part = b.slice(both, 2, 3).unwrap();
    let padded = b.pad(part, 1, 6).unwrap();
    let d = b.dot(padded, both).unwrap();
    let wide = b.expand(d, Shape::Row { heads: 2, width: 3 }).unwrap();
    let flat = b.reshape(wide, Shape::vector(6)).unwrap();
    let out = b.dropout(flat, 0.3, 2);
    b.output("out", out);
    check(&b.finish());
}

#[test]
fn rows_up_and_down() {
    for how in [Reduce::Sum, Reduce::Mean, Reduce::Max] {
        for to in [
            Domain::DST,
            Domain::SRC,
            Domain::Pair(Side::Dst),
            Domain::Pair(Side::Src),
            Domain::EdgeType,
            Domain::Const,
        ] {
            let mut b = Builder::new("rows");
            let x = b.parameter("x", Domain::SRC, Shape::vector(19));
            let (s, d) = (b.lift(x, Domain::Edge).unwrap(), b.lift(x, Domain::DST).unwrap());
            let plain = b.reduce(s, to, how).unwrap();
            let m = b.binary(Binary::Mul, s, d).unwrap();
            let sum = b.reduce(m, to, how).unwrap();
            let (sum, plain) = (b.lift(sum, Domain::Edge).unwrap(), b.lift(plain, Domain::Edge).unwrap());
            let out = b.binary(Binary::Add, sum, plain).unwrap();
            b.output("out", out);
            check(&b.finish());
        }
    }
}

#[test]
fn attention_and_typed_weights() {
    for by in [Domain::DST, Domain::Pair(Side::Dst)] {
        let mut b = Builder::new("attention");
        let x = b.input_with_gradient("x", Domain::SRC, Shape::vector(17));
        let w = b.parameter("W", Domain::EdgeType, Shape::matrix(17, 6));
        let v = b.parameter("V", Domain::NodeType, Shape::Matrix { heads: 2, rows: 3, cols: 3 });
        let q = b.parameter("q", Domain::EdgeType, Shape::Row { heads: 2, width: 3 });
        let s = b.lift(x, Domain::Edge).unwrap();
        let z = b.linear(s, w).unwrap();
        let z = b.reshape(z, Shape::Row { heads: 2, width: 3 }).unwrap();
        let k = b.linear_by(z, v, true, Path::By(Side::Dst)).unwrap();
        let l = b.dot(k, q).unwrap();
        let l = b.unary(Unary::LeakyRelu(0.2), l);
        let a = b.softmax(l, by).unwrap();
        let a = b.dropout(a, 0.25, 0);
        let m = b.binary(Binary::Mul, a, z).unwrap();
        let out = b.reduce(m, Domain::DST, Reduce::Sum).unwrap();
        b.output("out", out);
        check(&b.finish());
    }
}

#[test]
fn sparse_rows_are_the_same_rows() {
    let block = Recipe { nodes: vec![(700, 500)], ..Recipe::plain(700) };
    for (recipe, rows) in [(Recipe::plain(700), Domain::SRC), (Recipe::plain(700), Domain::DST), (block, Domain::DST)] {
        check_sparse(&recipe.graph(1), rows);
    }
}

/// Sparse rows of sources, or of those that are written, are multiplied as they are.
fn check_sparse(graph: &Adjacency, rows: Domain) {
    let mut b = Builder::new("sparse");
    let x = b.input("x", Domain::SRC, Shape::vector(50));
    let w = b.parameter("W", Domain::Const, Shape::matrix(50, 8));
    let x = b.dropout(x, 0.5, 7);
    let out = b.lift(x, rows).and_then(|x| b.linear(x, w)).unwrap();
    b.output("out", out);
    let joint = gradients(&b.finish(), "out").unwrap();
    let executor = Executor::new(select(&joint, Fusion::On).unwrap());
    let mut arrays = given(&joint, graph, 8);
    arrays.get_mut("x").unwrap().iter_mut().for_each(|x| *x = if *x > 0.9 { *x } else { 0.0 });
    let mut workspace = Workspace::default();
    let wanted = run_fast(&executor, graph, &arrays, &mut workspace);
    let single = |name: &str| arrays[name].iter().map(|x| super::vector::single(*x)).collect::<Vec<f32>>();
    let (x, w, d) = (single("x"), single("W"), single("d.out"));
    assert!(SparseRows::of(&x, 50, 0.01).is_none(), "too many elements");
    let sparse = SparseRows::of(&x, 50, 0.2).unwrap();
    let lend = |name: &str| match name {
        "x" => Some(Given::Sparse(&sparse)),
        "W" => Some(Given::Dense(&w)),
        _ => Some(Given::Dense(&d)),
    };
    let mut workspace = Workspace::default();
    let found = executor.run(Run { graph, step: Key::new(5) }, &lend, &mut workspace).unwrap();
    assert!(workspace.peak_bytes() < 4 * x.len(), "rows were made dense");
    for (name, array) in found {
        let is_close = wanted[&name].iter().zip(dense(array)).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(is_close, "{name}");
    }
}

#[test]
fn threads_do_not_matter_and_neither_does_used_memory() {
    let mut b = Builder::new("threads");
    let x = b.parameter("x", Domain::SRC, Shape::vector(64));
    let w = b.parameter("W", Domain::Const, Shape::matrix(64, 32));
    let z = b.linear(x, w).unwrap();
    let s = b.lift(z, Domain::Edge).unwrap();
    let out = b.reduce(s, Domain::DST, Reduce::Mean).unwrap();
    b.output("out", out);
    let joint = gradients(&b.finish(), "out").unwrap();
    let executor = Executor::new(select(&joint, Fusion::On).unwrap());
    let graph = Recipe::plain(5000).graph(1);
    let arrays = given(&joint, &graph, 8);
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut workspace = Workspace::default();
        pool.install(|| {
            run_fast(&executor, &graph, &arrays, &mut workspace);
            run_fast(&executor, &graph, &arrays, &mut workspace)
        })
    };
    let wanted = with(1);
    assert!([2, 3, 5].into_iter().all(|threads| with(threads) == wanted));
}

#[test]
fn arrays_of_other_sizes_are_refused_by_name() {
    let mut b = Builder::new("sizes");
    let x = b.parameter("x", Domain::SRC, Shape::vector(4));
    let out = b.unary(Unary::Relu, x);
    b.output("out", out);
    let executor = Executor::new(select(&b.finish(), Fusion::On).unwrap());
    let graph = Recipe::plain(6).graph(1);
    let run = Run { graph: &graph, step: Key::new(5) };
    let short = vec![0.0; 23];
    let error = executor.run(run, &|_| Some(Given::Dense(&short)), &mut Workspace::default()).unwrap_err();
    assert_eq!(error.to_string(), "`x` has 23 numbers; expected 24");
    assert!(executor.run(run, &|_| None, &mut Workspace::default()).is_err());
}
