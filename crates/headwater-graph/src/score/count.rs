//! Reads counted in batches that were drawn for it.
//!
//! The surest way to know what a run reads is to draw some of its batches. A few of them find the nodes that are read often;
//! those read rarely are not told apart, so counts are best where hot rows are few.

use std::sync::atomic::{AtomicU32, Ordering};

use rayon::prelude::*;

use super::NodeScores;
use crate::error::Result;
use crate::random::Key;
use crate::sample::{NeighbourSampler, Sample, Seeds};
use crate::topology::index;

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reads {
    /// How often each node stood in a batch: once, unless it was a seed twice or trees are disjoint.
    pub counts: NodeScores,
    /// Batches.
    pub batches: u64,
    /// Nodes of all batches.
    pub nodes: u64,
}

/// Draws a batch for each list of seeds, several at a time, and counts the nodes in them. Batch `at` has the key
/// `key.of(at)`.
pub fn count_reads(sampler: &NeighbourSampler, batches: &[Seeds<'_>], key: Key) -> Result<Reads> {
    let types = sampler.graph().schema().node_types();
    let counts: Vec<Vec<AtomicU32>> =
        types.iter().map(|node_type| (0..index(node_type.count)).map(|_| AtomicU32::new(0)).collect()).collect();
    let count = |sample: &Sample| {
        for (nodes, counts) in sample.nodes.iter().zip(&counts) {
            nodes.ids.iter().for_each(|&id| {
                counts[index(id)].fetch_add(1, Ordering::Relaxed);
            });
        }
        sample.node_count() as u64
    };
    let one = |(at, seeds): (usize, &Seeds<'_>)| Ok(count(&sampler.sample_alone(*seeds, key.of(at as u64))?));
    let nodes = batches.par_iter().enumerate().map(one).sum::<Result<u64>>()?;
    let whole = |counts: Vec<AtomicU32>| counts.into_iter().map(|count| u64::from(count.into_inner())).collect();
    Ok(Reads { counts: counts.into_iter().map(whole).collect(), batches: batches.len() as u64, nodes })
}
