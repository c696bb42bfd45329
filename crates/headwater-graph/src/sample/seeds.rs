//! Where samples begin, and whether they can.

use super::options::SampleOptions;
use crate::error::{Error, Result};
use crate::graph::Graph;

/// Where a sample begins: nodes of one type.
#[derive(Debug, Clone, Copy)]
pub struct Seeds<'a> {
    /// Position of their type in the schema.
    pub node_type: usize,
    /// Their ids.
    pub nodes: &'a [u64],
    /// What each may see: neighbours no later than this.
    pub times: Option<&'a [i64]>,
}

impl<'a> Seeds<'a> {
    /// Nodes of the first type.
    #[must_use]
    pub fn of(nodes: &'a [u64]) -> Self {
        Self { node_type: 0, nodes, times: None }
    }
}

/// Fails when `graph` has no such nodes, or when some seeds have times and others not. Returns whether they have.
pub(super) fn check_seeds(seeds: &[Seeds<'_>], graph: &Graph, options: &SampleOptions) -> Result<bool> {
    let has_times = seeds.iter().any(|seeds| seeds.times.is_some());
    if has_times {
        options.check_times(graph)?;
    }
    let types = graph.schema().node_types();
    for (at, seeds) in seeds.iter().enumerate() {
        let Some(node_type) = types.get(seeds.node_type) else {
            let (id, limit) = (seeds.node_type as u64, types.len() as u64);
            return Err(Error::IdOutOfRange { name: "types of seeds", position: at as u64, id, limit });
        };
        let expected = seeds.nodes.len() as u64;
        let found = seeds.times.map_or(if has_times { 0 } else { expected }, |times| times.len() as u64);
        if found != expected {
            return Err(Error::Length { name: "seed times", found, expected, of: "the seeds" });
        }
        if let Some(at) = seeds.nodes.iter().position(|&id| id >= node_type.count) {
            let (position, id, limit) = (at as u64, seeds.nodes[at], node_type.count);
            return Err(Error::IdOutOfRange { name: "seeds", position, id, limit });
        }
    }
    Ok(has_times)
}
