//! Reads counted in batches that were drawn for it.
//!
//! The surest way to know what a run reads is to draw some of its batches. A few of them find the nodes that are read often;
//! those read rarely are not told apart, so counts are best where hot rows are few.

use std::sync::atomic::{AtomicU32, Ordering};

use headwater_cuda::Stream;
use headwater_tensor::parallel;

use super::NodeScores;
use crate::error::Result;
use crate::graph::Graph;
use crate::progress::Progress;
use crate::random::Key;
use crate::sample::{GpuNeighbourSampler, NeighbourSampler, Seeds};
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
/// `key.of(at)`. Progress is counted in batches.
pub fn count_reads(
    sampler: &NeighbourSampler,
    batches: &[Seeds<'_>],
    key: Key,
    progress: &dyn Progress,
) -> Result<Reads> {
    let mut counter = Counter::new(sampler.graph());
    counter.add(sampler, batches, key, progress)?;
    Ok(counter.reads())
}

/// As [`count_reads`], drawn by a GPU one batch after the other: the same counts.
pub fn count_reads_on(
    sampler: &GpuNeighbourSampler,
    stream: &Stream,
    batches: &[Seeds<'_>],
    key: Key,
    progress: &dyn Progress,
) -> Result<Reads> {
    let mut counter = Counter::new(sampler.placed().graph());
    counter.add_on(sampler, stream, batches, key, progress)?;
    Ok(counter.reads())
}

/// Counts that grow.
#[derive(Debug)]
pub(super) struct Counter {
    counts: Vec<Vec<AtomicU32>>,
    batches: u64,
    nodes: u64,
}

impl Counter {
    pub(super) fn new(graph: &Graph) -> Self {
        let zeros = |count: u64| (0..index(count)).map(|_| AtomicU32::new(0)).collect();
        let counts = graph.schema().node_types().iter().map(|node_type| zeros(node_type.count)).collect();
        Self { counts, batches: 0, nodes: 0 }
    }

    pub(super) fn add(
        &mut self,
        sampler: &NeighbourSampler,
        batches: &[Seeds<'_>],
        key: Key,
        progress: &dyn Progress,
    ) -> Result<()> {
        let one = |at: usize| -> Result<u64> {
            let sample = sampler.sample_alone(batches[at], key.of(at as u64))?;
            sample.nodes.iter().zip(&self.counts).for_each(|(nodes, counts)| count(&nodes.ids, counts));
            progress.advance(1);
            Ok(sample.node_count() as u64)
        };
        self.nodes += parallel::try_collect(batches.len(), one)?.iter().sum::<u64>();
        self.batches += batches.len() as u64;
        Ok(())
    }

    pub(super) fn add_on(
        &mut self,
        sampler: &GpuNeighbourSampler,
        stream: &Stream,
        batches: &[Seeds<'_>],
        key: Key,
        progress: &dyn Progress,
    ) -> Result<()> {
        for (at, seeds) in batches.iter().enumerate() {
            let nodes = sampler.sample(stream, *seeds, key.of(at as u64))?.node_ids()?;
            nodes.iter().zip(&self.counts).for_each(|(ids, counts)| count(ids, counts));
            self.nodes += nodes.iter().map(|ids| ids.len() as u64).sum::<u64>();
            progress.advance(1);
        }
        self.batches += batches.len() as u64;
        Ok(())
    }

    pub(super) fn reads(self) -> Reads {
        let whole = |counts: Vec<AtomicU32>| counts.into_iter().map(|count| u64::from(count.into_inner())).collect();
        let counts = self.counts.into_iter().map(whole).collect();
        Reads { counts, batches: self.batches, nodes: self.nodes }
    }
}

fn count(ids: &[u64], counts: &[AtomicU32]) {
    ids.iter().for_each(|&id| {
        counts[index(id)].fetch_add(1, Ordering::Relaxed);
    });
}
