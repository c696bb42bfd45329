//! Products in one launch with the outer products of the same rows: the gradient of what a weight was multiplied with, and that of the weight.
//! Both read the gradient of the products.

use crate::inter::Shape;
use crate::intra::{BufferId, Gemm, Kernel, KernelSchedule, Outer, Program};

/// The most rows and columns of a matrix: all of it lies in shared memory beside what outer products need there, and one thread block makes all of
/// an outer product.
const MOST_SIDE: usize = 128;

/// The program with such products behind their outer products, and scheduled so. All other kernels stay in their order.
#[must_use]
pub(super) fn with_outer(mut program: Program) -> Program {
    program.schedules = (0..program.kernels.len()).map(|at| program.schedule(at)).collect();
    // Behind a pair the search goes on from the first kernel: kernels between have moved.
    while let Some((gemm, outer, place)) = next_pair(&program) {
        let mut left: Vec<_> = std::mem::take(&mut program.kernels).into_iter().zip(program.schedules).collect();
        let (first, last) = (gemm.min(outer), gemm.max(outer));
        let (later, earlier) = (left.remove(last), left.remove(first));
        let (gemm, outer) = if gemm < outer { (earlier, later) } else { (later, earlier) };
        left.splice(place..place, [outer, (gemm.0, KernelSchedule::WithOuter)]);
        (program.kernels, program.schedules) = left.into_iter().unzip();
    }
    program
}

/// A product and outer products that are not in one launch yet and can be, and where, once both are taken out.
fn next_pair(program: &Program) -> Option<(usize, usize, usize)> {
    let count = program.kernels.len();
    let is_free = |outer: usize| outer + 1 >= count || program.schedules[outer + 1] != KernelSchedule::WithOuter;
    let gemms = (0..count).filter(|at| program.schedules[*at] != KernelSchedule::WithOuter);
    gemms.flat_map(|gemm| (0..count).filter(|outer| is_free(*outer)).map(move |outer| (gemm, outer))).find_map(
        |(gemm, outer)| match (&program.kernels[gemm], &program.kernels[outer]) {
            (Kernel::Gemm(own), Kernel::Outer(other)) if go_together(program, own, other) => {
                Some((gemm, outer, place(program, gemm, outer)?))
            }
            _ => None,
        },
    )
}

/// Whether a product and outer products go over the same rows, have matrices of the same types that are small enough, and read the same.
fn go_together(program: &Program, gemm: &Gemm, outer: &Outer) -> bool {
    let Gemm { product, .. } = gemm;
    let types = program[outer.to].domain;
    let is_small = |id: BufferId| match program[id].shape {
        Shape::Matrix { heads: 1, rows, cols } => rows.max(cols) <= MOST_SIDE,
        _ => false,
    };
    (product.rows, product.path) == (outer.rows, outer.path)
        && program[product.w].domain == types
        && types != outer.rows
        && [&outer.x, &outer.y].contains(&&product.x)
        && is_small(product.w)
        && is_small(outer.to)
}

/// Where two kernels can stand beside each other, the later one where the earlier one stood or the other way round, counted without them.
fn place(program: &Program, one: usize, other: usize) -> Option<usize> {
    let (first, last) = (one.min(other), one.max(other));
    let kernel = |at: usize| &program.kernels[at];
    let may_pass = |own: usize| (first..=last).all(|at| at == own || are_independent(kernel(own), kernel(at)));
    if may_pass(last) { Some(first) } else { may_pass(first).then_some(last - 1) }
}

/// Whether it does not matter which of two kernels runs first, or whether both run at once.
fn are_independent(one: &Kernel, other: &Kernel) -> bool {
    let meets = |writer: &Kernel, kernel: &Kernel| {
        let all: Vec<BufferId> = kernel.reads().into_iter().chain(kernel.writes()).collect();
        writer.writes().iter().any(|id| all.contains(id))
    };
    !meets(one, other) && !meets(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::{Optimisations, Statistics, compile};
    use crate::testing::{Recipe, layer};

    fn backward(model: &str, is_on: bool) -> Program {
        let without: &[&str] = if is_on { &[] } else { &["with_outer"] };
        let on = Optimisations::GPU.without(without).unwrap();
        let program = layer(model, &[("d_in", 64), ("d_out", 64), ("heads", 1)], &[]);
        compile(&program, &Statistics::of(&Recipe { nodes: vec![(90, 90), (70, 70)], ..Recipe::block() }.graph(2)), on)
            .unwrap()
            .backward
    }

    /// Every product that goes with outer products stands behind them; nothing is lost, and every kernel still reads what was written before.
    #[test]
    fn pairs_stand_beside_each_other() {
        for model in ["rgcn", "rgat", "hgt"] {
            let (program, plain) = (backward(model, true), backward(model, false));
            assert_eq!(program.kernels.len(), plain.kernels.len());
            assert!(plain.kernels.iter().all(|kernel| program.kernels.contains(kernel)), "{model}");
            crate::intra::verify(&program).unwrap();
            let behind = |at: &usize| program.schedules[*at] == KernelSchedule::WithOuter;
            let pairs: Vec<usize> = (0..program.kernels.len()).filter(behind).collect();
            assert!(!pairs.is_empty(), "{model}");
            for at in pairs {
                let [Kernel::Outer(outer), Kernel::Gemm(gemm)] = &program.kernels[at - 1..=at] else {
                    panic!("{model}: {at}")
                };
                assert!(go_together(&program, gemm, outer));
                assert!(are_independent(&program.kernels[at - 1], &program.kernels[at]));
            }
            assert!(plain.schedules.iter().all(|own| *own != KernelSchedule::WithOuter), "{model}");
        }
    }
}
