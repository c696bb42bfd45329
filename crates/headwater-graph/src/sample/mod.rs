//! Which neighbours today?
//!
//! A sample is a pure function of the graph, the seeds, the options and a [`Key`] made of (seed, epoch, batch): the same
//! on one thread and on sixteen, on the CPU and on a GPU, today and after a restart. Every draw is keyed by hop, relation
//! and node, so no draw depends on what was drawn before it.
//!
//! - Seeds come first, as given; a seed that stands twice is two nodes with the same neighbours.
//! - A node is expanded once, in the hop after it was found. Hops follow breadth first.
//! - Edges point from neighbour to seed: `row` is the neighbour, `col` the node that asked for it.
//! - In a hop, relations come in the schema's order, and in a relation the nodes in the order they were found. New nodes
//!   are numbered by first sight.
//! - Neighbours are drawn without replacement unless asked, every subset equally likely; a row that has no more than the
//!   fan-out is taken whole, in its order.
//!
//! | the question | the room |
//! | --- | --- |
//! | What can be asked for? | [`SampleOptions`] |
//! | Which positions of a row? | [`Chooser`] |
//! | Which nodes and edges around seeds? | [`NeighbourSampler`], [`Sample`] |
//! | The same on a GPU? | [`GpuNeighbourSampler`], [`DeviceSample`] |
//! | Around the ends of edges, with edges that are none? | [`sample_links`], [`negative_edges`], [`Excluded`] |
//! | Every edge among some nodes? | [`induced_subgraph`], [`khop_subgraph`], [`GpuSubgraphs`] |
//! | Which way does a walker go? | [`random_walks`] |
//! | Walks and negatives on a GPU? | [`GpuRelation`] |

mod choose;
mod exclude;
pub mod gpu;
mod index;
mod link;
pub(crate) mod lists;
mod negative;
mod neighbour;
mod options;
mod output;
mod seeds;
mod subgraph;
#[cfg(test)]
pub(crate) mod tests;
mod walk;
mod widen;

pub use choose::Chooser;
pub use exclude::Excluded;
pub use gpu::{Begun, DeviceNodes, DeviceSample, GpuNeighbourSampler, Visit};
pub use index::{Entry, Index};
pub use link::{DeviceLinkSample, LinkSample, LinkSeeds, Negative, sample_links};
pub use lists::GpuRelation;
pub use negative::{DeviceNegatives, Negatives, Strictness, negative_edges};
pub use neighbour::NeighbourSampler;
pub use options::{Bias, EdgeIds, Fanout, Recency, Replacement, SampleOptions, Trees};
pub use output::{Block, RelationEdges, Sample, TypeNodes};
pub use seeds::Seeds;
pub use subgraph::{DeviceSubgraph, GpuSubgraphs, Subgraph, induced_subgraph, khop_subgraph};
pub use walk::{WalkOptions, random_walks};
pub use widen::widen_on_cpu;

use headwater_cuda::{Defines, Source};

use crate::random::Key;

/// The key of one batch.
#[must_use]
pub fn batch_key(seed: u64, epoch: u64, batch: u64) -> Key {
    Key::new(seed).of(epoch).of(batch)
}

/// The kernel texts of the samplers with the defines they are launched with.
#[must_use]
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let folders = [
        gpu::kernel_builds,
        link::kernel_builds,
        negative::kernel_builds,
        subgraph::kernel_builds,
        walk::kernel_builds,
        widen::kernel_builds,
    ];
    folders.into_iter().flat_map(|folder| folder()).collect()
}
