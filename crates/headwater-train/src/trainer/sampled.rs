//! Steps over batches of training nodes and what is sampled around them.

use std::time::Instant;

use headwater_compile::adjacency::Adjacency;
use headwater_compile::cpu::fast::Given;
use headwater_graph::generate::Bijection;
use headwater_graph::random::Key;
use headwater_graph::sample::{EdgeIds, NeighbourSampler, Sample, SampleOptions, Seeds};

use super::{Listener, SAMPLE, SHUFFLE, Seconds, Trainer};
use crate::blocks::{of_sample, scales};
use crate::error::Result;
use crate::layerwise::normalise;
use crate::loss::{self, Targets};
use crate::network::{Extras, Stage};

/// What a step runs on.
struct Batch {
    blocks: Vec<(Adjacency, Extras)>,
    sample: Sample,
    labels: Vec<i64>,
}

impl Trainer {
    /// All batches of an epoch that are not done yet.
    pub(super) fn sampled_epoch(&mut self, listener: &dyn Listener) -> Result<Option<(f64, Seconds)>> {
        let options = SampleOptions { edge_ids: EdgeIds::Dropped, ..SampleOptions::fanouts(&self.config.fanout)? };
        let sampler = NeighbourSampler::new(self.task.graph.clone(), options)?;
        let batches = self.task.train.len().div_ceil(self.config.batch) as u64;
        let mut seconds = Seconds::default();
        while self.state.batch < batches {
            if listener.should_stop() {
                return Ok(None);
            }
            let begun = Instant::now();
            let batch = self.draw(&sampler)?;
            let sampled = Instant::now();
            let x = self.features_of(&batch.sample)?;
            let gathered = Instant::now();
            let loss = self.sampled_step(&batch, x)?;
            seconds.sample += (sampled - begun).as_secs_f64();
            seconds.gather += (gathered - sampled).as_secs_f64();
            seconds.compute += gathered.elapsed().as_secs_f64();
            self.state.losses += loss;
            self.state.batch += 1;
            listener.batch(self.state.batch, batches, loss);
        }
        Ok(Some((self.state.losses / batches.max(1) as f64, seconds)))
    }

    /// The batch that is next.
    fn draw(&self, sampler: &NeighbourSampler) -> Result<Batch> {
        let nodes = self.seeds();
        let key = Key::new(self.config.seed).of(SAMPLE).of(self.state.epoch).of(self.state.batch);
        let sample = sampler.sample(Seeds { node_type: self.task.node_type, nodes: &nodes, times: None }, key)?;
        let label = |node: &u64| self.task.labels[usize::try_from(*node).unwrap_or(usize::MAX)];
        let labels = nodes.iter().map(label).collect();
        let needs_scales = self.network.needs_scales();
        let mut blocks = Vec::new();
        for block in sample.blocks() {
            let graph = of_sample(&self.task.graph, &sample, &block, self.whole.loops)?;
            let extras = if needs_scales {
                scales(&self.degrees_of(&sample, &block.sources), &self.degrees_of(&sample, &block.targets), &graph)
            } else {
                Extras::new()
            };
            blocks.push((graph, extras));
        }
        Ok(Batch { blocks, sample, labels })
    }

    /// Every epoch shuffles the training nodes anew.
    fn seeds(&self) -> Vec<u64> {
        let (count, size) = (self.task.train.len() as u64, self.config.batch as u64);
        let shuffle = Bijection::new(Key::new(self.config.seed).of(SHUFFLE).of(self.state.epoch), count);
        let first = self.state.batch * size;
        let node = |at: u64| self.task.train[usize::try_from(shuffle.forward(at)).unwrap_or(usize::MAX)];
        (first..count.min(first + size)).map(node).collect()
    }

    fn degrees_of(&self, sample: &Sample, counts: &[usize]) -> Vec<f32> {
        let of_type = |(at, count): (usize, &usize)| {
            let degree = |node: &u64| self.whole.degrees[at][usize::try_from(*node).unwrap_or(usize::MAX)];
            sample.nodes[at].ids[..*count].iter().map(degree).collect::<Vec<_>>()
        };
        counts.iter().enumerate().flat_map(of_type).collect()
    }

    /// The features of all nodes of a sample.
    fn features_of(&mut self, sample: &Sample) -> Result<Option<Vec<f32>>> {
        let Some(width) = self.task.width else { return Ok(None) };
        let ids: Vec<&[u64]> = sample.nodes.iter().map(|nodes| nodes.ids.as_slice()).collect();
        let mut rows = self.network.take(sample.node_count() * width);
        self.task.gather(&ids, &mut rows)?;
        if self.config.normalise_features {
            normalise(&mut rows, width);
        }
        Ok(Some(rows))
    }

    fn sampled_step(&mut self, batch: &Batch, x: Option<Vec<f32>>) -> Result<f64> {
        let step = self.step_key();
        let stages: Vec<Stage<'_>> = batch.blocks.iter().map(|(graph, extras)| Stage { graph, extras }).collect();
        let lent = x.as_deref().map(Given::Dense);
        let trace = self.network.forward(&stages, lent, step)?;
        let columns = self.task.classes;
        // Seeds are of one type, so they are all that the last layer writes.
        let mut gradient = self.network.take(trace.outputs().len());
        let rows = loss::Rows { outputs: trace.outputs(), columns, targets: Targets::Classes(&batch.labels) };
        let found = self.config.loss.of(rows, &mut gradient)?;
        self.check_loss(found.mean)?;
        let gradients = self.network.backward(&stages, lent, trace, gradient)?;
        self.step(gradients)?;
        if let Some(rows) = x {
            self.network.give(rows);
        }
        Ok(found.mean)
    }
}
