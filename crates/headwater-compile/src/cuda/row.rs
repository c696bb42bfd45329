//! Vectors across a group of G lanes, V elements beside each other: element `e` lies in lane `e / V % G`, in slot
//! `e / V / G * V + e % V`. A vector of one element is in every lane.
//!
//! An element that another lane has is fetched by `hw_pick`, which all lanes of the group call together; so nothing here
//! stands behind a condition that lanes of a group disagree on, but for loads and stores.

use super::nodes::{NodeId, Nodes, Op};
use super::scalar::{binary, dropout, single, unary};
use super::text::Writer;
use crate::inter::{Domain, Reduce, Shape};
use crate::intra::{Read, Register, StepOp, beside, usual_lanes};

/// How the vectors of one nest are written.
pub(super) struct Rows<'a> {
    pub nodes: &'a Nodes,
    pub nest: &'a [Domain],
    pub layout: Layout,
}

/// How vectors lie across lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Lanes of a group: a power of two.
    pub group: usize,
    /// Elements that a lane has beside each other, which it reads and writes at once: 1, 2 or 4.
    pub beside: usize,
}

impl Layout {
    /// For vectors of up to `len` elements, across so many lanes or as many as is usual.
    pub fn of(len: usize, lanes: Option<usize>) -> Self {
        Self { group: lanes.unwrap_or_else(|| usual_lanes(len)), beside: beside(len) }
    }

    /// Elements that lie across a group, one slot of each lane or `beside` of them.
    fn across(self) -> usize {
        self.group * self.beside
    }

    /// The lane that an element lies in, and its slot.
    pub fn place(self, e: usize) -> (usize, usize) {
        (e / self.beside % self.group, e / self.across() * self.beside + e % self.beside)
    }
}

pub(super) fn sizes(shape: Shape) -> (usize, usize) {
    (shape.heads(), shape.len() / shape.heads().max(1))
}

impl Rows<'_> {
    pub fn len(&self, node: NodeId) -> usize {
        self.nodes.all[node].shape.len()
    }

    pub fn slots(&self, node: NodeId) -> usize {
        self.len(node).div_ceil(self.layout.across()) * self.layout.beside
    }

    pub fn declare(&self, out: &mut Writer<'_>, name: &str, node: NodeId) {
        match self.len(node) {
            1 => out.line(&format!("float {name};")),
            _ => out.line(&format!("float {name}[{}];", self.slots(node))),
        }
    }

    /// Writes a statement for every element: `e` is its number, `r` its place.
    fn each(&self, out: &mut Writer<'_>, node: NodeId, write: impl FnOnce(&mut Writer<'_>, &dyn Fn(&str) -> String)) {
        if self.len(node) == 1 {
            out.line("{");
            out.indented(|out| {
                out.line("const u32 e = 0;");
                out.line("(void)e;");
                write(out, &|name| name.to_owned());
            });
        } else {
            let slots = self.slots(node);
            out.line("#pragma unroll");
            out.line(&format!("for (u32 s = 0; s < {slots}; s++) {{"));
            out.indented(|out| {
                let Layout { group, beside } = self.layout;
                out.line(&format!("const u32 e = (s / {beside} * {group} + lane) * {beside} + s % {beside};"));
                write(out, &|name| format!("{name}[s]"));
            });
        }
        out.line("}");
    }

    /// The element `index` of a vector.
    pub fn pick(&self, node: NodeId, index: &str) -> String {
        self.pick_of(&format!("r{node}"), node, index)
    }

    /// The element `index` of a vector that lies as a node's does.
    pub fn pick_of(&self, name: &str, node: NodeId, index: &str) -> String {
        let Layout { group, beside } = self.layout;
        match self.len(node) {
            1 => name.to_owned(),
            _ => format!("hw_pick<{group}, {beside}>({name}, {index}, lanes)"),
        }
    }

    /// The element of a vector that belongs to element `e` of node `to`, heads and widths of 1 repeated. Where a head fills whole
    /// slots, it lies in the same lane, or is one number that all lanes fetch once.
    fn matching(&self, out: &mut Writer<'_>, node: NodeId, to: NodeId) -> String {
        let ((heads, width), (all, wide)) = (sizes(self.nodes.all[node].shape), sizes(self.nodes.all[to].shape));
        if self.len(node) == 1 {
            return format!("r{node}");
        }
        if (heads, width) == (all, wide) {
            return format!("r{node}[s]");
        }
        let each = wide / self.layout.group;
        match wide % self.layout.across() {
            0 if heads == 1 => return format!("r{node}[s % {each}]"),
            0 if width == 1 => {
                out.line(&format!("float h{to}_{node}[{heads}];"));
                out.line("#pragma unroll");
                let head = self.pick(node, "h");
                out.line(&format!("for (u32 h = 0; h < {heads}; h++) h{to}_{node}[h] = {head};"));
                return format!("h{to}_{node}[s / {each}]");
            }
            _ => {}
        }
        let head = if heads == 1 { "0".to_owned() } else { format!("e / {wide} * {width}") };
        let within = if width == 1 { "0".to_owned() } else { format!("e % {wide}") };
        self.pick(node, &format!("{head} + {within}"))
    }

    /// Makes a vector out of others of its level.
    pub fn make(&self, out: &mut Writer<'_>, node: NodeId) {
        let name = format!("r{node}");
        if !self.nodes.is_store(node) {
            self.declare(out, &name, node);
        }
        match &self.nodes.all[node].op {
            Op::Share { x, largest } => self.each(out, node, |out, at| {
                let (x, most, sum) = (at(&format!("r{x}")), at(&format!("r{largest}")), at(&format!("d{largest}")));
                out.line(&format!("{} = expf({x} - {most}) / {sum};", at(&name)));
            }),
            Op::Step(StepOp::Load(read)) => self.load(out, node, read),
            Op::Step(StepOp::Store(x, to)) => {
                let (x, level, len) = (self.nodes.of(*x), self.nodes.all[node].level, self.len(node));
                let Layout { group, beside } = self.layout;
                let to = format!("{} + (u64)row{level} * {len}", out.buffer(*to));
                match len {
                    1 => out.line(&format!("if (lane == 0) *({to}) = r{x};")),
                    _ => out.line(&format!("hw_store_row<{group}, {beside}, {len}>({to}, r{x}, lane);")),
                }
            }
            Op::Step(op) => self.step(out, node, op),
            Op::Count(number) => {
                let below = self.nodes.all[node].level + 1;
                let count = format!("(float)(end{below} - first{below}) * {}", single(*number));
                self.each(out, node, |out, at| out.line(&format!("{} = {count};", at(&name))));
            }
            Op::Reduce(..) | Op::Largest(_) => {}
        }
    }

    fn load(&self, out: &mut Writer<'_>, node: NodeId, read: &Read) {
        let level = self.nodes.all[node].level;
        let row = out.row_of(self.nest[level], read, &format!("row{level}"));
        self.load_row(out, node, read, (&row, &format!("r{node}"), "true"));
    }

    /// Reads a row of a buffer, or zeros where it is not to be read.
    pub fn load_row(&self, out: &mut Writer<'_>, node: NodeId, read: &Read, (row, to, is_there): (&str, &str, &str)) {
        let (len, Layout { group, beside }) = (self.len(node), self.layout);
        let from = format!("{} + (u64){row} * {len}", out.buffer(read.from));
        match len {
            1 => out.line(&format!("{to} = {is_there} ? *({from}) : 0.0f;")),
            _ => out.line(&format!("hw_load_row<{group}, {beside}, {len}>({to}, {from}, lane, {is_there});")),
        }
    }

    fn step(&self, out: &mut Writer<'_>, node: NodeId, op: &StepOp) {
        let shape = self.nodes.all[node].shape;
        let (heads, width) = sizes(shape);
        let of = |register: &Register| self.nodes.of(*register);
        let wide = |register: &Register| sizes(self.nodes.all[of(register)].shape).1;
        let set = |out: &mut Writer<'_>, value: String| {
            self.each(out, node, |out, at| out.line(&format!("{} = {value};", at(&format!("r{node}")))));
        };
        match op {
            StepOp::Constant(number) => set(out, single(*number)),
            StepOp::Unary(f, x) => {
                let x = self.matching(out, of(x), node);
                set(out, unary(*f, &x));
            }
            StepOp::Binary(f, x, y) => {
                let (left, right) = (self.matching(out, of(x), node), of(y));
                // A vector with itself is fetched once.
                let right = if right == of(x) { left.clone() } else { self.matching(out, right, node) };
                set(out, binary(*f, &left, &right));
            }
            StepOp::Expand(x) | StepOp::Reshape(x) | StepOp::Spread(x) => {
                let is_same = self.len(of(x)) == shape.len();
                let value = self.matching(out, of(x), if is_same { of(x) } else { node });
                set(out, value);
            }
            StepOp::Concat(x, y) => self.concat(out, node, of(x), of(y)),
            StepOp::Slice(x, from) => {
                set(out, self.pick(of(x), &format!("e / {width} * {} + {from} + e % {width}", wide(x))));
            }
            StepOp::Pad(x, from) => self.pad(out, node, of(x), *from),
            StepOp::SumHeads(x) => {
                let all = sizes(self.nodes.all[of(x)].shape).0;
                let lies_there = self.len(of(x)) > 1 && width % self.layout.across() == 0;
                let term = |head: usize| match lies_there {
                    true => format!("r{}[{} + s]", of(x), head * width / self.layout.group),
                    false => self.pick(of(x), &format!("{} + e", head * width)),
                };
                set(out, (0..all).map(term).collect::<Vec<_>>().join(" + "));
            }
            StepOp::SumWidth(x) if self.lies_whole(&[of(x)]) => self.sums_in_place(out, node, &[of(x)]),
            StepOp::Dot(x, y) if self.lies_whole(&[of(x), of(y)]) => self.sums_in_place(out, node, &[of(x), of(y)]),
            StepOp::SumWidth(x) if self.lies_alike(&[of(x)]) => self.sums_by_mask(out, node, &[of(x)]),
            StepOp::Dot(x, y) if self.lies_alike(&[of(x), of(y)]) => self.sums_by_mask(out, node, &[of(x), of(y)]),
            StepOp::SumWidth(x) => self.sums(out, node, wide(x), |head, e| self.of_head(of(x), head, e)),
            StepOp::Dot(x, y) => {
                let term = |head: &str, e: &str| {
                    format!("{} * {}", self.of_head(of(x), head, e), self.of_head(of(y), head, e))
                };
                self.sums(out, node, wide(x).max(wide(y)), term);
            }
            StepOp::Dropout { x, probability, key } => {
                let place = format!("(u64)row{} * {} + e", self.nodes.all[node].level, heads * width);
                let x = self.matching(out, of(x), node);
                set(out, dropout(&x, *key, &place, *probability));
            }
            _ => {}
        }
    }

    /// Both vectors of a head in one. All lanes fetch from both, then each takes its own.
    fn concat(&self, out: &mut Writer<'_>, node: NodeId, x: NodeId, y: NodeId) {
        let width = |node: NodeId| sizes(self.nodes.all[node].shape).1;
        let (all, first, second) = (width(node), width(x), width(y));
        let left = self.pick(x, &format!("e / {all} * {first} + hw_least(e % {all}, {first} - 1)"));
        let within = format!("(e % {all} < {first} ? 0 : e % {all} - {first})");
        let right = self.pick(y, &format!("e / {all} * {second} + {within}"));
        self.each(out, node, |out, at| {
            out.line(&format!("const float left = {left}, right = {right};"));
            out.line(&format!("{} = e % {all} < {first} ? left : right;", at(&format!("r{node}"))));
        });
    }

    /// Zeros around every head's vector.
    fn pad(&self, out: &mut Writer<'_>, node: NodeId, x: NodeId, from: usize) {
        let width = |node: NodeId| sizes(self.nodes.all[node].shape).1;
        let (all, inner) = (width(node), width(x));
        let value = self.pick(x, &format!("e / {all} * {inner} + (e % {all} - {from}) % {inner}"));
        self.each(out, node, |out, at| {
            out.line(&format!("const float value = {value};"));
            let is_inside = format!("e % {all} >= {from} && e % {all} < {}", from + inner);
            out.line(&format!("{} = {is_inside} ? value : 0.0f;", at(&format!("r{node}"))));
        });
    }

    /// Element `e` of a head's vector, heads and widths of 1 repeated.
    fn of_head(&self, node: NodeId, head: &str, e: &str) -> String {
        let (heads, width) = sizes(self.nodes.all[node].shape);
        let first = if heads == 1 { "0".to_owned() } else { format!("{head} * {width}") };
        let within = if width == 1 { "0" } else { e };
        self.pick(node, &format!("{first} + {within}"))
    }

    /// Whether vectors have one shape whose heads fill all lanes, or some lanes each.
    fn lies_whole(&self, of: &[NodeId]) -> bool {
        let ((heads, width), across) = (sizes(self.nodes.all[of[0]].shape), self.layout.across());
        let fills_lanes = width.is_multiple_of(self.layout.beside) && across.is_multiple_of(width.max(1));
        let is_whole = heads == 1 || width % across == 0 || fills_lanes;
        heads * width > 1 && is_whole && of.iter().all(|x| sizes(self.nodes.all[*x].shape) == (heads, width))
    }

    /// Sums of products over every head's elements, where they lie: a slot after the other, then across lanes.
    fn sums_in_place(&self, out: &mut Writer<'_>, node: NodeId, of: &[NodeId]) {
        let ((heads, width), Layout { group, beside }) = (sizes(self.nodes.all[of[0]].shape), self.layout);
        let slots = self.slots(of[0]);
        // Slots behind the last element are zero: loads fill them, but functions of them need not keep them.
        let is_full = (heads * width).is_multiple_of(self.layout.across());
        let factors: Vec<String> = of.iter().map(|x| format!("r{x}[s]")).collect();
        let product = factors.join(" * ");
        let e = format!("(s / {beside} * {group} + lane) * {beside} + s % {beside}");
        let term = if is_full { product } else { format!("{e} < {} ? {product} : 0.0f", heads * width) };
        out.line("{");
        out.indented(|out| {
            // Sums of a head's slots, or of the heads in slots that lie beside each other.
            let (sums, each, lanes) = match width {
                _ if heads == 1 => (1, slots, group),
                _ if width >= self.layout.across() => (heads, width / group, group),
                _ => (slots / beside, beside, width / beside),
            };
            out.line(&format!("float q[{sums}] = {{}};"));
            out.line("#pragma unroll");
            out.line(&format!("for (u32 s = 0; s < {}; s++) q[s / {each}] += {term};", sums * each));
            out.line("#pragma unroll");
            out.line(&format!("for (u32 s = 0; s < {sums}; s++) q[s] = hw_part_sum<{group}, {lanes}>(q[s], lanes);"));
            match heads {
                1 => out.line(&format!("r{node} = q[0];")),
                _ => self.each(out, node, |out, at| {
                    // A head that fills all lanes has its sum in every one.
                    let apart = if width >= self.layout.across() { group } else { width / beside };
                    let place = format!("hw_least(e, {heads} - 1) * {apart}");
                    out.line(&format!("{} = hw_pick<{group}, 1>(q, {place}, lanes);", at(&format!("r{node}"))));
                }),
            }
        });
        out.line("}");
    }

    /// Whether vectors have one shape, so that elements that belong together lie in the same lane.
    fn lies_alike(&self, of: &[NodeId]) -> bool {
        let (heads, width) = sizes(self.nodes.all[of[0]].shape);
        heads * width > 1 && of.iter().all(|x| sizes(self.nodes.all[*x].shape) == (heads, width))
    }

    /// Sums of products over every head's elements, where heads begin in the middle of slots: a lane adds up what it has of
    /// each head, then lanes are added.
    fn sums_by_mask(&self, out: &mut Writer<'_>, node: NodeId, of: &[NodeId]) {
        let ((heads, width), Layout { group, beside }) = (sizes(self.nodes.all[of[0]].shape), self.layout);
        let factors: Vec<String> = of.iter().map(|x| format!("r{x}[s]")).collect();
        out.line("{");
        out.indented(|out| {
            out.line(&format!("float q[{heads}] = {{}};"));
            out.line("#pragma unroll");
            out.line(&format!("for (u32 s = 0; s < {}; s++) {{", self.slots(of[0])));
            out.indented(|out| {
                out.line(&format!(
                    "const u32 head = ((s / {beside} * {group} + lane) * {beside} + s % {beside}) / {width};"
                ));
                out.line(&format!("const float term = {};", factors.join(" * ")));
                out.line("#pragma unroll");
                out.line(&format!("for (u32 h = 0; h < {heads}; h++) q[h] += head == h ? term : 0.0f;"));
            });
            out.line("}");
            out.line("#pragma unroll");
            out.line(&format!("for (u32 h = 0; h < {heads}; h++) {{"));
            out.indented(|out| {
                out.line(&format!("const float sum = hw_group_sum<{group}>(q[h], lanes);"));
                self.set_element(out, node, "h", "sum");
            });
            out.line("}");
        });
        out.line("}");
    }

    /// A sum over the `width` elements of every head.
    fn sums(&self, out: &mut Writer<'_>, node: NodeId, width: usize, term: impl Fn(&str, &str) -> String) {
        let (heads, group) = (self.len(node), self.layout.group);
        out.line("#pragma unroll");
        out.line(&format!("for (u32 h = 0; h < {heads}; h++) {{"));
        out.indented(|out| {
            out.line("float sum = 0.0f;");
            out.line("#pragma unroll");
            out.line(&format!("for (u32 i = lane; i < {}; i += {group}) {{", width.div_ceil(group) * group));
            out.indented(|out| {
                // All lanes fetch; those behind the end add nothing.
                out.line(&format!("const float term = {};", term("h", &format!("hw_least(i, {} - 1)", width))));
                out.line(&format!("sum += i < {width} ? term : 0.0f;"));
            });
            out.line("}");
            out.line(&format!("sum = hw_group_sum<{group}>(sum, lanes);"));
            self.set_element(out, node, "h", "sum");
        });
        out.line("}");
    }

    /// Sets element `index` of a vector to a number that all lanes have.
    fn set_element(&self, out: &mut Writer<'_>, node: NodeId, index: &str, value: &str) {
        let Layout { group, beside } = self.layout;
        match self.len(node) {
            1 => out.line(&format!("r{node} = {value};")),
            _ => out.line(&format!(
                "if ({index} / {beside} % {group} == lane) r{node}[{index} / {} * {beside} + {index} % {beside}] = {value};",
                self.layout.across()
            )),
        }
    }

    /// Begins a reduction, before the walk over its rows. `r` is the sum, `d` the sum beside a largest, `m` how many rows.
    pub fn begin(&self, out: &mut Writer<'_>, node: NodeId) {
        self.declare(out, &format!("r{node}"), node);
        let is_softmax = matches!(self.nodes.all[node].op, Op::Largest(_));
        if is_softmax {
            self.declare(out, &format!("d{node}"), node);
        }
        self.each(out, node, |out, at| {
            out.line(&format!("{} = {};", at(&format!("r{node}")), self.nothing(node)));
            if is_softmax {
                out.line(&format!("{} = 0.0f;", at(&format!("d{node}"))));
            }
        });
    }

    /// What a reduction of no rows begins with.
    pub fn nothing(&self, node: NodeId) -> &'static str {
        match self.nodes.all[node].op {
            Op::Largest(_) | Op::Reduce(Reduce::Max, _) => "-HW_INFINITY",
            _ => "0.0f",
        }
    }

    /// Adds the row at hand.
    pub fn add(&self, out: &mut Writer<'_>, node: NodeId) {
        let Some(x) = self.nodes.source(node) else { return };
        self.each(out, node, |out, at| {
            out.line(&self.joined(node, [&at(&format!("r{node}")), &at(&format!("d{node}")), &at(&format!("r{x}"))]));
        });
    }

    /// A statement that adds a number to a sum, or to a largest and the sum beside it.
    pub fn joined(&self, node: NodeId, [sum, beside, x]: [&str; 3]) -> String {
        match self.nodes.all[node].op {
            Op::Largest(_) => format!("hw_join({sum}, {beside}, {x});"),
            Op::Reduce(Reduce::Max, _) => format!("{sum} = hw_max({sum}, {x});"),
            _ => format!("{sum} += {x};"),
        }
    }

    /// Puts together what all groups of a block added up of one row's members.
    pub fn meet(&self, out: &mut Writer<'_>, node: NodeId) {
        let group = self.layout.group;
        let sum = |how: &str, x: &str| format!("hw_block_sum<{how}, {group}, HW_WALK_THREADS>({x})");
        self.each(out, node, |out, at| {
            let own = at(&format!("r{node}"));
            match self.nodes.all[node].op {
                Op::Largest(_) => {
                    let beside = at(&format!("d{node}"));
                    out.line(&format!("const float largest = {};", sum("HW_MAX", &own)));
                    let scaled = format!("hw_beside({own}, {beside}, largest)");
                    out.line(&format!("{beside} = {};", sum("HW_SUM", &scaled)));
                    out.line(&format!("{own} = largest;"));
                }
                Op::Reduce(Reduce::Max, _) => out.line(&format!("{own} = {};", sum("HW_MAX", &own))),
                _ => out.line(&format!("{own} = {};", sum("HW_SUM", &own))),
            }
        });
        if self.is_counted(node) {
            out.line(&format!("m{node} = hw_block_sum<HW_SUM, {group}, HW_WALK_THREADS>(m{node});"));
        }
    }

    /// Whether a reduction has to know how many rows it has.
    pub fn is_counted(&self, node: NodeId) -> bool {
        matches!(self.nodes.all[node].op, Op::Reduce(Reduce::Mean | Reduce::Max, _))
    }

    /// Ends a reduction, after the walk.
    pub fn finish(&self, out: &mut Writer<'_>, node: NodeId) {
        if !self.is_counted(node) {
            return;
        }
        let is_mean = matches!(self.nodes.all[node].op, Op::Reduce(Reduce::Mean, _));
        self.each(out, node, |out, at| {
            let own = at(&format!("r{node}"));
            out.line(&match is_mean {
                true => format!("{own} *= 1.0f / (m{node} ? m{node} : 1);"),
                // The largest of none is 0.
                false => format!("{own} = m{node} ? {own} : 0.0f;"),
            });
        });
    }
}
