//! Outputs of a network without training: layer by layer, in chunks of nodes.
//!
//! A layer needs the rows of the layer before for its targets and all their neighbours. Sampling those batch by batch would
//! compute a row as often as it is read; a layer at a time computes it once, and a chunk at a time bounds what is in memory:
//! neither all features nor all edges are ever held. Only nodes that matter to those that are asked for are computed.
//!
//! | the question | the room |
//! | --- | --- |
//! | Which nodes must a layer compute? | `needed` |
//! | As which blocks? | `chunk` |
//! | Where do a layer's rows go? | [`Outputs`] |
//! | Which nodes are those? | `node_set` |

mod chunk;
mod lists;
mod needed;
mod node_set;
mod outputs;
mod sparse;
mod statistics;
#[cfg(test)]
mod tests;

use std::path::Path;

use headwater_compile::cpu::fast::{Given, SparseRows};
use headwater_graph::Progress;

pub use outputs::Outputs;
pub(crate) use sparse::sparse_features;
pub(crate) use statistics::{skeleton, statistics};

use self::chunk::{Chunk, Cutter, Sizes};
use self::node_set::NodeSet;
use self::outputs::Room;
use crate::blocks::{SelfLoops, scales};
use crate::error::{Error, Result};
use crate::features::{Fetched, Lent, Reader};
use crate::network::{Extras, Network, Read, Stage};
use crate::task::Task;

/// Bytes of an edge in a block that is kept, with what is made of it the first time it is used.
const KEPT_EDGE_BYTES: u64 = 32;

/// What inference may hold in memory.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Rows and edges of one chunk.
    pub chunk_bytes: u64,
    /// Outputs of one layer; larger ones go to a file.
    pub outputs_bytes: u64,
}

impl Default for Limits {
    /// A chunk is large, because nodes that several chunks read are gathered several times.
    fn default() -> Self {
        Self { chunk_bytes: 256 << 20, outputs_bytes: 2 << 30 }
    }
}

/// What outputs are made of.
#[derive(Debug, Clone)]
pub(crate) struct Layerwise<'a> {
    pub task: &'a Task,
    pub loops: SelfLoops,
    /// In-degrees of all nodes; read where the network asks for scales.
    pub degrees: &'a [Vec<f32>],
    /// Reads features.
    pub reader: Reader<'a>,
    /// All features, where they are held as sparse rows.
    pub sparse: Option<&'a SparseRows>,
    /// Whether features that are not numbers are refused.
    pub checks: bool,
    pub limits: Limits,
    /// Where files without a name may be.
    pub scratch: &'a Path,
}

/// What each layer computes, for nodes that are asked for.
#[derive(Debug)]
pub(crate) struct Plan {
    layers: Vec<LayerPlan>,
}

#[derive(Debug)]
struct LayerPlan {
    nodes: NodeSet,
    /// Its chunks, where all of them together are few enough to be kept for the next time.
    kept: Option<Vec<Chunk>>,
}

impl Layerwise<'_> {
    /// What is to be done for these nodes of each type.
    pub fn plan(&self, network: &Network, asked: &[Vec<u64>]) -> Result<Plan> {
        let counts = self.task.node_counts();
        let needed = needed::needed(&self.task.graph, &counts, asked, network.depth());
        let edges = self.task.graph.edges().saturating_mul(needed.len() as u64);
        let is_small = edges.saturating_mul(KEPT_EDGE_BYTES) <= self.limits.chunk_bytes;
        let layer = |(at, nodes): (usize, NodeSet)| {
            let chunks = || self.cutter(network, at, &counts).chunks(nodes.all()).collect::<Result<_>>();
            let kept = is_small.then(chunks).transpose()?;
            Ok(LayerPlan { nodes, kept })
        };
        let layers = needed.into_iter().enumerate().map(layer).collect::<Result<_>>()?;
        Ok(Plan { layers })
    }

    /// The network's outputs for the nodes of a plan.
    pub fn outputs(&self, network: &mut Network, plan: &Plan, progress: &dyn Progress) -> Result<Outputs> {
        let mut before: Option<Outputs> = None;
        for (at, layer) in plan.layers.iter().enumerate() {
            progress.begin(&format!("layer {} of {}", at + 1, plan.layers.len()), layer.nodes.len());
            let own = self.layer(network, at, layer, before.as_ref(), progress)?;
            let read = before.replace(own).and_then(Outputs::into_memory);
            if let Some(rows) = read.filter(|_| self.is_most(&plan.layers[at - 1].nodes)) {
                network.give(rows);
            }
        }
        Ok(before.unwrap_or_else(|| Outputs::whole(&self.task.node_counts(), 0, Vec::new())))
    }

    /// One layer.
    fn layer(
        &self,
        network: &mut Network,
        at: usize,
        layer: &LayerPlan,
        before: Option<&Outputs>,
        progress: &dyn Progress,
    ) -> Result<Outputs> {
        let counts = self.task.node_counts();
        let room = Room { memory_bytes: self.limits.outputs_bytes, scratch: self.scratch };
        let cutter = self.cutter(network, at, &counts);
        let mut own: Option<Outputs> = None;
        let mut run = |chunk: &Chunk| {
            let rows = self.chunk(network, at, chunk, before)?;
            let width = network.width_of(at);
            progress.advance(chunk.targets.iter().sum::<usize>() as u64);
            if self.is_whole(chunk) && room.has_memory_for(rows.len()) {
                own = Some(Outputs::whole(&counts, width, rows));
                return Ok(());
            }
            if own.is_none() {
                // Fresh memory has no pages for rows that nobody needs.
                let take = |len| if self.is_most(&layer.nodes) { network.take(len) } else { vec![0.0; len] };
                own = Some(Outputs::new(&counts, width, room, take)?);
            }
            own.iter_mut().try_for_each(|own| put(own, chunk, &rows))?;
            network.give(rows);
            Ok::<_, Error>(())
        };
        match &layer.kept {
            Some(chunks) => chunks.iter().try_for_each(&mut run)?,
            None => cutter.chunks(layer.nodes.all()).try_for_each(|chunk| run(&chunk?))?,
        }
        own.map_or_else(|| Outputs::new(&counts, network.width_of(at), room, |len| vec![0.0; len]), Ok)
    }

    /// Whether the outputs of a plan lie in memory of the network.
    pub fn takes_memory(&self, plan: &Plan) -> bool {
        plan.layers.last().is_some_and(|layer| self.is_most(&layer.nodes))
    }

    /// Whether most nodes are among these.
    fn is_most(&self, nodes: &NodeSet) -> bool {
        2 * nodes.len() >= self.task.node_counts().iter().sum()
    }

    fn cutter<'a>(&'a self, network: &Network, at: usize, counts: &'a [u64]) -> Cutter<'a> {
        Cutter { graph: &self.task.graph, counts, loops: self.loops, sizes: self.sizes(network, at) }
    }

    /// What rows of a layer take while they are computed.
    fn sizes(&self, network: &Network, at: usize) -> Sizes {
        let in_width = match (at, self.sparse) {
            (0, None) => network.input_plan().width().unwrap_or(0),
            // A column and a value for each element that is there.
            (0, Some(rows)) => 2 * rows.count() / rows.rows().max(1),
            _ => network.width_of(at - 1),
        };
        // What a layer makes on its way is about as wide as what it gives.
        let (source_bytes, target_bytes) = (4 * in_width as u64, 8 * network.width_of(at) as u64);
        Sizes { source_bytes, target_bytes, most_bytes: self.limits.chunk_bytes }
    }

    /// One layer of one chunk.
    fn chunk(&self, network: &mut Network, at: usize, chunk: &Chunk, before: Option<&Outputs>) -> Result<Vec<f32>> {
        let extras = self.extras(network, chunk);
        let stage = Stage { graph: &chunk.graph, extras: &extras };
        let Some(before) = before else { return self.first_layer(network, stage, chunk) };
        let width = before.width();
        let mut x = network.take(chunk.nodes.iter().map(Vec::len).sum::<usize>() * width);
        let mut rest = &mut x[..];
        for (of_type, nodes) in chunk.nodes.iter().enumerate() {
            let (own, behind) = rest.split_at_mut(nodes.len() * width);
            before.gather(of_type, nodes, own)?;
            rest = behind;
        }
        let found = network.infer(at, stage, Some(Given::Dense(&x)));
        network.give(x);
        found
    }

    /// The layer that reads features.
    fn first_layer(&self, network: &mut Network, stage: Stage<'_>, chunk: &Chunk) -> Result<Vec<f32>> {
        let ids: Vec<&[u64]> = chunk.nodes.iter().map(Vec::as_slice).collect();
        if let Some(all) = self.sparse {
            let own = if self.is_whole(chunk) { None } else { Some(self.sparse_rows(all, chunk)) };
            return apply(network, stage, &Lent::sparse(own.as_ref().unwrap_or(all), &ids));
        }
        let features = self.reader.read(&ids, &mut |len| network.take(len))?;
        if self.checks {
            self.reader.check(&features, &ids)?;
        }
        let found = apply(network, stage, &Lent::listed(self.task, &features, &ids));
        for rows in features.into_iter().flatten() {
            if let Fetched::Copied(rows) = rows {
                network.give(rows);
            }
        }
        found
    }

    /// Whether a chunk has all nodes, which then are in their order.
    fn is_whole(&self, chunk: &Chunk) -> bool {
        let counts = self.task.node_counts();
        counts.iter().zip(&chunk.targets).all(|(count, targets)| *count == *targets as u64)
    }

    /// The features of a chunk.
    fn sparse_rows(&self, all: &SparseRows, chunk: &Chunk) -> SparseRows {
        let counts = self.task.node_counts();
        let firsts = counts.iter().scan(0, |sum, count| Some(std::mem::replace(sum, *sum + count)));
        let rows = chunk.nodes.iter().zip(firsts).flat_map(|(nodes, first)| nodes.iter().map(move |node| first + node));
        all.picked(rows.map(|row| usize::try_from(row).unwrap_or(usize::MAX)))
    }

    fn extras(&self, network: &Network, chunk: &Chunk) -> Extras {
        if !network.needs_scales() {
            return Extras::new();
        }
        let degrees = |count: &dyn Fn(usize) -> usize| -> Vec<f32> {
            let of_type = |of_type: usize| {
                let nodes = &chunk.nodes[of_type][..count(of_type)];
                nodes.iter().map(move |node| self.degrees[of_type][usize::try_from(*node).unwrap_or(usize::MAX)])
            };
            (0..chunk.nodes.len()).flat_map(of_type).collect()
        };
        let sources = degrees(&|of_type| chunk.nodes[of_type].len());
        scales(&sources, &degrees(&|of_type| chunk.targets[of_type]), &chunk.graph)
    }
}

/// The first layer on what is lent.
fn apply(network: &mut Network, stage: Stage<'_>, lent: &Lent<'_>) -> Result<Vec<f32>> {
    let read = network.read(lent.inputs())?;
    let found = network.infer(0, stage, read.given());
    if let Read::Made(made) = read {
        network.give(made);
    }
    found
}

/// Keeps what a layer gave for the targets of a chunk.
fn put(outputs: &mut Outputs, chunk: &Chunk, rows: &[f32]) -> Result<()> {
    let mut rest = rows;
    for (of_type, (nodes, count)) in chunk.nodes.iter().zip(&chunk.targets).enumerate() {
        let (own, behind) = rest.split_at(count * outputs.width());
        outputs.put(of_type, &nodes[..*count], own)?;
        rest = behind;
    }
    Ok(())
}
