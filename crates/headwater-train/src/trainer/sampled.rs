//! Steps over batches of training nodes and what is sampled around them.

use std::time::Instant;

use headwater_compile::adjacency::Adjacency;
use headwater_compile::pass::Statistics;
use headwater_graph::generate::Bijection;
use headwater_graph::random::Key;
use headwater_graph::sample::{EdgeIds, NeighbourSampler, Sample, SampleOptions, Seeds};

use super::{Listener, SAMPLE, SHUFFLE, Seconds, Trainer};
use crate::blocks::{SelfLoops, of_sample, scales};
use crate::error::{Error, Result};
use crate::features::{Fetched, Lent, Reader};
use crate::labels::Labels;
use crate::loss;
use crate::network::{Extras, Stage};
use crate::run_config::RunConfig;
use crate::task::Task;

/// What a step runs on.
struct Batch {
    blocks: Vec<(Adjacency, Extras)>,
    sample: Sample,
    labels: Labels,
}

impl Trainer {
    /// All batches of an epoch that are not done yet.
    pub(super) fn sampled_epoch(&mut self, listener: &dyn Listener) -> Result<Option<(f64, Seconds)>> {
        let sampler = sampler(&self.config, &self.task)?;
        let batches = self.task.train.len().div_ceil(self.config.batch) as u64;
        let mut seconds = Seconds::default();
        while self.state.batch < batches {
            if listener.should_stop() {
                return Ok(None);
            }
            let begun = Instant::now();
            let batch = self.draw(&sampler)?;
            let sampled = Instant::now();
            let ids: Vec<&[u64]> = batch.sample.nodes.iter().map(|nodes| nodes.ids.as_slice()).collect();
            let features = self.features_of(&ids)?;
            let gathered = Instant::now();
            let loss = match self.sampled_step(&batch, &features, &ids) {
                // Whoever looks for the reason is told the feature, if there is one.
                Err(why @ Error::NotFinite { .. }) => {
                    self.reader().check(&features, &ids)?;
                    return Err(why);
                }
                found => found?,
            };
            for rows in features.into_iter().flatten() {
                if let Fetched::Copied(rows) = rows {
                    self.network.give(rows);
                }
            }
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
        let nodes = seeds(&self.config, &self.task, self.state.epoch, self.state.batch);
        let key = Key::new(self.config.seed).of(SAMPLE).of(self.state.epoch).of(self.state.batch);
        let sample = sampler.sample(Seeds { node_type: self.task.node_type, nodes: &nodes, times: None }, key)?;
        let labels = self.task.labels.of(&nodes);
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

    fn degrees_of(&self, sample: &Sample, counts: &[usize]) -> Vec<f32> {
        let of_type = |(at, count): (usize, &usize)| {
            let degree = |node: &u64| self.whole.degrees[at][usize::try_from(*node).unwrap_or(usize::MAX)];
            sample.nodes[at].ids[..*count].iter().map(degree).collect::<Vec<_>>()
        };
        counts.iter().enumerate().flat_map(of_type).collect()
    }

    /// Reads features as the network wants them.
    pub(super) fn reader(&self) -> Reader<'_> {
        let (plan, normalise) = (self.network.input_plan().clone(), self.config.normalise_features);
        Reader { task: &self.task, plan, normalise }
    }

    /// The features of some nodes of each type, in memory that is used again.
    fn features_of(&mut self, ids: &[&[u64]]) -> Result<Vec<Option<Fetched>>> {
        let mut free = std::mem::take(&mut self.network.workspace);
        let found = self.reader().read(ids, &mut |len| free.take(len));
        self.network.workspace = free;
        found
    }

    fn sampled_step(&mut self, batch: &Batch, features: &[Option<Fetched>], ids: &[&[u64]]) -> Result<f64> {
        let step = self.step_key();
        let lent = Lent::listed(&self.task, features, ids);
        let stages: Vec<Stage<'_>> = batch.blocks.iter().map(|(graph, extras)| Stage { graph, extras }).collect();
        let trace = self.network.forward(&stages, lent.inputs(), step)?;
        let columns = self.task.classes;
        // Seeds are of one type, so they are all that the last layer writes.
        let mut gradient = self.network.take(trace.outputs().len());
        let rows = loss::Rows { outputs: trace.outputs(), columns, targets: batch.labels.targets() };
        let found = self.loss.of(rows, &mut gradient)?;
        self.check_finite("loss", found.mean)?;
        let gradients = self.network.backward(&stages, lent.inputs(), trace, gradient)?;
        self.step(gradients)?;
        Ok(found.mean)
    }
}

fn sampler(config: &RunConfig, task: &Task) -> Result<NeighbourSampler> {
    let options = SampleOptions { edge_ids: EdgeIds::Dropped, ..SampleOptions::fanouts(&config.fanout)? };
    Ok(NeighbourSampler::new(task.graph.clone(), options)?)
}

/// The training nodes of a batch. Every epoch shuffles them anew.
fn seeds(config: &RunConfig, task: &Task, epoch: u64, batch: u64) -> Vec<u64> {
    let (count, size) = (task.train.len() as u64, config.batch as u64);
    let shuffle = Bijection::new(Key::new(config.seed).of(SHUFFLE).of(epoch), count);
    let first = batch * size;
    let node = |at: u64| task.train[usize::try_from(shuffle.forward(at)).unwrap_or(usize::MAX)];
    (first..count.min(first + size)).map(node).collect()
}

/// Rows of the blocks of the first batch: others have about as many.
pub(super) fn typical(config: &RunConfig, task: &Task, loops: SelfLoops) -> Result<Vec<Statistics>> {
    // Nobody asks how a network trains that is only asked.
    if task.train.is_empty() {
        return Ok(Vec::new());
    }
    let nodes = seeds(config, task, 0, 0);
    let key = Key::new(config.seed).of(SAMPLE).of(0).of(0);
    let seeds = Seeds { node_type: task.node_type, nodes: &nodes, times: None };
    let sample = sampler(config, task)?.sample(seeds, key)?;
    let blocks = sample.blocks().into_iter();
    blocks.map(|block| Ok(Statistics::of(&of_sample(&task.graph, &sample, &block, loops)?))).collect()
}
