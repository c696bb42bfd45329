//! Batches as training would draw them, by a GPU where there is one.

use anyhow::Context;
use headwater::cuda::{Gpu, Stream};
use headwater::graph::generate::Bijection;
use headwater::graph::random::Key;
use headwater::graph::sample::{EdgeIds, GpuNeighbourSampler, NeighbourSampler, Sample, SampleOptions, Seeds};
use headwater::graph::score::Workload;
use headwater::graph::{PlacedGraph, Progress, Storage, Wish};
use rayon::prelude::*;

use crate::progress::Bar;

/// The purposes of a workload have the keys below this one.
const BENCH: u64 = 16;

/// The nodes that batches read.
pub struct Drawn {
    /// Ids of the table's type, one list a batch.
    pub nodes: Vec<Vec<u64>>,
    /// Who drew them, in words.
    pub by: String,
}

/// Batches to draw.
pub struct Draw<'a> {
    pub run: &'a Workload,
    /// The type that seeds are of.
    pub seed_type: usize,
    /// The type whose nodes are kept.
    pub table_type: usize,
    pub batches: u64,
    pub seed: u64,
}

impl Draw<'_> {
    /// Draws them. Scores and forecasts have other draws.
    pub fn draw(&self, gpu: Option<&Gpu>, bar: &Bar) -> anyhow::Result<Drawn> {
        bar.begin("drawing batches", self.batches);
        let options = SampleOptions { edge_ids: EdgeIds::Dropped, ..self.run.options().clone() };
        let placed = PlacedGraph::new(self.run.graph(), Wish::Auto, gpu).context("placing the graph")?;
        match gpu {
            Some(gpu) if placed.storage() != Storage::Cpu => {
                let by = format!("{}, graph in {} storage", gpu.facts().name, placed.storage());
                let nodes = self.on_gpu(&GpuNeighbourSampler::new(placed, options)?, &Stream::new(gpu)?, bar)?;
                Ok(Drawn { nodes, by })
            }
            _ => {
                let sampler = NeighbourSampler::new(self.run.graph().clone(), options)?;
                Ok(Drawn { nodes: self.on_cpu(&sampler, bar)?, by: "CPU threads".to_owned() })
            }
        }
    }

    fn on_gpu(&self, sampler: &GpuNeighbourSampler, stream: &Stream, bar: &Bar) -> anyhow::Result<Vec<Vec<u64>>> {
        let sample = |seeds: Seeds<'_>, key| sampler.sample(stream, seeds, key)?.to_host();
        (0..self.batches).map(|at| self.one(at, sample, bar)).collect()
    }

    fn on_cpu(&self, sampler: &NeighbourSampler, bar: &Bar) -> anyhow::Result<Vec<Vec<u64>>> {
        let sample = |seeds: Seeds<'_>, key| sampler.sample_alone(seeds, key);
        (0..self.batches).into_par_iter().map(|at| self.one(at, sample, bar)).collect()
    }

    /// The nodes of one batch.
    fn one(
        &self,
        at: u64,
        sample: impl Fn(Seeds<'_>, Key) -> headwater::graph::Result<Sample>,
        bar: &Bar,
    ) -> anyhow::Result<Vec<u64>> {
        let nodes = self.seeds(at);
        let seeds = Seeds { node_type: self.seed_type, nodes: &nodes, times: None };
        let mut drawn = sample(seeds, self.key().of(at))?;
        bar.advance(1);
        Ok(std::mem::take(&mut drawn.nodes[self.table_type].ids))
    }

    fn key(&self) -> Key {
        Key::new(self.seed).of(BENCH)
    }

    /// The seeds of a batch: every epoch shuffles the training nodes anew.
    fn seeds(&self, batch: u64) -> Vec<u64> {
        let train = self.run.train()[self.seed_type];
        let (count, size) = (train.len() as u64, self.run.batch() as u64);
        let per_epoch = count.div_ceil(size).max(1);
        let shuffle = Bijection::new(self.key().of(batch / per_epoch).of(u64::MAX), count);
        let first = batch % per_epoch * size;
        let node = |at: u64| train[usize::try_from(shuffle.forward(at)).unwrap_or(usize::MAX)];
        (first..count.min(first + size)).map(node).collect()
    }
}
