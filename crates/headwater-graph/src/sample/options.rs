//! What is asked of a sampler, and whether it makes sense.

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::topology::RowOrder;

/// How many neighbours of a row are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fanout {
    /// Every one.
    All,
    /// At most so many.
    Most(u32),
}

impl Fanout {
    /// As PyG writes it: -1 means all.
    pub fn from_number(number: i64) -> Result<Self> {
        match u32::try_from(number) {
            Ok(most) => Ok(Self::Most(most)),
            Err(_) if number == -1 => Ok(Self::All),
            Err(_) => Err(Error::Fanout { number }),
        }
    }

    /// How many of `degree` neighbours that makes without replacement.
    #[must_use]
    pub fn of(self, degree: u64) -> u64 {
        match self {
            Self::All => degree,
            Self::Most(most) => degree.min(u64::from(most)),
        }
    }
}

/// Which neighbours are likelier than others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bias {
    /// None.
    #[default]
    Uniform,
    /// In proportion to the edges' weights. Edges of weight zero are never taken; rows of such edges have no neighbours.
    Weights,
}

/// Which neighbours a seed's time lets it see: always those with `time <= seed time`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recency {
    /// Any of those.
    #[default]
    Any,
    /// The latest of those.
    Last,
}

/// Whether a neighbour may be taken twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replacement {
    /// No.
    #[default]
    Without,
    /// Yes: rows that have a neighbour at all give exactly as many as were asked for.
    With,
}

/// Whether seeds share what they find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trees {
    /// A node that several seeds reach stands in the sample once.
    #[default]
    Shared,
    /// Every seed has nodes of its own; `tree` says whose a node is. Times need this: what a node may see depends on its seed.
    Disjoint,
}

/// Whether the sample names its edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EdgeIds {
    /// It does.
    #[default]
    Kept,
    /// It does not, which saves eight bytes an edge.
    Dropped,
}

/// How neighbourhoods are drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleOptions {
    /// For every hop, the fan-out of every relation. A hop with one entry means it for all relations.
    pub fanouts: Vec<Vec<Fanout>>,
    /// Which neighbours are likelier.
    pub bias: Bias,
    /// What a seed's time lets it see.
    pub recency: Recency,
    /// Whether a neighbour may be taken twice.
    pub replacement: Replacement,
    /// Whether seeds share what they find.
    pub trees: Trees,
    /// Whether edges are named.
    pub edge_ids: EdgeIds,
}

impl SampleOptions {
    /// The same fan-out for every relation of a hop, as PyG's list of numbers.
    pub fn fanouts(numbers: &[i64]) -> Result<Self> {
        let fanouts = numbers.iter().map(|&number| Ok(vec![Fanout::from_number(number)?])).collect::<Result<_>>()?;
        Ok(Self {
            fanouts,
            bias: Bias::default(),
            recency: Recency::default(),
            replacement: Replacement::default(),
            trees: Trees::default(),
            edge_ids: EdgeIds::default(),
        })
    }

    /// The fan-out of a relation in a hop.
    #[must_use]
    pub fn fanout(&self, hop: usize, relation: usize) -> Fanout {
        let hop = &self.fanouts[hop];
        if hop.len() == 1 { hop[0] } else { hop[relation] }
    }

    /// Fails when `graph` cannot be sampled this way.
    pub fn check(&self, graph: &Graph) -> Result<()> {
        self.check_hops(graph.relations().len())?;
        if self.recency == Recency::Last && self.replacement == Replacement::With {
            return Err(Error::Options { why: "the last neighbours cannot be drawn with replacement" });
        }
        if self.recency == Recency::Last && self.bias == Bias::Weights {
            return Err(Error::Options { why: "the last neighbours cannot be weighted" });
        }
        let lacks_weights = |at: &usize| graph.relation(*at).weights().is_none() && graph.relation(*at).edges() > 0;
        match (0..graph.relations().len()).find(lacks_weights) {
            Some(at) if self.bias == Bias::Weights => {
                Err(Error::NoWeights { relation: graph.schema().relation_name(at) })
            }
            _ => Ok(()),
        }
    }

    /// Fails when a hop has neither one fan-out nor one a relation.
    pub(crate) fn check_hops(&self, relations: usize) -> Result<()> {
        match self.fanouts.iter().find(|hop| hop.len() != 1 && hop.len() != relations) {
            None => Ok(()),
            Some(hop) => {
                let (found, expected) = (hop.len() as u64, relations as u64);
                Err(Error::Length { name: "fan-outs of a hop", found, expected, of: "the relations" })
            }
        }
    }

    /// Fails when seeds with times cannot be sampled this way.
    pub(super) fn check_times(&self, graph: &Graph) -> Result<()> {
        if self.trees == Trees::Shared {
            return Err(Error::Options { why: "seeds with times need disjoint trees: each sees its own past" });
        }
        for (at, topology) in graph.relations().iter().enumerate() {
            if topology.times().is_some() && topology.order() != RowOrder::Time {
                return Err(Error::RowsNotInTime { relation: graph.schema().relation_name(at) });
            }
        }
        Ok(())
    }
}
