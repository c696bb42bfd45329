//! One relation where a GPU reads it, for what works on a single relation: walks and negatives.
//!
//! Kernels get its arrays as arguments, so a launch compares their lengths with what the text may reach, and keeps them
//! until it is done. `lists.cuh` is the twin of what [`Topology`] answers: which list a row has, and who is in it.

mod cuda;

pub(crate) use cuda::{HEADER, LISTS, NEIGHBOURS, OFFSETS};

use crate::error::{Error, Result};
use crate::placed::{PlacedGraph, PlacedRelation};
use crate::topology::Topology;

/// A relation of a placed graph. Clones share its arrays.
#[derive(Debug, Clone)]
pub struct GpuRelation {
    placed: PlacedGraph,
    at: usize,
}

impl GpuRelation {
    /// The relation at position `at` of the schema. Fails when there is none, or the graph lies where no GPU reads it.
    pub fn new(placed: &PlacedGraph, at: usize) -> Result<Self> {
        let (id, limit) = (at as u64, placed.graph().relations().len() as u64);
        if id >= limit {
            return Err(Error::IdOutOfRange { name: "relation", position: 0, id, limit });
        }
        if placed.relations().is_empty() {
            return Err(Error::Options { why: "a GPU reads graphs in cuda or zero-copy storage only" });
        }
        Ok(Self { placed: placed.clone(), at })
    }

    /// The graph it is a relation of.
    #[must_use]
    pub fn placed(&self) -> &PlacedGraph {
        &self.placed
    }

    /// The lists in host memory.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        self.placed.graph().relation(self.at)
    }

    fn arrays(&self) -> &PlacedRelation {
        &self.placed.relations()[self.at]
    }
}
