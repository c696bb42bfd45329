//! What rows cost a GPU that are read at random places: more than their bytes where they come out of memory, less where they lie in its cache.
//!
//! Edges lie by edge type and destination. Walked so, what they read of their sources lies anywhere; walked by their sources, what they read of
//! their destinations does, and numbers of their own do, too. Everything else is read in order, or nearly so: the pairs of neighbouring nodes
//! lie beside each other.

use super::Statistics;
use crate::inter::{Domain, Side};
use crate::intra::{Kernel, Program, Read, StepOp, Traverse};

/// A GPU's cache, as far as rows of one table stay in it: most of the 50 to 60 MB that H100 and H200 have.
const CACHE_BYTES: f64 = 40e6;
/// Time of a row out of the cache, in that of a row that is read in order: walks over rows of small tables run at 5.3 TB/s beside 3.4 (biokg's
/// shape, H200).
const CACHED: f64 = 0.65;
/// The same out of memory: 2.3 TB/s beside 3.4 (am's shape).
const MISSED: f64 = 1.5;
/// What memory and caches read at least.
const SECTOR_BYTES: f64 = 32.0;
const NUMBER_BYTES: f64 = 4.0;

/// Bytes that could be read in order meanwhile, less the bytes of the rows themselves.
pub(super) fn extra_bytes(program: &Program, kernel: &Kernel, statistics: &Statistics) -> f64 {
    let walked = walked_by(kernel.nest());
    let is_random = |read: &&Read| match read.hops.first().map(|hop| hop.to) {
        None => walked == Side::Src,
        Some(Domain::Node(side) | Domain::Pair(side)) => side != walked,
        Some(_) => false,
    };
    reads_of_edges(kernel).into_iter().filter(is_random).map(|read| extra(program, statistics, read)).sum()
}

/// The end by which a kernel visits edges.
fn walked_by(nest: &[Domain]) -> Side {
    match nest.first() {
        Some(Domain::Node(side) | Domain::Pair(side)) => *side,
        _ => Side::Dst,
    }
}

/// What a kernel reads once an edge.
fn reads_of_edges(kernel: &Kernel) -> Vec<&Read> {
    match kernel {
        Kernel::Traverse(Traverse { nest, body, .. }) => body
            .steps
            .iter()
            .filter_map(|step| match &step.op {
                StepOp::Load(read) if nest[step.level] == Domain::Edge => Some(read),
                _ => None,
            })
            .collect(),
        Kernel::Gemm(gemm) if gemm.product.rows == Domain::Edge => vec![&gemm.product.x],
        Kernel::Outer(outer) if outer.rows == Domain::Edge => vec![&outer.x, &outer.y],
        _ => Vec::new(),
    }
}

fn extra(program: &Program, statistics: &Statistics, read: &Read) -> f64 {
    let buffer = &program[read.from];
    let row_bytes = buffer.shape.len() as f64 * NUMBER_BYTES;
    let in_cache = (CACHE_BYTES / (statistics.rows(buffer.domain) * row_bytes).max(1.0)).min(1.0);
    let time = in_cache * CACHED + (1.0 - in_cache) * MISSED;
    statistics.edges * (time * row_bytes.max(SECTOR_BYTES) - row_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inter::{Builder, Reduce, Shape};
    use crate::pass::cost;
    use crate::pass::select::{Fusion, select};

    /// Twenty rows of `from` an edge, which are added up by `to`.
    fn extra_of(from: Domain, to: Domain, rows: f64) -> f64 {
        let statistics = Statistics { source_pairs: rows, destination_pairs: rows, ..Statistics::FB15K_237 };
        let mut b = Builder::new("p");
        let x = b.input("x", from, Shape::vector(20));
        let sum = b.lift(x, Domain::Edge).and_then(|x| b.reduce(x, to, Reduce::Sum)).unwrap();
        b.output("out", sum);
        let program = select(&b.finish(), Fusion::On).unwrap();
        let [kernel] = &program.kernels[..] else { panic!("{program:?}") };
        let (extra, moved) = (extra_bytes(&program, kernel, &statistics), cost::total(&program, &statistics).bytes());
        assert!(moved + extra > 0.0);
        extra / (statistics.edges * 80.0)
    }

    /// Rows of the other side are read at random, and cost less than their bytes where they fit the cache; those of the walk's own side do not.
    #[test]
    fn rows_of_the_other_side_cost_more_or_less_than_their_bytes() {
        use Side::{Dst, Src};
        let (few, many) = (1e3, 1e9);
        for (walked, other) in [(Dst, Src), (Src, Dst)] {
            let extra = |from: Side, rows: f64| extra_of(Domain::Pair(from), Domain::Node(walked), rows);
            assert!((extra(other, few) - (CACHED - 1.0)).abs() < 1e-9);
            assert!((extra(other, many) - (MISSED - 1.0)).abs() < 1e-3);
            assert!(extra(other, 2e6) > extra(other, few) && extra(other, 2e6) < extra(other, many));
            assert_eq!(extra(walked, many), 0.0);
        }
    }

    /// A number takes a whole sector, and one of an edge is at a random place where edges are walked by their sources.
    #[test]
    fn numbers_take_a_sector() {
        let statistics = Statistics { edges: 1e6, ..Statistics::FB15K_237 };
        let mut b = Builder::new("p");
        let x = b.input("x", Domain::Edge, Shape::SCALAR);
        let sum = b.reduce(x, Domain::SRC, Reduce::Sum).unwrap();
        b.output("out", sum);
        let program = select(&b.finish(), Fusion::On).unwrap();
        let extra = extra_bytes(&program, &program.kernels[0], &statistics);
        assert!((extra - 1e6 * (CACHED * SECTOR_BYTES - NUMBER_BYTES)).abs() < 1.0, "{extra}");
    }
}
