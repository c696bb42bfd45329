//! Where rules fire, and where they do not: by the rows of a graph alone.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::Rule;
use crate::inter::text::print;
use crate::inter::{Domain, Op, Program, Side, verify};
use crate::intra;
use crate::pass::autodiff::gradients;
use crate::pass::select::Fusion;
use crate::pass::{Close, Compiled, Optimisations, Statistics, Workload, clean, compile, priced, trained, untrained};
use crate::testing::{Recipe, given, interpret, layer, read, text};

/// A graph of several types whose pairs of either side are a part of its edges.
fn relational(source_pairs: f64, destination_pairs: f64) -> Statistics {
    Statistics {
        node_types: 3.0,
        edge_types: 20.0,
        sources: 10_000.0,
        destinations: 10_000.0,
        source_pairs: source_pairs * 1e6,
        destination_pairs: destination_pairs * 1e6,
        edges: 1e6,
        source_runs: source_pairs * 1e6,
        destination_runs: destination_pairs * 1e6,
        filled: 1.0,
    }
}

fn one_relation(sources: f64, destinations: f64) -> Statistics {
    Statistics {
        node_types: 1.0,
        edge_types: 1.0,
        sources,
        destinations,
        source_pairs: sources,
        destination_pairs: destinations,
        edges: 1e6,
        source_runs: sources,
        destination_runs: destinations,
        filled: 1.0,
    }
}

fn sized(d_in: usize, d_out: usize, heads: usize) -> Vec<(&'static str, usize)> {
    vec![("d_in", d_in), ("d_out", d_out), ("heads", heads), ("d_hidden", 16)]
}

fn compiled(layer: &Program, statistics: &Statistics) -> Compiled {
    compile(layer, statistics, Optimisations::ALL).unwrap()
}

fn rules(compiled: &Compiled) -> BTreeSet<&'static str> {
    compiled.plan.iter().map(|fired| fired.rule.name()).collect()
}

/// Rows of every product with a weight that is not a type's own.
fn products(compiled: &Compiled) -> Vec<Domain> {
    let values = compiled.values.forward.values.iter();
    let products = values.filter(|value| matches!(value.op, Op::Linear { .. }) && !value.domain.is_type());
    products.map(|value| value.domain).collect()
}

const SRC_PAIR: Domain = Domain::Pair(Side::Src);
const DST_PAIR: Domain = Domain::Pair(Side::Dst);

#[test]
fn few_destination_pairs_are_summed_first_and_few_source_pairs_multiplied_first() {
    let rgcn = layer("rgcn", &sized(64, 64, 1), &[("norm", text("none")), ("root", false.into())]);
    let first = compiled(&rgcn, &relational(0.6, 0.1));
    assert_eq!((products(&first), rules(&first)), (vec![DST_PAIR], BTreeSet::from(["aggregate_first"])));
    let second = compiled(&rgcn, &relational(0.1, 0.6));
    assert_eq!((products(&second), rules(&second)), (vec![SRC_PAIR], BTreeSet::new()));
    let mean = layer("rgcn", &sized(64, 64, 1), &[("root", false.into())]);
    assert_eq!(products(&compiled(&mean, &relational(0.6, 0.1))), [DST_PAIR], "a mean a relation");
}

#[test]
fn a_product_before_a_sum_pays_where_it_makes_rows_narrow() {
    let sage = |d_in, d_out| layer("sage", &sized(d_in, d_out, 1), &[("root", false.into())]);
    let graph = one_relation(50_000.0, 50_000.0);
    assert_eq!(products(&compiled(&sage(256, 16), &graph)), [Domain::SRC]);
    assert_eq!(products(&compiled(&sage(64, 64), &graph)), [Domain::DST]);
    let gcn = |d_in, d_out| layer("gcn", &sized(d_in, d_out, 1), &[]);
    assert!(rules(&compiled(&gcn(256, 16), &graph)).is_empty(), "is written as it is cheapest");
}

#[test]
fn relational_attention_multiplies_no_destination_and_no_edge() {
    let rgat = layer("rgat", &sized(64, 64, 1), &[]);
    let few_sources = compiled(&rgat, &relational(0.2, 0.5));
    assert!(rules(&few_sources).contains("dot_linear"));
    assert_eq!(products(&few_sources), [SRC_PAIR], "the destination's side is an inner product");
    let few_destinations = compiled(&rgat, &relational(0.8, 0.1));
    assert_eq!(products(&few_destinations), [DST_PAIR], "one product, behind the sum");
    let heads = compiled(&layer("rgat", &sized(64, 8, 8), &[]), &relational(0.2, 0.5));
    assert!(rules(&heads).contains("dot_linear"), "a column a head");
}

#[test]
fn transformers_multiply_weights_and_choose_a_side() {
    let hgt = layer("hgt", &sized(64, 64, 1), &[("variant", text("hector"))]);
    let found = rules(&compiled(&hgt, &relational(0.8, 0.1)));
    assert!(found.contains("bilinear") && found.contains("aggregate_first"), "{found:?}");
    assert!(found.contains("linear_linear"), "{found:?}");
    let heads = rules(&compiled(&layer("hgt", &sized(64, 64, 4), &[]), &relational(0.8, 0.1)));
    assert!(heads.contains("bilinear") && heads.contains("aggregate_first"), "{heads:?}");
}

#[test]
fn products_of_the_same_rows_are_one() {
    let hgt = layer("hgt", &sized(64, 64, 4), &[]);
    assert!(rules(&compiled(&hgt, &relational(0.8, 0.1))).contains("merge"));
    let off = Optimisations { merge: false, ..Optimisations::ALL };
    let apart = compile(&hgt, &relational(0.8, 0.1), off).unwrap();
    let gemms = |compiled: &Compiled| {
        compiled.inference.kernels.iter().filter(|kernel| matches!(kernel, crate::intra::Kernel::Gemm(_))).count()
    };
    assert!(gemms(&compiled(&hgt, &relational(0.8, 0.1))) < gemms(&apart));
}

#[test]
fn factors_of_a_whole_sum_are_behind_it() {
    let source = "def f(g, x: node[d_in], s: dst_node[1] = constant):\n    for n in g.dst_nodes():\n        \
                  n[\"out\"] = sum(e.dst.s * e.src.x for e in n.incoming_edges())\n";
    let layer = crate::testing::read("f", source, &sized(8, 8, 1), &[]);
    let found = compiled(&layer, &one_relation(1000.0, 1000.0));
    assert_eq!(rules(&found), BTreeSet::from([Rule::Hoist.name()]));
    let on_edges = found.values.forward.values.iter().filter(|value| value.domain == Domain::Edge);
    assert!(on_edges.into_iter().all(|value| matches!(value.op, Op::Lift { .. })), "nothing is left on edges");
}

#[test]
fn graphs_of_one_relation_have_no_types_and_no_pairs() {
    for name in ["rgcn", "rgat", "hgt"] {
        let found = compiled(&layer(name, &sized(8, 8, 2), &[]), &one_relation(1000.0, 900.0));
        let is_plain = |domain: Domain| matches!(domain, Domain::Const | Domain::Node(_) | Domain::Edge);
        for program in [&found.values.forward, &found.values.backward] {
            assert!(program.values.iter().all(|value| is_plain(value.domain)), "{name}");
        }
    }
}

#[test]
fn attention_of_several_heads_sums_narrow_rows_first() {
    let gat = |d_in, d_out| layer("gat", &sized(d_in, d_out, 4), &[]);
    let graph = one_relation(50_000.0, 50_000.0);
    assert!(rules(&compiled(&gat(4, 64), &graph)).contains("heads_first"), "16 numbers a node in place of 256");
    assert!(!rules(&compiled(&gat(256, 8), &graph)).contains("heads_first"));
}

/// Texts in which products meet: through a bias, and with different heads.
const MEETING: [(&str, &str); 3] = [
    (
        "a bias",
        "x: node[d], A: matrix[ntype, d, d], a: vector[ntype, d], B: matrix[etype, d, d]): \
                linear(linear(e.src.x, A[e.src.ntype]) + a[e.src.ntype], B[e.etype])",
    ),
    (
        "heads in front",
        "x: node[2, d], A: matrix[2, d, d], B: matrix[etype, 2 * d, d]): \
                        linear(flatten(linear(e.src.x, A)), B[e.etype])",
    ),
    (
        "heads behind",
        "x: node[d], A: matrix[d, 2 * d], a: vector[2, d], B: matrix[etype, 2, d, d]): \
                      linear(reshape(linear(e.src.x, A), 2, d) + a, B[e.etype])",
    ),
];

fn meeting(at: usize) -> Program {
    let (name, text) = MEETING[at];
    let (parameters, product) = text.split_once("): ").unwrap();
    let source = format!(
        "def f(g, {parameters}):\n    for n in g.dst_nodes():\n        n[\"out\"] = sum({product} for e in n.incoming_edges())\n"
    );
    read(name, &source, &[("d", 3)], &[])
}

#[test]
fn products_that_meet_are_one_where_rows_are_many() {
    let source = "def f(g, x: node[d], A: matrix[d, 2 * d], a: vector[2, d], B: matrix[2, d, d]):\n    \
                  for n in g.dst_nodes():\n        \
                  n[\"out\"] = flatten(linear(reshape(linear(n.x, A), 2, d) + a, B))\n";
    let layer = read("f", source, &[("d", 16)], &[]);
    for (rows, is_one) in [(50_000.0, true), (2.0, false)] {
        let found = rules(&compiled(&layer, &one_relation(rows, rows)));
        assert_eq!(found.contains("linear_linear"), is_one, "{rows} rows: {found:?}");
    }
}

/// The programs that every rule makes of a program, whether they pay or not.
fn all_changes(program: &Program) -> Vec<(Rule, Program)> {
    let mut found = Vec::new();
    for rule in Rule::all(Optimisations::ALL) {
        for (id, _) in program.iter().filter(|(_, value)| rule.may_apply(&value.op)) {
            found.extend(rule.apply(program, id).unwrap().map(|changed| (rule, changed)));
        }
    }
    found
}

/// Outputs and gradients, on a graph of two node types with an empty relation, isolated nodes and hubs.
#[test]
fn rules_change_how_and_never_what() {
    let graph = Recipe { most_edges: 9, ..Recipe::block() }.graph(4);
    let tidied = |program: &Program| clean(program, &Statistics::of(&graph), Optimisations::ALL, Close::Left).unwrap();
    let mut programs: Vec<Program> = (0..MEETING.len()).map(meeting).collect();
    programs.extend(["gat", "rgat", "hgt", "rgcn", "sage"].map(|name| layer(name, &sized(4, 6, 2), &[])));
    for (at, program) in programs.iter().enumerate() {
        let before = tidied(program);
        let joint = gradients(&before, "out").unwrap();
        let arrays = given(&joint, &graph, 2);
        let wanted = interpret(&joint, Fusion::On, &graph, &arrays);
        let changes = all_changes(&before);
        let fired: BTreeSet<&str> = changes.iter().map(|(rule, _)| rule.name()).collect();
        assert!(at >= MEETING.len() || fired.contains("linear_linear"), "{}: {fired:?}", program.name);
        let is_attention = ["gat", "rgat"].contains(&program.name.as_str());
        assert_eq!(fired.contains("heads_first"), is_attention, "{}: {fired:?}", program.name);
        for (rule, changed) in &changes {
            let after = tidied(&gradients(&tidied(changed), "out").unwrap());
            verify(&after).unwrap();
            let found = interpret(&after, Fusion::On, &graph, &arrays);
            for (name, wanted) in &wanted {
                let far = wanted.iter().zip(&found[name]).find(|(a, b)| (*a - *b).abs() > 1e-9 * (1.0 + a.abs()));
                assert!(far.is_none(), "{}, {}, {name}: {far:?}\n{}", program.name, rule.name(), print(&after));
            }
        }
    }
}

/// Each rule that a layer can use at all is used for some graphs of it and not for others, or by some widths.
#[test]
fn every_rule_fires_somewhere_and_not_everywhere() {
    let hector = [("variant", text("hector"))];
    let mut cases = Vec::new();
    for statistics in [relational(0.8, 0.1), relational(0.1, 0.8), one_relation(50_000.0, 50_000.0)] {
        for (d_in, d_out) in [(64, 64), (256, 16)] {
            for (name, options) in [("sage", &[][..]), ("rgat", &[]), ("hgt", &[]), ("hgt", &hector)] {
                cases.push(rules(&compiled(&layer(name, &sized(d_in, d_out, 1), options), &statistics)));
            }
        }
    }
    let all = ["aggregate_first", "bilinear", "dot_linear", "hoist", "linear_linear", "merge", "transform_first"];
    for rule in all {
        let fired = cases.iter().filter(|fired| fired.contains(rule)).count();
        assert!(fired > 0 && fired < cases.len(), "{rule}: {fired} of {}", cases.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever the graph, no change makes a program dearer, and none is made by a rule that is switched off.
    #[test]
    fn changes_are_made_only_where_they_pay(
        model in 0usize..7, (sources, destinations) in (0.02f64..1.0, 0.02f64..1.0), d_in in 1usize..80, heads in 1usize..3,
        switch in 0usize..Optimisations::SWITCHES.len(),
    ) {
        let (name, _) = crate::front::BUILTIN[model];
        let layer = layer(name, &sized(d_in, 16, heads), &[]);
        let statistics = relational(sources, destinations);
        let found = compiled(&layer, &statistics);
        for fired in &found.plan {
            prop_assert!(fired.after.price() < fired.before.price(), "{fired:?}");
        }
        let off = Optimisations::SWITCHES[switch];
        let without = compile(&layer, &statistics, Optimisations::ALL.with(off, false)).unwrap();
        prop_assert!(!without.plan.iter().any(|fired| fired.rule.name() == off.0));
    }
}

/// Where pairs are nearly as many as edges, both ways are compiled and the cheaper one is taken: each is, for some layer and number of nodes.
#[test]
fn pairs_that_are_nearly_as_many_as_edges_are_taken_where_that_is_cheaper() {
    assert_eq!(relational(0.5, 0.6).close_pairs(), [Close::Left]);
    let on = Optimisations { pair_softmax: false, ..Optimisations::GPU };
    let mut taken = BTreeSet::new();
    let few_nodes = relational(0.985, 0.985);
    for statistics in [few_nodes, Statistics { sources: 1e6, destinations: 1e6, ..few_nodes }] {
        assert_eq!(statistics.close_pairs(), [Close::Left, Close::Taken]);
        let workload = Workload::from(&statistics);
        let price = |kernels: &intra::Program| priced(kernels, &statistics, on.fusion(&statistics)).price();
        for (name, options) in [("rgcn", vec![]), ("rgat", vec![]), ("hgt", vec![("variant", text("hector"))])] {
            let program = layer(name, &sized(64, 64, 1), &options);
            let [left, right] =
                [Close::Left, Close::Taken].map(|close| trained(&program, &workload, on, close).unwrap());
            let both = [&left, &right].map(|found| price(&found.forward) + price(&found.backward));
            let found = compile(&program, &statistics, on).unwrap();
            assert_eq!(price(&found.forward) + price(&found.backward), both[0].min(both[1]), "{name}");
            taken.insert(both[1] < both[0]);
            let ways = [Close::Left, Close::Taken].map(|close| untrained(&program, &statistics, on, close).unwrap());
            let [left, right] = [price(&ways[0]), price(&ways[1])];
            assert_eq!(price(&found.inference), left.min(right), "{name}");
            taken.insert(right < left);
        }
    }
    assert_eq!(taken.len(), 2, "both ways are somebody's");
}
