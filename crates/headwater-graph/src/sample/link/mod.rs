//! Neighbourhoods of edges: both ends of each, with negatives beside them.
//!
//! The ends become seeds, each node once, in the order of sight: sources, then targets. Disjoint trees keep every end
//! apart instead; then the tree of a node is the number of the positive edge it belongs to, as PyG has it.
//!
//! `ends.rs` decides: which negatives to draw, which seeds that makes, what their trees mean. `cpu.rs` and `cuda.rs` draw
//! and sample, so [`sample_links`] and [`GpuNeighbourSampler::sample_links`](super::GpuNeighbourSampler::sample_links)
//! return the same.

mod cpu;
mod cuda;
mod ends;
#[cfg(test)]
mod tests;

pub use cpu::sample_links;
pub use cuda::DeviceLinkSample;
pub(super) use cuda::kernel_builds;

use super::negative::Strictness;
use super::output::Sample;

/// Edges to sample around. They need not be in the graph.
#[derive(Debug, Clone, Copy)]
pub struct LinkSeeds<'a> {
    /// Position of their relation in the schema.
    pub relation: usize,
    /// Where they begin.
    pub sources: &'a [u64],
    /// Where they end.
    pub targets: &'a [u64],
    /// What the ends of each may see.
    pub times: Option<&'a [i64]>,
}

/// Which negatives go with the edges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Negative {
    /// None.
    None,
    /// Pairs with both ends drawn, so many for every edge; a fraction is rounded up over the batch.
    Binary {
        /// Pairs an edge.
        amount: f64,
        /// Whether they may be edges.
        strictness: Strictness,
    },
    /// Targets drawn for the source of each edge.
    Triplet {
        /// Targets an edge.
        amount: u32,
        /// Whether they may be edges.
        strictness: Strictness,
    },
}

/// A neighbourhood of edges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkSample {
    /// The nodes and edges.
    pub sample: Sample,
    /// Local numbers of the sources: the edges' own, then those of binary negatives.
    pub sources: Vec<u32>,
    /// Local numbers of the targets, likewise; after them those of triplet negatives, edge after edge.
    pub targets: Vec<u32>,
    /// How many of `sources` and `targets` are the edges' own.
    pub positives: usize,
    /// Negatives that hit an edge in every trial, and were kept as they are.
    pub unresolved: u64,
}
