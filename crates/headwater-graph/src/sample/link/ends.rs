//! From edges to seeds, decided without sampling anything: which negatives to draw, where to begin, whose trees are whose.

use super::super::index::Index;
use super::super::negative::{Negatives, Pairs, Sources, Strictness};
use super::super::options::{SampleOptions, Trees};
use super::super::seeds::Seeds;
use super::{LinkSeeds, Negative};
use crate::column::Id;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::random::Key;

/// Edges that can be sampled around.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    links: LinkSeeds<'a>,
    /// The types of both ends.
    types: [usize; 2],
    trees: Trees,
    /// Negatives to draw, and how many.
    pub negatives: Option<(Pairs<'a>, u64)>,
}

impl<'a> Asked<'a> {
    /// Fails when the arrays do not fit each other, the graph has no such relation, or no such negatives.
    pub fn new(
        graph: &'a Graph,
        options: &SampleOptions,
        links: LinkSeeds<'a>,
        negative: Negative,
        key: Key,
    ) -> Result<Self> {
        check(graph, &links)?;
        let relation = &graph.schema().relations()[links.relation];
        let pairs = |strictness: Strictness, sources: Sources<'a>| {
            // Negatives have a key of their own: the neighbourhood's keys begin with a hop.
            let (topology, key) = (graph.relation(links.relation), key.of(u64::MAX));
            Pairs { topology, strictness, key, sources }
        };
        let positives = links.sources.len();
        let negatives = match negative {
            Negative::None => None,
            Negative::Binary { amount, strictness } => {
                Some((pairs(strictness, Sources::Drawn), binary_count(positives, amount)?))
            }
            Negative::Triplet { amount, strictness } => {
                let each = Sources::Each { of: links.sources, pairs: u64::from(amount) };
                Some((pairs(strictness, each), (positives as u64).saturating_mul(u64::from(amount))))
            }
        };
        match &negatives {
            Some((pairs, _)) if pairs.is_empty() => {
                Err(Error::NoPairs { relation: graph.schema().relation_name(links.relation) })
            }
            Some((_, count)) if *count > u64::from(u32::MAX) => Err(Error::SampleTooLarge),
            _ => Ok(Self { links, types: [relation.source, relation.target], trees: options.trees, negatives }),
        }
    }

    /// Where to begin, once the negatives are drawn.
    pub fn start(&self, drawn: Negatives) -> Result<Start> {
        let (positives, triplets) = (self.links.sources.len(), self.triplets());
        let (mut sources, mut targets) = (self.links.sources.to_vec(), self.links.targets.to_vec());
        if triplets == 0 {
            sources.extend(drawn.sources);
        }
        targets.extend(drawn.targets);
        let owner = Owner { sources: sources.len(), positives, triplets };
        let unresolved = drawn.unresolved;
        let (lists, numbers) = match self.trees {
            Trees::Disjoint => self.apart(sources, targets, &owner)?,
            Trees::Shared => self.together(&sources, &targets)?,
        };
        let [sources, targets] = numbers;
        let owner = (self.trees == Trees::Disjoint && positives > 0).then_some(owner);
        Ok(Start { lists, sources, targets, owner, positives, unresolved })
    }

    /// Triplet targets an edge.
    fn triplets(&self) -> usize {
        match self.negatives {
            Some((Pairs { sources: Sources::Each { pairs, .. }, .. }, _)) => crate::topology::index(pairs),
            _ => 0,
        }
    }

    /// Every end is a seed of its own. A negative sees what the edge it stands beside sees.
    fn apart(&self, sources: Vec<u64>, targets: Vec<u64>, owner: &Owner) -> Result<(Vec<SeedList>, [Vec<u32>; 2])> {
        let times =
            |count: usize| self.links.times.map(|times| (0..count).map(|at| times[owner.edge_at(at)]).collect());
        let numbers = |first: usize, count: usize| -> Result<Vec<u32>> {
            (first..first + count).map(|at| u32::try_from(at).map_err(|_| Error::SampleTooLarge)).collect()
        };
        let [source, target] = self.types;
        let first = if source == target { sources.len() } else { 0 };
        let numbers = [numbers(0, sources.len())?, numbers(first, targets.len())?];
        let (source_times, target_times) = (times(sources.len()), times(targets.len()));
        let lists = vec![
            SeedList { node_type: source, nodes: sources, times: source_times },
            SeedList { node_type: target, nodes: targets, times: target_times },
        ];
        Ok((lists, numbers))
    }

    /// Every node is a seed once.
    fn together(&self, sources: &[u64], targets: &[u64]) -> Result<(Vec<SeedList>, [Vec<u32>; 2])> {
        if self.links.times.is_some() {
            return Err(Error::Options { why: "edges with times need disjoint trees: each sees its own past" });
        }
        let mut distinct = [Distinct::default(), Distinct::default()];
        let second = usize::from(self.types[0] != self.types[1]);
        let numbers = [distinct[0].number(sources)?, distinct[second].number(targets)?];
        let lists = distinct.into_iter().zip(self.types).take(1 + second);
        let lists = lists.map(|(distinct, node_type)| SeedList { node_type, nodes: distinct.nodes, times: None });
        Ok((lists.collect(), numbers))
    }
}

fn check(graph: &Graph, links: &LinkSeeds<'_>) -> Result<()> {
    let expected = links.sources.len() as u64;
    let times = links.times.map_or(expected, |times| times.len() as u64);
    for (name, found) in [("targets", links.targets.len() as u64), ("times", times)] {
        if found != expected {
            return Err(Error::Length { name, found, expected, of: "the sources" });
        }
    }
    let limit = graph.relations().len() as u64;
    let (position, id) = (0, links.relation as u64);
    if id < limit { Ok(()) } else { Err(Error::IdOutOfRange { name: "relation", position, id, limit }) }
}

/// How many negatives a fraction for every edge makes.
fn binary_count(positives: usize, amount: f64) -> Result<u64> {
    if !(amount.is_finite() && (0.0..=1e6).contains(&amount)) {
        return Err(Error::Parameter { name: "amount", value: amount, expected: "from 0 to a million" });
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates, and is not negative")]
    let count = (positives as f64 * amount).ceil() as u64;
    Ok(count)
}

/// Where a sample begins, and what its parts mean.
#[derive(Debug)]
pub(super) struct Start {
    lists: Vec<SeedList>,
    /// Local numbers of all sources.
    pub sources: Vec<u32>,
    /// Local numbers of all targets.
    pub targets: Vec<u32>,
    /// With disjoint trees, which edge a tree belongs to.
    pub owner: Option<Owner>,
    pub positives: usize,
    pub unresolved: u64,
}

/// Seeds of one type.
#[derive(Debug)]
struct SeedList {
    node_type: usize,
    nodes: Vec<u64>,
    times: Option<Vec<i64>>,
}

impl Start {
    pub fn seeds(&self) -> Vec<Seeds<'_>> {
        self.lists.iter().map(SeedList::seeds).collect()
    }
}

impl SeedList {
    fn seeds(&self) -> Seeds<'_> {
        Seeds { node_type: self.node_type, nodes: &self.nodes, times: self.times.as_deref() }
    }
}

/// Which positive edge an end belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    /// Sources of edges and negatives.
    pub sources: usize,
    pub positives: usize,
    /// Triplet targets an edge.
    pub triplets: usize,
}

impl Owner {
    /// The edge of the source or of the target at a position.
    fn edge_at(&self, at: usize) -> usize {
        match at.checked_sub(self.positives) {
            None => at,
            Some(negative) if self.triplets > 0 => negative / self.triplets,
            Some(negative) => negative % self.positives.max(1),
        }
    }

    /// The edge of a tree: trees are numbered over the sources, then over the targets.
    pub fn edge_of(&self, tree: u32) -> u32 {
        let at = (tree as usize).checked_sub(self.sources).unwrap_or(tree as usize);
        u32::narrow(self.edge_at(at) as u64)
    }
}

/// Nodes by first sight.
#[derive(Default)]
struct Distinct {
    known: Index<u128>,
    nodes: Vec<u64>,
}

impl Distinct {
    /// The number of each; those not seen before get the next.
    fn number(&mut self, ids: &[u64]) -> Result<Vec<u32>> {
        let number = |&id: &u64| {
            let next = u32::try_from(self.nodes.len()).map_err(|_| Error::SampleTooLarge)?;
            let (number, is_new) = self.known.number(id, next);
            self.nodes.extend(is_new.then_some(id));
            Ok(number)
        };
        ids.iter().map(number).collect()
    }
}
