//! Who is next to whom, and which neighbours today?
//!
//! | the question | the room |
//! | --- | --- |
//! | What is an immutable array, whoever owns it? | [`mod@column`] |
//! | Which node types and relations are there? | [`schema`] |
//! | Who is next to whom? | [`topology`], [`graph`] |
//! | Which neighbours today? | [`sample`] |
//! | How does a graph that others wrote come in? | [`ingest`] |
//! | How does an edge list become lists? | [`build`] |
//! | How many neighbours do nodes have, and who has none? | [`degrees`], [`mod@isolated`] |
//! | Where does a graph lie on disk? | [`dataset`] |
//! | How is a graph made up? | [`generate`] |
//! | How are rows ordered and nodes renumbered? | [`order`], [`reorder`] |
//! | Which nodes will be read most? | [`score`] |
//! | Which random number? | [`random`] |
//! | Where does it lie? | [`place`] decides, [`placed`] and [`interleave`] hold |
//! | What do samplers on the GPU stand on? | [`scan`], [`unique`] |
//!
//! A homogeneous graph is the case of one node type and one relation; there is no second code for it. The crate knows
//! nothing of features, but it carries the files they lie in.
//!
//! ```
//! use headwater_graph::{Column, Graph, Ids, Layout, Topology};
//! // Node 1 has in-neighbours 0 and 2, node 2 has 1.
//! let offsets = Column::from(vec![0u64, 0, 2, 3]);
//! let neighbours = Ids::from(vec![0u32, 2, 1]);
//! let graph = Graph::homogeneous(Topology::new(Layout::Csc, 3, offsets, neighbours)?)?;
//! assert_eq!(graph.relation(0).degree(1), 2);
//! # Ok::<(), headwater_graph::Error>(())
//! ```

pub mod build;
pub mod column;
pub mod dataset;
pub mod degrees;
pub mod error;
pub mod generate;
pub mod graph;
pub mod ingest;
pub mod interleave;
pub mod isolated;
mod lane;
pub mod order;
mod pieces;
pub mod place;
pub mod placed;
pub mod progress;
pub mod random;
pub mod reorder;
pub mod sample;
pub mod scan;
pub mod schema;
pub mod score;
#[cfg(test)]
mod testing;
pub mod topology;
pub mod unique;
pub mod width;

pub use column::{Column, Ids};
pub use dataset::{Dataset, DatasetWriter};
pub use degrees::Degrees;
pub use error::{Error, Result};
pub use graph::Graph;
pub use isolated::isolated;
pub use place::{Storage, Wish};
pub use placed::{PlacedArray, PlacedGraph, PlacedIds, PlacedRelation};
pub use progress::{Progress, Silent};
pub use schema::{NodeType, Relation, Schema};
pub use topology::{Layout, Topology};
pub use width::IdWidth;

/// Every kernel text of this crate with every set of defines it is used with, for tests that compile all of them.
#[must_use]
pub fn kernel_builds() -> Vec<(&'static headwater_cuda::Source, headwater_cuda::Defines)> {
    let folders = [
        interleave::kernel_builds,
        sample::kernel_builds,
        scan::kernel_builds,
        score::kernel_builds,
        unique::kernel_builds,
    ];
    folders.into_iter().flat_map(|folder| folder()).collect()
}
