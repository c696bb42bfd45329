//! Which nodes will be read most?
//!
//! A training run reads the features of the nodes its batches reach. Who they are follows from the graph, the training
//! nodes and the fan-outs, so it can be told before the run: by a plain degree, by the rank of a walk against the edges,
//! by working out the chances, or by sampling a few batches and counting. Every score is a whole number a node, larger for
//! nodes read more often; sums of whole numbers do not depend on the order they are made in, so scores are the same for any
//! number of threads.
//!
//! | the score | the room |
//! | --- | --- |
//! | in- and out-degree | [`degrees`] |
//! | reverse PageRank, with and without weight on training nodes | [`reverse_pagerank`] |
//! | how often a node is expected in a batch | [`expected_reads`] |
//! | how often it was in the batches that were drawn | [`count_reads`], [`count_reads_on`] |
//! | any of them, by name, for a run | [`Score`], [`Workload`] |

mod count;
mod degree;
mod expected;
mod kind;
mod pull;
mod rank;
mod returns;
#[cfg(test)]
mod tests;
mod workload;

pub use count::{Reads, count_reads, count_reads_on};
pub use degree::{End, degrees};
pub use expected::{Expected, expected_reads};
pub use kind::{Score, hottest_first, in_order};
pub use pull::{Outgoing, kernel_builds};
pub use rank::{DAMPING, RankOptions, Ranking, Start, Stop, reverse_pagerank};
pub use workload::{Purpose, Training, Workload};

/// One number a node, type after type.
pub type NodeScores = Vec<Vec<u64>>;
