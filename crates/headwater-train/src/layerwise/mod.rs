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
mod statistics;
#[cfg(test)]
mod tests;

use std::path::Path;

use headwater_compile::cpu::fast::{Given, SparseRows};
use headwater_graph::Progress;

pub use outputs::Outputs;
pub(crate) use statistics::{skeleton, statistics};

use self::chunk::{Chunk, Cutter, Sizes};
use self::outputs::Room;
use crate::blocks::{SelfLoops, scales};
use crate::error::Result;
use crate::network::{Extras, Network, Stage};
use crate::task::Task;

/// Part of the features that may be other than zero where they are kept as sparse rows.
pub(crate) const MOST_FILLED: f64 = 0.25;

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
        Self { chunk_bytes: 512 << 20, outputs_bytes: 4 << 30 }
    }
}

/// What outputs are made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layerwise<'a> {
    pub task: &'a Task,
    pub loops: SelfLoops,
    /// In-degrees of all nodes; read where the network asks for scales.
    pub degrees: &'a [Vec<f32>],
    /// Whether every row of features is divided by its sum.
    pub normalise: bool,
    pub limits: Limits,
    /// Where files without a name may be.
    pub scratch: &'a Path,
}

impl Layerwise<'_> {
    /// The network's outputs for these nodes of each type.
    pub fn outputs(&self, network: &mut Network, asked: &[Vec<u64>], progress: &dyn Progress) -> Result<Outputs> {
        let counts = self.task.node_counts();
        let needed = needed::needed(&self.task.graph, &counts, asked, network.depth());
        let mut before: Option<Outputs> = None;
        for (at, nodes) in needed.iter().enumerate() {
            let room = Room { memory_bytes: self.limits.outputs_bytes, scratch: self.scratch };
            progress.begin(&format!("layer {} of {}", at + 1, needed.len()), nodes.len());
            let mut own = Outputs::new(&counts, network.width_of(at), room)?;
            let sizes = self.sizes(network, at);
            let cutter = Cutter { graph: &self.task.graph, counts: &counts, loops: self.loops, sizes };
            for chunk in cutter.chunks(nodes.all()) {
                let chunk = chunk?;
                let rows = self.chunk(network, at, &chunk, before.as_ref())?;
                put(&mut own, &chunk, &rows)?;
                network.give(rows);
                progress.advance(chunk.targets.iter().sum::<usize>() as u64);
            }
            before = Some(own);
        }
        Ok(before.unwrap_or_else(|| Outputs::whole(&counts, 0, Vec::new())))
    }

    /// What rows of a layer take while they are computed.
    fn sizes(&self, network: &Network, at: usize) -> Sizes {
        let in_width = if at == 0 { self.task.width.unwrap_or(0) } else { network.width_of(at - 1) };
        // What a layer makes on its way is about as wide as what it gives.
        let (source_bytes, target_bytes) = (4 * in_width as u64, 8 * network.width_of(at) as u64);
        Sizes { source_bytes, target_bytes, most_bytes: self.limits.chunk_bytes }
    }

    /// One layer of one chunk.
    fn chunk(&self, network: &mut Network, at: usize, chunk: &Chunk, before: Option<&Outputs>) -> Result<Vec<f32>> {
        let extras = self.extras(network, chunk);
        let stage = Stage { graph: &chunk.graph, extras: &extras };
        let Some(x) = self.inputs(network, chunk, before)? else { return network.infer(at, stage, None) };
        let width = before.map_or(self.task.width.unwrap_or(0), Outputs::width);
        let sparse = if before.is_none() { SparseRows::of(&x, width, MOST_FILLED) } else { None };
        let given = sparse.as_ref().map_or(Given::Dense(&x), Given::Sparse);
        let found = network.infer(at, stage, Some(given));
        network.give(x);
        found
    }

    /// What the layer reads: rows of the layer before, or features.
    fn inputs(&self, network: &mut Network, chunk: &Chunk, before: Option<&Outputs>) -> Result<Option<Vec<f32>>> {
        let Some(width) = before.map(Outputs::width).or(self.task.width) else { return Ok(None) };
        let mut rows = network.take(chunk.nodes.iter().map(Vec::len).sum::<usize>() * width);
        match before {
            Some(before) => {
                let mut rest = &mut rows[..];
                for (of_type, nodes) in chunk.nodes.iter().enumerate() {
                    let (own, behind) = rest.split_at_mut(nodes.len() * width);
                    before.gather(of_type, nodes, own)?;
                    rest = behind;
                }
            }
            None => {
                let ids: Vec<&[u64]> = chunk.nodes.iter().map(Vec::as_slice).collect();
                self.task.gather(&ids, &mut rows)?;
                if self.normalise {
                    normalise(&mut rows, width);
                }
            }
        }
        Ok(Some(rows))
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

/// Every row over the sum of its elements, as published features of documents are used.
pub(crate) fn normalise(rows: &mut [f32], width: usize) {
    for row in rows.chunks_exact_mut(width) {
        let sum: f32 = row.iter().sum();
        if sum > 0.0 {
            row.iter_mut().for_each(|x| *x /= sum);
        }
    }
}
