//! Every node adds up what the nodes it points at have for it: one pass over the edges.
//!
//! A batch walks edges backwards, from a node to those that point at it, so what a node is worth it gets from its targets.
//! Contributions are floats of 32 bits, so that those of millions of nodes stay in cache; sums are whole numbers of 64 bits,
//! so that their order does not matter: every form of the pass, on any number of threads and on a GPU, gives the same bits.
//!
//! - On the CPU (`cpu.rs`) lists are turned round first, so that each node sums over its own list and no two threads write
//!   to one place. On the way nodes that many pull from get low numbers: what is read often then fills few cache lines.
//! - On the GPU (`cuda.rs`) lists are read as they lie for sampling, and each row hands its contribution on to its
//!   neighbours with 64-bit atomics.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

pub use self::cuda::kernel_builds;

use std::ops::Range;

use headwater_cuda::Stream;
use headwater_tensor::parallel;

use self::cuda::GpuLists;
use super::NodeScores;
use super::degree::add_degrees;
use super::returns::returns;
use crate::build::{Renumbered, positions_by};
use crate::column::Ids;
use crate::error::Result;
use crate::graph::Graph;
use crate::placed::PlacedGraph;
use crate::progress::Progress;
use crate::reorder::Permutation;
use crate::topology::{Layout, Topology, index};

/// Nodes a thread takes at a time.
const NODES: usize = 1 << 14;

/// A graph's edges as every node gets something over them, and what scores ask again and again.
#[derive(Debug)]
pub struct Outgoing {
    /// Nodes of each type.
    pub(super) counts: Vec<usize>,
    /// Whether nodes pull from those that ask for them when batches are drawn.
    pub(super) follows_sampling: bool,
    relations: Vec<Pulled>,
    lists: Lists,
    /// The numbers nodes have here, where those are not their own.
    numbers: Option<Vec<Permutation>>,
}

/// One relation.
#[derive(Debug)]
struct Pulled {
    /// Type of the nodes that pull, and of those they pull from.
    source: usize,
    target: usize,
    /// How many pull from each target.
    in_degrees: Vec<u64>,
    /// The relation over which its edges come back when batches are drawn, and the share that does.
    returns: Option<(usize, f32)>,
}

#[derive(Debug)]
enum Lists {
    /// Lists by source, one a relation.
    Host(Vec<Topology>),
    /// Lists by target.
    Gpu(GpuLists),
}

impl Outgoing {
    /// Nodes pull from the nodes they point at. Lists by target are turned round, which takes as long as building them.
    pub fn of(graph: &Graph, progress: &dyn Progress) -> Result<Self> {
        Self::turned(graph, |layout| layout == Layout::Csc, progress)
    }

    /// Nodes pull from the nodes that ask for them when batches are drawn: from targets where lists are by target, from
    /// sources where they are by source.
    pub fn of_sampling(graph: &Graph, progress: &dyn Progress) -> Result<Self> {
        Self::turned(graph, |_| true, progress)
    }

    /// As [`Outgoing::of_sampling`] for a graph that a GPU reads. Nothing is turned; passes run on `stream`.
    pub fn of_placed(placed: &PlacedGraph, stream: &Stream) -> Result<Self> {
        let graph = placed.graph();
        graph.relations().iter().try_for_each(Topology::check)?;
        let lists = Lists::Gpu(GpuLists::new(placed, stream)?);
        let relations = with_returns(pulled(graph, |_| true), graph);
        Ok(Self { counts: counts(graph), follows_sampling: true, relations, lists, numbers: None })
    }

    fn turned(graph: &Graph, is_turned: impl Fn(Layout) -> bool, progress: &dyn Progress) -> Result<Self> {
        let (counts, mut relations) = (counts(graph), pulled(graph, &is_turned));
        let follows_sampling = graph.relations().iter().all(|topology| is_turned(topology.layout()));
        // Lists that need not be turned are read where they lie, and so are all others with them.
        let numbers = if follows_sampling {
            all_in_degrees(&counts, &relations)
                .iter()
                .map(|degrees| most_asked_first(degrees))
                .collect::<Result<_>>()?
        } else {
            counts.iter().map(|&count| Permutation::identity(count as u64)).collect::<Vec<_>>()
        };
        let lists = graph.relations().iter().enumerate().map(|(at, topology)| {
            if !is_turned(topology.layout()) {
                return topology.check().map(|()| topology.bare());
            }
            let (rows, columns) = graph.ends(at);
            topology.transposed_lists(Renumbered { rows: &numbers[rows], columns: &numbers[columns] }, progress)
        });
        let lists = Lists::Host(lists.collect::<Result<_>>()?);
        for relation in &mut relations {
            relation.in_degrees = picked(&relation.in_degrees, numbers[relation.target].old_of_new());
        }
        // Lists were read through by now, so they hold together.
        let relations = with_returns(relations, graph);
        Ok(Self { counts, follows_sampling, relations, lists, numbers: follows_sampling.then_some(numbers) })
    }

    /// Relations of the graph.
    pub(super) fn relation_count(&self) -> usize {
        self.relations.len()
    }

    /// Nodes of all types.
    pub(super) fn nodes(&self) -> usize {
        self.counts.iter().sum()
    }

    /// The type of the nodes that pull over a relation.
    pub(super) fn source(&self, relation: usize) -> usize {
        self.relations[relation].source
    }

    /// The relation over which the edges of one come back when batches are drawn, and the share of them that does.
    pub(super) fn returns(&self, relation: usize) -> Option<(usize, f32)> {
        self.relations[relation].returns
    }

    /// In-degrees of a relation's targets.
    pub(super) fn in_degrees(&self, relation: usize) -> &[u64] {
        &self.relations[relation].in_degrees
    }

    /// In-degrees of every node over all relations.
    pub(super) fn all_in_degrees(&self) -> NodeScores {
        all_in_degrees(&self.counts, &self.relations)
    }

    /// The number that a node has here. There is such a node.
    pub(super) fn number(&self, node_type: usize, id: u64) -> usize {
        self.numbers.as_ref().map_or(index(id), |numbers| index(numbers[node_type].new_of_old().at(index(id))))
    }

    /// What nodes have, by the numbers they have here, as they were given.
    pub(super) fn as_given(&self, scores: NodeScores) -> NodeScores {
        match &self.numbers {
            Some(numbers) => scores.iter().zip(numbers).map(|(scores, n)| picked(scores, n.new_of_old())).collect(),
            None => scores,
        }
    }

    /// Memory for passes.
    pub(super) fn passes(&self) -> Passes<'_> {
        let most = self.counts.iter().copied().max().unwrap_or(0);
        let sums = self.counts.iter().map(|&count| vec![0; count]).collect();
        Passes { graph: self, contributions: vec![0.0; most], sums }
    }
}

/// Adds what a relation's targets contribute to the sums of its sources, whose type comes second.
type Add<'a> = dyn FnMut(usize, usize, &[f32]) -> Result<()> + 'a;

/// One pass after the other, in the same memory.
pub(super) struct Passes<'a> {
    graph: &'a Outgoing,
    contributions: Vec<f32>,
    sums: NodeScores,
}

impl Passes<'_> {
    /// For every node, the sum of what its targets contribute; see [`Self::pull_over`].
    pub(super) fn pull(&mut self, contribute: impl Fn(usize, usize, &mut [f32])) -> Result<&mut NodeScores> {
        self.pull_over(0..self.graph.relation_count(), contribute)
    }

    /// For every node, the sum of what its targets contribute over these relations. `contribute` is asked a relation at a
    /// time, with the type of its targets, for one number a target: from 0 to 2^63 less all sums, of which the whole part
    /// counts.
    pub(super) fn pull_over(
        &mut self,
        relations: Range<usize>,
        contribute: impl Fn(usize, usize, &mut [f32]),
    ) -> Result<&mut NodeScores> {
        let Self { graph, contributions, sums } = self;
        let mut each = |add: &mut Add<'_>| {
            relations.clone().try_for_each(|at| {
                let relation = &graph.relations[at];
                let contributions = &mut contributions[..graph.counts[relation.target]];
                contribute(at, relation.target, contributions);
                add(at, relation.source, contributions)
            })
        };
        match &graph.lists {
            Lists::Host(lists) => {
                sums.iter_mut().for_each(|sums| parallel::for_parts(sums, NODES, &|_, sums| sums.fill(0)));
                each(&mut |at, source, contributions| {
                    cpu::add(&lists[at], contributions, &mut sums[source]);
                    Ok(())
                })?;
            }
            Lists::Gpu(lists) => {
                let pass = lists.begin(&graph.counts)?;
                each(&mut |at, source, contributions| pass.add(at, source, contributions))?;
                pass.end(sums)?;
            }
        }
        Ok(sums)
    }
}

fn counts(graph: &Graph) -> Vec<usize> {
    graph.schema().node_types().iter().map(|node_type| index(node_type.count)).collect()
}

/// Who pulls from whom. Lists that are turned are those of the nodes pulled from.
fn pulled(graph: &Graph, is_turned: impl Fn(Layout) -> bool) -> Vec<Pulled> {
    let of = |(at, topology): (usize, &Topology)| {
        let (rows, columns) = graph.ends(at);
        let is_turned = is_turned(topology.layout());
        let (source, target) = if is_turned { (columns, rows) } else { (rows, columns) };
        let mut in_degrees = vec![0; index(graph.schema().node_types()[target].count)];
        add_degrees(topology, is_turned, &mut in_degrees);
        Pulled { source, target, in_degrees, returns: None }
    };
    graph.relations().iter().enumerate().map(of).collect()
}

fn with_returns(relations: Vec<Pulled>, graph: &Graph) -> Vec<Pulled> {
    let all = relations.into_iter().zip(returns(graph));
    all.map(|(relation, returns)| Pulled { returns, ..relation }).collect()
}

fn all_in_degrees(counts: &[usize], relations: &[Pulled]) -> NodeScores {
    let mut all: NodeScores = counts.iter().map(|&count| vec![0; count]).collect();
    for relation in relations {
        parallel::for_parts(&mut all[relation.target], NODES, &|start, all| {
            all.iter_mut().zip(&relation.in_degrees[start..]).for_each(|(all, degree)| *all += degree);
        });
    }
    all
}

/// Nodes by how many pull from them, to the next power of two: within that their order matters to no cache.
fn most_asked_first(degrees: &[u64]) -> Result<Permutation> {
    let keys: Ids = parallel::map(degrees, |degree| degree.leading_zeros()).into();
    Permutation::from_old_of_new(positions_by(&keys, u64::from(u64::BITS) + 1).1)
}

/// The values at these positions. All of them are there.
fn picked(values: &[u64], at: &Ids) -> Vec<u64> {
    parallel::tabulate(at.len(), |place| values[index(at.at(place))])
}
