//! Loops over nested rows. A row runs what it can, then walks the rows below it for the reductions that it and rows above it
//! wait for, and goes on; vectors of finer levels are made anew in every walk, which costs reads out of a cache and no memory.

use std::collections::BTreeSet;

use super::nodes::{NodeId, Nodes};
use super::row::Rows;
use super::text::Writer;
use crate::inter::{Domain, Path};

/// What a walk is for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Goal {
    /// A step that stores.
    Store(NodeId),
    /// A row's part of a reduction.
    Part(NodeId),
}

/// Writes the body of a nest for the outermost row `row0`.
pub(super) fn write(out: &mut Writer<'_>, rows: &Rows<'_>, nest: &[Domain], path: Path) {
    let stores = (0..rows.nodes.all.len()).filter(|node| rows.nodes.is_store(*node)).map(Goal::Store).collect();
    Loops { rows, nest, path }.row(out, 0, stores, &BTreeSet::new());
}

struct Loops<'a> {
    rows: &'a Rows<'a>,
    nest: &'a [Domain],
    path: Path,
}

impl Loops<'_> {
    fn nodes(&self) -> &Nodes {
        self.rows.nodes
    }

    /// The vector that a goal reads, or is.
    fn wanted(&self, goal: Goal) -> NodeId {
        match goal {
            Goal::Store(node) => node,
            Goal::Part(node) => self.nodes().source(node).unwrap_or(node),
        }
    }

    fn row(&self, out: &mut Writer<'_>, level: usize, goals: Vec<Goal>, there: &BTreeSet<NodeId>) {
        let (mut there, mut goals) = (there.clone(), goals);
        let needed = self.nodes().needed(goals.iter().map(|goal| self.wanted(*goal)), |node| there.contains(&node));
        loop {
            for node in &needed {
                self.make(out, level, *node, &mut there);
            }
            goals.retain(|goal| match goal {
                Goal::Store(node) => !there.contains(node),
                Goal::Part(node)
                    if there.contains(&self.wanted(*goal)) && self.nodes().all[self.wanted(*goal)].level == level =>
                {
                    self.rows.add(out, *node);
                    false
                }
                Goal::Part(_) => true,
            });
            let own = needed.iter().copied().filter(|node| {
                self.nodes().all[*node].level == level && self.nodes().source(*node).is_some() && !there.contains(node)
            });
            let own: Vec<NodeId> = own.filter(|node| self.can_walk(level, Goal::Part(*node), &there)).collect();
            let (below, rest): (Vec<Goal>, Vec<Goal>) =
                goals.iter().partition(|goal| self.can_walk(level, **goal, &there));
            if own.is_empty() && below.is_empty() {
                debug_assert!(rest.is_empty(), "a goal that nothing leads to");
                return;
            }
            own.iter().for_each(|node| self.rows.begin(out, *node));
            let inner = own.iter().map(|node| Goal::Part(*node)).chain(below).collect();
            self.walk(out, level + 1, inner, &there);
            own.iter().for_each(|node| self.rows.finish(out, *node));
            there.extend(own);
            goals = rest;
        }
    }

    /// Makes a vector of this level whose operands are there.
    fn make(&self, out: &mut Writer<'_>, level: usize, node: NodeId, there: &mut BTreeSet<NodeId>) {
        let is_own = self.nodes().all[node].level == level && self.nodes().source(node).is_none();
        if is_own && !there.contains(&node) && self.nodes().operands(node).iter().all(|node| there.contains(node)) {
            self.rows.make(out, node);
            there.insert(node);
        }
    }

    /// Whether a goal can be reached from the rows below: what it needs of this level and above is there.
    fn can_walk(&self, level: usize, goal: Goal, there: &BTreeSet<NodeId>) -> bool {
        let wanted = self.wanted(goal);
        let is_below = self.nodes().all[wanted].level > level;
        let needed = self.nodes().needed([wanted], |node| there.contains(&node));
        is_below && needed.iter().all(|node| self.nodes().all[*node].level > level)
    }

    fn walk(&self, out: &mut Writer<'_>, level: usize, goals: Vec<Goal>, there: &BTreeSet<NodeId>) {
        let path = if level == 1 { self.path } else { Path::Only };
        let members = out.members(self.nest[level - 1], self.nest[level], path);
        let above = level - 1;
        out.line(&format!(
            "for (u32 at{level} = hw_first({members}, row{above}); at{level} < hw_end({members}, row{above}); at{level}++) {{"
        ));
        out.indented(|out| {
            out.line(&format!("const u32 row{level} = hw_member({members}, at{level});"));
            self.row(out, level, goals, there);
        });
        out.line("}");
    }
}
