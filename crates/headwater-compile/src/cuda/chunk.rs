//! The innermost rows of a nest, as text: a group of lanes takes as many at a time as it has lanes (a chunk). What a lane can have all of
//! (`lane.rs`) is made for a whole chunk at once; vectors (`row.rs`) then row by row, several reads under way, with what lanes have made passed
//! around.

use std::collections::{BTreeMap, BTreeSet};

use super::loops::{Act, Kind};
use super::nest::{Nest, Share};
use super::nodes::{NodeId, Op};
use super::phase::Phases;
use super::text::Writer;
use crate::intra::{self, KernelSchedule, Read, StepOp};

impl Nest<'_> {
    /// A loop over the innermost rows, a chunk at a time.
    pub fn chunks(&self, out: &mut Writer<'_>, level: usize, acts: &[Act], share: Share) {
        let group = self.rows.layout.group;
        let phases = Phases::new(self, acts);
        self.bring(out, acts);
        let (first, all) = share.names();
        out.line(&format!(
            "for (u32 base{level} = first{level} + {first} * {group}; base{level} < end{level}; base{level} += {all} * {group}) {{"
        ));
        out.indented(|out| {
            out.line(&format!("const u32 n = hw_least({group}, end{level} - base{level});"));
            out.line("const bool is_there = lane < n;");
            out.line("(void)is_there;");
            // A lane without a row has the last one, and neither adds nor stores it.
            out.line(&format!("const u32 at_own = base{level} + hw_least(lane, n - 1);"));
            self.own_row(out, level, ("own", "at_own"));
            out.walked = (level > 0).then(|| self.way(level));
            let indices = self.indices(out, level, acts);
            for node in &phases.crossing {
                self.rows.declare_own(out, *node);
            }
            for (at, phase) in phases.all.iter().enumerate() {
                match at % 2 {
                    0 => self.lanes(out, phase),
                    _ => self.vectors(out, level, phase, &indices),
                }
            }
            for act in acts {
                if let Act::Add(node) | Act::Raise(node) = act {
                    self.count(out, *node, "n");
                }
            }
            out.walked = None;
        });
        out.line("}");
    }

    /// Brings what lanes' vectors are made from into every lane.
    fn bring(&self, out: &mut Writer<'_>, acts: &[Act]) {
        let mut brought = Vec::new();
        for act in acts {
            if let Act::Make(node) = act
                && self.kinds[*node] == Kind::Lane
            {
                self.rows.bring(out, *node, &mut brought);
            }
        }
    }

    /// Rows of buffers that lanes' rows read as vectors, found out for the whole chunk.
    fn indices(&self, out: &mut Writer<'_>, level: usize, acts: &[Act]) -> BTreeMap<NodeId, String> {
        let (mut names, mut found) = (BTreeMap::new(), BTreeMap::new());
        for act in acts {
            let Act::Make(node) = act else { continue };
            let Some(read) = self.wide_load(*node) else { continue };
            let row = out.row_of(self.rows.nest[level], read, "own");
            let name = match row.as_str() {
                "own" => row,
                _ => names
                    .entry(row.clone())
                    .or_insert_with(|| {
                        let name = format!("i{node}");
                        out.line(&format!("const u32 {name} = {row};"));
                        name
                    })
                    .clone(),
            };
            found.insert(*node, name);
        }
        found
    }

    /// What is read, where a vector is a row of a buffer.
    pub fn wide_load(&self, node: NodeId) -> Option<&Read> {
        match &self.nodes().all[node].op {
            Op::Step(StepOp::Load(read)) if self.kinds[node] == Kind::Wide => Some(read),
            _ => None,
        }
    }

    /// What lanes do, each with its row.
    fn lanes(&self, out: &mut Writer<'_>, acts: &[Act]) {
        for act in acts {
            match act {
                Act::Make(node) => self.rows.make_own(out, *node, "own"),
                Act::Reload(node, buffer) => {
                    let read = Read { from: *buffer, hops: Vec::new() };
                    self.rows.read_own(out, *node, &read, "own");
                }
                Act::Keep(node, buffer) => {
                    let to = out.buffer_at(*buffer, "own", self.rows.len(*node));
                    self.rows.write_own(out, *node, &to);
                }
                Act::Add(node) => {
                    out.line("if (is_there) {");
                    out.indented(|out| self.rows.add_part(out, *node));
                    out.line("}");
                }
                Act::Raise(node) => self.raise(out, *node),
                Act::Begin(_) | Act::End(_) | Act::Walk(_) => {}
            }
        }
    }

    /// What all lanes do with one row of the chunk after the other.
    fn vectors(&self, out: &mut Writer<'_>, level: usize, acts: &[Act], indices: &BTreeMap<NodeId, String>) {
        let group = self.rows.layout.group;
        let made: Vec<NodeId> = self.wide(acts);
        let loads: Vec<NodeId> = made.iter().copied().filter(|node| self.wide_load(*node).is_some()).collect();
        let rows = self.rows_ahead(&loads, out.schedule);
        out.line(&format!("for (u32 from = 0; from < n; from += {rows}) {{"));
        out.indented(|out| {
            for node in &loads {
                out.line(&format!("float v{node}[{rows}][{}];", self.rows.slots(*node)));
            }
            out.line("#pragma unroll");
            out.line(&format!("for (u32 k = 0; k < {rows}; k++) {{"));
            out.indented(|out| {
                for node in &loads {
                    let Some(read) = self.wide_load(*node) else { continue };
                    let row = format!("__shfl_sync(lanes, {}, hw_least(from + k, n - 1), {group})", indices[node]);
                    self.rows.load_row(out, *node, read, (&row, &format!("v{node}[k]"), "from + k < n"));
                }
            });
            out.line("}");
            out.line("#pragma unroll");
            out.line(&format!("for (u32 k = 0; k < {rows}; k++) {{"));
            out.indented(|out| {
                out.line("const u32 j = from + k;");
                out.line("if (j >= n) break;");
                out.line(&format!("const u32 row{level} = __shfl_sync(lanes, own, j, {group});"));
                out.line(&format!("(void)row{level};"));
                for node in self.passed_around(&made) {
                    self.rows.broadcast(out, node);
                }
                for node in &made {
                    match self.wide_load(*node) {
                        Some(_) => {
                            let slots = self.rows.slots(*node);
                            out.line(&format!("const float (&r{node})[{slots}] = v{node}[k];"));
                        }
                        None => self.rows.make(out, *node),
                    }
                    if self.kinds[*node] == Kind::Crossing {
                        self.rows.deposit(out, *node);
                    }
                }
                for act in acts {
                    if let Act::Add(node) = act {
                        self.rows.add(out, *node);
                    }
                }
            });
            out.line("}");
        });
        out.line("}");
    }

    /// Rows of these vectors that are under way at once.
    pub fn rows_ahead(&self, loads: &[NodeId], schedule: KernelSchedule) -> usize {
        let floats: usize = loads.iter().map(|node| self.rows.slots(*node)).sum();
        let most = if let KernelSchedule::Walk { ahead, .. } = schedule { ahead } else { KernelSchedule::AHEAD };
        intra::rows_ahead(floats, most)
    }

    /// Vectors that are made a row at a time for some of the acts, in order: these, and vectors across lanes that they are made from.
    fn wide(&self, acts: &[Act]) -> Vec<NodeId> {
        let mut open: Vec<NodeId> = acts
            .iter()
            .filter_map(|act| match act {
                Act::Make(node) => Some(*node),
                Act::Add(node) => self.nodes().source(*node),
                _ => None,
            })
            .collect();
        let mut found: BTreeSet<NodeId> = BTreeSet::new();
        while let Some(node) = open.pop() {
            if found.insert(node) {
                let is_wide = |x: &NodeId| self.kinds[*x] == Kind::Wide && self.is_inner(*x);
                open.extend(self.nodes().operands(node).into_iter().filter(is_wide));
            }
        }
        found.into_iter().collect()
    }

    /// Lanes' vectors that vectors across lanes are made from.
    fn passed_around(&self, made: &[NodeId]) -> BTreeSet<NodeId> {
        let operands = made.iter().flat_map(|node| self.nodes().operands(*node));
        operands.filter(|x| self.is_inner(*x) && self.kinds[*x] != Kind::Wide).collect()
    }

    pub fn is_inner(&self, node: NodeId) -> bool {
        self.nodes().all[node].level == self.innermost()
    }
}
