//! Kernels over the same rows, run together: block after block of the rows goes through all of them while it is in the cache.
//! What only they read is never stored.

mod link;
mod run;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub(super) use run::Chain;

use crate::inter::Domain;
use crate::intra::{Body, BufferId, Kernel, Outer, Program, Read, Role, StepOp, Traverse};

/// A program whose kernels are in an order where those that can run together follow each other, and ranges of such kernels.
pub(super) fn in_chains(mut program: Program) -> (Program, Vec<Range<usize>>) {
    let mut rest = std::mem::take(&mut program.kernels);
    let mut chains = Vec::new();
    while !rest.is_empty() {
        let mut chain = vec![rest.remove(0)];
        while let Some(at) = (0..rest.len()).find(|at| is_ready(&rest, *at) && may_join(&program, &chain, &rest[*at])) {
            chain.push(rest.remove(at));
        }
        let first = program.kernels.len();
        chains.push(first..first + chain.len());
        program.kernels.extend(chain);
    }
    (program, chains)
}

/// Whether all that a kernel reads is there.
fn is_ready(rest: &[Kernel], at: usize) -> bool {
    let reads = rest[at].reads();
    !rest[..at].iter().flat_map(Kernel::writes).any(|id| reads.contains(&id))
}

/// Buffers that the kernels of a chain write and nobody after them reads.
pub(super) fn is_internal(program: &Program, last_read: &[usize], chain: &Range<usize>, id: BufferId) -> bool {
    chain.len() > 1
        && program[id].role == Role::Temporary
        && chain.contains(&last_read[id.at()])
        && is_rows_of(&program.kernels[chain.clone()], id)
}

/// Whether a chain makes a buffer row by row.
fn is_rows_of(chain: &[Kernel], id: BufferId) -> bool {
    let makers = chain.iter().filter(|kernel| !is_sum(kernel));
    makers.flat_map(Kernel::writes).any(|made| made == id)
}

/// Whether a kernel adds up all rows.
pub(super) fn is_sum(kernel: &Kernel) -> bool {
    match kernel {
        Kernel::Outer(_) => true,
        Kernel::Traverse(traverse) => traverse.nest[0] == Domain::Const,
        _ => false,
    }
}

fn may_join(program: &Program, chain: &[Kernel], kernel: &Kernel) -> bool {
    let (Some(rows), Some(others)) = (rows_of(program, kernel), rows_of(program, &chain[0])) else { return false };
    let is_made = |id: BufferId| chain.iter().any(|kernel| kernel.writes().contains(&id));
    let is_own_row = |(level, read): (Domain, &Read)| {
        !is_made(read.from) || (level == rows && read.hops.is_empty() && is_rows_of(chain, read.from))
    };
    let is_nested = |kernel: &Kernel| kernel.nest().len() > 1 && !is_sum(kernel);
    rows == others
        && reads(kernel).into_iter().all(is_own_row)
        && !(is_nested(kernel) && chain.iter().any(is_nested))
        && !matches!(kernel, Kernel::Gemm(gemm) if is_made(gemm.product.w))
}

/// The rows that a kernel goes over, where blocks of them can be run one by one.
pub(super) fn rows_of(program: &Program, kernel: &Kernel) -> Option<Domain> {
    match kernel {
        Kernel::Gemm(gemm) => Some(*gemm.body_rows()),
        Kernel::Outer(Outer { rows, to, .. }) => (program[*to].domain == Domain::Const).then_some(*rows),
        Kernel::Traverse(traverse) => match &traverse.nest[..] {
            [Domain::Const, rows] => Some(*rows),
            [rows, ..] if !rows.is_type() && stores_outside(traverse) => Some(*rows),
            _ => None,
        },
        _ => None,
    }
}

/// Whether only outermost rows are stored.
fn stores_outside(traverse: &Traverse) -> bool {
    traverse.body.steps.iter().all(|step| step.level == 0 || !matches!(step.op, StepOp::Store(..)))
}

/// What a kernel reads row by row, with the domain that each is read for.
fn reads(kernel: &Kernel) -> Vec<(Domain, &Read)> {
    match kernel {
        Kernel::Gemm(gemm) => {
            let own = std::iter::once(&gemm.product.x).chain(&gemm.product.scale).map(|read| (gemm.product.rows, read));
            own.chain(loads(std::slice::from_ref(gemm.body_rows()), &gemm.body)).collect()
        }
        Kernel::Outer(outer) => vec![(outer.rows, &outer.x), (outer.rows, &outer.y)],
        Kernel::Traverse(traverse) => loads(&traverse.nest, &traverse.body).collect(),
        Kernel::GemmSum(_) | Kernel::Library(_) => Vec::new(),
    }
}

fn loads<'a>(nest: &'a [Domain], body: &'a Body) -> impl Iterator<Item = (Domain, &'a Read)> {
    body.steps.iter().filter_map(|step| match &step.op {
        StepOp::Load(read) => Some((nest[step.level], read)),
        _ => None,
    })
}
