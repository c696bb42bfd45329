//! Neighbourhoods of edges: both ends of each, with negatives beside them.
//!
//! The ends become seeds, each node once, in the order of sight: sources, then targets. Disjoint trees keep every end
//! apart instead; then the tree of a node is the number of the positive edge it belongs to, as PyG has it.

use super::exclude::Excluded;
use super::negative::{Pairs, Strictness};
use super::neighbour::NeighbourSampler;
use super::options::Trees;
use super::output::Sample;
use super::seeds::Seeds;
use crate::error::{Error, Result};
use crate::random::Key;

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

/// Samples around edges. `excluded` edges are not seen; see [`Excluded`].
pub fn sample_links(
    sampler: &NeighbourSampler,
    links: LinkSeeds<'_>,
    negative: Negative,
    excluded: &Excluded,
    key: Key,
) -> Result<LinkSample> {
    check(sampler, &links)?;
    // Negatives have a key of their own: the neighbourhood's keys begin with a hop.
    let ends = Ends::draw(sampler, &links, negative, key.of(u64::MAX))?;
    let relation = &sampler.graph().schema().relations()[links.relation];
    let is_disjoint = sampler.options().trees == Trees::Disjoint;
    let times = links.times.map(|times| ends.times(times));
    let mut made = if is_disjoint {
        apart(sampler, &ends, times.as_ref(), (relation.source, relation.target), excluded, key)?
    } else {
        together(sampler, &ends, times.as_ref(), (relation.source, relation.target), excluded, key)?
    };
    made.positives = links.sources.len();
    made.unresolved = ends.unresolved;
    if is_disjoint && made.positives > 0 {
        let positives = u32::try_from(made.positives).map_err(|_| Error::SampleTooLarge)?;
        let trees = made.sample.nodes.iter_mut().filter_map(|nodes| nodes.trees.as_mut());
        trees.flatten().for_each(|tree| *tree = ends.edge_of(*tree, positives));
    }
    Ok(made)
}

fn check(sampler: &NeighbourSampler, links: &LinkSeeds<'_>) -> Result<()> {
    let expected = links.sources.len() as u64;
    let times = links.times.map_or(expected, |times| times.len() as u64);
    for (name, found) in [("targets", links.targets.len() as u64), ("times", times)] {
        if found != expected {
            return Err(Error::Length { name, found, expected, of: "the sources" });
        }
    }
    let limit = sampler.graph().relations().len() as u64;
    let (position, id) = (0, links.relation as u64);
    if id < limit { Ok(()) } else { Err(Error::IdOutOfRange { name: "relation", position, id, limit }) }
}

/// Both ends of every edge and negative.
struct Ends {
    sources: Vec<u64>,
    targets: Vec<u64>,
    positives: usize,
    /// Triplet targets an edge.
    triplets: usize,
    unresolved: u64,
}

impl Ends {
    fn draw(sampler: &NeighbourSampler, links: &LinkSeeds<'_>, negative: Negative, key: Key) -> Result<Self> {
        let positives = links.sources.len();
        let (sources, targets) = (links.sources.to_vec(), links.targets.to_vec());
        let mut ends = Self { sources, targets, positives, triplets: 0, unresolved: 0 };
        let topology = sampler.graph().relation(links.relation);
        let pairs = |strictness| {
            let pairs = Pairs { topology, strictness, key };
            let is_empty = pairs.source_count() == 0 || pairs.target_count() == 0;
            let relation = || sampler.graph().schema().relation_name(links.relation);
            if is_empty { Err(Error::NoPairs { relation: relation() }) } else { Ok(pairs) }
        };
        match negative {
            Negative::None => {}
            Negative::Binary { amount, strictness } => {
                if !(amount.is_finite() && (0.0..=1e6).contains(&amount)) {
                    return Err(Error::Parameter { name: "amount", value: amount, expected: "from 0 to a million" });
                }
                let (pairs, count) = (pairs(strictness)?, negatives_of(positives, amount));
                (0..count).for_each(|at| ends.take(pairs.draw(at, None), true));
            }
            Negative::Triplet { amount, strictness } => {
                let pairs = pairs(strictness)?;
                ends.triplets = amount as usize;
                for (at, &source) in links.sources.iter().enumerate() {
                    let first = at as u64 * u64::from(amount);
                    (first..first + u64::from(amount)).for_each(|at| ends.take(pairs.draw(at, Some(source)), false));
                }
            }
        }
        Ok(ends)
    }

    fn take(&mut self, drawn: super::negative::Drawn, with_source: bool) {
        if with_source {
            self.sources.push(drawn.source);
        }
        self.targets.push(drawn.target);
        self.unresolved += u64::from(!drawn.is_free);
    }

    /// Times of all sources and of all targets: a negative sees what the edge it stands beside sees.
    fn times(&self, of_edges: &[i64]) -> [Vec<i64>; 2] {
        let of = |at: usize| of_edges[self.edge_at(at)];
        [(0..self.sources.len()).map(of).collect(), (0..self.targets.len()).map(of).collect()]
    }

    /// The positive edge that an end belongs to.
    fn edge_at(&self, at: usize) -> usize {
        match at.checked_sub(self.positives) {
            None => at,
            Some(negative) if self.triplets > 0 => negative / self.triplets,
            Some(negative) => negative % self.positives.max(1),
        }
    }

    /// The same for a tree: trees are numbered over the sources, then over the targets.
    fn edge_of(&self, tree: u32, positives: u32) -> u32 {
        let at = (tree as usize).checked_sub(self.sources.len()).unwrap_or(tree as usize);
        u32::try_from(self.edge_at(at)).unwrap_or(positives)
    }
}

/// How many negatives a fraction for every edge makes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a million for each of 2^32 edges")]
fn negatives_of(positives: usize, amount: f64) -> u64 {
    (positives as f64 * amount).ceil() as u64
}

/// Every end is a seed of its own.
fn apart(
    sampler: &NeighbourSampler,
    ends: &Ends,
    times: Option<&[Vec<i64>; 2]>,
    (source, target): (usize, usize),
    excluded: &Excluded,
    key: Key,
) -> Result<LinkSample> {
    let seeds = [
        Seeds { node_type: source, nodes: &ends.sources, times: times.map(|times| times[0].as_slice()) },
        Seeds { node_type: target, nodes: &ends.targets, times: times.map(|times| times[1].as_slice()) },
    ];
    let sample = sampler.sample_without(&seeds, excluded, key)?;
    let first = if source == target { ends.sources.len() } else { 0 };
    let numbers = |first: usize, count: usize| {
        (first..first + count)
            .map(|at| u32::try_from(at).map_err(|_| Error::SampleTooLarge))
            .collect::<Result<Vec<_>>>()
    };
    let (sources, targets) = (numbers(0, ends.sources.len())?, numbers(first, ends.targets.len())?);
    Ok(LinkSample { sample, sources, targets, ..LinkSample::default() })
}

/// Every node is a seed once.
fn together(
    sampler: &NeighbourSampler,
    ends: &Ends,
    times: Option<&[Vec<i64>; 2]>,
    (source, target): (usize, usize),
    excluded: &Excluded,
    key: Key,
) -> Result<LinkSample> {
    if times.is_some() {
        return Err(Error::Options { why: "edges with times need disjoint trees: each sees its own past" });
    }
    let mut known = [super::index::Index::<u128>::new(), super::index::Index::new()];
    let mut nodes = [Vec::new(), Vec::new()];
    let mut number = |end: usize, ids: &[u64]| {
        let mut numbers = Vec::with_capacity(ids.len());
        for &id in ids {
            let next = u32::try_from(nodes[end].len()).map_err(|_| Error::SampleTooLarge)?;
            let (number, is_new) = known[end].number(id, next);
            nodes[end].extend(is_new.then_some(id));
            numbers.push(number);
        }
        Ok::<_, Error>(numbers)
    };
    let sources = number(0, &ends.sources)?;
    let targets = number(usize::from(source != target), &ends.targets)?;
    let seeds = |node_type: usize, end: usize| Seeds { node_type, nodes: &nodes[end], times: None };
    let seeds = [seeds(source, 0), seeds(target, 1)];
    let sample = sampler.sample_without(&seeds[..1 + usize::from(source != target)], excluded, key)?;
    Ok(LinkSample { sample, sources, targets, ..LinkSample::default() })
}
