//! How often a node is expected in a batch, worked out hop by hop.
//!
//! A row of degree d that is asked for k neighbours gives each with chance k / d, or 1. So the draws a node can expect in
//! the next hop are the sum over the rows it stands in of the chance that the row is asked times that; and draws that are
//! spread over many rows arrive as rare events do, so the chance of at least one among x expected ones is 1 - exp(-x). A
//! node is asked in the hop after it was found first. This knows the fan-outs, the batch size and the training nodes, which
//! no PageRank does, and gives numbers of reads and not only an order.

use rayon::prelude::*;

use super::NodeScores;
use super::pull::Outgoing;
use crate::error::{Error, Result};
use crate::sample::SampleOptions;

/// Draws are whole multiples of 2^-32.
const DRAW_UNIT: f32 = (1u64 << 32) as f32;
/// Reads are whole multiples of 2^-20 of a read an epoch.
const READ_UNIT_LOG2: u8 = 20;
/// One of them.
pub(super) const UNIT: f64 = 1.0 / (1u64 << READ_UNIT_LOG2) as f64;

/// What batches are like.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// One list a node type; each entry is a seed once an epoch, and no node stands in it twice.
    pub train: &'a [&'a [u64]],
    /// Seeds a batch.
    pub batch: usize,
    /// Hops and fan-outs.
    pub options: &'a SampleOptions,
}

/// Expected reads of every node in an epoch, in units of 2^-20. `graph` is made by [`Outgoing::of_sampling`].
pub fn expected_reads(graph: &Outgoing, expected: &Expected<'_>) -> Result<NodeScores> {
    if !graph.follows_sampling {
        return Err(Error::Options { why: "lists by source are sampled from sources: use Outgoing::of_sampling" });
    }
    expected.options.check_hops(graph.relation_count())?;
    let training: usize = expected.train.iter().map(|ids| ids.len()).sum();
    let batches = training.div_ceil(expected.batch.max(1)).max(1) as f64;
    let seeds = seed_chances(graph, expected.train, batches)?;
    // The chance that a node is in the batch, and that the last hop brought it.
    let (mut known, mut fresh) = (seeds.clone(), seeds);
    let mut passes = graph.passes();
    for hop in 0..expected.options.fanouts.len() {
        let chances = |relation: usize, target: usize, chances: &mut [f32]| {
            let fanout = expected.options.fanout(hop, relation);
            let of = |(fresh, &degree): (&f32, &u64)| fresh * fanout.of(degree) as f32 / degree.max(1) as f32;
            let targets = fresh[target].par_iter().zip(graph.in_degrees(relation));
            chances.par_iter_mut().zip(targets).for_each(|(chance, target)| *chance = of(target) * DRAW_UNIT);
        };
        let draws = passes.pull(chances)?;
        for ((known, fresh), draws) in known.iter_mut().zip(&mut fresh).zip(draws) {
            known.par_iter_mut().zip(fresh).zip(&*draws).for_each(|((known, fresh), &draws)| {
                *fresh = (1.0 - *known) * at_least_one(draws);
                *known += *fresh;
            });
        }
    }
    let reads = |known: &Vec<f32>| known.par_iter().map(|&known| whole_reads(f64::from(known) * batches)).collect();
    Ok(graph.as_given(known.iter().map(reads).collect()))
}

fn seed_chances(graph: &Outgoing, train: &[&[u64]], batches: f64) -> Result<Vec<Vec<f32>>> {
    let mut chances: Vec<Vec<f32>> = graph.counts.iter().map(|&count| vec![0.0; count]).collect();
    let (found, expected) = (train.len() as u64, chances.len() as u64);
    if found != expected {
        return Err(Error::Length { name: "lists of training nodes", found, expected, of: "the node types" });
    }
    #[expect(clippy::cast_possible_truncation, reason = "chances are kept in 32 bits")]
    let chance = (1.0 / batches) as f32;
    for (node_type, (chances, ids)) in chances.iter_mut().zip(train).enumerate() {
        let limit = chances.len() as u64;
        for (position, &id) in ids.iter().enumerate() {
            if id >= limit {
                return Err(Error::IdOutOfRange { name: "training nodes", position: position as u64, id, limit });
            }
            chances[graph.number(node_type, id)] = chance;
        }
    }
    Ok(chances)
}

fn at_least_one(draws: u64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "chances are kept in 32 bits")]
    let chance = -(-(draws as f64) / f64::from(DRAW_UNIT)).exp_m1() as f32;
    chance
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, at most the batches")]
fn whole_reads(reads: f64) -> u64 {
    (reads * f64::from(1u32 << READ_UNIT_LOG2)) as u64
}
