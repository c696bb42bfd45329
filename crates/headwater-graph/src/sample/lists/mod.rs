//! One relation where a GPU reads it, for what works on a single relation: walks and negatives.
//!
//! Kernels get its arrays as arguments, so a launch compares their lengths with what the text may reach, and keeps them
//! until it is done. `lists.cuh` is the twin of what [`Topology`] answers: which list a row has, and who is in it.

mod cuda;

pub(super) use cuda::{HEADER, LISTS, NEIGHBOURS, OFFSETS};

use headwater_cuda::{Gpu, Stream};

use crate::error::{Error, Result};
use crate::placed::{PlacedGraph, PlacedRelation};
use crate::topology::Topology;

/// A relation of a placed graph. Clones share its arrays.
#[derive(Debug, Clone)]
pub struct GpuRelation {
    topology: Topology,
    arrays: PlacedRelation,
    gpu: Gpu,
}

impl GpuRelation {
    /// The relation at position `at` of the schema. Fails when there is none, or the graph lies where no GPU reads it.
    pub fn new(placed: &PlacedGraph, at: usize) -> Result<Self> {
        let (id, limit) = (at as u64, placed.graph().relations().len() as u64);
        if id >= limit {
            return Err(Error::IdOutOfRange { name: "relation", position: 0, id, limit });
        }
        match (placed.gpu(), placed.relations().get(at)) {
            (Some(gpu), Some(arrays)) => {
                let topology = placed.graph().relation(at).clone();
                Ok(Self { topology, arrays: arrays.clone(), gpu: gpu.clone() })
            }
            _ => Err(Error::Options { why: "a GPU reads graphs in cuda or zero-copy storage only" }),
        }
    }

    /// The lists in host memory.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Fails when `stream` belongs to another GPU.
    pub(super) fn check(&self, stream: &Stream) -> Result<()> {
        if self.gpu.ordinal() == stream.gpu().ordinal() {
            return Ok(());
        }
        Err(Error::Options { why: "the stream belongs to another GPU than the graph was placed for" })
    }
}
