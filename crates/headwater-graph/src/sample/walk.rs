//! Walks: from each start, step after step to a neighbour of where one is.
//!
//! Plain walks go to any neighbour alike. node2vec's go back with weight 1/p, to a neighbour of the node before with
//! weight 1, further away with weight 1/q; that is done by drawing and accepting, so a step costs the same at any degree.
//! A walker without a way stays where it is. The draws of a walk are keyed by its number and step.

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::random::Key;
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

/// Walks from each start: `length + 1` nodes each, start included, one walk after the other.
pub fn random_walks(topology: &Topology, starts: &[u64], options: &WalkOptions, key: Key) -> Result<Vec<u64>> {
    if topology.rows() != topology.columns() {
        let (name, expected) = ("columns", "as many as rows: a walk needs a relation within a type");
        return Err(Error::Parameter { name, value: topology.columns() as f64, expected });
    }
    let accept = Accept::new(options)?;
    if let Some(at) = starts.par_iter().position_first(|start| *start >= topology.rows()) {
        let (position, id, limit) = (at as u64, starts[at], topology.rows());
        return Err(Error::IdOutOfRange { name: "starts", position, id, limit });
    }
    let nodes = options.length as usize + 1;
    let mut walks = vec![0; starts.len() * nodes];
    walks.par_chunks_mut(nodes).enumerate().for_each(|(walk, nodes)| {
        nodes[0] = starts[walk];
        for step in 1..nodes.len() {
            let key = key.of(walk as u64).of(step as u64);
            let before = (step > 1).then(|| nodes[step - 2]);
            nodes[step] = next(topology, nodes[step - 1], before, &accept, key);
        }
    });
    Ok(walks)
}

fn next(topology: &Topology, here: u64, before: Option<u64>, accept: &Accept, key: Key) -> u64 {
    let list = topology.list(here);
    if list.is_empty() {
        return here;
    }
    let mut trial = 0;
    loop {
        let drawn = key.below(2 * trial, list.len() as u64);
        let there = topology.neighbours().at(list.start + crate::topology::index(drawn));
        // A damaged file may name a node that is not there; a walker does not follow it.
        if there >= topology.rows() {
            return here;
        }
        let Some(before) = before.filter(|_| !accept.is_plain) else { return there };
        let limit = if there == before {
            accept.back
        } else if topology.has_edge(before, there) {
            accept.near
        } else {
            accept.far
        };
        if key.draw(2 * trial + 1) >> 11 < limit {
            return there;
        }
        trial += 1;
    }
}

/// Chances of acceptance in steps of 2^-53: integers, so that every device decides alike.
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
