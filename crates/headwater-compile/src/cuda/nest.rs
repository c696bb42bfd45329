//! Loops over nested rows. A row runs what it can, then walks the rows below it for the reductions that it and rows above it
//! wait for, and goes on; vectors of finer levels are made anew in every walk, which costs reads out of a cache and no memory.
//!
//! Where rows have edges, a few may have most of them. A group of lanes passes over such a row; when the others of its block
//! are done, all groups share the row's edges, and what they added up meets in a fixed order.

use std::collections::BTreeSet;

use super::nodes::{NodeId, Nodes};
use super::row::Rows;
use super::text::{Writer, domain_number};
use crate::inter::{Domain, Path};

/// What a walk is for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Goal {
    /// A step that stores.
    Store(NodeId),
    /// A row's part of a reduction.
    Part(NodeId),
}

/// Rows that a group of lanes walks alone have at most so many members.
const MOST_ALONE: usize = 128;

/// Writes a nest: a group of lanes for every outermost row.
pub(super) fn write(out: &mut Writer<'_>, rows: &Rows<'_>, nest: &[Domain], path: Path) {
    let group = rows.group;
    let loops = Loops { rows, nest, path };
    out.line(&format!("const u32 lane = threadIdx.x % {group}, lanes = hw_group_lanes<{group}>();"));
    out.line("(void)lane, (void)lanes;");
    out.line(&format!("const u32 rows = graph->rows[{}];", domain_number(nest[0])));
    let every = format!(
        "for (u32 row0 = (blockIdx.x * 256 + threadIdx.x) / {group}; row0 < rows; row0 += gridDim.x * {})",
        256 / group
    );
    if !has_hubs(nest) {
        out.line(&format!("{every} {{"));
        out.indented(|out| loops.outermost(out));
        return out.line("}");
    }
    let members = out.members(nest[0], nest[1], path);
    out.line("const auto body = [&](const u32 row0, const auto whole) {");
    out.indented(|out| {
        out.line("const bool WHOLE = decltype(whole)::value;");
        out.line(&format!("const u32 part = WHOLE ? threadIdx.x / {group} : 0, parts = WHOLE ? {} : 1;", 256 / group));
        loops.outermost(out);
    });
    out.line("};");
    out.line(&format!("{every} {{"));
    out.indented(|out| {
        out.line(&format!("if (!hw_is_hub<{MOST_ALONE}>({members}, row0)) body(row0, HwYes<false>());"))
    });
    out.line("}");
    out.line(&format!(
        "hw_each_hub<{MOST_ALONE}, {}>({members}, rows, [&](u32 row0) {{ body(row0, HwYes<true>()); }});",
        256 / group
    ));
}

/// Whether an outermost row may have very many rows: edges, right below it.
fn has_hubs(nest: &[Domain]) -> bool {
    matches!(nest, [Domain::Node(_) | Domain::Pair(_), Domain::Edge])
}

struct Loops<'a> {
    rows: &'a Rows<'a>,
    nest: &'a [Domain],
    path: Path,
}

impl Loops<'_> {
    /// The body for the outermost row `row0`.
    fn outermost(&self, out: &mut Writer<'_>) {
        let nodes = self.nodes();
        let stores = (0..nodes.all.len()).filter(|node| nodes.is_store(*node)).map(Goal::Store).collect();
        self.row(out, 0, stores, &BTreeSet::new());
    }

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
            if has_hubs(self.nest) && !own.is_empty() {
                self.meet(out, &own);
            }
            own.iter().for_each(|node| self.rows.finish(out, *node));
            there.extend(own);
            goals = rest;
        }
    }

    /// Makes a vector of this level whose operands are there.
    fn make(&self, out: &mut Writer<'_>, level: usize, node: NodeId, there: &mut BTreeSet<NodeId>) {
        let is_own = self.nodes().all[node].level == level && self.nodes().source(node).is_none();
        if is_own && !there.contains(&node) && self.nodes().operands(node).iter().all(|node| there.contains(node)) {
            // All groups of a block have a hub's own row; one of them stores it.
            let is_shared = level == 0 && has_hubs(self.nest) && self.nodes().is_store(node);
            if is_shared {
                out.line("if (part == 0) {");
            }
            self.rows.make(out, node);
            if is_shared {
                out.line("}");
            }
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

    /// What groups added up of a hub's rows, put together.
    fn meet(&self, out: &mut Writer<'_>, own: &[NodeId]) {
        let members = out.members(self.nest[0], self.nest[1], self.path);
        out.line("if (WHOLE) {");
        out.indented(|out| own.iter().for_each(|node| self.rows.meet(out, *node, &members)));
        out.line("}");
    }

    fn walk(&self, out: &mut Writer<'_>, level: usize, goals: Vec<Goal>, there: &BTreeSet<NodeId>) {
        let path = if level == 1 { self.path } else { Path::Only };
        let members = out.members(self.nest[level - 1], self.nest[level], path);
        let (above, is_shared) = (level - 1, has_hubs(self.nest));
        let (first, step) = if is_shared { (" + part", "parts") } else { ("", "1") };
        // Rows that nothing is stored for are read four at a time: loads of one do not wait for those of another.
        if level + 1 == self.nest.len() && goals.iter().all(|goal| matches!(goal, Goal::Part(_))) {
            out.line("#pragma unroll 4");
        }
        out.line(&format!(
            "for (u32 at{level} = hw_first({members}, row{above}){first}; at{level} < hw_end({members}, row{above}); at{level} += {step}) {{"
        ));
        out.indented(|out| {
            out.line(&format!("const u32 row{level} = hw_member({members}, at{level});"));
            self.row(out, level, goals, there);
        });
        out.line("}");
    }
}
