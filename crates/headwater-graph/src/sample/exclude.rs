//! Edges that must not be seen: supervision edges would tell a model what it is asked.
//!
//! An edge is named by its ends, so parallel edges go with it. It is drawn and then dropped: a row may give fewer
//! neighbours than its fan-out, but which others it gives does not depend on what is excluded.

use std::collections::{HashMap, HashSet};

use crate::graph::Graph;
use crate::topology::Layout;

/// Row and neighbour of each edge.
pub(super) type Pairs = HashSet<(u64, u64)>;

/// Edges of some relations.
#[derive(Debug, Clone, Default)]
pub struct Excluded {
    relations: HashMap<usize, Pairs>,
}

impl Excluded {
    /// Nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Also the edges of `relation` from each of `sources` to the target beside it.
    #[must_use]
    pub fn and(mut self, graph: &Graph, relation: usize, sources: &[u64], targets: &[u64]) -> Self {
        let (rows, neighbours) = match graph.relation(relation).layout() {
            Layout::Csc => (targets, sources),
            Layout::Csr => (sources, targets),
        };
        let pairs = rows.iter().copied().zip(neighbours.iter().copied());
        self.relations.entry(relation).or_default().extend(pairs);
        self
    }

    /// All of them: relation, row and neighbour.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let of = |(&relation, pairs): (&usize, _)| {
            let pairs: &Pairs = pairs;
            pairs.iter().map(move |&(row, neighbour)| (relation as u64, row, neighbour))
        };
        self.relations.iter().flat_map(of)
    }

    /// Those of one relation.
    pub(super) fn of(&self, relation: usize) -> Option<&Pairs> {
        self.relations.get(&relation).filter(|pairs| !pairs.is_empty())
    }
}
