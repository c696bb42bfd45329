//! Every plan that the search can choose gives the numbers of the definition, not only the cheapest one.
//!
//! Which plan runs is decided by the statistics of a graph, so tests on small graphs only ever see the plans that small graphs
//! choose. Here the decisions are taken by hand instead: whether types are dropped, on which sides rows are kept once a pair,
//! every change of order that rules allow, in both searches, whether values are computed again, and whether they share kernels.
//! Each plan is compared with [`evaluate`] of the layer as it was written, before any pass.

use std::collections::{BTreeMap, VecDeque};

use headwater_graph::random::Key;

use super::{Close, Optimisations, Statistics, autodiff, clean, of_types, settled, without_dropout};
use crate::adjacency::Adjacency;
use crate::cpu::fast::{Array, Executor, Given, Run, Workspace};
use crate::cpu::reference;
use crate::error::Result;
use crate::inter::{Program, evaluate};
use crate::intra;
use crate::models_test::variants;
use crate::pass::autodiff::gradient_name;
use crate::pass::pair_softmax::pair_softmax;
use crate::pass::reorder::changes;
use crate::pass::select::{Fusion, Shared, select};
use crate::pass::split::{Recompute, Split, split};
use crate::testing::{Arrays, Recipe, few_or_all, given, numbers};

pub(crate) const STEP: u64 = 5;

/// A layer on a graph, and what it has to give.
pub(crate) struct Case {
    pub layer: Program,
    pub graph: Adjacency,
    /// Inputs, parameters and the gradient of `out`.
    pub arrays: Arrays,
    /// `out` and all gradients.
    pub wanted: Arrays,
    /// `out` without dropout.
    pub inferred: Arrays,
}

impl Case {
    pub fn new(layer: Program, graph: Adjacency, seed: u64) -> Self {
        let mut arrays = given(&layer, &graph, seed);
        let out = layer.output("out").unwrap();
        let count = graph.rows(layer[out].domain) * layer[out].shape.len();
        arrays.insert(gradient_name("out"), numbers(seed, "d.out", count));
        let joint = autodiff::gradients(&layer, "out").unwrap();
        let wanted = evaluate(&joint, &graph, Key::new(STEP), &arrays).unwrap();
        let inferred = evaluate(&without_dropout(&layer), &graph, Key::new(STEP), &arrays).unwrap();
        Self { layer, graph, arrays, wanted, inferred }
    }
}

/// Decisions that come before the search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    /// Whether types are dropped where there is one of a kind.
    one_type: bool,
    /// Whether values of a source, and of a destination, and an edge type are computed once a pair.
    pairs: [bool; 2],
}

pub(crate) const FORMS: [Form; 8] = {
    let mut all = [Form { one_type: false, pairs: [false; 2] }; 8];
    let mut at = 0;
    while at < 8 {
        all[at] = Form { one_type: at & 1 == 1, pairs: [at & 2 == 2, at & 4 == 4] };
        at += 1;
    }
    all
};

impl Form {
    /// Statistics that lead to it: types are those of the graph, and pairs pay where they should.
    fn statistics(self, graph: &Adjacency) -> Statistics {
        let pairs = |pays: bool| if pays { 1.0 } else { 1e6 };
        let (source_pairs, destination_pairs) = (pairs(self.pairs[0]), pairs(self.pairs[1]));
        Statistics { edges: 1e6, source_pairs, destination_pairs, ..Statistics::of(graph) }
    }

    fn optimisations(self) -> Optimisations {
        Optimisations { one_type: self.one_type, ..Optimisations::ALL }
    }

    fn clean(self, graph: &Adjacency) -> impl Fn(&Program) -> Result<Program> {
        let (statistics, on) = (self.statistics(graph), self.optimisations());
        move |program| clean(program, &statistics, on, Close::Left)
    }

    /// The same of a program that has its gradients.
    fn settle(self, graph: &Adjacency) -> impl Fn(&Program) -> Result<Program> {
        let (statistics, on) = (self.statistics(graph), self.optimisations());
        move |program| settled(program, &statistics, on, Close::Left)
    }

    /// The layer in this form, before the search.
    fn of(self, layer: &Program, graph: &Adjacency) -> Program {
        let typed = of_types(layer, &self.statistics(graph), self.optimisations()).unwrap();
        self.clean(graph)(&typed).unwrap()
    }
}

/// Programs that changes lead to, the fewest changes first: all of them, or the first `most`.
pub(crate) fn reachable(from: Program, form: Form, graph: &Adjacency, most: usize) -> (Vec<Program>, bool) {
    let clean = form.clean(graph);
    let (mut found, mut queue) = (vec![from.clone()], VecDeque::from([from]));
    while let Some(program) = queue.pop_front() {
        for (_, next) in changes(&program, form.optimisations(), &clean).unwrap() {
            if found.contains(&next) {
                continue;
            }
            if found.len() == most {
                return (found, false);
            }
            found.push(next.clone());
            queue.push_back(next);
        }
    }
    (found, true)
}

/// A program that up to `steps` random changes lead to.
fn wander(mut from: Program, form: Form, graph: &Adjacency, key: Key, steps: u64) -> Program {
    let clean = form.settle(graph);
    for step in 0..key.below(99, steps + 1) {
        let mut next = changes(&from, form.optimisations(), &clean).unwrap();
        if next.is_empty() {
            break;
        }
        let at = usize::try_from(key.below(step, next.len() as u64)).unwrap();
        from = next.swap_remove(at).1;
    }
    from
}

/// What runs the kernels of a plan: gives `arrays` what they make.
pub(crate) type Back<'a> = dyn Fn(&intra::Program, &Adjacency, &Arrays) -> Arrays + 'a;

/// The plain interpreter of kernels.
pub(crate) fn plain(kernels: &intra::Program, graph: &Adjacency, arrays: &Arrays) -> Arrays {
    reference::run(kernels, graph, Key::new(STEP), arrays).unwrap()
}

/// What ships on the CPU.
#[expect(clippy::cast_possible_truncation, reason = "the fast path computes in single precision")]
pub(crate) fn fast(kernels: &intra::Program, graph: &Adjacency, arrays: &Arrays) -> Arrays {
    let single = |values: &[f64]| values.iter().map(|x| *x as f32).collect::<Vec<_>>();
    let given: BTreeMap<&str, Vec<f32>> = arrays.iter().map(|(name, values)| (name.as_str(), single(values))).collect();
    let lend = |name: &str| given.get(name).map(|values| Given::Dense(values));
    let run = Run { graph, step: Key::new(STEP) };
    let found = Executor::new(kernels.clone()).run(run, &lend, &mut Workspace::default()).unwrap();
    let double = |array: Array| match array {
        Array::Dense(values) => values.into_iter().map(f64::from).collect(),
        Array::Sparse(_) => panic!("sparse"),
    };
    found.into_iter().map(|(name, array)| (name, double(array))).collect()
}

/// What is not within `far` of what is wanted, by the largest number of each array.
pub(crate) fn difference(wanted: &Arrays, found: &Arrays, far: f64) -> Option<String> {
    wanted.iter().find_map(|(name, wanted)| {
        let Some(found) = found.get(name) else { return Some(format!("{name} is not there")) };
        let largest = wanted.iter().fold(1.0f64, |largest, x| largest.max(x.abs()));
        let mut pairs = wanted.iter().zip(found).enumerate();
        let is_far = |(a, b): (&f64, &f64)| (a - b).abs() > far * largest || a.is_nan() != b.is_nan();
        let worst = pairs.find(|(_, pair)| is_far(*pair));
        let is_other = (wanted.len() != found.len()).then(|| format!("{name} has {} numbers", found.len()));
        is_other.or_else(|| worst.map(|(at, (a, b))| format!("{name}[{at}] is {b}, by definition {a}")))
    })
}

/// Compares one plan for training, through every way of cutting and fusing it, and says how many ways there were.
pub(crate) fn check_joint(
    case: &Case,
    joint: &Program,
    backs: &[(&Back<'_>, f64)],
    ways: &[(Recompute, Fusion)],
) -> usize {
    crate::inter::verify(joint).unwrap();
    let found = evaluate(joint, &case.graph, Key::new(STEP), &case.arrays).unwrap();
    if let Some(far) = difference(&case.wanted, &found, 1e-9) {
        panic!("{}, a rewritten program: {far}\n{}", case.layer.name, crate::inter::text::print(joint));
    }
    for &(recompute, fusion) in ways {
        let Split { forward, backward } = split(joint, recompute);
        let (forward, backward) = (select(&forward, fusion).unwrap(), select(&backward, fusion).unwrap());
        for (back, far) in backs {
            let mut arrays = case.arrays.clone();
            let made = back(&forward, &case.graph, &arrays);
            arrays.extend(made.clone());
            let mut found = back(&backward, &case.graph, &arrays);
            found.extend(made);
            if let Some(far) = difference(&case.wanted, &found, *far) {
                let (forward, backward) = (intra::print(&forward), intra::print(&backward));
                panic!("{}, {recompute:?}, {fusion:?}: {far}\n{forward}\n{backward}", case.layer.name);
            }
        }
    }
    ways.len()
}

/// Compares one plan for inference.
pub(crate) fn check_inference(case: &Case, program: &Program, backs: &[(&Back<'_>, f64)], fusion: Fusion) {
    let kernels = select(&without_dropout(program), fusion).unwrap();
    for (back, far) in backs {
        let found = back(&kernels, &case.graph, &case.arrays);
        if let Some(far) = difference(&case.inferred, &found, *far) {
            panic!("{}, inference, {fusion:?}: {far}\n{}", case.layer.name, intra::print(&kernels));
        }
    }
}

/// Every row that finer ones read, however short, has a level of its own.
const SHARED: Shared = Shared { pairs_by_edges: true, nodes_by_edges: true, nodes_by_pairs: true, least_numbers: 1 };
/// The same but for pairs, so that edges stand right under their nodes.
const SHARED_NODES: Shared = Shared { pairs_by_edges: false, ..SHARED };

pub(crate) const WAYS: [(Recompute, Fusion); 4] = [
    (Recompute::On, Fusion::On),
    (Recompute::Off, Fusion::Shallow(SHARED)),
    (Recompute::On, Fusion::Shallow(SHARED_NODES)),
    (Recompute::Off, Fusion::Off),
];

pub(crate) const ON_CPU: [(&Back<'static>, f64); 2] = [(&plain, 1e-9), (&fast, 5e-5)];

/// How many plans are run at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Orders of the layer itself, in each form.
    pub forward: usize,
    /// Random orders of each with its gradients.
    pub joint: u64,
}

/// What was run of a layer.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Orders of the layer, over all forms; and whether those were all.
    pub orders: usize,
    pub is_all: bool,
    /// Plans for training that were run.
    pub training: usize,
    /// And for inference.
    pub inference: usize,
    /// Those among them whose softmax is made pair by pair.
    pub by_pairs: usize,
}

/// Runs the plans of a layer.
pub(crate) fn check_plans(case: &Case, backs: &[(&Back<'_>, f64)], bounds: Bounds) -> Counts {
    let mut counts = Counts { is_all: true, ..Counts::default() };
    let mut starts: Vec<Program> = Vec::new();
    for (number, form) in FORMS.into_iter().enumerate() {
        let start = form.of(&case.layer, &case.graph);
        if starts.contains(&start) {
            continue;
        }
        starts.push(start.clone());
        let (orders, is_all) = reachable(start, form, &case.graph, bounds.forward);
        counts.is_all &= is_all;
        counts.orders += orders.len();
        for (at, order) in orders.iter().enumerate() {
            let key = Key::new(number as u64).of(at as u64);
            check_inference(case, order, backs, WAYS[at % WAYS.len()].1);
            counts.inference += 1;
            let settle = form.settle(&case.graph);
            let by_pairs = |program: &Program| pair_softmax(program).unwrap().map(|found| settle(&found).unwrap());
            let gradients = autodiff::gradients(order, "out").unwrap();
            let joint = settle(&gradients).unwrap();
            counts.training += check_joint(case, &joint, backs, &WAYS);
            if let Some(order) = by_pairs(order) {
                check_inference(case, &order, backs, WAYS[at % WAYS.len()].1);
                counts.by_pairs += 1;
            }
            if let Some(joint) = by_pairs(&joint) {
                counts.by_pairs += check_joint(case, &joint, backs, &WAYS[at % WAYS.len()..=at % WAYS.len()]);
            }
            for walk in 0..bounds.joint {
                let key = key.of(walk);
                let way = usize::try_from(key.below(7, WAYS.len() as u64)).unwrap();
                let joint = wander(joint.clone(), form, &case.graph, key, 6);
                counts.training += check_joint(case, &joint, backs, &WAYS[way..=way]);
            }
        }
    }
    counts
}

/// Runs one random plan of a layer in one form, for inference and for training.
pub(crate) fn check_some_plans(case: &Case, backs: &[(&Back<'_>, f64)], form: Form, key: Key) {
    let order = wander(form.of(&case.layer, &case.graph), form, &case.graph, key.of(1), 6);
    check_inference(case, &order, backs, Fusion::On);
    let gradients = autodiff::gradients(&order, "out").unwrap();
    let joint = wander(form.settle(&case.graph)(&gradients).unwrap(), form, &case.graph, key.of(2), 6);
    let way = usize::try_from(key.below(3, 3)).unwrap();
    check_joint(case, &joint, backs, &WAYS[way..=way]);
}

/// Graphs on which pairs have several edges, relations and nodes have none, and not all nodes are written.
fn graphs() -> [Recipe; 2] {
    [Recipe::block(), Recipe { most_edges: 9, ..Recipe::plain(7) }]
}

/// Layers that read one value at both ends of an edge in one kernel: an input, a computed field, a learnt row, a typed product.
pub(crate) fn attentions() -> Vec<Program> {
    let logits = [
        "dot(e.src.x, e.dst.x)",
        "dot(e.src[\"z\"], e.dst[\"z\"])",
        "dot(e.src.E, e.dst.E)",
        "dot(linear(e.src.x, W[e.etype]), e.dst.x)",
        "dot(linear(e.src.x, W[e.etype]), linear(e.dst.x, W[e.etype]))",
        "tanh(e.src[\"z\"]) * e.dst[\"z\"]",
    ];
    let read = |logit: &str| {
        let text = format!(
            "def attention(g, x: node[d], E: vector[node, d], W: matrix[etype, d, d]):\n    for n in g.nodes():\n        \
             n[\"z\"] = tanh(n.x)\n    for e in g.edges():\n        e[\"a\"] = edge_softmax({logit})\n    \
             for n in g.dst_nodes():\n        n[\"out\"] = sum(e[\"a\"] * e.src.x for e in n.incoming_edges())\n"
        );
        crate::testing::read("attention", &text, &[("d", 5)], &[])
    };
    logits.into_iter().map(read).collect()
}

/// Runs plans of some layers on every kind of graph, and says how many of them had a softmax made pair by pair.
fn check_layers(layers: Vec<Program>, bounds: Bounds) -> usize {
    let mut by_pairs = 0;
    for layer in layers {
        for recipe in graphs() {
            let case = Case::new(layer.clone(), recipe.graph(2), 4);
            let counts = check_plans(&case, &ON_CPU, bounds);
            assert!(counts.orders > 0 && counts.training >= 4 * counts.orders, "{counts:?}");
            eprintln!("{}, {} relations: {counts:?}", layer.name, recipe.relations.len());
            by_pairs += counts.by_pairs;
        }
    }
    by_pairs
}

#[test]
fn every_plan_of_layers_that_read_both_ends_gives_the_numbers_of_its_definition() {
    check_layers(attentions(), Bounds { forward: few_or_all(4, 12), joint: 1 });
}

#[test]
fn every_plan_of_every_layer_gives_the_numbers_of_its_definition() {
    assert!(check_layers(variants(), Bounds { forward: few_or_all(6, 24), joint: 1 }) > 0);
}
