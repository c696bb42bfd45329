//! Sums of products, whose tiles, columns, depths and terms small models on small graphs do not have.

use super::device::{check_within, gpu};
use crate::adjacency::Adjacency;
use crate::cuda::{Precision, emit};
use crate::inter::{Domain, Side};
use crate::intra::{self, Kernel, KernelSchedule};
use crate::pass::autodiff::gradient_name;
use crate::pass::product_sums::product_sums;
use crate::pass::{Optimisations, Statistics, compile};
use crate::testing::{Recipe, few_or_all, given, layer, numbers, odd_graphs};

const TF32X3: (Precision, f64) = (Precision::Tf32x3, 5e-5);

/// Checks all directions of a layer with sums of products wherever there may be any, each of so many nodes at a time. How many there were.
fn check(model: &str, sizes: [usize; 3], graph: &Adjacency, nodes: usize, within: (Precision, f64)) -> usize {
    let Some(gpu) = gpu() else { return usize::MAX };
    let [d_in, d_out, heads] = sizes;
    let sizes = [("d_in", d_in), ("d_out", d_out), ("heads", heads)];
    let program = layer(model, if model == "rgcn" { &sizes[..2] } else { &sizes }, &[]);
    // What is chosen for a graph with long runs of pairs.
    let (rows, pairs, runs) = (1e6, 4e6, 1.2e4);
    let statistics = Statistics {
        sources: rows,
        destinations: rows,
        source_pairs: pairs,
        destination_pairs: pairs,
        edges: 6e6,
        source_runs: runs,
        destination_runs: runs,
        ..Statistics::of(graph)
    };
    let compiled = compile(&program, &statistics, Optimisations::GPU).unwrap();
    let mut arrays = given(&program, graph, 4);
    let out = program.output("out").unwrap();
    let count = graph.rows(program[out].domain) * program[out].shape.len();
    arrays.insert(gradient_name("out"), numbers(4, "d.out", count));
    let mut launches = 0;
    for plain in [compiled.inference, compiled.forward, compiled.backward] {
        let summed = product_sums(plain, |_, _| true);
        let one = |kernel: &Kernel| match kernel {
            Kernel::GemmSum(_) => KernelSchedule::Sums { nodes },
            other => KernelSchedule::all(other)[0],
        };
        let schedules = summed.kernels.iter().map(one).collect();
        let summed = intra::Program { schedules, ..summed };
        launches +=
            emit(&summed, within.0).launches.iter().filter(|launch| launch.what.starts_with("sum over")).count();
        check_within(&gpu, &summed, graph, &mut arrays, within);
    }
    launches
}

/// Two types of so many nodes each, and as many relations between all of them.
fn typed(nodes: usize, relations: usize) -> Adjacency {
    let ends = [(0, 0), (0, 1), (1, 0), (1, 1)];
    let relations = (0..relations).map(|at| ends[at % 4]).collect();
    Recipe { nodes: vec![(nodes, nodes); 2], relations, most_edges: 2, empty_every: 5 }.graph(2)
}

/// Several places of nodes, types that a place does not have, and more rows of a type than a tile has.
#[test]
fn sums_of_many_nodes() {
    let graph = typed(150, 6);
    let runs = graph.pair_runs(Side::Src, 384);
    assert!(graph.rows(Domain::Pair(Side::Src)) > 64 * runs, "runs are longer than tiles");
    for nodes in [48, 384] {
        assert!(check("rgcn", [12, 36, 1], &graph, nodes, TF32X3) > 0);
    }
}

/// Columns of one warp and of two, with and without some behind the last; depths of one step, of several rounds, and in between.
#[test]
fn sums_of_every_width() {
    let graph = typed(30, 4);
    let all = [[4, 32, 1], [72, 100, 1], [20, 16, 1], [64, 64, 1], [132, 28, 1]];
    for sizes in all.into_iter().take(few_or_all(3, 5)) {
        assert!(check("rgcn", sizes, &graph, 48, TF32X3) > 0, "{sizes:?}");
    }
}

/// A head's rows meet its own matrix.
#[test]
fn sums_of_several_heads() {
    let graph = typed(30, 4);
    for (model, sizes) in [("rgat", [16, 16, 2]), ("rgat", [12, 8, 3])] {
        assert!(check(model, sizes, &graph, 96, TF32X3) > 0, "{model}");
    }
}

/// Without tensor cores, and with vectors that do not come in fours, sums are taken apart.
#[test]
fn sums_of_every_precision() {
    let graph = typed(40, 4);
    for within in [(Precision::Tf32, 4e-3), (Precision::Bf16, 4e-2)] {
        assert!(check("rgcn", [20, 36, 1], &graph, 48, within) > 0);
    }
    let is_apart = |launches: usize| launches == 0 || launches == usize::MAX;
    assert!(is_apart(check("rgcn", [20, 36, 1], &graph, 48, (Precision::F32, 5e-5))));
    assert!(is_apart(check("rgcn", [6, 5, 1], &graph, 48, TF32X3)));
}

/// One edge, types without nodes or edges, not all nodes written.
#[test]
fn sums_over_odd_graphs() {
    let [single, without_nodes, ones, none] = odd_graphs();
    for graph in [single, without_nodes, ones, none, Recipe::block().graph(2)] {
        check("rgcn", [8, 12, 1], &graph, 48, TF32X3);
    }
}
