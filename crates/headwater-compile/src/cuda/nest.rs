//! Loops over nested rows, as text. A group of lanes has an outermost row at a time, and its members one after the other; the innermost rows a
//! chunk at a time (`chunk.rs`).
//!
//! A few rows may have most edges. The first thread blocks have one of these each: all groups of a block have the row, share the members
//! below, and put what they added up together in a fixed order. The other blocks have some of the other rows each, longer ones first.

use super::graph::Way;
use super::loops::{Act, Kept, Kind, acts, kinds};
use super::nodes::{NodeId, Nodes};
use super::row::{Layout, Rows};
use super::text::{Blocks, Writer};
use crate::inter::{Domain, Path};
use crate::intra::{self, KernelSchedule, Running, Traverse};

/// Threads of a block that walks rows; as `order.cuh` has it.
const THREADS: usize = 256;

/// Whose rows say how long the outermost rows of a nest are, where some may have very many of them.
fn ordered_by(nest: &[Domain]) -> Option<Domain> {
    match nest {
        [Domain::Node(_) | Domain::Pair(_), .., Domain::Edge] => Some(Domain::Edge),
        [Domain::Node(side), Domain::Pair(other)] if side == other => Some(Domain::Pair(*side)),
        _ => None,
    }
}

/// How the vectors of a nest lie across lanes.
pub(super) fn layout(nodes: &Nodes, schedule: KernelSchedule) -> Layout {
    let lanes = if let KernelSchedule::Walk { lanes, .. } = schedule { Some(lanes) } else { None };
    Layout::of(nodes.all.iter().map(|node| node.shape.len()).max().unwrap_or(1), lanes)
}

/// Writes the kernel of a nest, hubs included, and says how its rows are shared out to thread blocks.
pub(super) fn write(out: &mut Writer<'_>, traverse: &Traverse, kept: &Kept, entry: &str) -> Blocks {
    let (rows, by) = (traverse.nest[0], ordered_by(&traverse.nest));
    let (mut groups, mut at_once) = (0, 2);
    Nest::with(traverse, kept, out.schedule, |nest, acts, acts_of_hubs| {
        groups = THREADS / nest.rows.layout.group;
        at_once = nest.blocks_at_once(out.schedule, acts);
        nest.heading(out);
        let all = out.count(rows);
        if traverse.nest.len() == 1 {
            out.line(&format!("const u32 first0 = 0, end0 = {all};"));
            out.line(&format!("const u32 groups = gridDim.x * {groups}, at0 = blockIdx.x * {groups} + part;"));
            return nest.chunks(out, 0, acts, Share::OfGrid);
        }
        let hubs = by.map_or("0".to_owned(), |_| format!("hw_hub_blocks({})", nest.order(out)));
        out.line(&format!("const u32 hubs = {hubs}, groups = (gridDim.x - hubs) * {groups};"));
        out.line(&format!("const u32 at0 = (blockIdx.x - hubs) * {groups} + part;"));
        out.line(&format!("const u32 first0 = hubs, end0 = blockIdx.x < hubs ? 0 : {all};"));
        nest.walk(out, 0, acts, Share::OfGrid);
        if by.is_some() {
            out.last(&format!("hubs_{entry}"), |out| {
                nest.heading(out);
                nest.each_hub(out, acts_of_hubs);
            });
        }
    });
    match traverse.nest.len() {
        // Rows by themselves are had a chunk at a time.
        1 => Blocks::Rows(rows, THREADS, 1),
        _ => Blocks::Walk { rows, groups, by, at_once },
    }
}

/// Which of the rows a group has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// Its part of the outermost ones.
    OfGrid,
    /// All that belong to a row of its own.
    Alone,
    /// Its part of those that belong to a hub, which all groups of the block have.
    OfHub,
}

impl Share {
    /// The group's number, and how many groups share the rows.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::OfGrid => ("at0", "groups"),
            Self::Alone => ("0", "1"),
            Self::OfHub => ("part", "parts"),
        }
    }
}

pub(super) struct Nest<'a> {
    pub rows: Rows<'a>,
    path: Path,
    pub kinds: Vec<Kind>,
    /// A largest number that the walk which finds it reads, too, and the sums that wait for it.
    pub running: Option<(NodeId, Vec<NodeId>)>,
}

impl Nest<'_> {
    /// A nest, what a group of lanes does for a row that it has alone, and what groups do for one that they share.
    fn with(traverse: &Traverse, kept: &Kept, schedule: KernelSchedule, write: impl FnOnce(&Nest<'_>, &[Act], &[Act])) {
        let (nodes, levels) = (Nodes::new(&traverse.body), traverse.nest.len());
        let rows = Rows { nodes: &nodes, nest: &traverse.nest, layout: layout(&nodes, schedule) };
        let running = intra::running(&traverse.body).filter(|_| levels == 2).map(|Running { largest, sums }| {
            (nodes.of(largest), sums.into_iter().map(|sum| nodes.of(sum)).collect::<Vec<_>>())
        });
        let shared = acts(&nodes, levels, kept, None);
        let alone = match &running {
            Some((largest, _)) => acts(&nodes, levels, &Kept::new(), Some(*largest)),
            None => shared.clone(),
        };
        let kinds = kinds(&nodes, levels);
        write(&Nest { rows, path: traverse.path, kinds, running }, &alone, &shared);
    }

    fn heading(&self, out: &mut Writer<'_>) {
        let group = self.rows.layout.group;
        out.line(&format!("const u32 lane = threadIdx.x % {group}, lanes = hw_group_lanes<{group}>();"));
        out.line(&format!("const u32 part = threadIdx.x / {group}, parts = HW_WALK_THREADS / {group};"));
        out.line("(void)lane, (void)lanes, (void)part, (void)parts;");
    }

    /// Blocks that an SM should have at once.
    fn blocks_at_once(&self, schedule: KernelSchedule, acts: &[Act]) -> usize {
        let (inner, outer): (Vec<NodeId>, Vec<NodeId>) =
            (0..self.nodes().all.len()).partition(|node| self.is_inner(*node));
        let loads: Vec<NodeId> = inner.into_iter().filter(|node| self.wide_load(*node).is_some()).collect();
        let is_held = |node: &NodeId| self.wide_load(*node).is_some() || self.nodes().source(*node).is_some();
        let floats = |nodes: &[NodeId]| nodes.iter().map(|node| self.rows.slots(*node)).sum::<usize>();
        let held = floats(&outer.into_iter().filter(is_held).collect::<Vec<_>>());
        let walks = acts.iter().filter(|act| matches!(act, Act::Walk(_))).count();
        intra::blocks_at_once(walks, floats(&loads) * self.rows_ahead(&loads, schedule) + held)
    }

    /// The order of the outermost rows.
    fn order(&self, out: &mut Writer<'_>) -> String {
        out.order(self.rows.nest[0], self.rows.nest[self.innermost()])
    }

    /// Writes what is done for hubs, all groups of the block together.
    fn each_hub(&self, out: &mut Writer<'_>, acts: &[Act]) {
        let (members, order, rows) = (self.members(out, 1), self.order(out), out.count(self.rows.nest[0]));
        out.line(&format!("hw_each_hub({order}, {rows}, [&](const u32 row0) {{"));
        out.indented(|out| {
            out.line(&format!("const u32 first1 = hw_first({members}, row0), end1 = hw_end({members}, row0);"));
            self.row(out, 0, acts, true);
        });
        out.line("});");
    }

    pub fn nodes(&self) -> &Nodes {
        self.rows.nodes
    }

    pub fn innermost(&self) -> usize {
        self.rows.nest.len() - 1
    }

    /// From the rows above a level to its own.
    pub fn way(&self, level: usize) -> Way {
        let path = if level == 1 { self.path } else { Path::Only };
        (self.rows.nest[level - 1], self.rows.nest[level], path)
    }

    /// The list of rows of a level that belong to a row of the one above.
    fn members(&self, out: &mut Writer<'_>, level: usize) -> String {
        let (coarse, fine, path) = self.way(level);
        out.members(coarse, fine, path)
    }

    /// Whether lanes have parts of a reduction of innermost rows.
    fn is_in_parts(&self, node: NodeId) -> bool {
        let is_inner = |x: &NodeId| self.nodes().all[*x].level == self.innermost() && self.kinds[*x] != Kind::Wide;
        self.nodes().source(node).as_ref().is_some_and(is_inner)
    }

    /// What is done for a row of a level that is not the innermost. `is_shared`: all groups of the block have it.
    fn row(&self, out: &mut Writer<'_>, level: usize, acts: &[Act], is_shared: bool) {
        for act in acts {
            match act {
                // What all groups have, one of them stores and adds to what is coarser.
                Act::Make(node) if is_shared && self.nodes().is_store(*node) => {
                    self.first_alone(out, |out| self.rows.make(out, *node));
                }
                Act::Make(node) => self.rows.make(out, *node),
                Act::Begin(node) if !is_shared && self.is_running(*node) => {
                    out.line(&format!("float r{node} = HW_LEAST;"));
                    self.count(out, *node, "");
                }
                Act::Begin(node) if self.is_in_parts(*node) => {
                    self.rows.begin_parts(out, *node);
                    self.count(out, *node, "");
                }
                Act::Begin(node) => {
                    self.rows.begin(out, *node);
                    self.count(out, *node, "");
                }
                Act::Add(node) if is_shared => self.first_alone(out, |out| self.add(out, *node)),
                Act::Add(node) => self.add(out, *node),
                Act::End(node) => {
                    if self.is_in_parts(*node) && (is_shared || !self.is_running(*node)) {
                        self.rows.join_parts(out, *node);
                    }
                    if is_shared {
                        self.rows.meet(out, *node);
                    } else {
                        self.end_running(out, *node);
                    }
                    self.rows.finish(out, *node);
                }
                Act::Walk(below) if level + 1 == self.innermost() => {
                    out.line("{");
                    let share = if is_shared { Share::OfHub } else { Share::Alone };
                    out.indented(|out| self.chunks(out, level + 1, below, share));
                    out.line("}");
                }
                Act::Walk(below) if is_shared => {
                    self.walk(out, level + 1, below, Share::OfHub);
                    self.walk_hubs(out, level + 1, below);
                }
                Act::Walk(below) => self.walk(out, level + 1, below, Share::Alone),
                Act::Keep(..) | Act::Reload(..) | Act::Raise(_) => {}
            }
        }
    }

    fn is_running(&self, node: NodeId) -> bool {
        self.running.as_ref().is_some_and(|(largest, _)| *largest == node)
    }

    /// Where all rows have minus infinity, that is the largest, and exponentials below it are NaN.
    fn end_running(&self, out: &mut Writer<'_>, node: NodeId) {
        let Some((largest, sums)) = &self.running else { return };
        if *largest == node {
            out.line(&format!("if (r{node} == HW_LEAST) r{node} = -HW_INFINITY;"));
        } else if sums.contains(&node) {
            let none = format!("if (r{largest} == -HW_INFINITY) ");
            match self.rows.len(node) {
                1 => out.line(&format!("{none}r{node} = r{largest} - r{largest};")),
                _ => {
                    let slots = self.rows.slots(node);
                    out.line("#pragma unroll");
                    out.line(&format!("for (u32 s = 0; s < {slots}; s++) {none}r{node}[s] = r{largest} - r{largest};"));
                }
            }
        }
    }

    /// Finds the largest number of the rows so far, in all lanes, and scales what was added up beside a smaller one.
    pub fn raise(&self, out: &mut Writer<'_>, node: NodeId) {
        let (Some(x), Some((_, sums))) = (self.nodes().source(node), &self.running) else { return };
        let group = self.rows.layout.group;
        out.line(&format!(
            "const float now{node} = hw_max(r{node}, hw_group_max<{group}>(is_there ? c{x} : -HW_INFINITY, lanes));"
        ));
        // Infinity less itself would be NaN. Minus infinity never is the largest so far, which begins at the least number.
        out.line(&format!("const float less{node} = now{node} == r{node} ? 1.0f : expf(r{node} - now{node});"));
        out.line(&format!("r{node} = now{node};"));
        for sum in sums {
            let (name, slots) = match (self.is_in_parts(*sum), self.rows.len(*sum)) {
                (true, len) => (format!("a{sum}"), len),
                (false, 1) => (format!("r{sum}"), 1),
                (false, _) => (format!("r{sum}"), self.rows.slots(*sum)),
            };
            match self.rows.len(*sum) {
                1 => out.line(&format!("{name} *= less{node};")),
                _ => {
                    out.line("#pragma unroll");
                    out.line(&format!("for (u32 s = 0; s < {slots}; s++) {name}[s] *= less{node};"));
                }
            }
        }
    }

    fn first_alone(&self, out: &mut Writer<'_>, write: impl FnOnce(&mut Writer<'_>)) {
        out.line("if (part == 0) {");
        out.indented(write);
        out.line("}");
    }

    fn add(&self, out: &mut Writer<'_>, node: NodeId) {
        self.rows.add(out, node);
        self.count(out, node, "1");
    }

    /// Counts the rows of a reduction, where that matters; from the beginning where there are none to add.
    pub fn count(&self, out: &mut Writer<'_>, node: NodeId, more: &str) {
        match more {
            _ if !self.rows.is_counted(node) => {}
            "" => out.line(&format!("u32 m{node} = 0;")),
            _ => out.line(&format!("m{node} += {more};")),
        }
    }

    /// A loop over rows that are not the innermost. A group finds out about as many as it has lanes at a time. Of the outermost rows it has
    /// every so many-th, so each group has a few long ones, and neighbours of about the same length are under way beside each other. A hub's are
    /// shared one by one.
    fn walk(&self, out: &mut Writer<'_>, level: usize, acts: &[Act], share: Share) {
        let (group, below) = (self.rows.layout.group, level + 1);
        let members = self.members(out, below);
        let (first, all) = share.names();
        out.line(&format!(
            "for (u32 base{level} = first{level} + {first}; base{level} < end{level}; base{level} += {all} * {group}) {{"
        ));
        out.indented(|out| {
            let left = format!("(end{level} - base{level} + {all} - 1) / {all}");
            out.line(&format!("const u32 n{level} = hw_least({group}, {left});"));
            let at = format!("base{level} + hw_least(lane, n{level} - 1) * {all}");
            self.own_row(out, level, (&format!("own{level}"), &at));
            let bound = |name: &str| format!("{name}({members}, own{level})");
            out.line(&format!("const u32 own_first = {}, own_end = {};", bound("hw_first"), bound("hw_end")));
            let passed = self.passed_over(out, share);
            if let Some(passed) = &passed {
                out.line(&format!("const u32 is_passed = {passed};"));
            }
            out.line(&format!("for (u32 j{level} = 0; j{level} < n{level}; j{level}++) {{"));
            out.indented(|out| {
                let of_lane = |name: &str| format!("__shfl_sync(lanes, {name}, j{level}, {group})");
                if passed.is_some() {
                    out.line(&format!("if ({}) continue;", of_lane("is_passed")));
                }
                out.line(&format!("const u32 row{level} = {};", of_lane(&format!("own{level}"))));
                out.line(&format!(
                    "const u32 first{below} = {}, end{below} = {};",
                    of_lane("own_first"),
                    of_lane("own_end")
                ));
                out.line(&format!("(void)row{level};"));
                self.row(out, level, acts, false);
            });
            out.line("}");
        });
        out.line("}");
    }

    /// The row that a lane finds at a place of the list of its level; the outermost rows need none.
    pub fn own_row(&self, out: &mut Writer<'_>, level: usize, (name, at): (&str, &str)) {
        let row = match level {
            0 if self.innermost() > 0 && ordered_by(self.rows.nest).is_some() => {
                format!("hw_ordered({}, {at})", self.order(out))
            }
            0 => at.to_owned(),
            _ => format!("hw_member({}, {at})", self.members(out, level)),
        };
        out.line(&format!("const u32 {name} = {row};"));
    }

    /// Which rows a group passes over because a thread block has them.
    fn passed_over(&self, out: &mut Writer<'_>, share: Share) -> Option<String> {
        match share {
            Share::OfGrid if ordered_by(self.rows.nest).is_none() => None,
            Share::OfGrid => Some(format!("hw_is_hub({}, own0)", self.order(out))),
            Share::OfHub => Some("own_end - own_first > HW_MOST_BELOW".to_owned()),
            Share::Alone => None,
        }
    }

    /// A loop over those rows below a hub that have very many rows themselves: all groups have each of them.
    fn walk_hubs(&self, out: &mut Writer<'_>, level: usize, acts: &[Act]) {
        let (own, members) = (self.members(out, level), self.members(out, level + 1));
        let below = level + 1;
        out.line(&format!("for (u32 at{level} = first{level}; at{level} < end{level}; at{level}++) {{"));
        out.indented(|out| {
            out.line(&format!("const u32 row{level} = hw_member({own}, at{level});"));
            out.line(&format!("const u32 first{below} = hw_first({members}, row{level});"));
            out.line(&format!("const u32 end{below} = hw_end({members}, row{level});"));
            out.line(&format!("if (end{below} - first{below} <= HW_MOST_BELOW) continue;"));
            self.row(out, level, acts, true);
        });
        out.line("}");
    }
}
