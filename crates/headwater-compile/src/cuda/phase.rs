//! In which order a chunk of rows is worked on: what lanes make of rows of their own, and what all lanes make of one row after the other,
//! depend on each other in turn.

use std::collections::BTreeMap;

use super::loops::{Act, Kind};
use super::nest::Nest;
use super::nodes::NodeId;

/// What is done with a chunk, in turn by lanes (even phases) and with vectors (odd ones).
pub(super) struct Phases {
    pub all: Vec<Vec<Act>>,
    /// Lanes' vectors that are made out of vectors across lanes.
    pub crossing: Vec<NodeId>,
}

impl Phases {
    pub fn new(nest: &Nest<'_>, acts: &[Act]) -> Self {
        let mut found = Self { all: Vec::new(), crossing: Vec::new() };
        // The phase from which on each vector is there for lanes, and the one in which vectors across lanes are made.
        let mut phase_of: BTreeMap<NodeId, usize> = BTreeMap::new();
        for act in acts {
            let (phase, is_done_then) = match act {
                Act::Make(node) => {
                    let kind = nest.kinds[*node];
                    let phase = found.phase(nest, &phase_of, *node, kind == Kind::Lane);
                    if kind == Kind::Crossing {
                        found.crossing.push(*node);
                    }
                    phase_of.insert(*node, phase);
                    // Vectors across lanes are made where they are read.
                    (phase, kind != Kind::Wide || nest.nodes().is_store(*node))
                }
                Act::Reload(node, _) => {
                    phase_of.insert(*node, 0);
                    (0, true)
                }
                Act::Keep(node, _) => (phase_of[node].next_multiple_of(2), true),
                // Lanes find the largest, and read it from the same phase on.
                Act::Raise(node) => {
                    let Some(x) = nest.nodes().source(*node) else { continue };
                    let phase = phase_of.get(&x).copied().unwrap_or(0).next_multiple_of(2);
                    phase_of.insert(*node, phase);
                    (phase, true)
                }
                Act::Add(node) => {
                    let Some(x) = nest.nodes().source(*node) else { continue };
                    let phase = phase_of.get(&x).copied().unwrap_or(0);
                    (if nest.kinds[x] == Kind::Wide { phase } else { phase.next_multiple_of(2) }, true)
                }
                Act::Begin(_) | Act::End(_) | Act::Walk(_) => continue,
            };
            if found.all.len() <= phase {
                found.all.resize(phase + 1, Vec::new());
            }
            if is_done_then {
                found.all[phase].push(act.clone());
            }
        }
        found
    }

    /// The first phase in which everything is there that a vector is made from.
    fn phase(&self, nest: &Nest<'_>, phase_of: &BTreeMap<NodeId, usize>, node: NodeId, is_lane: bool) -> usize {
        let after = |x: NodeId| {
            let phase = phase_of.get(&x).copied().unwrap_or(0);
            match (nest.kinds[x], is_lane) {
                _ if !nest.is_inner(x) => phase.next_multiple_of(2),
                (Kind::Wide, _) => phase,
                (_, true) => phase.next_multiple_of(2),
                (_, false) => phase.next_multiple_of(2) + 1,
            }
        };
        let first = usize::from(!is_lane);
        nest.nodes().operands(node).into_iter().map(after).max().unwrap_or(0).max(first)
    }
}
