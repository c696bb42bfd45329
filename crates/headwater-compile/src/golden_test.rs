//! The seven models as golden text: values and kernels of both directions, for fixed rows of a graph.

use std::fmt::Write;

use crate::cuda::{Precision, emit};
use crate::front::BUILTIN;
use crate::inter::text::print as print_values;
use crate::intra::print as print_kernels;
use crate::pass::{Optimisations, Statistics, compile, cost};
use crate::testing::{layer, text};

const RELATIONAL: Statistics = Statistics {
    node_types: 3.0,
    edge_types: 5.0,
    sources: 100.0,
    destinations: 80.0,
    source_pairs: 300.0,
    destination_pairs: 120.0,
    edges: 1000.0,
    source_runs: 100.0,
    destination_runs: 100.0,
    filled: 1.0,
};

const ONE_RELATION: Statistics = Statistics {
    node_types: 1.0,
    edge_types: 1.0,
    sources: 100.0,
    destinations: 80.0,
    source_pairs: 100.0,
    destination_pairs: 80.0,
    edges: 1000.0,
    source_runs: 100.0,
    destination_runs: 100.0,
    filled: 1.0,
};

fn golden(snapshot: &str, model: &str, statistics: &Statistics) {
    let sizes = [("d_in", 6), ("d_out", 4), ("heads", 2), ("d_hidden", 5)];
    let compiled = compile(&layer(model, &sizes, &[]), statistics, Optimisations::ALL).unwrap();
    let mut shown = String::new();
    for fired in &compiled.plan {
        let _ = writeln!(shown, "{} pays", fired.rule.name());
    }
    for values in [&compiled.values.forward, &compiled.values.backward] {
        let _ = writeln!(shown, "\n{}", print_values(values).trim_end());
    }
    for kernels in [&compiled.forward, &compiled.backward, &compiled.inference] {
        let _ = writeln!(shown, "\n{}", print_kernels(kernels).trim_end());
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(snapshot, shown));
}

#[test]
fn models_are_compiled_as_they_were() {
    for (model, _) in BUILTIN {
        golden(model, model, &RELATIONAL);
    }
    for model in ["gcn", "sage", "gat", "gin"] {
        golden(&format!("{model}_one_relation"), model, &ONE_RELATION);
    }
}

/// Rows of mag, where pairs have many edges, and of am, where they have one or two.
const MAG: Statistics = Statistics {
    node_types: 4.0,
    edge_types: 4.0,
    sources: 1_939_743.0,
    destinations: 1_939_743.0,
    source_pairs: 1_840_000.0,
    destination_pairs: 1_540_000.0,
    edges: 21_111_007.0,
    source_runs: 8_084.0,
    destination_runs: 6_873.0,
    filled: 1.0,
};
const AM: Statistics = Statistics {
    node_types: 7.0,
    edge_types: 108.0,
    sources: 881_680.0,
    destinations: 881_680.0,
    source_pairs: 3_283_980.0,
    destination_pairs: 3_626_366.0,
    edges: 5_668_682.0,
    source_runs: 54_067.0,
    destination_runs: 58_971.0,
    filled: 1.0,
};

/// What a GPU is asked to do, launch by launch, and how many bytes kernels move: a change that makes them move more is seen here.
#[test]
fn launches_and_bytes_are_what_they_were() {
    let mut shown = String::new();
    for (shape, statistics) in [("mag", &MAG), ("am", &AM)] {
        for model in ["rgcn", "rgat", "hgt"] {
            let program = layer(model, &[("d_in", 64), ("d_out", 64), ("heads", 1)], &[]);
            let compiled = compile(&program, statistics, Optimisations::GPU).unwrap();
            for kernels in [&compiled.inference, &compiled.forward, &compiled.backward] {
                let (emitted, total) = (emit(kernels, Precision::default()), cost::total(kernels, statistics));
                let megabytes = (total.bytes() / 1e6).round();
                let _ =
                    writeln!(shown, "{shape}, {}: {} launches, {megabytes} MB", kernels.name, emitted.launches.len());
                emitted.launches.iter().for_each(|launch| _ = writeln!(shown, "  {}", launch.what));
            }
        }
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("launches", shown));
}

/// Hector's eight shapes with the numbers of pairs that graphs of `bench/peers/relational.py` have: nodes, node types, edges, edge types, pairs of
/// sources and of destinations, and runs of these.
const SHAPES: [(&str, [f64; 8]); 8] = [
    ("aifb", [7_262.0, 7.0, 48_810.0, 104.0, 27_710.0, 30_581.0, 507.0, 544.0]),
    ("mutag", [27_163.0, 5.0, 148_100.0, 50.0, 82_457.0, 91_856.0, 996.0, 1_091.0]),
    ("bgs", [94_806.0, 27.0, 672_884.0, 122.0, 274_780.0, 295_187.0, 3_658.0, 3_221.0]),
    ("fb15k", [14_541.0, 1.0, 620_232.0, 474.0, 442_742.0, 472_304.0, 17_983.0, 18_011.0]),
    ("biokg", [93_773.0, 5.0, 4_762_678.0, 51.0, 914_536.0, 943_441.0, 3_717.0, 3_469.0]),
    ("am", [881_680.0, 7.0, 5_668_682.0, 108.0, 3_283_980.0, 3_626_366.0, 54_067.0, 58_971.0]),
    ("mag", [1_939_743.0, 4.0, 21_111_007.0, 4.0, 2_659_846.0, 2_094_677.0, 8_084.0, 6_873.0]),
    ("wikikg2", [2_500_604.0, 1.0, 16_109_182.0, 535.0, 14_566_819.0, 15_139_857.0, 2_642_301.0, 2_869_881.0]),
];

/// What every cell of the comparison with an expert's PyTorch launches and moves by the estimate: 64 to 64, one head, Hector's HGT.
#[test]
fn budgets_of_relational_layers_are_what_they_were() {
    let mut shown = "launches and MB: inference, forward, backward\n".to_owned();
    let hector = [("variant", text("hector"))];
    for (
        shape,
        [nodes, node_types, edges, edge_types, source_pairs, destination_pairs, source_runs, destination_runs],
    ) in SHAPES
    {
        for (model, options) in [("rgcn", &[][..]), ("rgat", &[]), ("hgt", &hector)] {
            // Layers that do not ask for types of nodes are given a graph without.
            let node_types = if model == "hgt" { node_types } else { 1.0 };
            let (sources, destinations) = (nodes, nodes);
            let pairs = Statistics { source_pairs, destination_pairs, source_runs, destination_runs, ..ONE_RELATION };
            let statistics = Statistics { node_types, edge_types, sources, destinations, edges, ..pairs };
            let program = layer(model, &[("d_in", 64), ("d_out", 64), ("heads", 1)], options);
            let compiled = compile(&program, &statistics, Optimisations::GPU).unwrap();
            let budgets = [&compiled.inference, &compiled.forward, &compiled.backward].map(|kernels| {
                let launches = emit(kernels, Precision::default()).launches.len();
                format!("{launches} {:.0}", cost::total(kernels, &statistics).bytes() / 1e6)
            });
            let _ = writeln!(shown, "{shape}, {model}: {}", budgets.join(", "));
        }
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("budgets", shown));
}
