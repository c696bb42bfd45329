//! Batches of training nodes and what is sampled around them: drawn from a key each, so in any order and on any thread.

use std::sync::Arc;

use headwater_compile::adjacency::Adjacency;
use headwater_compile::pass::Statistics;
use headwater_graph::generate::Bijection;
use headwater_graph::random::Key;
use headwater_graph::sample::{EdgeIds, NeighbourSampler, Sample, SampleOptions, Seeds};

use super::{SAMPLE, SHUFFLE, Trainer};
use crate::blocks::{SelfLoops, of_sample, scales};
use crate::error::Result;
use crate::labels::Labels;
use crate::network::Extras;
use crate::run_config::RunConfig;
use crate::task::Task;

/// What a step runs on.
#[derive(Debug)]
pub(crate) struct Batch {
    pub blocks: Vec<(Adjacency, Extras)>,
    pub sample: Sample,
    pub labels: Labels,
}

/// The batches of an epoch.
#[derive(Debug)]
pub(crate) struct Drawing {
    config: RunConfig,
    task: Arc<Task>,
    loops: SelfLoops,
    /// In-degrees, where layers ask for scales.
    degrees: Option<Arc<Vec<Vec<f32>>>>,
    sampler: NeighbourSampler,
    epoch: u64,
}

impl Drawing {
    /// Of the epoch that a run is in.
    pub fn new(run: &Trainer) -> Result<Self> {
        Ok(Self {
            config: run.config.clone(),
            task: Arc::clone(&run.task),
            loops: run.whole.loops,
            degrees: run.network.needs_scales().then(|| Arc::clone(&run.whole.degrees)),
            sampler: sampler(&run.config, &run.task)?,
            epoch: run.state.epoch,
        })
    }

    /// Of an epoch, to be drawn by somebody who does not train.
    pub fn of(config: &RunConfig, task: &Arc<Task>, epoch: u64) -> Result<Self> {
        let (loops, degrees) = (SelfLoops::AsTheyAre, None);
        let (config, task, sampler) = (config.clone(), Arc::clone(task), sampler(config, task)?);
        Ok(Self { config, task, loops, degrees, sampler, epoch })
    }

    /// Which epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.task.train.len().div_ceil(self.config.batch) as u64
    }

    /// The node type of the seeds.
    pub fn node_type(&self) -> usize {
        self.task.node_type
    }

    /// The seeds of a batch, and what its neighbours are drawn from.
    pub fn seeds(&self, at: u64) -> (Vec<u64>, Key) {
        let key = Key::new(self.config.seed).of(SAMPLE).of(self.epoch).of(at);
        (seeds(&self.config, &self.task, self.epoch, at), key)
    }

    /// Seeds and their neighbours.
    pub fn sample(&self, at: u64) -> Result<(Vec<u64>, Sample)> {
        let (nodes, key) = self.seeds(at);
        let sample = self.sampler.sample(Seeds { node_type: self.task.node_type, nodes: &nodes, times: None }, key)?;
        Ok((nodes, sample))
    }

    /// A batch as layers take it.
    pub fn batch(&self, at: u64) -> Result<Batch> {
        let (nodes, sample) = self.sample(at)?;
        let labels = self.task.labels.of(&nodes);
        let mut blocks = Vec::new();
        for block in sample.blocks() {
            let graph = of_sample(&self.task.graph, &sample, &block, self.loops)?;
            let extras = self.degrees.as_ref().map_or_else(Extras::new, |degrees| {
                scales(&of_nodes(degrees, &sample, &block.sources), &of_nodes(degrees, &sample, &block.targets), &graph)
            });
            blocks.push((graph, extras));
        }
        Ok(Batch { blocks, sample, labels })
    }
}

/// The degrees of the first nodes of each type.
fn of_nodes(degrees: &[Vec<f32>], sample: &Sample, counts: &[usize]) -> Vec<f32> {
    let of_type = |(at, count): (usize, &usize)| {
        let degree = |node: &u64| degrees[at][usize::try_from(*node).unwrap_or(usize::MAX)];
        sample.nodes[at].ids[..*count].iter().map(degree).collect::<Vec<_>>()
    };
    counts.iter().enumerate().flat_map(of_type).collect()
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
