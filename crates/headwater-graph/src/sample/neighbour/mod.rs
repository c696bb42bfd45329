//! The neighbour sampler on the CPU.
//!
//! A row costs two cache misses (its offsets, its list) and an edge one more (the table of known nodes), and all of them
//! are known ahead. So rows go through in small groups: offsets are asked for a group ahead, lists as soon as positions
//! are drawn, table slots as soon as neighbours are read.
//!
//! Drawing ([`draw`]) depends on nothing that is drawn. Numbering the nodes by first sight does: one thread does it as it
//! draws ([`settle`]), several do it in shards of the nodes ([`together`]). Both give the same sample.

mod batch;
mod draw;
mod part;
mod settle;
mod shard;
mod together;

use std::sync::{Mutex, PoisonError};

use super::exclude::Excluded;
use super::index::Entry;
use super::options::{SampleOptions, Trees};
use super::output::Sample;
use super::seeds::Seeds;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::random::Key;
use batch::{Batch, Request, Working};

/// Working memory that is kept for the next batches.
const MOST_KEPT: usize = 64;

/// Draws neighbourhoods out of a graph in host memory. Shared by any number of threads.
#[derive(Debug)]
pub struct NeighbourSampler {
    graph: Graph,
    options: SampleOptions,
    /// Working memory between batches, bounded by `MOST_KEPT`.
    kept: Mutex<Vec<Memory>>,
}

impl NeighbourSampler {
    /// Fails when the graph cannot be sampled this way.
    pub fn new(graph: Graph, options: SampleOptions) -> Result<Self> {
        options.check(&graph)?;
        Ok(Self { graph, options, kept: Mutex::new(Vec::new()) })
    }

    /// The graph.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What was asked for.
    #[must_use]
    pub fn options(&self) -> &SampleOptions {
        &self.options
    }

    /// The neighbourhood of `seeds` under `key`, on the threads of the current pool where that pays.
    pub fn sample(&self, seeds: Seeds<'_>, key: Key) -> Result<Sample> {
        self.run(&[seeds], None, key, rayon::current_num_threads())
    }

    /// The neighbourhood of seeds of several types.
    pub fn sample_types(&self, seeds: &[Seeds<'_>], key: Key) -> Result<Sample> {
        self.run(seeds, None, key, rayon::current_num_threads())
    }

    /// As [`NeighbourSampler::sample_types`], without the edges that `excluded` names.
    pub fn sample_without(&self, seeds: &[Seeds<'_>], excluded: &Excluded, key: Key) -> Result<Sample> {
        self.run(seeds, Some(excluded), key, rayon::current_num_threads())
    }

    /// As [`NeighbourSampler::sample`], on this thread alone: what to use when many batches are drawn at once.
    pub fn sample_alone(&self, seeds: Seeds<'_>, key: Key) -> Result<Sample> {
        self.run(&[seeds], None, key, 1)
    }

    fn run(&self, seeds: &[Seeds<'_>], excluded: Option<&Excluded>, key: Key, threads: usize) -> Result<Sample> {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let request = Request { seeds, excluded, key, threads };
        let mut memory = kept().pop().unwrap_or_default();
        let sampled = if self.most_key(seeds)? <= u64::MOST {
            Batch::sample(self, &mut memory.narrow, &request)
        } else {
            Batch::sample(self, &mut memory.wide, &request)
        };
        if kept().len() < MOST_KEPT {
            kept().push(memory);
        }
        sampled
    }

    /// The largest key a node of any type can have.
    fn most_key(&self, seeds: &[Seeds<'_>]) -> Result<u64> {
        let trees = match self.options.trees {
            Trees::Shared => 1,
            Trees::Disjoint => seeds.iter().map(|seeds| seeds.nodes.len() as u64).sum::<u64>().max(1),
        };
        let nodes = self.graph.schema().node_types().iter().map(|node_type| node_type.count).max().unwrap_or(0);
        nodes.checked_mul(trees).filter(|most| *most < u64::MAX).ok_or(Error::TooManyTrees { nodes, trees })
    }
}

/// What batches work in.
#[derive(Debug, Default)]
struct Memory {
    narrow: Working<u64>,
    wide: Working<u128>,
}
