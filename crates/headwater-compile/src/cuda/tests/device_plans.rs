//! Plans that graphs of other statistics choose, random layers, and widths from 1 on: on a GPU as by definition.
//!
//! The emulator compiles a kernel in a second or two, so it takes a few of each; in the GPU suite there are many.

use std::collections::BTreeMap;

use headwater_cuda::Gpu;
use headwater_graph::random::Key;

use super::device::gpu;
use crate::adjacency::Adjacency;
use crate::cpu::fast::Given;
use crate::cuda::{Executor, Precision};
use crate::intra::Program;
use crate::models_test::{layers_of, variants};
use crate::pass::plans_test::{Back, Case, FORMS, STEP, attentions, check_some_plans, difference};
use crate::pass::{Optimisations, Statistics, compile};
use crate::random_test::{random_case, random_compiled, wrong};
use crate::testing::{Arrays, Recipe, few_or_all, is_thorough, read};

/// Kernels run by the GPU.
#[expect(clippy::cast_possible_truncation, reason = "kernels compute in single precision")]
fn run(gpu: &Gpu, kernels: &Program, graph: &Adjacency, arrays: &Arrays) -> Arrays {
    let single = |values: &[f64]| values.iter().map(|x| *x as f32).collect::<Vec<_>>();
    let given: BTreeMap<&str, Vec<f32>> = arrays.iter().map(|(name, values)| (name.as_str(), single(values))).collect();
    let lend = |name: &str| given.get(name).map(|values| Given::Dense(values));
    let executor = Executor::with_precision(kernels, Precision::Tf32x3);
    let found = executor.run(gpu.stream().unwrap(), graph, Key::new(STEP), &lend).unwrap();
    found.into_iter().map(|(name, values)| (name, values.into_iter().map(f64::from).collect())).collect()
}

/// How far single precision may be off, by the largest number of an array.
const FAR: f64 = 1e-4;

#[test]
fn plans_that_other_statistics_choose() {
    let Some(gpu) = gpu() else { return };
    let back: &Back<'_> = &|kernels, graph, arrays| run(&gpu, kernels, graph, arrays);
    let layers: Vec<_> = attentions().into_iter().chain(variants()).collect();
    for (at, layer) in layers.into_iter().enumerate() {
        let case = Case::new(layer, Recipe::block().graph(2), 4);
        for walk in 0..few_or_all(1, 3) {
            let form = FORMS[(3 * at + walk) % FORMS.len()];
            check_some_plans(&case, &[(back, FAR)], form, Key::new(at as u64).of(walk as u64));
        }
    }
}

#[test]
fn random_layers_0() {
    random_layers(0);
}

#[test]
fn random_layers_1() {
    random_layers(1);
}

#[test]
fn random_layers_2() {
    random_layers(2);
}

#[test]
fn random_layers_3() {
    random_layers(3);
}

/// Every fourth: compilers take most of the time, and tests run beside each other.
fn random_layers(part: u64) {
    let Some(gpu) = gpu() else { return };
    let back: &Back<'_> = &|kernels, graph, arrays| run(&gpu, kernels, graph, arrays);
    for seed in (part..few_or_all(6, 100) as u64).step_by(4) {
        let (text, mut dice, case) = random_case(seed + 5000);
        println!("{seed}\n{text}");
        let compiled = random_compiled(&mut dice, &case);
        let wrong = wrong(&case, &compiled, &[(back, FAR)]);
        assert!(wrong.is_none(), "{seed}: {wrong:?}\n{text}");
    }
}

/// Gradients of parts of rows and of rows put together, where widths do not divide each other.
#[test]
fn parts_of_rows() {
    let Some(gpu) = gpu() else { return };
    let text = "def f(g, x: node[3], y: node[1, 5], p: vector[2], q: vector[8]):\n    for n in g.dst_nodes():\n        \
                n[\"a\"] = sum(e.src.x[1:3] * p for e in n.incoming_edges())\n        \
                n[\"b\"] = sum(dot(concat(e.src.x, e.src.y), q) for e in n.incoming_edges())\n        \
                n[\"out\"] = n[\"a\"] + n[\"b\"] + n.y[2:4] * p\n";
    let case = Case::new(read("f", text, &[], &[]), Recipe::plain(9).graph(2), 4);
    let compiled = compile(&case.layer, &Statistics::of(&case.graph), Optimisations::ALL).unwrap();
    let wrong = wrong(&case, &compiled, &[(&|kernels, graph, arrays| run(&gpu, kernels, graph, arrays), FAR)]);
    assert!(wrong.is_none(), "{wrong:?}");
}

/// One product of every width in one layer, from every width of rows.
#[test]
fn products_of_every_width() {
    let Some(gpu) = gpu() else { return };
    let widths: Vec<usize> = if is_thorough() { (1..=33).collect() } else { vec![1, 2, 3, 5, 8, 17, 33] };
    for (from, is_turned) in [(3, false), (1, true)] {
        let given: Vec<String> = widths
            .iter()
            .map(|to| {
                if is_turned { format!("W{to}: matrix[{to}, {from}]") } else { format!("W{to}: matrix[{from}, {to}]") }
            })
            .collect();
        let weight = |to: usize| if is_turned { format!("transpose(W{to})") } else { format!("W{to}") };
        let sums: Vec<String> =
            widths.iter().map(|to| format!("sum_width(tanh(linear(e.src.x, {})))", weight(*to))).collect();
        let text = format!(
            "def f(g, x: node[{from}], {}):\n    for n in g.dst_nodes():\n        \
             n[\"out\"] = sum({} for e in n.incoming_edges())\n",
            given.join(", "),
            sums.join(" + ")
        );
        let case = Case::new(read("f", &text, &[], &[]), Recipe::plain(9).graph(2), 4);
        let compiled = compile(&case.layer, &Statistics::of(&case.graph), Optimisations::ALL).unwrap();
        let wrong = wrong(&case, &compiled, &[(&|kernels, graph, arrays| run(&gpu, kernels, graph, arrays), FAR)]);
        assert!(wrong.is_none(), "from {from}: {wrong:?}");
    }
}

/// Every layer to and from a width of 1; in the GPU suite of all widths up to 33.
#[test]
fn layers_of_every_width() {
    let Some(gpu) = gpu() else { return };
    for width in (1..=33).step_by(few_or_all(32, 1)) {
        for (at, layer) in layers_of(34 - width, width).into_iter().enumerate() {
            // All widths of every layer take long even there: each layer has every fourth of them, and 1 and 33.
            if !(width == 1 || width == 33 || (width + at) % 4 == 0) {
                continue;
            }
            let case = Case::new(layer, Recipe::block().graph(2), 4);
            let compiled = compile(&case.layer, &Statistics::of(&case.graph), Optimisations::ALL).unwrap();
            let found = run(&gpu, &compiled.inference, &case.graph, &case.arrays);
            let wrong = difference(&case.inferred, &found, FAR);
            assert!(wrong.is_none(), "{} to {width}: {wrong:?}", case.layer.name);
        }
    }
}
