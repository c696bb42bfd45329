//! The run whose reads are to be told: a graph, its training nodes, and how batches are drawn.
//!
//! Every training node is a seed once an epoch, in an order of chance. Batches that a score was made from say nothing about
//! how well it predicts, so batches are drawn for a purpose, and those of two purposes have no draw in common.

use headwater_cuda::Stream;
use headwater_tensor::parallel;
use rayon::prelude::*;

use super::count::{Counter, Reads};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::placed::PlacedGraph;
use crate::progress::Progress;
use crate::random::Key;
use crate::reorder::low;
use crate::sample::{EdgeIds, GpuNeighbourSampler, NeighbourSampler, SampleOptions, Seeds};

/// Bounds of how many batches are drawn where nobody says.
const FEWEST_BATCHES: u64 = 16;
const MOST_BATCHES: u64 = 64;

/// How batches are made.
#[derive(Debug, Clone)]
pub struct Training {
    /// One list a node type; each node is a seed once an epoch.
    pub train: Vec<Vec<u64>>,
    /// Seeds a batch.
    pub batch: usize,
    /// Hops and fan-outs.
    pub options: SampleOptions,
    /// What all draws follow from.
    pub seed: u64,
}

/// What batches are drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To score nodes by.
    Scoring,
    /// To say how much of a run a score will serve.
    Forecast,
    /// To see whether that was right.
    Measurement,
}

/// A run that has not begun.
#[derive(Debug)]
pub struct Workload {
    sampler: NeighbourSampler,
    training: Training,
    gpu: Option<Drawer>,
}

/// A GPU that draws batches.
#[derive(Debug)]
struct Drawer {
    sampler: GpuNeighbourSampler,
    stream: Stream,
}

/// Seeds of one type.
struct Batch {
    node_type: usize,
    nodes: Vec<u64>,
}

impl Batch {
    fn seeds(&self) -> Seeds<'_> {
        Seeds { node_type: self.node_type, nodes: &self.nodes, times: None }
    }
}

impl Workload {
    /// Fails when there is nothing to train on, or when the graph cannot be sampled this way.
    pub fn new(graph: Graph, training: Training) -> Result<Self> {
        if training.batch == 0 {
            return Err(Error::Parameter { name: "seeds a batch", value: 0.0, expected: "at least 1" });
        }
        let types = graph.schema().node_types();
        let (found, expected) = (training.train.len() as u64, types.len() as u64);
        if found != expected {
            return Err(Error::Length { name: "lists of training nodes", found, expected, of: "the node types" });
        }
        for (ids, node_type) in training.train.iter().zip(types) {
            if let Some(at) = ids.iter().position(|&id| id >= node_type.count) {
                let (position, id, limit) = (at as u64, ids[at], node_type.count);
                return Err(Error::IdOutOfRange { name: "training nodes", position, id, limit });
            }
        }
        if training.train.iter().all(Vec::is_empty) {
            return Err(Error::Options { why: "there are no training nodes, so batches have nowhere to begin" });
        }
        let sampler = NeighbourSampler::new(graph, nodes_alone(&training.options))?;
        Ok(Self { sampler, training, gpu: None })
    }

    /// The same run, its batches drawn by a GPU: the same batches. `placed` is the run's graph.
    pub fn on_gpu(self, placed: &PlacedGraph, stream: &Stream) -> Result<Self> {
        placed.check_stream(stream)?;
        let sampler = GpuNeighbourSampler::new(placed.clone(), nodes_alone(&self.training.options))?;
        Ok(Self { gpu: Some(Drawer { sampler, stream: stream.clone() }), ..self })
    }

    /// The same run with other hops.
    pub fn with_options(&self, options: SampleOptions) -> Result<Self> {
        let run = Self::new(self.graph().clone(), Training { options, ..self.training.clone() })?;
        match &self.gpu {
            Some(Drawer { sampler, stream }) => run.on_gpu(sampler.placed(), stream),
            None => Ok(run),
        }
    }

    /// The graph.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        self.sampler.graph()
    }

    /// Training nodes, one list a node type.
    #[must_use]
    pub fn train(&self) -> Vec<&[u64]> {
        self.training.train.iter().map(Vec::as_slice).collect()
    }

    /// Seeds a batch.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.training.batch
    }

    /// Hops and fan-outs.
    #[must_use]
    pub fn options(&self) -> &SampleOptions {
        &self.training.options
    }

    /// Batches of an epoch. A batch has seeds of one type.
    #[must_use]
    pub fn batches_per_epoch(&self) -> u64 {
        self.training.train.iter().map(|ids| ids.len().div_ceil(self.batch()) as u64).sum()
    }

    /// Batches that are drawn where nobody says how many: an epoch, within bounds.
    #[must_use]
    pub fn usual_batches(&self) -> u64 {
        self.batches_per_epoch().clamp(FEWEST_BATCHES, MOST_BATCHES)
    }

    /// Draws `batches` batches, epoch after epoch, and counts what they read.
    pub fn reads(&self, purpose: Purpose, batches: u64, progress: &dyn Progress) -> Result<Reads> {
        progress.begin("drawing batches", batches);
        let key = Key::new(self.training.seed).of(purpose as u64);
        let mut counter = Counter::new(self.graph());
        let (mut left, mut epoch) = (batches, 0);
        while left > 0 {
            let mut drawn = self.epoch(key.of(epoch));
            drawn.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            let seeds: Vec<Seeds<'_>> = drawn.iter().map(Batch::seeds).collect();
            match &self.gpu {
                Some(gpu) => counter.add_on(&gpu.sampler, &gpu.stream, &seeds, key.of(epoch), progress)?,
                None => counter.add(&self.sampler, &seeds, key.of(epoch), progress)?,
            }
            left -= drawn.len() as u64;
            epoch += 1;
        }
        Ok(counter.reads())
    }

    /// The batches of an epoch, those of all types mixed.
    fn epoch(&self, key: Key) -> Vec<Batch> {
        let of_type = |(node_type, ids): (usize, &Vec<u64>)| {
            let shuffled = shuffled(ids, key.of(node_type as u64));
            let batch = |nodes: &[u64]| Batch { node_type, nodes: nodes.to_vec() };
            shuffled.chunks(self.batch()).map(batch).collect::<Vec<_>>()
        };
        let mut batches: Vec<Batch> = self.training.train.iter().enumerate().flat_map(of_type).collect();
        if self.training.train.iter().filter(|ids| !ids.is_empty()).count() > 1 {
            let mut at = 0;
            batches.sort_by_cached_key(|_| {
                at += 1;
                key.draw(at)
            });
        }
        batches
    }
}

/// Nobody looks at the edges.
fn nodes_alone(options: &SampleOptions) -> SampleOptions {
    SampleOptions { edge_ids: EdgeIds::Dropped, ..options.clone() }
}

fn shuffled(ids: &[u64], key: Key) -> Vec<u64> {
    // A pair as one number: the draw, and below it the id.
    let pair = |at: usize| u128::from(key.draw(at as u64)) << 64 | u128::from(ids[at]);
    let mut keyed = parallel::tabulate(ids.len(), pair);
    keyed.par_sort_unstable();
    keyed.into_iter().map(low).collect()
}
