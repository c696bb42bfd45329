//! Pairs of nodes that no edge connects.
//!
//! Both ends are uniform and drawn from different counters. Strict draws are looked up in the graph and drawn again when
//! they hit an edge; on a dense graph that may not end, so there is a number of trials, and what is left over is told.
//!
//! In: a relation, how many pairs, how strict, a key. Out: sources and targets of those that were resolved, in the order
//! of their numbers: [`negative_edges`] in host memory,
//! [`GpuRelation::negative_edges`](super::GpuRelation::negative_edges) in the GPU's. Links also take the others, and
//! pairs whose sources are given.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

pub use cpu::negative_edges;
pub use cuda::DeviceNegatives;
pub(super) use cuda::kernel_builds;

use crate::random::Key;
use crate::topology::{Layout, Topology, index};

/// Whether a negative may be an edge by accident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// It may: nothing is looked up. What PyG does.
    Loose,
    /// It may not; each is drawn at most so many times.
    Strict {
        /// Draws before giving up, at least 1.
        trials: u32,
    },
}

/// Pairs that are no edges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Negatives {
    /// Where they would begin.
    pub sources: Vec<u64>,
    /// Where they would end.
    pub targets: Vec<u64>,
    /// Pairs that hit an edge in every trial, and are left out.
    pub unresolved: u64,
}

/// What negatives are drawn from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pairs<'a> {
    pub topology: &'a Topology,
    pub strictness: Strictness,
    pub key: Key,
    pub sources: Sources<'a>,
}

/// Where pairs begin.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sources<'a> {
    /// Anywhere.
    Drawn,
    /// At each of these, so many in a row.
    Each { of: &'a [u64], pairs: u64 },
}

impl Pairs<'_> {
    pub fn source_count(&self) -> u64 {
        match self.topology.layout() {
            Layout::Csc => self.topology.columns(),
            Layout::Csr => self.topology.rows(),
        }
    }

    pub fn target_count(&self) -> u64 {
        match self.topology.layout() {
            Layout::Csc => self.topology.rows(),
            Layout::Csr => self.topology.columns(),
        }
    }

    /// Whether there is nothing to draw from.
    pub fn is_empty(&self) -> bool {
        self.source_count() == 0 || self.target_count() == 0
    }

    /// How often each pair is looked up at most.
    fn lookups(&self) -> u64 {
        match self.strictness {
            Strictness::Loose => 0,
            Strictness::Strict { trials } => u64::from(trials.max(1)),
        }
    }
}

impl Sources<'_> {
    /// Where the pair numbered `at` begins, unless that is drawn.
    fn given(&self, at: u64) -> Option<u64> {
        match *self {
            Self::Drawn => None,
            Self::Each { of, pairs } => of.get(index(at / pairs.max(1))).copied(),
        }
    }
}
