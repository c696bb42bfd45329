//! Programs rewritten, step by step, until they are kernels. Each pass is a file, and a named line in [`compile`].

pub mod autodiff;
pub mod buffers;
pub mod decorate;
pub mod domains;
mod rewrite;
pub mod select;
pub mod simplify;
pub mod split;
mod statistics;
#[cfg(test)]
mod tests;

pub use statistics::Statistics;

use crate::error::Result;
use crate::inter::{Domain, Op, Program};
use crate::intra;
use select::{Fusion, select};
use split::{Recompute, Split, split};

/// What may be done to a program. Each can be switched off by itself: what it is worth is then seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Optimisations {
    /// Values that depend on pairs of a node and an edge type are computed once a pair, where that is fewer rows.
    pub compact: bool,
    /// Cheap values are computed again in the backward pass instead of being saved.
    pub recompute: bool,
    /// Values share kernels.
    pub fuse: bool,
}

impl Optimisations {
    /// All of them.
    pub const ALL: Self = Self { compact: true, recompute: true, fuse: true };
    /// None: a kernel a value, everything on edges that a text writes there.
    pub const NONE: Self = Self { compact: false, recompute: false, fuse: false };
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
}

/// Compiles a layer whose output is called `out`.
pub fn compile(layer: &Program, statistics: &Statistics, on: Optimisations) -> Result<Compiled> {
    let forward = optimise(layer, statistics, on)?;
    let joint = autodiff::gradients(&forward, "out")?;
    let joint = optimise(&joint, statistics, on)?;
    let values = split(&joint, if on.recompute { Recompute::On } else { Recompute::Off });
    let fusion = if on.fuse { Fusion::On } else { Fusion::Off };
    let inference = optimise(&without_dropout(&forward), statistics, on)?;
    Ok(Compiled {
        forward: select(&values.forward, fusion)?,
        backward: select(&values.backward, fusion)?,
        inference: select(&Program { name: format!("{} inference", layer.name), ..inference }, fusion)?,
        values,
    })
}

/// Passes over values, in order.
fn optimise(program: &Program, statistics: &Statistics, on: Optimisations) -> Result<Program> {
    let program = simplify::simplify(program)?;
    let program = domains::coarsen(&program, |domain| match domain {
        Domain::Pair(_) => on.compact && statistics.pairs_pay(domain),
        _ => true,
    })?;
    simplify::simplify(&program)
}

fn without_dropout(program: &Program) -> Program {
    let mut program = program.clone();
    for value in &mut program.values {
        if let Op::Dropout { probability, .. } = &mut value.op {
            *probability = 0.0;
        }
    }
    program
}
