//! The few numbers of a row that one lane has all of: lanes of a group have rows that lie beside each other, so what is done
//! once a row is done for as many rows at a time as there are lanes, and lists and numbers of rows are read in whole lines.
//!
//! `c` is such a vector, an array where it has more than one element; `u` is a vector of a coarser row, every element of it in
//! every lane; `a` and `b` are a lane's part of a reduction.

use super::nodes::{NodeId, Op};
use super::row::{Layout, Rows, sizes};
use super::scalar::{binary, dropout, single, unary};
use super::text::Writer;
use crate::inter::Shape;
use crate::intra::{Read, Register, StepOp};

impl Rows<'_> {
    /// Element `at` of a lane's vector.
    fn own(&self, node: NodeId, at: usize) -> String {
        if self.len(node) == 1 { format!("c{node}") } else { format!("c{node}[{at}]") }
    }

    /// Element `at` of a vector of a coarser row.
    fn coarse(&self, prefix: &str, node: NodeId, at: usize) -> String {
        match (self.len(node), prefix) {
            (1, "u") => format!("r{node}"),
            (1, _) => format!("d{node}"),
            _ => format!("{prefix}{node}[{at}]"),
        }
    }

    /// The element of a lane's vector that belongs to element `at` of a shape, heads and widths of 1 repeated.
    fn matched(&self, node: NodeId, shape: Shape, at: usize) -> String {
        let ((heads, width), (_, wide)) = (sizes(self.nodes.all[node].shape), sizes(shape));
        let head = if heads == 1 { 0 } else { at / wide };
        self.own(node, head * width + if width == 1 { 0 } else { at % wide })
    }

    /// Vectors of coarser rows that a lane's vector is made from, brought into every lane.
    pub fn bring(&self, out: &mut Writer<'_>, node: NodeId, brought: &mut Vec<NodeId>) {
        let (coarse, is_softmax) = match &self.nodes.all[node].op {
            Op::Step(StepOp::Spread(x)) => (self.nodes.of(*x), false),
            Op::Share { largest, .. } => (*largest, true),
            _ => return,
        };
        let len = self.len(coarse);
        if len == 1 || brought.contains(&coarse) {
            return;
        }
        brought.push(coarse);
        for (prefix, from) in [("u", "r"), ("w", "d")].into_iter().take(1 + usize::from(is_softmax)) {
            out.line(&format!("float {prefix}{coarse}[{len}];"));
            out.line("#pragma unroll");
            let value = self.pick_of(&format!("{from}{coarse}"), coarse, "i");
            out.line(&format!("for (u32 i = 0; i < {len}; i++) {prefix}{coarse}[i] = {value};"));
        }
    }

    /// Declares a lane's vector.
    pub fn declare_own(&self, out: &mut Writer<'_>, node: NodeId) {
        match self.len(node) {
            1 => out.line(&format!("float c{node} = 0.0f;")),
            len => out.line(&format!("float c{node}[{len}] = {{}};")),
        }
    }

    /// Makes a lane's vector. `row` is the name of the lane's row.
    pub fn make_own(&self, out: &mut Writer<'_>, node: NodeId, row: &str) {
        let (level, len, shape) = (self.nodes.all[node].level, self.len(node), self.nodes.all[node].shape);
        match &self.nodes.all[node].op {
            Op::Step(StepOp::Load(read)) => {
                let at = out.row_of(self.nest[level], read, row);
                self.read_own(out, node, read, &at);
            }
            Op::Step(StepOp::Store(x, to)) => {
                let to = out.buffer_at(*to, row, len);
                self.write_own(out, self.nodes.of(*x), &to);
            }
            Op::Share { x, largest } => {
                self.declare_own(out, node);
                for at in 0..len {
                    let (x, most, sum) =
                        (self.own(*x, at), self.coarse("u", *largest, at), self.coarse("w", *largest, at));
                    out.line(&format!("{} = expf({x} - {most}) / {sum};", self.own(node, at)));
                }
            }
            Op::Step(op) => {
                self.declare_own(out, node);
                for at in 0..len {
                    let value = self.element(op, shape, at, row);
                    out.line(&format!("{} = {value};", self.own(node, at)));
                }
            }
            Op::Count(_) | Op::Reduce(..) | Op::Largest(_) => {}
        }
    }

    /// Reads a lane's vector out of row `at` of a buffer.
    pub fn read_own(&self, out: &mut Writer<'_>, node: NodeId, read: &Read, at: &str) {
        self.declare_own(out, node);
        let (len, from) = (self.len(node), out.buffer_at(read.from, at, self.len(node)));
        match len {
            1 => out.line(&format!("c{node} = *({from});")),
            _ => out.line(&format!("hw_load_own<{len}>(c{node}, {from});")),
        }
    }

    /// Writes a lane's vector, where the lane has a row.
    pub fn write_own(&self, out: &mut Writer<'_>, node: NodeId, to: &str) {
        match self.len(node) {
            1 => out.line(&format!("if (is_there) *({to}) = c{node};")),
            len => out.line(&format!("if (is_there) hw_store_own<{len}>({to}, c{node});")),
        }
    }

    /// An element of what a step makes.
    fn element(&self, op: &StepOp, shape: Shape, at: usize, row: &str) -> String {
        let of = |register: &Register| self.nodes.of(*register);
        let wide = |register: &Register| sizes(self.nodes.all[of(register)].shape).1;
        let width = sizes(shape).1;
        // Elements of head `at` of vectors, heads and widths of 1 repeated.
        let of_head = |x: NodeId, i: usize| {
            let (heads, width) = sizes(self.nodes.all[x].shape);
            self.own(x, if heads == 1 { 0 } else { at * width } + if width == 1 { 0 } else { i })
        };
        let sum = |terms: Vec<String>| if terms.is_empty() { "0.0f".to_owned() } else { terms.join(" + ") };
        match op {
            StepOp::Constant(number) => single(*number),
            StepOp::Unary(f, x) => unary(*f, &self.matched(of(x), shape, at)),
            StepOp::Binary(f, x, y) => binary(*f, &self.matched(of(x), shape, at), &self.matched(of(y), shape, at)),
            StepOp::Reshape(x) => self.own(of(x), at),
            StepOp::Expand(x) => self.matched(of(x), shape, at),
            StepOp::Spread(x) => self.coarse("u", of(x), at),
            StepOp::Concat(x, y) => match at % width {
                within if within < wide(x) => self.own(of(x), at / width * wide(x) + within),
                within => self.own(of(y), at / width * wide(y) + within - wide(x)),
            },
            StepOp::Slice(x, from) => self.own(of(x), at / width * wide(x) + from + at % width),
            StepOp::Pad(x, from) => match (at % width).checked_sub(*from) {
                Some(within) if within < wide(x) => self.own(of(x), at / width * wide(x) + within),
                _ => "0.0f".to_owned(),
            },
            StepOp::SumHeads(x) => {
                let heads = sizes(self.nodes.all[of(x)].shape).0;
                sum((0..heads).map(|head| self.own(of(x), head * width + at)).collect())
            }
            StepOp::SumWidth(x) => sum((0..wide(x)).map(|i| of_head(of(x), i)).collect()),
            StepOp::Dot(x, y) => {
                let term = |i: usize| format!("{} * {}", of_head(of(x), i), of_head(of(y), i));
                sum((0..wide(x).max(wide(y))).map(term).collect())
            }
            StepOp::Dropout { x, probability, key } => {
                let place = format!("(u64){row} * {} + {at}", shape.len());
                dropout(&self.matched(of(x), shape, at), *key, &place, *probability)
            }
            StepOp::Product | StepOp::Load(_) | StepOp::Reduce(..) | StepOp::Softmax { .. } | StepOp::Store(..) => {
                String::new()
            }
        }
    }

    /// The vector of lane `j`, as vectors across lanes lie.
    pub fn broadcast(&self, out: &mut Writer<'_>, node: NodeId) {
        let group = self.layout.group;
        if self.len(node) == 1 {
            return out.line(&format!("const float r{node} = __shfl_sync(lanes, c{node}, j, {group});"));
        }
        out.line(&format!("float r{node}[{}] = {{}};", self.slots(node)));
        for at in 0..self.len(node) {
            let (lane, slot) = self.layout.place(at);
            out.line(&format!("const float t{node}_{at} = __shfl_sync(lanes, c{node}[{at}], j, {group});"));
            out.line(&format!("if (lane == {lane}) r{node}[{slot}] = t{node}_{at};"));
        }
    }

    /// Gives lane `j` a vector that was made across lanes.
    pub fn deposit(&self, out: &mut Writer<'_>, node: NodeId) {
        if self.len(node) == 1 {
            return out.line(&format!("if (lane == j) c{node} = r{node};"));
        }
        for at in 0..self.len(node) {
            let value = self.pick(node, &format!("{at}u"));
            out.line(&format!("const float t{node}_{at} = {value};"));
            out.line(&format!("if (lane == j) c{node}[{at}] = t{node}_{at};"));
        }
    }

    /// Begins a reduction of which every lane has a part.
    pub fn begin_parts(&self, out: &mut Writer<'_>, node: NodeId) {
        let is_softmax = matches!(self.nodes.all[node].op, Op::Largest(_));
        for (name, first) in [("a", self.nothing(node)), ("b", "0.0f")].into_iter().take(1 + usize::from(is_softmax)) {
            match self.len(node) {
                1 => out.line(&format!("float {name}{node} = {first};")),
                len => {
                    let all = vec![first; len].join(", ");
                    out.line(&format!("float {name}{node}[{len}] = {{{all}}};"));
                }
            }
        }
    }

    /// Adds the lane's row to its part.
    pub fn add_part(&self, out: &mut Writer<'_>, node: NodeId) {
        let Some(x) = self.nodes.source(node) else { return };
        let len = self.len(node);
        let part =
            |name: &str, at: usize| if len == 1 { format!("{name}{node}") } else { format!("{name}{node}[{at}]") };
        for at in 0..len {
            out.line(&self.joined(node, [&part("a", at), &part("b", at), &self.own(x, at)]));
        }
    }

    /// Puts the parts of all lanes together, as vectors across lanes lie.
    pub fn join_parts(&self, out: &mut Writer<'_>, node: NodeId) {
        let (len, Layout { group, .. }) = (self.len(node), self.layout);
        let is_softmax = matches!(self.nodes.all[node].op, Op::Largest(_));
        let sum = if self.nothing(node) == "0.0f" { "hw_group_sum" } else { "hw_group_max" };
        let part =
            |name: &str, at: usize| if len == 1 { format!("{name}{node}") } else { format!("{name}{node}[{at}]") };
        self.declare(out, &format!("r{node}"), node);
        if is_softmax {
            self.declare(out, &format!("d{node}"), node);
        }
        for at in 0..len {
            let (lane, slot) = self.layout.place(at);
            let own = part("a", at);
            let mut values = vec![("r", format!("t{node}_{at}"))];
            out.line(&format!("const float t{node}_{at} = {sum}<{group}>({own}, lanes);"));
            if is_softmax {
                let beside = format!("hw_beside({own}, {}, t{node}_{at})", part("b", at));
                out.line(&format!("const float s{node}_{at} = hw_group_sum<{group}>({beside}, lanes);"));
                values.push(("d", format!("s{node}_{at}")));
            }
            for (name, value) in values {
                match len {
                    1 => out.line(&format!("{name}{node} = {value};")),
                    _ => out.line(&format!("if (lane == {lane}) {name}{node}[{slot}] = {value};")),
                }
            }
        }
    }
}
