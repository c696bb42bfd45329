//! Steps that are run as one: rows that are read only to be added up or multiplied are not copied first.

use crate::inter::{Binary, Domain, Reduce};
use crate::intra::{Body, Register, StepOp};

/// How a step is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Action {
    /// By itself.
    Plain,
    /// As a part of a later one.
    Skip,
    /// `Reduce(Load)`.
    GatherReduce {
        /// The step that loads.
        load: usize,
        /// How rows are combined.
        how: Reduce,
    },
    /// `Reduce(Sum, scale * Load)`, with one scale a head.
    ScaledGatherReduce {
        /// The step that loads.
        load: usize,
        /// Factors.
        scale: Register,
    },
    /// `Product + Load` of the same rows, or of one row for all: the product is added to them.
    Accumulate {
        /// The step that loads.
        load: usize,
    },
    /// `Dot(Load, Spread)`.
    GatherDot {
        /// The step that loads.
        load: usize,
        /// What is spread, at its own level.
        spread: Register,
    },
}

/// How every step of a body is run.
pub(super) fn fuse(body: &Body) -> Vec<Action> {
    let mut uses = vec![0; body.steps.len()];
    body.steps.iter().flat_map(|step| step.op.operands()).for_each(|register| uses[register.at()] += 1);
    let mut actions = vec![Action::Plain; body.steps.len()];
    let is_load = |register: Register| {
        uses[register.at()] == 1 && matches!(&body.steps[register.at()].op, StepOp::Load(read) if !read.hops.is_empty())
    };
    for (at, step) in body.steps.iter().enumerate() {
        match step.op {
            StepOp::Reduce(how, x) if is_load(x) => {
                actions[at] = Action::GatherReduce { load: x.at(), how };
                actions[x.at()] = Action::Skip;
            }
            StepOp::Reduce(Reduce::Sum, m) if uses[m.at()] == 1 => {
                let StepOp::Binary(Binary::Mul, x, y) = body.steps[m.at()].op else { continue };
                let shape = |register: Register| body.steps[register.at()].shape;
                let scales = |scale: Register, row: Register| {
                    let is_scalar = shape(scale).width() == Some(1) && shape(row).len() == step.shape.len();
                    is_load(row) && is_scalar && [1, shape(row).heads()].contains(&shape(scale).heads())
                };
                let pair = [(x, y), (y, x)].into_iter().find(|(scale, row)| scales(*scale, *row));
                if let Some((scale, row)) = pair {
                    actions[at] = Action::ScaledGatherReduce { load: row.at(), scale };
                    actions[m.at()] = Action::Skip;
                    actions[row.at()] = Action::Skip;
                }
            }
            StepOp::Binary(Binary::Add, x, y) => {
                let shape = |register: Register| body.steps[register.at()].shape;
                let adds = |product: Register, row: Register| {
                    let is_product = matches!(body.steps[product.at()].op, StepOp::Product);
                    let is_same = matches!(&body.steps[row.at()].op, StepOp::Load(read)
                        if read.hops.iter().all(|hop| hop.to == Domain::Const));
                    is_product
                        && is_same
                        && uses[product.at()] == 1
                        && uses[row.at()] == 1
                        && shape(row) == shape(product)
                };
                let pair = [(x, y), (y, x)].into_iter().find(|(product, row)| adds(*product, *row));
                if let Some((product, row)) = pair {
                    actions[at] = Action::Accumulate { load: row.at() };
                    actions[product.at()] = Action::Skip;
                    actions[row.at()] = Action::Skip;
                }
            }
            StepOp::Dot(x, y) => {
                let coarse = |register: Register| match body.steps[register.at()].op {
                    StepOp::Spread(coarse) if uses[register.at()] == 1 => Some(coarse),
                    _ => None,
                };
                let pair = [(x, y), (y, x)].into_iter().find(|(row, other)| is_load(*row) && coarse(*other).is_some());
                if let Some((row, other)) = pair {
                    let spread = coarse(other).unwrap_or(other);
                    actions[at] = Action::GatherDot { load: row.at(), spread };
                    actions[row.at()] = Action::Skip;
                    actions[other.at()] = Action::Skip;
                }
            }
            _ => {}
        }
    }
    actions
}
