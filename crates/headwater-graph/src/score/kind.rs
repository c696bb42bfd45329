//! Every way to tell, by name.

use serde::{Deserialize, Serialize};

use super::{
    End, Expected, NodeScores, Outgoing, RankOptions, Ranking, Workload, degrees, expected_reads, reverse_pagerank,
};
use super::{expected, rank};
use crate::error::Result;
use crate::graph::Graph;
use crate::progress::Progress;
use crate::reorder::Permutation;
use crate::topology::index;

/// A way to tell which nodes a run will read most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Score {
    /// How many edges begin at a node.
    OutDegree,
    /// How many end there.
    InDegree,
    /// Reverse PageRank until nothing changes any more.
    Pagerank,
    /// Reverse PageRank with weight on the training nodes, five iterations.
    WeightedPagerank,
    /// How often a node is expected in a batch.
    Expected,
    /// How often it was in batches that were drawn.
    Presampled,
}

impl Score {
    /// All of them, those that know least of the run first.
    pub const ALL: [Self; 6] =
        [Self::OutDegree, Self::InDegree, Self::Pagerank, Self::WeightedPagerank, Self::Expected, Self::Presampled];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OutDegree => "out-degree",
            Self::InDegree => "in-degree",
            Self::Pagerank => "pagerank",
            Self::WeightedPagerank => "weighted-pagerank",
            Self::Expected => "expected",
            Self::Presampled => "presampled",
        }
    }

    /// What one of its units stands for: a degree and a count are themselves, a rank is a share, and chances are reads an
    /// epoch.
    #[must_use]
    pub fn unit(self) -> f64 {
        match self {
            Self::OutDegree | Self::InDegree | Self::Presampled => 1.0,
            Self::Pagerank | Self::WeightedPagerank => rank::UNIT,
            Self::Expected => expected::UNIT,
        }
    }

    /// The score of every node where it follows from the graph alone; nothing where a run must be known.
    pub fn of_graph(self, graph: &Graph, progress: &dyn Progress) -> Result<Option<NodeScores>> {
        match self {
            Self::OutDegree => Ok(Some(degrees(graph, End::Source))),
            Self::InDegree => Ok(Some(degrees(graph, End::Target))),
            Self::Pagerank => {
                reverse_pagerank(&Outgoing::of_sampling(graph, progress)?, &RankOptions::converged()).map(Some)
            }
            Self::WeightedPagerank | Self::Expected | Self::Presampled => Ok(None),
        }
    }

    /// The score of every node of a run's graph, whose lists by source are `outgoing`. Only the last one draws batches,
    /// and `batches` of them.
    pub fn of(self, run: &Workload, outgoing: &Outgoing, batches: u64, progress: &dyn Progress) -> Result<NodeScores> {
        self.ranked(run, outgoing, Ranking::default(), batches, progress)
    }

    /// As [`of`](Self::of), where a PageRank is made as `ranking` says.
    pub fn ranked(
        self,
        run: &Workload,
        outgoing: &Outgoing,
        ranking: Ranking,
        batches: u64,
        progress: &dyn Progress,
    ) -> Result<NodeScores> {
        let train = run.train();
        match self {
            Self::OutDegree => Ok(degrees(run.graph(), End::Source)),
            Self::InDegree => Ok(degrees(run.graph(), End::Target)),
            Self::Pagerank => reverse_pagerank(outgoing, &ranking.over(RankOptions::converged())),
            Self::WeightedPagerank => reverse_pagerank(outgoing, &ranking.over(RankOptions::weighted(&train))),
            Self::Expected => {
                expected_reads(outgoing, &Expected { train: &train, batch: run.batch(), options: run.options() })
            }
            Self::Presampled => Ok(run.reads(super::Purpose::Scoring, batches, progress)?.counts),
        }
    }
}

/// The nodes of every type, highest score first; among equals the lower id.
pub fn hottest_first(scores: &NodeScores) -> Result<Vec<Permutation>> {
    scores.iter().map(|scores| Permutation::by_degree(scores)).collect()
}

/// What every node was read, in the order nodes will lie.
pub fn in_order<'a>(order: &'a Permutation, reads: &'a [u64]) -> impl ExactSizeIterator<Item = u64> + 'a {
    let old_of_new = order.old_of_new();
    (0..old_of_new.len()).map(|at| reads.get(index(old_of_new.at(at))).copied().unwrap_or(0))
}
