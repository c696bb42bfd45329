//! A softmax over the edges of a node, pair by pair: each pair of the node and an edge type has its own largest score, and adds up exponentials
//! and weighted rows below it; what they count in the node's softmax is one number a pair, found once all pairs are there. So scores that are
//! inner products of gathered rows, and the weighted sums of the same rows, are one walk over the pair's edges, as in FlashAttention, and not
//! three.

use super::rewrite::{Rebuilt, rewrite};
use crate::error::{Error, Result};
use crate::inter::{Binary, Builder, Domain, Op, Path, Program, Reduce, Side, Unary, Value, ValueId};

const PAIR: Domain = Domain::Pair(Side::Dst);
/// What scores are at least: minus infinity less a pair's largest score would be NaN where that is minus infinity, too, though the node has others. A
/// node of nothing but such scores has equal shares, where a softmax has NaN.
const LEAST_SCORE: f64 = -3e38;

/// The program with every such softmax by pairs, whose shares weigh rows that are added up by pair. `None` where there is none.
pub(super) fn pair_softmax(program: &Program) -> Result<Option<Program>> {
    let is_weight: Vec<bool> = program.iter().map(|(id, _)| weighs_pairs(program, id)).collect();
    if !is_weight.contains(&true) {
        return Ok(None);
    }
    let mut all: Vec<ByPairs> = Vec::new();
    let mut at = 0;
    let found = rewrite(program, |to, value| {
        let is_weight = is_weight[at];
        at += 1;
        match value.op {
            Op::Softmax { x, .. } if is_weight => {
                let own = ByPairs::new(to, x)?;
                all.push(own);
                Ok(own.share)
            }
            Op::Reduce { x, how: Reduce::Sum, path: Path::Only } if value.domain == PAIR => {
                Ok(match weighted(to, x, &all)? {
                    Some((rows, scale)) => {
                        let sum = to.builder.reduce(rows, PAIR, Reduce::Sum)?;
                        to.builder.binary(Binary::Mul, sum, scale)?
                    }
                    None => to.keep(value),
                })
            }
            _ => Ok(to.keep(value)),
        }
    })?;
    Ok(Some(found))
}

/// Whether a value is a softmax over the edges of destinations that weighs rows which are added up by pair.
fn weighs_pairs(program: &Program, id: ValueId) -> bool {
    let is_softmax =
        matches!(program[id].op, Op::Softmax { by: Domain::DST, .. }) && program[id].domain == Domain::Edge;
    let readers = |of: ValueId| program.iter().filter(move |(_, value)| value.op.operands().contains(&of));
    let is_summed = |of: ValueId| {
        readers(of).any(|(_, value)| {
            value.domain == PAIR && matches!(value.op, Op::Reduce { how: Reduce::Sum, path: Path::Only, .. })
        })
    };
    let is_weighted = |value: &Value| matches!(value.op, Op::Binary { f: Binary::Mul, .. });
    is_softmax && readers(id).any(|(product, value)| is_weighted(value) && is_summed(product))
}

/// A softmax by pairs.
#[derive(Debug, Clone, Copy)]
struct ByPairs {
    /// What an edge has in the softmax of its node.
    share: ValueId,
    /// The exponential of an edge's score below the largest of its pair.
    exponential: ValueId,
    /// What such exponentials of a pair are multiplied by, to be shares.
    scale: ValueId,
}

impl ByPairs {
    fn new(to: &mut Rebuilt, scores: ValueId) -> Result<Self> {
        let b = &mut to.builder;
        // The exponential of a value below one that coarser rows have.
        let below = |b: &mut Builder, x: ValueId, coarse: ValueId| {
            let lifted = b.lift(coarse, b.value(x).domain)?;
            let below = b.binary(Binary::Sub, x, lifted)?;
            Ok::<_, Error>(b.unary(Unary::Exp, below))
        };
        let least = b.constant(LEAST_SCORE);
        let scores = b.binary(Binary::Max, scores, least)?;
        let largest = b.reduce(scores, PAIR, Reduce::Max)?;
        let exponential = below(b, scores, largest)?;
        let sums = b.reduce(exponential, PAIR, Reduce::Sum)?;
        let of_node = b.reduce(largest, Domain::DST, Reduce::Max)?;
        let scaled = below(b, largest, of_node)?;
        let scaled = b.binary(Binary::Mul, sums, scaled)?;
        let total = b.reduce(scaled, Domain::DST, Reduce::Sum)?;
        // Not below the logarithm of the total: scores may be large, and differences of large numbers are inexact.
        let share = |b: &mut Builder, x: ValueId| {
            let own = below(b, x, of_node)?;
            let lifted = b.lift(total, b.value(x).domain)?;
            b.binary(Binary::Div, own, lifted)
        };
        Ok(Self { share: share(b, scores)?, exponential, scale: share(b, largest)? })
    }
}

/// Rows times exponentials, and the scale of their sums, where a value is rows times shares.
fn weighted(to: &mut Rebuilt, id: ValueId, all: &[ByPairs]) -> Result<Option<(ValueId, ValueId)>> {
    let Op::Binary { f: Binary::Mul, x, y } = to.value(id).op else { return Ok(None) };
    let Some(own) = all.iter().find(|own| [x, y].contains(&own.share)) else { return Ok(None) };
    let rows = if own.share == x { y } else { x };
    Ok(Some((to.builder.binary(Binary::Mul, rows, own.exponential)?, own.scale)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use headwater_graph::random::Key;

    use super::*;
    use crate::inter::{Shape, evaluate};
    use crate::testing::{Recipe, numbers};

    /// Large scores, and minus infinity for some of a pair's edges, or for all of them.
    #[test]
    fn shares_are_those_of_the_softmax() {
        let relations = vec![(0, 0), (1, 0), (0, 1)];
        let graph = Recipe { nodes: vec![(7, 7), (5, 5)], relations, most_edges: 6, empty_every: 9 }.graph(3);
        let mut b = Builder::new("weighted");
        let (scores, rows) = (b.input("l", Domain::Edge, Shape::SCALAR), b.input("x", Domain::SRC, Shape::vector(3)));
        let share = b.softmax(scores, Domain::DST).unwrap();
        let rows = b.lift(rows, Domain::Edge).unwrap();
        let weighted = b.binary(Binary::Mul, rows, share).unwrap();
        let of_pairs = b.reduce(weighted, PAIR, Reduce::Sum).unwrap();
        let out = b.reduce(of_pairs, Domain::DST, Reduce::Sum).unwrap();
        b.output("out", out);
        b.output("share", share);
        let program = b.finish();
        let found = pair_softmax(&program).unwrap().unwrap();
        crate::inter::verify(&found).unwrap();
        let edges = graph.rows(Domain::Edge);
        let pair_of = graph.map(Domain::Edge, PAIR, Path::Only).unwrap();
        let is_masked = |edge: usize, masked: &str| match masked {
            "some" => edge.is_multiple_of(3),
            "pairs" => pair_of.get(edge).is_multiple_of(2),
            _ => false,
        };
        let node_of = graph.map(Domain::Edge, Domain::DST, Path::Only).unwrap();
        for masked in ["none", "some", "pairs"] {
            let scores = numbers(3, "l", edges).into_iter().enumerate();
            let scores = scores.map(|(edge, x)| if is_masked(edge, masked) { f64::NEG_INFINITY } else { 900.0 * x });
            let scores: Vec<f64> = scores.collect();
            let given = BTreeMap::from([
                ("x".to_owned(), numbers(3, "x", 3 * graph.rows(Domain::SRC))),
                ("l".to_owned(), scores.clone()),
            ]);
            let [wanted, own] = [&program, &found].map(|own| evaluate(own, &graph, Key::new(1), &given).unwrap());
            // Of nodes that have other scores than minus infinity.
            let has_any = |node: usize| (0..edges).any(|at| node_of.get(at) == node && scores[at].is_finite());
            let is_meant = |name: &str, at: usize| has_any(if name == "share" { node_of.get(at) } else { at / 3 });
            let mut compared = 0;
            for (name, wanted) in &wanted {
                let pairs = wanted.iter().zip(&own[name]).enumerate().filter(|(at, _)| is_meant(name, *at));
                for (at, (a, b)) in pairs {
                    assert!((a - b).abs() < 1e-12, "{masked}: {name}[{at}] is {b}, by definition {a}");
                    compared += 1;
                }
            }
            assert!(compared > edges / 2, "{masked}: {compared}");
        }
    }
}
