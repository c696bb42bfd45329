//! Walks on the CPU, many at a time.

use headwater_tensor::parallel;

use super::{Accept, Plan, WalkOptions, too_long};
use crate::error::Result;
use crate::random::Key;
use crate::topology::{Topology, index};

/// Walks that a thread takes at a time.
const WALKS: usize = 64;

/// Walks from each start: `length + 1` nodes each, start included, one walk after the other.
pub fn random_walks(topology: &Topology, starts: &[u64], options: &WalkOptions, key: Key) -> Result<Vec<u64>> {
    let Plan { nodes, total, accept } = Plan::new(topology, starts, options)?;
    let mut walks = Vec::new();
    walks.try_reserve_exact(total).map_err(|_| too_long(options))?;
    walks.resize(total, 0);
    parallel::for_parts(&mut walks, WALKS * nodes, &|first, walks| {
        for (walk, nodes) in (first / nodes..).zip(walks.chunks_exact_mut(nodes)) {
            nodes[0] = starts[walk];
            for step in 1..nodes.len() {
                let key = key.of(walk as u64).of(step as u64);
                let before = (step > 1).then(|| nodes[step - 2]);
                nodes[step] = next(topology, nodes[step - 1], before, &accept, key);
            }
        }
    });
    Ok(walks)
}

fn next(topology: &Topology, here: u64, before: Option<u64>, accept: &Accept, key: Key) -> u64 {
    let list = topology.sound_list(here);
    if list.is_empty() {
        return here;
    }
    let mut trial = 0;
    loop {
        let drawn = key.below(2 * trial, list.len() as u64);
        let there = topology.neighbours().at(list.start + index(drawn));
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
