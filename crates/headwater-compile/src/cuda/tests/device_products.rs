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
fn check(model: &str, [into, from]: [usize; 2], modes: &[(Precision, f64)]) {
    let Some(gpu) = gpu() else { return };
    let graph = typed();
    let program = layer(model, &[("d_in", into), ("d_out", from)], &[]);
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
    assert!(is_any, "{model} from {into} to {from}");
}

const SINGLE: (Precision, f64) = (Precision::Tf32x3, 5e-5);

/// Columns and depths that 16 divides and others, a matrix turned and not, of one slab and of several, in every precision.
#[test]
fn products_of_warpgroups() {
    check("rgcn", [64, 64], &[SINGLE, (Precision::Tf32, 4e-3), (Precision::Bf16, 4e-2)]);
    check("sage", [50, 130], &[SINGLE]);
    if is_thorough() {
        for sizes in [[1, 49], [15, 63], [17, 64], [66, 65], [130, 127], [64, 192], [200, 60]] {
            check("rgcn", sizes, &[SINGLE]);
        }
    }
}

/// Columns that fill no slab.
#[test]
fn products_of_nearly_64_columns() {
    check("rgcn", [50, 50], &[SINGLE]);
}

/// Whether blocks are warpgroups where a GPU has them: they need less room than others.
fn is_group(launch: &Launch) -> bool {
    matches!(launch.blocks, Blocks::Tensor { at_once: 3.., .. })
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
