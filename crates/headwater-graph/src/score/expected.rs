//! How often a node is expected in a batch, worked out hop by hop.
//!
//! A row of degree d that is asked for k neighbours gives each with chance k / d, or 1: certainly. A node is missed by a hop
//! if every row it stands in misses it. Rows are taken as independent of each other, so the chances to be missed are
//! multiplied: their logarithms are what nodes pull, and a draw that is certain has one that leaves no chance to be missed.
//! A node is asked in the hop after it was found first.
//!
//! Two things are not independent, and both count where graphs are of use:
//! - In a graph whose edges go both ways a row that was found over an edge hands some of its draws back over it. A node that
//!   is not in the batch yet found none of its rows, so its own part in their being asked is taken away (`returns.rs`).
//! - Seeds of a batch are drawn without replacement: where they are few, how many rows of a node are seeds is not free. With
//!   B seeds that each draw the node with chance x / B it is missed with (1 - x / B)^B; the smaller of the two counts, as
//!   both are bounds from above.
//!
//! This knows the fan-outs, the batch size and the training nodes, which no PageRank does, and gives numbers of reads and
//! not only an order.

use headwater_tensor::parallel::{self, PIECE};

use super::NodeScores;
use super::pull::{Outgoing, Passes};
use crate::error::{Error, Result};
use crate::sample::{Bias, Fanout, Replacement, SampleOptions, Trees};

/// What is pulled are whole multiples of 2^-32.
const DRAW_UNIT: f32 = (1u64 << 32) as f32;
/// Minus the logarithm of the chance to be missed by a row that draws a node for certain: no float of 32 bits tells what is
/// left from 0, and the sum over a hundred million of such rows still fits.
const CERTAIN: f32 = 20.0;
/// Chances above this are taken for it where they are divided by what is left to 1.
const MOST_CHANCE: f32 = 0.75;
/// With more seeds a batch, drawing them with or without replacement is the same.
const FEW_SEEDS: f64 = 256.0;
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
    let options = expected.options;
    options.check_hops(graph.relation_count())?;
    if options.bias != Bias::Uniform || options.trees != Trees::Shared {
        return Err(Error::Options { why: "expected reads are of uniform draws and of trees that share nodes" });
    }
    let training: usize = expected.train.iter().map(|ids| ids.len()).sum();
    let batches = training.div_ceil(expected.batch.max(1)).max(1) as f64;
    let seeds = seed_chances(graph, expected.train, batches)?;
    let unknown = |seeds: &Vec<f32>| parallel::map(seeds, |seed| 1.0 - seed);
    let mut chances = Chances {
        unknown: seeds.iter().map(unknown).collect(),
        before: Vec::new(),
        fresh: seeds,
        batch_seeds: training as f64 / batches,
    };
    let mut passes = graph.passes();
    for hop in 0..options.fanouts.len() {
        chances.advance(graph, &mut passes, options, hop)?;
    }
    let reads =
        |unknown: &Vec<f32>| parallel::map(unknown, |&unknown| whole_reads((1.0 - f64::from(unknown)) * batches));
    Ok(graph.as_given(chances.unknown.iter().map(reads).collect()))
}

/// Chances of nodes between two hops, a list a node type.
struct Chances {
    /// That a node is not in the batch.
    unknown: Vec<Vec<f32>>,
    /// That the last hop brought it, and the hop before; the latter is empty before the second hop.
    fresh: Vec<Vec<f32>>,
    before: Vec<Vec<f32>>,
    /// Seeds a batch, on average.
    batch_seeds: f64,
}

impl Chances {
    /// One hop.
    fn advance(
        &mut self,
        graph: &Outgoing,
        passes: &mut Passes<'_>,
        options: &SampleOptions,
        hop: usize,
    ) -> Result<()> {
        let drawn = |relation: usize, target: usize, out: &mut [f32], of: fn(f32) -> f32| {
            let chance = |(fresh, degree): (&f32, &u64)| of(fresh * draw_chance(options, hop, relation, *degree));
            let (fresh, degrees) = (&self.fresh[target], graph.in_degrees(relation));
            parallel::for_parts(out, PIECE, &|start, out| {
                let rows = fresh[start..].iter().zip(&degrees[start..]);
                out.iter_mut().zip(rows).for_each(|(out, row)| *out = chance(row) * DRAW_UNIT);
            });
        };
        let missed = passes.pull(|relation, target, out| drawn(relation, target, out, missing))?;
        let mut missed: Vec<Vec<f64>> = missed.iter().map(|sums| in_units(sums)).collect();
        self.take_returns(graph, passes, options, hop, &mut missed)?;
        let few = self.before.is_empty() && self.batch_seeds < FEW_SEEDS;
        let draws = |relation: usize, target: usize, out: &mut [f32]| drawn(relation, target, out, |chance| chance);
        let draws = if few { Some(passes.pull(draws)?) } else { None };
        let seeds = self.batch_seeds;
        let mut fresh = Vec::with_capacity(self.unknown.len());
        for (node_type, (unknown, missed)) in self.unknown.iter_mut().zip(&missed).enumerate() {
            let draws = draws.as_ref().map(|draws| draws[node_type].as_slice());
            #[expect(clippy::cast_possible_truncation, reason = "chances are kept in 32 bits")]
            let left = |at: usize| {
                let unknown = unknown[at];
                let mut left = f64::from(unknown) * (-missed[at]).exp();
                if let Some(draws) = draws {
                    let own = in_unit(draws[at]) + (1.0 - f64::from(unknown));
                    left = left.min((1.0 - own / seeds).max(0.0).powf(seeds));
                }
                (left as f32).clamp(0.0, unknown)
            };
            let left: Vec<f32> = parallel::tabulate(unknown.len(), left);
            fresh.push(parallel::tabulate(unknown.len(), |at| unknown[at] - left[at]));
            *unknown = left;
        }
        self.before = std::mem::replace(&mut self.fresh, fresh);
        Ok(())
    }

    /// Takes from what nodes pulled in a hop after the first what they get back of their own draws of the hop before.
    fn take_returns(
        &self,
        graph: &Outgoing,
        passes: &mut Passes<'_>,
        options: &SampleOptions,
        hop: usize,
        missed: &mut [Vec<f64>],
    ) -> Result<()> {
        if self.before.is_empty() {
            return Ok(());
        }
        for relation in 0..graph.relation_count() {
            let Some((back, share)) = graph.returns(relation) else { continue };
            // How much less a row hands on for each bit of what made it fresh.
            let slopes = |relation: usize, target: usize, out: &mut [f32]| {
                let (fresh, unknown) = (&self.fresh[target], &self.unknown[target]);
                let degrees = graph.in_degrees(relation);
                parallel::for_parts(out, PIECE, &|start, out| {
                    for (out, at) in out.iter_mut().zip(start..) {
                        let chance = draw_chance(options, hop, relation, degrees[at]);
                        let caught = (fresh[at] * chance).min(MOST_CHANCE);
                        *out = share * chance * unknown[at] / (1.0 - caught) * DRAW_UNIT;
                    }
                });
            };
            let sums = passes.pull_over(relation..relation + 1, slopes)?;
            let source = graph.source(relation);
            let (sums, before, degrees) = (&sums[source], &self.before[source], graph.in_degrees(back));
            let own = |at: usize| missing(before[at] * draw_chance(options, hop - 1, back, degrees[at]));
            parallel::for_parts(&mut missed[source], PIECE, &|start, missed| {
                for (missed, at) in missed.iter_mut().zip(start..) {
                    *missed = (*missed - in_unit(sums[at]) * f64::from(own(at))).max(0.0);
                }
            });
        }
        Ok(())
    }
}

/// The chance that a row of this degree, once asked, draws a certain one of its neighbours.
fn draw_chance(options: &SampleOptions, hop: usize, relation: usize, degree: u64) -> f32 {
    let fanout = options.fanout(hop, relation);
    if degree == 0 {
        return 0.0;
    }
    match (options.replacement, fanout) {
        (Replacement::With, Fanout::Most(most)) => 1.0 - (1.0 - 1.0 / degree as f32).powf(most as f32),
        _ => fanout.of(degree) as f32 / degree as f32,
    }
}

/// Minus the logarithm of the chance that a row misses a node that it draws with this chance.
fn missing(chance: f32) -> f32 {
    (-(-chance).ln_1p()).min(CERTAIN)
}

fn in_unit(sum: u64) -> f64 {
    sum as f64 / f64::from(DRAW_UNIT)
}

fn in_units(sums: &[u64]) -> Vec<f64> {
    parallel::map(sums, |sum| in_unit(*sum))
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

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, at most the batches")]
fn whole_reads(reads: f64) -> u64 {
    (reads * f64::from(1u32 << READ_UNIT_LOG2)) as u64
}
