//! Programs rewritten, step by step, until they are kernels. Each pass is a file, and a named line in [`compile`].

pub mod autodiff;
pub mod buffers;
pub mod cost;
pub mod decorate;
pub mod domains;
mod merge;
mod one_type;
mod pair_softmax;
#[cfg(test)]
pub(crate) mod plans_test;
pub(crate) mod product_sums;
pub mod reorder;
mod rewrite;
mod scatter;
mod scatter_reads;
mod schedule;
pub mod select;
pub mod simplify;
mod sink;
pub mod split;
mod statistics;
#[cfg(test)]
mod tests;

pub use schedule::{GpuConstants, choose};
pub use statistics::{Close, Statistics};

use crate::error::{Error, Result};
use crate::inter::{Domain, Op, Program};
use crate::intra;
use reorder::{Pairs, Search, reorder};
use select::{Fusion, select};
use split::{Recompute, Split, split};

/// What may be done to a program. Each can be switched off by itself: what it is worth is then seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Optimisations {
    /// Where there is one edge type or one node type, typed values are values of all, and pairs are nodes.
    pub one_type: bool,
    /// `(x A) B` may become `x (A B)`, with or without a bias in between.
    pub linear_linear: bool,
    /// `(x W) . a` may become `x . (W a)`.
    pub dot_linear: bool,
    /// `(x W) . y` may become `x . (y W')`.
    pub bilinear: bool,
    /// Sums over edges and products with weights may change places.
    pub aggregate_first: bool,
    /// Sums over edges with a factor a head may come before products, with a row a head.
    pub heads_first: bool,
    /// Sums over a node's pairs of sums over their edges may become one sum over the node's edges.
    pub flatten: bool,
    /// Factors may leave sums.
    pub hoist: bool,
    /// Products of the same rows may become one product.
    pub merge: bool,
    /// Values that depend on pairs of a node and an edge type are computed once a pair, where that is fewer rows.
    pub compact: bool,
    /// Cheap values are computed again in the backward pass instead of being saved.
    pub recompute: bool,
    /// Gradients of a softmax may take the sum that they need from what its shares weigh, which is saved, and not from a walk of their own,
    /// where nodes have several edges.
    pub one_walk: bool,
    /// A softmax over a node's edges may be made pair by pair, in the walk that adds up what it weighs.
    pub pair_softmax: bool,
    /// Products of pairs may be added up by node where they are made.
    pub product_sums: bool,
    /// Values share kernels.
    pub fuse: bool,
    /// Kernels may nest three levels: a node, its pairs of an edge type, their edges.
    pub deep: bool,
}

/// A switch by its name, and where it lies.
pub type Switch = (&'static str, fn(&mut Optimisations) -> &mut bool);

impl Optimisations {
    /// All of them.
    pub const ALL: Self = Self {
        one_type: true,
        linear_linear: true,
        dot_linear: true,
        bilinear: true,
        aggregate_first: true,
        heads_first: true,
        flatten: true,
        hoist: true,
        merge: true,
        compact: true,
        recompute: true,
        one_walk: true,
        pair_softmax: true,
        product_sums: true,
        fuse: true,
        deep: true,
    };
    /// For the CPU, where merged products, rows a head, longer sums and fewer walks have not been seen to pay, and which takes sums of products
    /// apart.
    pub const CPU: Self = Self {
        merge: false,
        heads_first: false,
        flatten: false,
        one_walk: false,
        pair_softmax: false,
        product_sums: false,
        ..Self::ALL
    };
    /// For a GPU, where pairs with an edge or two would leave most lanes of a group idle.
    pub const GPU: Self = Self { deep: false, ..Self::ALL };
    /// None: a kernel a value, everything on edges that a text writes there.
    pub const NONE: Self = Self {
        one_type: false,
        linear_linear: false,
        dot_linear: false,
        bilinear: false,
        aggregate_first: false,
        heads_first: false,
        flatten: false,
        hoist: false,
        merge: false,
        compact: false,
        recompute: false,
        one_walk: false,
        pair_softmax: false,
        product_sums: false,
        fuse: false,
        deep: false,
    };
    /// Every switch.
    pub const SWITCHES: [Switch; 16] = [
        ("one_type", |on| &mut on.one_type),
        ("linear_linear", |on| &mut on.linear_linear),
        ("dot_linear", |on| &mut on.dot_linear),
        ("bilinear", |on| &mut on.bilinear),
        ("aggregate_first", |on| &mut on.aggregate_first),
        ("heads_first", |on| &mut on.heads_first),
        ("flatten", |on| &mut on.flatten),
        ("hoist", |on| &mut on.hoist),
        ("merge", |on| &mut on.merge),
        ("compact", |on| &mut on.compact),
        ("recompute", |on| &mut on.recompute),
        ("one_walk", |on| &mut on.one_walk),
        ("pair_softmax", |on| &mut on.pair_softmax),
        ("product_sums", |on| &mut on.product_sums),
        ("fuse", |on| &mut on.fuse),
        ("deep", |on| &mut on.deep),
    ];

    /// Which values share kernels on a graph with such rows.
    fn fusion(self, statistics: &Statistics) -> Fusion {
        match (self.fuse, self.deep) {
            (false, _) => Fusion::Off,
            (true, false) => Fusion::Shallow(statistics.shared()),
            (true, true) => Fusion::On,
        }
    }

    /// Without those that are named. A name that is none is an error that lists them.
    pub fn without(self, names: &[impl AsRef<str>]) -> Result<Self> {
        let mut left = self;
        for name in names.iter().map(AsRef::as_ref) {
            let Some(switch) = Self::SWITCHES.into_iter().find(|(known, _)| *known == name) else {
                let known = Self::SWITCHES.map(|(known, _)| known).join(", ");
                let why = format!("there is no optimisation {name:?}; there are {known}");
                return Err(Error::Argument { name: "without".to_owned(), why });
            };
            left = left.with(switch, false);
        }
        Ok(left)
    }

    /// With one switch turned.
    #[must_use]
    pub fn with(mut self, switch: Switch, is_on: bool) -> Self {
        *(switch.1)(&mut self) = is_on;
        self
    }
}

/// A layer, compiled.
#[derive(Debug, Clone, PartialEq)]
pub struct Compiled {
    /// Values of both directions of training.
    pub values: Split,
    /// Kernels from inputs to outputs and to what the backward pass reads.
    pub forward: intra::Program,
    /// Kernels from that and the gradient of `out` to gradients.
    pub backward: intra::Program,
    /// Kernels from inputs to outputs alone, without dropout.
    pub inference: intra::Program,
    /// Changes of order that were made for training, and what each was worth by the estimate.
    pub plan: Vec<reorder::Fired>,
}

/// What a layer runs on, by its rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload {
    /// In training: a typical block, or the whole graph.
    pub training: Statistics,
    /// In inference.
    pub inference: Statistics,
    /// The GPU that kernels are scheduled for.
    pub machine: GpuConstants,
}

impl From<&Statistics> for Workload {
    /// The same for both.
    fn from(statistics: &Statistics) -> Self {
        Self { training: *statistics, inference: *statistics, machine: GpuConstants::H200 }
    }
}

/// Edges of a node, in the mean, from which on a walk over them takes longer than a row of the node that is saved and read: at 3 both took
/// as long on an H200, at 7 the walk took a twentieth of a layer more.
const LEAST_EDGES: f64 = 4.0;

/// Compiles a layer whose output is called `out`.
pub fn compile(layer: &Program, workload: impl Into<Workload>, on: Optimisations) -> Result<Compiled> {
    let workload = workload.into();
    let fusion = on.fusion(&workload.training);
    let price = |found: &Compiled| {
        let price = |program: &intra::Program| priced(program, &workload.training, fusion).price();
        price(&found.forward) + price(&found.backward)
    };
    let inference = self::inference(layer, &workload.inference, on)?;
    let found = cheapest(&workload.training, on, price, |close| trained(layer, &workload, on, close))?;
    Ok(Compiled { inference, ..found })
}

/// Compiles a layer to kernels from inputs to outputs alone, without dropout.
pub fn inference(layer: &Program, statistics: &Statistics, on: Optimisations) -> Result<intra::Program> {
    let fusion = on.fusion(statistics);
    let price = |found: &intra::Program| priced(found, statistics, fusion).price();
    cheapest(statistics, on, price, |close| untrained(layer, statistics, on, close))
}

/// The cheaper one of what is compiled with and without pairs that are nearly as many as edges.
fn cheapest<T>(
    statistics: &Statistics,
    on: Optimisations,
    price: impl Fn(&T) -> f64,
    compiled: impl Fn(Close) -> Result<T>,
) -> Result<T> {
    let found = compiled(Close::Left)?;
    if !on.compact || !statistics.close_pairs().contains(&Close::Taken) {
        return Ok(found);
    }
    let other = compiled(Close::Taken)?;
    Ok(if price(&other) < price(&found) { other } else { found })
}

/// Both directions of training. Inference is not compiled.
fn trained(layer: &Program, workload: &Workload, on: Optimisations, close: Close) -> Result<Compiled> {
    let Workload { training, machine, .. } = workload;
    let recompute = if on.recompute { Recompute::On } else { Recompute::Off };
    let fusion = on.fusion(training);
    let clean = |program: &Program| clean(program, training, on, close);
    // Not before gradients are there: those of a pair's number are sums over edges of what was a row a pair.
    let settled = |program: &Program| settled(program, training, on, close);
    let alone = |program: &Program| Ok::<_, Error>(priced(&kernels(program, training, on)?, training, fusion));
    let apart = |joint: &Program| {
        let Split { forward, backward } = split(joint, recompute);
        Ok([alone(&forward)?, alone(&backward)?].into_iter().sum())
    };
    let trained = |program: &Program| apart(&settled(&autodiff::gradients(program, "out")?)?);
    let search = Search { on, clean: &clean, price: &trained, pairs: Pairs::On };
    let (forward, mut plan) = reorder(&clean(&of_types(layer, training, on)?)?, &search)?;
    let one_walk = on.one_walk && training.edges >= LEAST_EDGES * training.destinations;
    let joint = settled(&autodiff::gradients_by(&forward, "out", one_walk)?)?;
    let (joint, more) = reorder(&joint, &Search { clean: &settled, price: &apart, pairs: Pairs::Off, ..search })?;
    plan.extend(more);
    let (joint, _) = by_pairs(&joint, on, &settled, &apart)?;
    let values = split(&joint, recompute);
    let scheduled = |values: &Program| Ok::<_, Error>(scheduled(kernels(values, training, on)?, training, machine));
    Ok(Compiled {
        forward: scheduled(&values.forward)?,
        backward: scheduled(&values.backward)?,
        inference: intra::Program::default(),
        values,
        plan,
    })
}

/// Kernels from inputs to outputs alone.
fn untrained(layer: &Program, statistics: &Statistics, on: Optimisations, close: Close) -> Result<intra::Program> {
    let fusion = on.fusion(statistics);
    let clean = |program: &Program| settled(program, statistics, on, close);
    let alone = |program: &Program| Ok(priced(&kernels(program, statistics, on)?, statistics, fusion));
    let price_by_pairs = |program: &Program| Ok(by_pairs(program, on, &clean, &alone)?.1);
    let layer = clean(&without_dropout(&of_types(layer, statistics, on)?))?;
    // The search goes from change to change, so where it ends depends on whether it sees on the way what a softmax by pairs is worth.
    let found = |price: &dyn Fn(&Program) -> Result<cost::Cost>| {
        let (found, _) = reorder(&layer, &Search { on, clean: &clean, price, pairs: Pairs::On })?;
        by_pairs(&found, on, &clean, &alone)
    };
    let (mut best, cost) = found(&alone)?;
    if on.pair_softmax && layer.values.iter().any(|value| matches!(value.op, Op::Softmax { .. })) {
        let (other, other_cost) = found(&price_by_pairs)?;
        best = if other_cost.price() < WORTH_PAIRS * cost.price() { other } else { best };
    }
    let kernels = kernels(&Program { name: format!("{} inference", layer.name), ..best }, statistics, on)?;
    Ok(scheduled(kernels, statistics, &GpuConstants::H200))
}

/// How much cheaper a softmax by pairs has to be. With five edges a pair HGT and RGAT took 3 and 5 % longer on an H200 by pairs where they were
/// 2 % cheaper by the estimate; with ten HGT took a fifth less.
const WORTH_PAIRS: f64 = 0.97;

/// The program, or the program with its softmax pair by pair where that is cheaper; and its cost.
fn by_pairs(
    program: &Program,
    on: Optimisations,
    clean: &dyn Fn(&Program) -> Result<Program>,
    price: &dyn Fn(&Program) -> Result<cost::Cost>,
) -> Result<(Program, cost::Cost)> {
    let own = price(program)?;
    let other = if on.pair_softmax { pair_softmax::pair_softmax(program)? } else { None };
    let Some(other) = other.map(|other| clean(&other)).transpose()? else { return Ok((program.clone(), own)) };
    let cost = price(&other)?;
    Ok(if cost.price() < WORTH_PAIRS * own.price() { (other, cost) } else { (program.clone(), own) })
}

/// The kernels of a program over such rows.
fn kernels(program: &Program, statistics: &Statistics, on: Optimisations) -> Result<intra::Program> {
    let fusion = on.fusion(statistics);
    let kernels = select(program, fusion)?;
    if !on.product_sums {
        return Ok(kernels);
    }
    let price = |kernels: &intra::Program| priced(kernels, statistics, fusion).price();
    let kernels = product_sums::product_sums(kernels, |before, after| price(after) < price(before));
    intra::verify(&kernels)?;
    Ok(kernels)
}

/// What kernels cost, on a GPU where nests are kept shallow for one.
fn priced(program: &intra::Program, statistics: &Statistics, fusion: Fusion) -> cost::Cost {
    let cost = cost::total(program, statistics);
    if matches!(fusion, Fusion::Shallow(_)) { cost.on_gpu(program, statistics) } else { cost }
}

/// The program with the schedules that suit such rows.
fn scheduled(program: intra::Program, statistics: &Statistics, machine: &GpuConstants) -> intra::Program {
    let schedules = schedule::choose(&program, statistics, machine);
    intra::Program { schedules, ..program }
}

/// The program without types where there is one of a kind.
fn of_types(layer: &Program, statistics: &Statistics, on: Optimisations) -> Result<Program> {
    if on.one_type { one_type::one_type(layer, statistics) } else { Ok(layer.clone()) }
}

/// The same values with fewer operators, each where its rows are fewest.
fn clean(program: &Program, statistics: &Statistics, on: Optimisations, close: Close) -> Result<Program> {
    let program = simplify::simplify(program)?;
    let program = domains::coarsen(&program, |domain| match domain {
        Domain::Pair(_) => on.compact && statistics.takes_pairs(domain, close),
        _ => true,
    })?;
    simplify::simplify(&scatter::scatter_last(&program)?)
}

/// The same of a program that no gradients are added to: what is only added up is made where that is done.
fn settled(program: &Program, statistics: &Statistics, on: Optimisations, close: Close) -> Result<Program> {
    simplify::simplify(&sink::sink(&clean(program, statistics, on, close)?)?)
}

/// The program with dropouts that keep everything.
#[must_use]
pub fn without_dropout(program: &Program) -> Program {
    let mut program = program.clone();
    for value in &mut program.values {
        if let Op::Dropout { probability, .. } = &mut value.op {
            *probability = 0.0;
        }
    }
    program
}
