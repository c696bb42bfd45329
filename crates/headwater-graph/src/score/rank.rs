//! Reverse PageRank: a node is worth what the nodes it points at are worth to it.
//!
//! The data-tiering paper's second and third method. Each iteration a node hands its score on to the nodes that point at
//! it, in equal parts; then all scores are damped. With weight on the training nodes, where batches begin, and few
//! iterations, so that the weight is not forgotten, the order predicts well which nodes batches read.

use headwater_tensor::parallel::{self, PIECE};

use super::NodeScores;
use super::pull::{Outgoing, Passes};
use crate::error::{Error, Result};

/// Scores are whole multiples of 2^-60; all of them together are at most 2.
const UNIT_LOG2: u8 = 60;
/// One of them.
pub(super) const UNIT: f64 = 1.0 / (1u64 << UNIT_LOG2) as f64;

/// No score is as large.
const MARKED: u64 = u64::MAX;

/// How a rank is worked out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankOptions<'a> {
    /// Share of a score that is handed on, from 0 to 1.
    pub damping: f64,
    /// What scores begin with.
    pub start: Start<'a>,
    /// When it is enough.
    pub stop: Stop,
}

/// What scores begin with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Start<'a> {
    /// All alike: one over the number of nodes.
    Even,
    /// Training nodes have more, by the number of nodes over theirs. One list a node type.
    Weighted(&'a [&'a [u64]]),
}

/// When it is enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stop {
    /// After so many iterations.
    After(u32),
    /// When scores change by less than `tolerance` in all, or after `most` iterations.
    Converged {
        /// Sum of absolute changes.
        tolerance: f64,
        /// Iterations at most.
        most: u32,
    },
}

/// The share of a score that is handed on, as in the data-tiering paper.
pub const DAMPING: f64 = 0.85;

/// What of a rank may be other than published.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranking {
    /// Share of a score that is handed on, from 0 to 1.
    pub damping: f64,
    /// How many iterations there are, where that is not left to the kind of rank.
    pub iterations: Option<u32>,
}

impl Default for Ranking {
    fn default() -> Self {
        Self { damping: DAMPING, iterations: None }
    }
}

impl Ranking {
    /// A rank with this put in.
    #[must_use]
    pub fn over(self, options: RankOptions<'_>) -> RankOptions<'_> {
        let stop = self.iterations.map_or(options.stop, Stop::After);
        RankOptions { damping: self.damping, stop, ..options }
    }
}

impl<'a> RankOptions<'a> {
    /// The paper's weighted reverse PageRank: five iterations.
    #[must_use]
    pub fn weighted(train: &'a [&'a [u64]]) -> Self {
        Self { damping: DAMPING, start: Start::Weighted(train), stop: Stop::After(5) }
    }

    /// The paper's reverse PageRank: until nothing changes any more.
    #[must_use]
    pub fn converged() -> Self {
        Self { damping: DAMPING, start: Start::Even, stop: Stop::Converged { tolerance: 1e-6, most: 100 } }
    }
}

/// The rank of every node, in units of 2^-60.
pub fn reverse_pagerank(graph: &Outgoing, options: &RankOptions<'_>) -> Result<NodeScores> {
    if !(0.0..=1.0).contains(&options.damping) {
        return Err(Error::Parameter { name: "damping", value: options.damping, expected: "from 0 to 1" });
    }
    let mut scores = begin(graph, options.start)?;
    let (parts, mut passes) = (parts(&graph.all_in_degrees()), graph.passes());
    let (most, tolerance) = match options.stop {
        Stop::After(iterations) => (iterations, None),
        Stop::Converged { tolerance, most } => (most, Some(tolerance)),
    };
    for _ in 0..most {
        let next = iterate(&mut passes, &parts, &scores, options.damping)?;
        let is_still = tolerance.is_some_and(|tolerance| change(&scores, next) < tolerance);
        std::mem::swap(&mut scores, next);
        if is_still {
            break;
        }
    }
    Ok(graph.as_given(scores))
}

fn begin(graph: &Outgoing, start: Start<'_>) -> Result<NodeScores> {
    let nodes = graph.nodes() as f64;
    let mut scores: NodeScores = graph.counts.iter().map(|&count| vec![whole(1.0 / nodes); count]).collect();
    let Start::Weighted(train) = start else { return Ok(scores) };
    let (found, expected) = (train.len() as u64, scores.len() as u64);
    if found != expected {
        return Err(Error::Length { name: "lists of training nodes", found, expected, of: "the node types" });
    }
    // A node that is listed twice is one training node.
    let mut training = 0;
    for (node_type, (scores, ids)) in scores.iter_mut().zip(train).enumerate() {
        let limit = scores.len() as u64;
        for (position, &id) in ids.iter().enumerate() {
            if id >= limit {
                return Err(Error::IdOutOfRange { name: "training nodes", position: position as u64, id, limit });
            }
            let score = &mut scores[graph.number(node_type, id)];
            training += usize::from(*score != MARKED);
            *score = MARKED;
        }
    }
    // 1 / N times N / |train|.
    let weighted = whole(1.0 / training.max(1) as f64);
    let marked = scores.iter_mut().flatten().filter(|score| **score == MARKED);
    marked.for_each(|score| *score = weighted);
    Ok(scores)
}

/// The part of its score that each node hands on over one edge. A node that nothing points at hands nothing on.
fn parts(in_degrees: &NodeScores) -> Vec<Vec<f64>> {
    let part = |degree: &u64| if *degree == 0 { 0.0 } else { 1.0 / *degree as f64 };
    in_degrees.iter().map(|degrees| parallel::map(degrees, part)).collect()
}

fn iterate<'a>(
    passes: &'a mut Passes<'_>,
    parts: &[Vec<f64>],
    scores: &NodeScores,
    damping: f64,
) -> Result<&'a mut NodeScores> {
    let shares = |_: usize, target: usize, shares: &mut [f32]| {
        #[expect(clippy::cast_possible_truncation, reason = "shares are kept in 32 bits")]
        let share = |(score, part): (&u64, &f64)| (*score as f64 * part) as f32;
        parallel::for_parts(shares, PIECE, &|start, shares| {
            let of = scores[target][start..].iter().zip(&parts[target][start..]);
            shares.iter_mut().zip(of).for_each(|(to, of)| *to = share(of));
        });
    };
    let nodes: usize = scores.iter().map(Vec::len).sum();
    let (rest, damping) = (whole((1.0 - damping) / nodes.max(1) as f64), whole(damping));
    let sums = passes.pull(shares)?;
    for sums in &mut *sums {
        parallel::for_parts(sums, PIECE, &|_, sums| {
            sums.iter_mut().for_each(|sum| *sum = rest + times(*sum, damping));
        });
    }
    Ok(sums)
}

/// The product of two numbers in units. Whole numbers are several times faster here than floats and back.
#[expect(clippy::cast_possible_truncation, reason = "one is at most 1, and the other is a score")]
fn times(one: u64, other: u64) -> u64 {
    ((u128::from(one) * u128::from(other)) >> UNIT_LOG2) as u64
}

fn change(before: &NodeScores, after: &NodeScores) -> f64 {
    // Whole numbers again, so that the sum does not depend on its order.
    let of = |(before, after): (&Vec<u64>, &Vec<u64>)| -> u64 {
        let one = |(before, after): (&u64, &u64)| before.abs_diff(*after);
        parallel::sum(before.len(), PIECE, &|range| before[range.clone()].iter().zip(&after[range]).map(one).sum())
    };
    value(before.iter().zip(after).map(of).sum())
}

fn value(whole: u64) -> f64 {
    whole as f64 / (1u64 << UNIT_LOG2) as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 2 by construction")]
fn whole(value: f64) -> u64 {
    (value * (1u64 << UNIT_LOG2) as f64) as u64
}
