//! Neighbour lists out of edge lists.
//!
//! A parallel, stable counting sort: edges of a row keep the order they were given in, for any number of threads. What
//! it takes is known beforehand ([`Coo::plan`]) and stays within one and a half times input and output together.
//!
//! ```
//! use headwater_graph::build::{BuildOptions, Coo};
//! use headwater_graph::{Layout, Silent};
//! let edges = Coo::new(vec![0u32, 2, 1].into(), vec![1u32, 1, 2].into(), 3, 3);
//! let topology = edges.build(BuildOptions { layout: Layout::Csc, ..Default::default() }, &Silent)?;
//! assert_eq!((&topology.offsets()[..], topology.degree(1)), (&[0, 0, 2, 3][..], 2));
//! # Ok::<(), headwater_graph::Error>(())
//! ```

mod deal;
mod plan;
mod sort;
#[cfg(test)]
mod tests;
mod transpose;

use headwater_tensor::parallel::{self, PIECE};

use self::plan::MOST_ROWS;
pub use self::plan::{BuildPlan, BuildSize, build_plan};

use self::sort::{Sorted, sort};
pub(crate) use self::transpose::Renumbered;
use crate::column::{Column, Id, Ids};
use crate::error::{Error, Result};
pub use crate::lane::EdgeIds;
use crate::lane::{Carried, Lane, Moved};
use crate::progress::{Progress, Silent};
use crate::topology::{Layout, Topology, check_weights};

/// Edges one after the other, each with both ends.
#[derive(Debug, Clone)]
pub struct Coo {
    /// Where edges begin.
    pub sources: Ids,
    /// Where they end.
    pub targets: Ids,
    /// Nodes that edges may begin at.
    pub source_count: u64,
    /// Nodes that edges may end at.
    pub target_count: u64,
    /// The edges' own ids; without them an edge's id is its position.
    pub edge_ids: Option<Ids>,
    /// Their weights.
    pub weights: Option<Column<f32>>,
    /// Their times.
    pub times: Option<Column<i64>>,
}

/// What to build.
#[derive(Debug, Clone, Copy)]
pub struct BuildOptions {
    /// Which end owns the lists.
    pub layout: Layout,
    /// Whether edges keep their ids.
    pub edge_ids: EdgeIds,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self { layout: Layout::Csc, edge_ids: EdgeIds::Kept }
    }
}

impl Coo {
    /// Edges with nothing but their ends.
    #[must_use]
    pub fn new(sources: Ids, targets: Ids, source_count: u64, target_count: u64) -> Self {
        Self { sources, targets, source_count, target_count, edge_ids: None, weights: None, times: None }
    }

    /// What building will take.
    #[must_use]
    pub fn plan(&self, options: BuildOptions) -> BuildPlan {
        self.as_edges(options).plan()
    }

    /// Sorts the edges into lists.
    pub fn build(&self, options: BuildOptions, progress: &dyn Progress) -> Result<Topology> {
        self.check()?;
        self.as_edges(options).sort(options.layout, progress)
    }

    /// Whether every array has its length and every id names a node.
    pub fn check(&self) -> Result<()> {
        for (name, nodes) in [("source nodes", self.source_count), ("target nodes", self.target_count)] {
            if nodes > MOST_ROWS {
                let expected = format!("at most {MOST_ROWS}");
                return Err(Error::Setting { name, value: nodes.to_string(), expected });
            }
        }
        let expected = self.sources.len() as u64;
        let lengths = [
            ("targets", Some(self.targets.len())),
            ("edge ids", self.edge_ids.as_ref().map(Ids::len)),
            ("weights", self.weights.as_ref().map(|weights| weights.len())),
            ("times", self.times.as_ref().map(|times| times.len())),
        ];
        for (name, found) in lengths {
            match found.map(|found| found as u64) {
                Some(found) if found != expected => {
                    return Err(Error::Length { name, found, expected, of: "the sources" });
                }
                _ => {}
            }
        }
        self.sources.check_below(self.source_count, "sources")?;
        self.targets.check_below(self.target_count, "targets")?;
        self.weights.as_ref().map_or(Ok(()), |weights| check_weights(weights))
    }

    fn as_edges(&self, options: BuildOptions) -> Edges<'_> {
        let (keys, rows, others, columns) = match options.layout {
            Layout::Csr => (&self.sources, self.source_count, &self.targets, self.target_count),
            Layout::Csc => (&self.targets, self.target_count, &self.sources, self.source_count),
        };
        let ids = || Lane::of_edge_ids(self.edge_ids.as_ref(), self.sources.len() as u64);
        let edge_ids = (options.edge_ids == EdgeIds::Kept).then(ids);
        let carried = Carried { edge_ids, weights: self.weights.as_ref(), times: self.times.as_ref() };
        let neighbours = Lane::of_ids(others, columns);
        Edges { keys, rows, columns, neighbours, carried, input_bytes: self.bytes() }
    }

    fn bytes(&self) -> u64 {
        let ids = |ids: &Ids| (ids.len() * ids.id_bytes()) as u64;
        ids(&self.sources)
            + ids(&self.targets)
            + self.edge_ids.as_ref().map_or(0, ids)
            + self.weights.as_ref().map_or(0, |weights| weights.len() as u64 * 4)
            + self.times.as_ref().map_or(0, |times| times.len() as u64 * 8)
    }
}

/// Edges with one end chosen to own them.
struct Edges<'a> {
    keys: &'a Ids,
    rows: u64,
    columns: u64,
    neighbours: Lane<'a>,
    carried: Carried<'a>,
    input_bytes: u64,
}

/// Refuses work that would end the process for want of memory. A system that does not say what is free is believed.
pub(crate) fn expect_room(what: &'static str, needed_bytes: u64) -> Result<()> {
    // Little is always there; asking the system costs more than it.
    const LITTLE_BYTES: u64 = 1 << 24;
    if needed_bytes <= LITTLE_BYTES {
        return Ok(());
    }
    match headwater_memory::host_bytes_available() as u64 {
        free_bytes if free_bytes > 0 && free_bytes < needed_bytes => {
            Err(Error::Room { what, needed_bytes, free_bytes })
        }
        _ => Ok(()),
    }
}

impl Edges<'_> {
    fn plan(&self) -> BuildPlan {
        let carried = self.carried.lane_bytes();
        build_plan(&BuildSize {
            rows: self.rows,
            edges: self.keys.len() as u64,
            input_bytes: self.input_bytes,
            edge_bytes: self.neighbours.bytes() + carried.iter().sum::<u64>(),
            lanes: 1 + carried.len() as u64,
            threads: rayon::current_num_threads() as u64,
        })
    }

    /// Sorts. Ends and lengths have been checked.
    fn sort(self, layout: Layout, progress: &dyn Progress) -> Result<Topology> {
        let plan = self.plan();
        expect_room("building lists", plan.peak_bytes.saturating_sub(plan.input_bytes))?;
        let (carried, labels) = self.carried.into_lanes();
        let lanes: Vec<Lane<'_>> = std::iter::once(self.neighbours).chain(carried).collect();
        let Sorted { offsets, lanes } = sort(&plan, self.rows, self.keys, &lanes, progress);
        let mut lanes = lanes.into_iter();
        let neighbours = lanes.next().unwrap_or(Moved::Four(Vec::new()));
        labels.attach(lanes, Topology::trusted(layout, self.columns, offsets.into(), neighbours.into())?)
    }
}

/// The inverse of a permutation: where each number from 0 on stands in `ids`.
pub(crate) fn inverse_of(ids: &Ids) -> Result<Ids> {
    let count = ids.len() as u64;
    ids.check_below(count, "permutation")?;
    let (offsets, positions) = positions_by(ids, count);
    match parallel::first(offsets.len(), PIECE, &|mut range| range.find(|at| *at as u64 != offsets[*at])) {
        // Up to here every number stands once.
        Some(at) => Err(Error::NotPermutation { id: at as u64 - 1, times: offsets[at] - (at as u64 - 1), count }),
        None => Ok(positions),
    }
}

/// The positions of all keys, which are below `limit`, in the order of keys, and where those of each key begin.
pub(crate) fn positions_by(keys: &Ids, limit: u64) -> (Vec<u64>, Ids) {
    let count = keys.len() as u64;
    let lane = Lane::of_edge_ids(None, count);
    let input_bytes = count * keys.id_bytes() as u64;
    let threads = rayon::current_num_threads() as u64;
    let size = BuildSize { rows: limit, edges: count, input_bytes, edge_bytes: lane.bytes(), lanes: 1, threads };
    let Sorted { offsets, lanes } = sort(&build_plan(&size), limit, keys, &[lane], &Silent);
    (offsets, lanes.into_iter().next().unwrap_or(Moved::Four(Vec::new())).into())
}

impl Ids {
    /// Whether all of them are below a limit.
    pub fn check_below(&self, limit: u64, name: &'static str) -> Result<()> {
        let bad = match self {
            Self::U32(ids) => first_from(ids, limit),
            Self::U64(ids) => first_from(ids, limit),
        };
        match bad {
            Some(at) => Err(Error::IdOutOfRange { name, position: at as u64, id: self.at(at), limit }),
            None => Ok(()),
        }
    }
}

/// The first id at or above a limit. Blocks are folded without a branch an id, which is several times faster.
fn first_from<T: Id>(ids: &[T], limit: u64) -> Option<usize> {
    // Not `Iterator::max`, which compiles to a comparison at a time.
    let most = |block: &[T]| block.iter().fold(T::narrow(0), |most, id| most.max(*id)).wide();
    let is_bad = |block: &[T]| !block.is_empty() && most(block) >= limit;
    parallel::first(ids.len(), PIECE, &|range| {
        let block = &ids[range.clone()];
        let within = if is_bad(block) { block.iter().position(|id| id.wide() >= limit) } else { None };
        within.map(|within| range.start + within)
    })
}
