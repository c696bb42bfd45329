//! Products by warpgroups, where a GPU has them, and by single warps where it has none.

use std::process::Command;

use super::device::{check_within, gpu};
use crate::adjacency::Adjacency;
use crate::cuda::{Blocks, Launch, Precision, emit};
use crate::pass::autodiff::gradient_name;
use crate::pass::{Optimisations, Statistics, compile};
use crate::testing::{Recipe, given, is_thorough, layer, numbers};

/// Set in a child that has no warpgroups.
const OLDER: &str = "HEADWATER_TEST_OLDER_GPU";

/// Types of few rows and of many.
fn typed() -> Adjacency {
    let relations = vec![(0, 1), (1, 0), (0, 0), (1, 1)];
    Recipe { nodes: vec![(150, 140), (70, 20)], relations, most_edges: 2, empty_every: 4 }.graph(3)
}

/// Checks a layer in both directions, with products as exact as these say.
fn check(model: &str, sizes: &[(&str, usize)], modes: &[(Precision, f64)]) {
    let Some(gpu) = gpu() else { return };
    let graph = typed();
    let program = layer(model, sizes, &[]);
    let compiled = compile(&program, &Statistics::of(&graph), Optimisations::GPU).unwrap();
    let mut arrays = given(&program, &graph, 4);
    let out = program.output("out").unwrap();
    let count = graph.rows(program[out].domain) * program[out].shape.len();
    arrays.insert(gradient_name("out"), numbers(4, "d.out", count));
    let mut is_any = false;
    for kernels in [&compiled.forward, &compiled.backward] {
        is_any |= emit(kernels, Precision::default()).launches.iter().any(is_group);
        let given = arrays.clone();
        for mode in modes {
            arrays.clone_from(&given);
            check_within(&gpu, kernels, &graph, &mut arrays, *mode);
        }
    }
    assert!(is_any, "{model}, {sizes:?}");
}

/// Precisions of tensor cores, and how far results may be.
const EVERY: [(Precision, f64); 3] = [(Precision::Tf32x3, 5e-5), (Precision::Tf32, 4e-3), (Precision::Bf16, 4e-2)];

fn sized([into, from]: [usize; 2]) -> [(&'static str, usize); 2] {
    [("d_in", into), ("d_out", from)]
}

/// Columns and depths that 16 divides and others, a matrix turned and not, of one slab and of several, in every precision.
#[test]
fn products_of_warpgroups() {
    check("rgcn", &sized([64, 64]), &EVERY);
    check("sage", &sized([50, 130]), &EVERY[..1]);
    if is_thorough() {
        // The last keep one slab of columns at a time, and both slabs of two heads.
        for sizes in [[1, 49], [15, 63], [17, 64], [66, 65], [64, 192], [128, 256]] {
            check("rgcn", &sized(sizes), &EVERY);
        }
        check("rgat", &[("d_in", 32), ("d_out", 128), ("heads", 2)], &EVERY);
    }
}

/// Columns that fill no slab.
#[test]
fn products_of_nearly_64_columns() {
    check("rgcn", &sized([50, 50]), &EVERY[..1]);
}

/// Whether blocks are warpgroups where a GPU has them.
fn is_group(launch: &Launch) -> bool {
    matches!(launch.blocks, Blocks::Tensor { group: Some(_), .. })
}

/// The last of them on a GPU without warpgroups, which the emulator can be.
#[test]
fn products_of_gpus_without_warpgroups() {
    let Some(gpu) = gpu() else { return };
    if std::env::var_os("HEADWATER_EMULATOR").is_none() {
        return eprintln!("no emulator: skipped");
    }
    if std::env::var_os(OLDER).is_some() {
        return assert_eq!(gpu.facts().compute_capability, (8, 0));
    }
    let older = |name: &str| {
        let name = format!("{}::{name}", module_path!().split_once("::").unwrap().1);
        let mut command = Command::new(std::env::current_exe().unwrap());
        let run = command.args(["--exact", &name]).env("HWEMU_CAPABILITY", "80").env(OLDER, "1").output().unwrap();
        let shown = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && shown.contains("1 passed"), "{shown}{}", String::from_utf8_lossy(&run.stderr));
    };
    older("products_of_gpus_without_warpgroups");
    older("products_of_nearly_64_columns");
}
