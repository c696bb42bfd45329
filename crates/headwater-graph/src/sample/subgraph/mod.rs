//! Every edge among some nodes.
//!
//! In: nodes of each type, or seeds and a number of hops. Out: each node once, in the order of first sight, and every
//! edge between two of them: relation by relation, targets in the order of the nodes, each list in its order. A
//! neighbour that is no node is in no subgraph; a row whose offsets fall is an error.
//!
//! [`induced_subgraph`] and [`khop_subgraph`] do it in host memory, [`GpuSubgraphs`] on the GPU.

mod cpu;
mod cuda;
mod run;
#[cfg(test)]
mod tests;

pub use cpu::{induced_subgraph, khop_subgraph};
pub(super) use cuda::kernel_builds;
pub use run::{DeviceSubgraph, GpuSubgraphs};

use super::options::{EdgeIds, SampleOptions};
use super::output::Sample;
use crate::error::{Error, Result};
use crate::graph::Graph;

/// A part of a graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subgraph {
    /// Its nodes, each once, and every edge among them.
    pub sample: Sample,
    /// For every type, the local numbers of the nodes that were asked for.
    pub mapping: Vec<Vec<u32>>,
}

/// Fails when there is not one list a type, or when a list names a node that is none.
fn check_nodes(graph: &Graph, nodes: &[&[u64]]) -> Result<()> {
    let types = graph.schema().node_types();
    let (found, expected) = (nodes.len() as u64, types.len() as u64);
    if found != expected {
        return Err(Error::Length { name: "lists of nodes", found, expected, of: "the node types" });
    }
    for (list, node_type) in nodes.iter().zip(types) {
        if let Some(at) = list.iter().position(|&id| id >= node_type.count) {
            let (position, id, limit) = (at as u64, list[at], node_type.count);
            return Err(Error::IdOutOfRange { name: "nodes", position, id, limit });
        }
    }
    Ok(())
}

/// Every neighbour, `hops` times.
fn everything(hops: usize) -> Result<SampleOptions> {
    Ok(SampleOptions { edge_ids: EdgeIds::Dropped, ..SampleOptions::fanouts(&vec![-1; hops])? })
}
