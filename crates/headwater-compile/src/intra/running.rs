//! Sums of exponentials below the largest of their rows, in one walk: the largest so far is known while rows are walked, and what was added up
//! before a larger one came is scaled down. Such sums have to be linear in the exponentials, and nothing may be stored for each row.

use super::{Body, Register, Step, StepOp};
use crate::inter::{Binary, Reduce, Unary};

/// A largest number that may be found in the walk that adds up exponentials below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    /// The reduction that finds it.
    pub largest: Register,
    /// Sums that are linear in exponentials below it.
    pub sums: Vec<Register>,
}

/// What of a row depends on exponentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depends {
    Not,
    /// It is the largest itself, spread to the row.
    Largest,
    /// It is the row's number less the largest.
    Below,
    /// It is the exponential of that, or in proportion to it.
    Linearly,
}

/// The largest number of a nest of two levels that may be found so; the first one, where there are several.
pub(crate) fn running(body: &Body) -> Option<Running> {
    if body.steps.iter().any(|step| step.level > 1 || matches!(step.op, StepOp::Softmax { .. })) {
        return None;
    }
    let is_candidate = |step: &Step| step.level == 0 && step.shape.len() == 1;
    (0..body.steps.len()).find_map(|at| match body.steps[at].op {
        StepOp::Reduce(Reduce::Max, x) if is_candidate(&body.steps[at]) && body.steps[x.at()].level == 1 => {
            sums(body, Register::new(at), x).map(|sums| Running { largest: Register::new(at), sums })
        }
        _ => None,
    })
}

/// The sums that wait for the largest; `None` where there are none, or where anything else waits for it.
fn sums(body: &Body, largest: Register, of: Register) -> Option<Vec<Register>> {
    let (mut depends, mut sums) = (vec![Depends::Not; body.steps.len()], Vec::new());
    // What is there only after a walk.
    let mut is_late = vec![false; body.steps.len()];
    for (at, step) in body.steps.iter().enumerate() {
        let is_reduced = matches!(step.op, StepOp::Reduce(..));
        is_late[at] = step.level == 0 && (is_reduced || step.op.operands().iter().any(|x| is_late[x.at()]));
        let how = |x: &Register| depends[x.at()];
        let is_free = step.op.operands().iter().all(|x| how(x) == Depends::Not);
        depends[at] = match &step.op {
            StepOp::Spread(x) if *x == largest => Depends::Largest,
            // What is made of the largest or of sums for an outer row comes after the walk.
            StepOp::Reduce(Reduce::Sum, x) if how(x) == Depends::Linearly => {
                sums.push(Register::new(at));
                Depends::Not
            }
            StepOp::Spread(x) if is_late[x.at()] => return None,
            _ if is_free => Depends::Not,
            StepOp::Binary(Binary::Sub, x, y) if *x == of && how(y) == Depends::Largest => Depends::Below,
            StepOp::Unary(Unary::Exp, x) if how(x) == Depends::Below => Depends::Linearly,
            StepOp::Binary(Binary::Mul, x, y) if [how(x), how(y)].contains(&Depends::Not) => match (how(x), how(y)) {
                (Depends::Linearly, _) | (_, Depends::Linearly) => Depends::Linearly,
                _ => return None,
            },
            StepOp::Expand(x) | StepOp::Reshape(x) if how(x) == Depends::Linearly => Depends::Linearly,
            _ => return None,
        };
    }
    (!sums.is_empty()).then_some(sums)
}
