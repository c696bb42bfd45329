//! Who is next to whom, and which neighbours today?
//!
//! | the question | the room |
//! | --- | --- |
//! | What is an immutable array, whoever owns it? | [`column`] |
//! | Which node types and relations are there? | [`schema`] |
//! | Who is next to whom? | [`topology`], [`graph`] |
//! | How does a graph that others wrote come in? | [`ingest`] |
//! | How does an edge list become lists? | [`build`] |
//! | How many neighbours do nodes have, and who has none? | [`degrees`], [`mod@isolated`] |
//! | Where does a graph lie on disk? | [`dataset`] |
//! | Which random number? | [`random`] |
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
pub mod graph;
pub mod ingest;
pub mod isolated;
mod lane;
pub mod order;
mod pieces;
pub mod progress;
pub mod random;
pub mod reorder;
pub mod schema;
pub mod topology;

pub use column::{Column, Ids};
pub use dataset::{Dataset, DatasetWriter};
pub use degrees::Degrees;
pub use error::{Error, Result};
pub use graph::Graph;
pub use isolated::isolated;
pub use progress::{Progress, Silent};
pub use schema::{NodeType, Relation, Schema};
pub use topology::{Layout, Topology};
