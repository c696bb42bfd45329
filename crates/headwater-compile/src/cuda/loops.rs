//! Which loops a nest is. A row makes what it can, then walks the rows below it for the reductions that it and rows above it
//! wait for, and goes on. Vectors of finer levels are made anew in every walk, which costs reads out of a cache and no memory;
//! but a few numbers a row that are made of vectors, such as an inner product of two gathered rows, are written down where more
//! than one walk reads them: 8 bytes instead of a row.

use std::collections::{BTreeMap, BTreeSet};

use super::nodes::{NodeId, Nodes};
use crate::intra::BufferId;

/// Numbers of a row that a lane may have all of. More lie across the lanes of a group.
pub(super) const MOST_IN_A_LANE: usize = 8;

/// One thing that is done for a row, in order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Act {
    /// Makes a vector, or stores one.
    Make(NodeId),
    /// Reads a vector that an earlier walk wrote down.
    Reload(NodeId, BufferId),
    /// Writes a vector into a buffer, which later walks read it back from.
    Keep(NodeId, BufferId),
    /// Begins a reduction.
    Begin(NodeId),
    /// Adds the row at hand to a reduction of a coarser level.
    Add(NodeId),
    /// Finds the largest so far of a reduction that the same walk reads, and scales down what was added up beside a smaller one.
    Raise(NodeId),
    /// Ends a reduction.
    End(NodeId),
    /// Goes over the rows below.
    Walk(Vec<Act>),
}

/// How a vector of the innermost rows lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A lane has all of it, of a row of its own.
    Lane,
    /// The same, but it is made of vectors that lie across lanes.
    Crossing,
    /// Across the lanes of a group, a row at a time.
    Wide,
}

/// What a walk is for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Goal {
    /// A step that stores.
    Store(NodeId),
    /// A row's part of a reduction.
    Part(NodeId),
}

/// Where vectors are written down that more than one walk reads.
pub(super) type Kept = BTreeMap<NodeId, BufferId>;

/// What is done for an outermost row of a nest of so many levels. `running` is a largest number that the walk which finds it reads, too.
pub(super) fn acts(nodes: &Nodes, levels: usize, kept: &Kept, running: Option<NodeId>) -> Vec<Act> {
    let mut loops = Loops { nodes, innermost: levels - 1, kept, running, written: BTreeSet::new() };
    let stores = (0..nodes.all.len()).filter(|node| nodes.is_store(*node)).map(Goal::Store).collect();
    loops.row(0, stores, &BTreeSet::new())
}

/// Vectors of the innermost rows that more than one walk makes out of vectors that lie across lanes.
pub(super) fn repeated(nodes: &Nodes, levels: usize) -> Vec<NodeId> {
    let mut counts = BTreeMap::new();
    count(&acts(nodes, levels, &Kept::new(), None), &mut counts);
    let kinds = kinds(nodes, levels);
    let is_repeated = |(node, count): &(&NodeId, &usize)| **count > 1 && kinds[**node] == Kind::Crossing;
    counts.iter().filter(is_repeated).map(|(node, _)| *node).collect()
}

fn count(acts: &[Act], counts: &mut BTreeMap<NodeId, usize>) {
    for act in acts {
        match act {
            Act::Make(node) => *counts.entry(*node).or_default() += 1,
            Act::Walk(below) => count(below, counts),
            _ => {}
        }
    }
}

/// How every vector lies; those of coarser levels, across lanes.
pub(super) fn kinds(nodes: &Nodes, levels: usize) -> Vec<Kind> {
    let mut found: Vec<Kind> = Vec::new();
    for (at, node) in nodes.all.iter().enumerate() {
        let is_of_row = |other: &NodeId| nodes.all[*other].level + 1 == levels;
        let is_wide = nodes.operands(at).iter().any(|x| is_of_row(x) && found[*x] == Kind::Wide);
        found.push(match (node.shape.len() <= MOST_IN_A_LANE, is_wide) {
            _ if node.level + 1 < levels => Kind::Wide,
            (_, true) if nodes.is_store(at) => Kind::Wide,
            (true, true) => Kind::Crossing,
            (true, false) => Kind::Lane,
            (false, _) => Kind::Wide,
        });
    }
    found
}

struct Loops<'a> {
    nodes: &'a Nodes,
    innermost: usize,
    kept: &'a Kept,
    running: Option<NodeId>,
    /// Those that an earlier walk wrote down.
    written: BTreeSet<NodeId>,
}

impl Loops<'_> {
    /// The vector that a goal reads, or is.
    fn wanted(&self, goal: Goal) -> NodeId {
        match goal {
            Goal::Store(node) => node,
            Goal::Part(node) => self.nodes.source(node).unwrap_or(node),
        }
    }

    fn row(&mut self, level: usize, goals: Vec<Goal>, there: &BTreeSet<NodeId>) -> Vec<Act> {
        let (mut acts, mut there, mut goals) = (Vec::new(), there.clone(), goals);
        if level == self.innermost {
            let reloaded: Vec<NodeId> = self.written.iter().copied().collect();
            let wanted: Vec<NodeId> = goals.iter().map(|goal| self.wanted(*goal)).collect();
            let needed = self.nodes.needed(wanted, |node| there.contains(&node) || self.written.contains(&node));
            let is_read = |node: &NodeId| {
                goals.iter().any(|goal| self.wanted(*goal) == *node)
                    || needed.iter().any(|other| self.nodes.operands(*other).contains(node))
            };
            for node in reloaded.into_iter().filter(is_read) {
                acts.extend(self.kept.get(&node).map(|buffer| Act::Reload(node, *buffer)));
                there.insert(node);
            }
        }
        let needed = self.nodes.needed(goals.iter().map(|goal| self.wanted(*goal)), |node| there.contains(&node));
        loop {
            for node in &needed {
                self.make(level, *node, &mut there, &mut acts);
            }
            goals.retain(|goal| match goal {
                Goal::Store(node) => !there.contains(node),
                Goal::Part(node)
                    if there.contains(&self.wanted(*goal)) && self.nodes.all[self.wanted(*goal)].level == level =>
                {
                    acts.push(if self.running == Some(*node) { Act::Raise(*node) } else { Act::Add(*node) });
                    false
                }
                Goal::Part(_) => true,
            });
            // What waits for the largest so far has it now.
            let raised = self.running.filter(|node| acts.contains(&Act::Raise(*node)));
            if raised.is_some_and(|node| there.insert(node)) {
                continue;
            }
            let own = needed.iter().copied().filter(|node| {
                self.nodes.all[*node].level == level && self.nodes.source(*node).is_some() && !there.contains(node)
            });
            let own: Vec<NodeId> = own.filter(|node| self.can_walk(level, Goal::Part(*node), &there)).collect();
            let (below, rest): (Vec<Goal>, Vec<Goal>) =
                goals.iter().partition(|goal| self.can_walk(level, **goal, &there));
            if own.is_empty() && below.is_empty() {
                debug_assert!(rest.is_empty(), "a goal that nothing leads to");
                return acts;
            }
            acts.extend(own.iter().map(|node| Act::Begin(*node)));
            let inner = own.iter().map(|node| Goal::Part(*node)).chain(below).collect();
            let walked = self.row(level + 1, inner, &there);
            acts.push(Act::Walk(walked));
            acts.extend(own.iter().map(|node| Act::End(*node)));
            there.extend(own);
            goals = rest;
        }
    }

    /// Makes a vector of this level whose operands are there.
    fn make(&mut self, level: usize, node: NodeId, there: &mut BTreeSet<NodeId>, acts: &mut Vec<Act>) {
        let is_own = self.nodes.all[node].level == level && self.nodes.source(node).is_none();
        if is_own && !there.contains(&node) && self.nodes.operands(node).iter().all(|node| there.contains(node)) {
            acts.push(Act::Make(node));
            if let Some(buffer) = self.kept.get(&node) {
                if self.nodes.stored(node) != Some(*buffer) {
                    acts.push(Act::Keep(node, *buffer));
                }
                self.written.insert(node);
            }
            there.insert(node);
        }
    }

    /// Whether a goal can be reached from the rows below: what it needs of this level and above is there.
    fn can_walk(&self, level: usize, goal: Goal, there: &BTreeSet<NodeId>) -> bool {
        let wanted = self.wanted(goal);
        let is_below = self.nodes.all[wanted].level > level;
        let needed = self.nodes.needed([wanted], |node| there.contains(&node) || self.running == Some(node));
        is_below && needed.iter().all(|node| self.nodes.all[*node].level > level)
    }
}
