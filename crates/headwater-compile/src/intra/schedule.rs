//! How a GPU runs a kernel: what changes the time that it takes, and of its results no more than the order in which sums are added.

use std::fmt;

use super::{Body, Kernel};
use crate::inter::Domain;

/// How a GPU runs a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelSchedule {
    /// A nest of several levels.
    Walk {
        /// Lanes of a warp that have an outermost row at a time, a power of two. Fewer lanes hold more elements of a vector each, and a warp
        /// has more rows under way.
        lanes: usize,
        /// Gathered rows that a group of lanes has under way at most, a power of two.
        ahead: usize,
    },
    /// Outer products.
    Outer {
        /// Shares of the rows, each of which a thread block adds up; fewer where they would be short.
        chunks: usize,
    },
    /// Products that are added up by node.
    Sums {
        /// Neighbouring nodes whose sums a thread block has at a time. More of them meet a matrix more often while it is there, fewer are more
        /// thread blocks.
        nodes: usize,
    },
    /// What runs one way alone.
    Only,
}

/// Nodes whose sums of products a thread block may have at a time: at most 96 KiB of shared memory, which every GPU of compute capability 8.0 or more
/// gives a block.
pub const SUM_NODES: [usize; 4] = [384, 192, 96, 48];

impl KernelSchedule {
    /// Gathered rows under way where nothing else is said.
    pub const AHEAD: usize = 4;
    /// The most lanes of a group: a warp.
    pub const MOST_LANES: usize = 32;
    /// The fewest lanes of a group.
    pub const LEAST_LANES: usize = 4;
    /// The most elements of one vector that a lane may hold.
    const MOST_HELD: usize = 16;

    /// Those that a kernel may have, which all give the same results within rounding. The first is the one that it has where nothing is known.
    #[must_use]
    pub fn all(kernel: &Kernel) -> Vec<Self> {
        match kernel {
            Kernel::Traverse(traverse) if traverse.nest.len() > 1 => walks(&traverse.body),
            Kernel::GemmSum(_) => SUM_NODES.map(|nodes| Self::Sums { nodes }).to_vec(),
            Kernel::Outer(_) => [264, 528, 1056].map(|chunks| Self::Outer { chunks }).to_vec(),
            _ => vec![Self::Only],
        }
    }
}

/// Walks with vectors such as a body has.
fn walks(body: &Body) -> Vec<KernelSchedule> {
    let widest = body.steps.iter().map(|step| step.shape.len()).max().unwrap_or(1);
    let usual = usual_lanes(widest);
    let fits = |lanes: &usize| *lanes <= usual || (widest <= 8 && *lanes <= KernelSchedule::MOST_LANES);
    let is_held = |lanes: &usize| widest.div_ceil(*lanes) <= KernelSchedule::MOST_HELD || *lanes == usual;
    let lanes = [usual, 4, 8, 16, 32].into_iter().enumerate().filter(|(at, lanes)| *at == 0 || *lanes != usual);
    let lanes: Vec<usize> = lanes.map(|(_, lanes)| lanes).filter(|lanes| fits(lanes) && is_held(lanes)).collect();
    let usual_ahead = lanes.iter().map(|lanes| KernelSchedule::Walk { lanes: *lanes, ahead: KernelSchedule::AHEAD });
    let others = [2, 8].map(|ahead| KernelSchedule::Walk { lanes: usual, ahead });
    // Of rows with a member or two most that could be under way are not there; more groups of lanes are worth more.
    let one =
        lanes.iter().filter(|lanes| **lanes < usual).map(|lanes| KernelSchedule::Walk { lanes: *lanes, ahead: 1 });
    usual_ahead.chain(others).chain(one).collect()
}

/// Elements of a vector that a lane reads and writes at once, and lanes that one lies across, where nothing else is said.
#[must_use]
pub(crate) fn beside(len: usize) -> usize {
    match len {
        _ if len.is_multiple_of(4) && len > 16 => 4,
        _ if len.is_multiple_of(2) && len > 8 => 2,
        _ => 1,
    }
}

/// Lanes that vectors of up to so many elements lie across where nothing else is said.
#[must_use]
pub(crate) fn usual_lanes(len: usize) -> usize {
    len.div_ceil(beside(len)).next_power_of_two().clamp(8, KernelSchedule::MOST_LANES)
}

impl fmt::Display for KernelSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Walk { lanes, ahead } => write!(f, "lanes={lanes},ahead={ahead}"),
            Self::Outer { chunks } => write!(f, "chunks={chunks}"),
            Self::Sums { nodes } => write!(f, "nodes={nodes}"),
            Self::Only => f.write_str("-"),
        }
    }
}

/// Numbers of gathered rows that a lane has under way at most.
const MOST_UNDER_WAY: usize = 32;
/// Registers of a thread of a walk besides vectors, by what compilers make of walks.
const OTHER_REGISTERS: usize = 44;

/// Rows under way at once of which a lane has so many numbers each, where no more than `most` are wanted: a power of two.
pub(crate) fn rows_ahead(numbers: usize, most: usize) -> usize {
    (1 << (MOST_UNDER_WAY / numbers.max(1)).max(1).ilog2()).clamp(1, most)
}

/// Blocks of 256 threads of a walk that an SM should have at once, by the numbers that a thread holds: gathered rows under way, sums, and
/// vectors of outer rows that stay while members are walked. Without such a bound what is done for hubs would take registers of all, and
/// fewer groups would be under way; with a tighter one registers would go to memory.
pub(crate) fn blocks_at_once(walks: usize, held: usize) -> usize {
    // Of 65,536 registers, 64 a thread are those of four blocks, 80 of three.
    match (walks, OTHER_REGISTERS + held) {
        (..=1, ..=64) => 4,
        (..=1, ..=80) => 3,
        _ => 2,
    }
}

/// Members of a row that a group of lanes has alone at most, of so many rows with so many members: a small part of them all, so that no row
/// is under way for long when all others are done; a few times what rows have, so that few are longer; between what is worth a thread block
/// and what takes one of its groups long. A node has at most one pair an edge type, so rows of pairs are never very uneven, and more of them
/// are worth a block. It follows from the graph alone, so that sums do not depend on the GPU.
pub(crate) fn most_alone(by: Domain, rows: f64, members: f64) -> f64 {
    let least = if by == Domain::Edge { 32.0 } else { 64.0 };
    (members / 16384.0).max(4.0 * members / rows.max(1.0)).clamp(least, 512.0)
}
