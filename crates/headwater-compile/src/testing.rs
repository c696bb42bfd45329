//! Graphs and numbers for tests, out of seeds.

use std::collections::BTreeMap;

use headwater_graph::random::Key;

use crate::adjacency::{Adjacency, RelationEdges};
use crate::cpu::reference;
use crate::front::{self, Arguments, OptionValue};
use crate::inter::{Domain, Op, Program, Unary};
use crate::pass::autodiff::{gradient_name, gradients};
use crate::pass::select::{Fusion, select};

/// Whether tests take all of what they sample with every change: in `make soak` and in the GPU suite.
pub fn is_thorough() -> bool {
    ["HEADWATER_SOAK", "HEADWATER_GPU_SUITE"].into_iter().any(|name| std::env::var_os(name).is_some())
}

/// How many cases a test takes.
pub fn few_or_all(few: usize, all: usize) -> usize {
    if is_thorough() { all } else { few }
}

/// Named arrays.
pub type Arrays = BTreeMap<String, Vec<f64>>;

/// What a random graph looks like.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// Nodes of each type that are read, and how many of them are written.
    pub nodes: Vec<(usize, usize)>,
    /// Ends of each relation.
    pub relations: Vec<(usize, usize)>,
    /// Most edges of a destination; a relation whose number is divisible by `empty_every` has none.
    pub most_edges: u64,
    pub empty_every: usize,
}

impl Recipe {
    /// One type, one relation, all nodes written.
    pub fn plain(nodes: usize) -> Self {
        Self { nodes: vec![(nodes, nodes)], relations: vec![(0, 0)], most_edges: 5, empty_every: usize::MAX }
    }

    /// Two types, four relations of which one is empty, and a block: not all nodes are written.
    pub fn block() -> Self {
        let relations = vec![(0, 1), (1, 0), (0, 0), (1, 1)];
        Self { nodes: vec![(7, 5), (6, 4)], relations, most_edges: 4, empty_every: 3 }
    }

    /// The graph. Some destinations have no edges, one has many; nodes of a type without any have none.
    pub fn graph(&self, seed: u64) -> Adjacency {
        let key = Key::new(seed);
        let mut lists = Vec::new();
        for (at, (src, dst)) in self.relations.iter().enumerate() {
            let (mut offsets, mut sources) = (vec![0], Vec::new());
            for node in 0..self.nodes[*dst].1 {
                let own = key.of(at as u64).of(node as u64);
                let is_odd = self.nodes[*src].0 == 0 || (at + 1).is_multiple_of(self.empty_every);
                let is_empty = is_odd || own.below(0, 4) == 0;
                let hub = if node == 1 { 3 } else { 1 };
                let count = if is_empty { 0 } else { hub * own.below(1, self.most_edges + 1) };
                let source = |edge: u64| u32::try_from(own.of(9).below(edge, self.nodes[*src].0 as u64)).unwrap();
                sources.extend((0..count).map(source));
                offsets.push(sources.len());
            }
            lists.push((*src, *dst, offsets, sources));
        }
        let relations: Vec<_> = lists
            .iter()
            .map(|(src_type, dst_type, offsets, sources)| RelationEdges {
                src_type: *src_type,
                dst_type: *dst_type,
                offsets,
                sources,
            })
            .collect();
        let counts = |pick: fn(&(usize, usize)) -> usize| self.nodes.iter().map(pick).collect::<Vec<_>>();
        Adjacency::new(&counts(|n| n.0), &counts(|n| n.1), &relations).unwrap()
    }
}

/// Graphs that data sets have at their edges: one edge in all; a type without nodes among others, and relations to and from it; types of one
/// node each; no edges.
pub fn odd_graphs() -> [Adjacency; 4] {
    let typed = |nodes: &[usize], relations: &[(usize, usize)], most_edges: u64| {
        let nodes = nodes.iter().map(|count| (*count, *count)).collect();
        Recipe { nodes, relations: relations.to_vec(), most_edges, empty_every: usize::MAX }
    };
    let two = typed(&[1, 1], &[(0, 1), (1, 0)], 1);
    let single = (0..).map(|seed| two.graph(seed)).find(|graph| graph.rows(Domain::Edge) == 1);
    [
        single.unwrap(),
        typed(&[6, 0, 4], &[(0, 2), (2, 1), (0, 0), (1, 1), (2, 2)], 4).graph(1),
        typed(&[1, 1, 1], &[(0, 1), (1, 2), (2, 0), (0, 0)], 3).graph(1),
        Recipe { empty_every: 1, ..Recipe::block() }.graph(1),
    ]
}

/// A built-in layer.
pub fn layer(name: &str, sizes: &[(&str, usize)], options: &[(&str, OptionValue)]) -> Program {
    read(name, front::builtin(name).unwrap(), sizes, options)
}

/// A layer out of its text.
pub fn read(name: &str, source: &str, sizes: &[(&str, usize)], options: &[(&str, OptionValue)]) -> Program {
    let arguments = Arguments {
        sizes: sizes.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect(),
        options: options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
    };
    front::read(name, source, &arguments).unwrap().program
}

/// An option that is a word.
pub fn text(value: &str) -> OptionValue {
    OptionValue::Text(value.to_owned())
}

impl From<bool> for OptionValue {
    fn from(is_on: bool) -> Self {
        Self::Bool(is_on)
    }
}

/// Numbers between -1 and 1.
pub fn numbers(seed: u64, name: &str, count: usize) -> Vec<f64> {
    let key = name.bytes().fold(Key::new(seed), |key, byte| key.of(u64::from(byte)));
    (0..count).map(|at| (key.draw(at as u64) >> 11) as f64 / (1u64 << 52) as f64 - 1.0).collect()
}

/// Random inputs and parameters of a program.
pub fn given(program: &Program, graph: &Adjacency, seed: u64) -> Arrays {
    let named = program.values.iter().filter_map(|value| match &value.op {
        Op::Input { name, .. } | Op::Parameter { name } => {
            Some((name.clone(), numbers(seed, name, graph.rows(value.domain) * value.shape.len())))
        }
        _ => None,
    });
    named.collect()
}

/// Runs a program of values by the plain interpreter.
pub fn interpret(program: &Program, fusion: Fusion, graph: &Adjacency, given: &Arrays) -> Arrays {
    let kernels = select(program, fusion).unwrap();
    reference::run(&kernels, graph, Key::new(5), given).unwrap()
}

/// Compares gradients with central differences, with and without shared kernels.
pub fn check_gradients(program: &Program, graph: &Adjacency, seed: u64) {
    let mut arrays = given(program, graph, seed);
    let out = program.output("out").unwrap();
    let count = graph.rows(program[out].domain) * program[out].shape.len();
    let weights = numbers(seed, "weights of the loss", count);
    arrays.insert(gradient_name("out"), weights.clone());
    let backward = gradients(program, "out").unwrap();
    crate::inter::verify(&backward).unwrap();
    for fusion in [Fusion::Off, Fusion::On] {
        let found = interpret(&backward, fusion, graph, &arrays);
        let loss = |arrays: &Arrays| -> f64 {
            interpret(program, fusion, graph, arrays)["out"].iter().zip(&weights).map(|(y, w)| y * w).sum()
        };
        for (name, gradient) in found.iter().filter(|(name, _)| name.starts_with("d.")) {
            compare(&name[2..], gradient, &arrays, &loss);
        }
    }
}

fn compare(name: &str, gradient: &[f64], arrays: &Arrays, loss: &dyn Fn(&Arrays) -> f64) {
    let step = 1e-5;
    let stride = (gradient.len() / 12).max(1);
    for at in (0..gradient.len()).step_by(stride) {
        let moved = |by: f64| {
            let mut arrays = arrays.clone();
            arrays.get_mut(name).unwrap()[at] += by;
            loss(&arrays)
        };
        let wanted = (moved(step) - moved(-step)) / (2.0 * step);
        let close = (wanted - gradient[at]).abs() <= 1e-6 * (1.0 + wanted.abs());
        assert!(close, "d.{name}[{at}] is {}, differences say {wanted}", gradient[at]);
    }
}

/// Every function of one element.
pub const UNARY: [Unary; 13] = [
    Unary::Neg,
    Unary::Exp,
    Unary::Log,
    Unary::Relu,
    Unary::LeakyRelu(0.2),
    Unary::Elu(1.5),
    Unary::Sigmoid,
    Unary::Tanh,
    Unary::Gelu,
    Unary::Sqrt,
    Unary::Rsqrt,
    Unary::Recip,
    Unary::Abs,
];
