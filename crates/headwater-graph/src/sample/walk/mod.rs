//! Walks: from each start, step after step to a neighbour of where one is.
//!
//! Plain walks go to any neighbour alike. node2vec's go back with weight 1/p, to a neighbour of the node before with
//! weight 1, further away with weight 1/q; that is done by drawing and accepting, so a step costs the same at any degree
//! where rows are in the order of neighbours. A walker without a way stays where it is; so does one that meets a damaged
//! row or a neighbour that is no node. The draws of a walk are keyed by its number and step.
//!
//! In: a relation within a type, starts, options, a key. Out: `length + 1` nodes a walk, start included, one walk after
//! the other: [`random_walks`] in host memory, [`GpuRelation::random_walks`](super::GpuRelation::random_walks) in the
//! GPU's.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

pub use cpu::random_walks;
pub(super) use cuda::kernel_builds;

use headwater_tensor::parallel;

use crate::error::{Error, Result};
use crate::topology::Topology;

/// How walks go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WalkOptions {
    /// Steps of a walk.
    pub length: u32,
    /// How unlikely it is to go back at once; 1 for plain walks.
    pub p: f64,
    /// How unlikely it is to go further away; 1 for plain walks.
    pub q: f64,
}

/// Weights may differ by so much; drawing and accepting takes as many draws at worst.
const MOST_RATIO: f64 = 65_536.0;

/// Walks that can be taken, in numbers.
struct Plan {
    /// Of one walk.
    nodes: usize,
    /// Of all.
    total: usize,
    accept: Accept,
}

impl Plan {
    fn new(topology: &Topology, starts: &[u64], options: &WalkOptions) -> Result<Self> {
        if topology.rows() != topology.columns() {
            let (name, expected) = ("columns", "as many as rows: a walk needs a relation within a type");
            return Err(Error::Parameter { name, value: topology.columns() as f64, expected });
        }
        let accept = Accept::new(options)?;
        if let Some(at) = parallel::position(starts, |start| *start >= topology.rows()) {
            let (position, id, limit) = (at as u64, starts[at], topology.rows());
            return Err(Error::IdOutOfRange { name: "starts", position, id, limit });
        }
        let nodes = options.length as usize + 1;
        let total = starts.len().checked_mul(nodes).ok_or_else(|| too_long(options))?;
        Ok(Self { nodes, total, accept })
    }
}

fn too_long(options: &WalkOptions) -> Error {
    let (name, value) = ("length", f64::from(options.length));
    Error::Parameter { name, value, expected: "so short that all walks fit in memory" }
}

/// Chances of acceptance in steps of 2^-53: integers, so that every device decides alike.
#[derive(Debug, Clone, Copy)]
struct Accept {
    back: u64,
    near: u64,
    far: u64,
    is_plain: bool,
}

impl Accept {
    fn new(options: &WalkOptions) -> Result<Self> {
        for (name, value) in [("p", options.p), ("q", options.q)] {
            if !(value.is_finite() && value > 0.0) {
                return Err(Error::Parameter { name, value, expected: "a finite number above 0" });
            }
        }
        let weights = [1.0 / options.p, 1.0, 1.0 / options.q];
        let (least, most) =
            (weights.iter().copied().fold(f64::MAX, f64::min), weights.iter().copied().fold(0.0, f64::max));
        if most / least > MOST_RATIO {
            let (name, value) = ("the ratio of p, 1 and q", most / least);
            return Err(Error::Parameter { name, value, expected: "at most 65536" });
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 2^53")]
        let [back, near, far] = weights.map(|weight| (weight / most * (1u64 << 53) as f64) as u64);
        Ok(Self { back, near, far, is_plain: most == least })
    }
}
