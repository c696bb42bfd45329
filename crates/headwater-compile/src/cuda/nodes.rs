//! A body as loops take it: a softmax is the largest and the sum of its group, which are reductions, and a value for every row.

use crate::inter::{Reduce, Shape};
use crate::intra::{Body, BufferId, Register, StepOp};

/// A vector of every row of a level, by its place.
pub(super) type NodeId = usize;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub level: usize,
    pub shape: Shape,
    pub op: Op,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Op {
    /// A step whose operands are registers of the body; see [`Nodes::of`].
    Step(StepOp),
    /// The sum of a number over the rows of the next finer level: how many there are, times it.
    Count(f64),
    /// Rows of a finer level, combined.
    Reduce(Reduce, NodeId),
    /// The largest of the rows of a finer level, and the sum of their exponentials beside it.
    Largest(NodeId),
    /// The share of a row in its group.
    Share { x: NodeId, largest: NodeId },
}

/// All vectors of a body.
pub(super) struct Nodes {
    pub all: Vec<Node>,
    /// The vector of every register.
    of: Vec<NodeId>,
}

impl Nodes {
    pub fn new(body: &Body) -> Self {
        let mut nodes = Self { all: Vec::new(), of: Vec::new() };
        for step in &body.steps {
            let op = match step.op {
                StepOp::Reduce(how, x) => {
                    let of = &nodes.all[nodes.of(x)];
                    match of.op {
                        Op::Step(StepOp::Constant(number)) if how == Reduce::Sum && of.level == step.level + 1 => {
                            Op::Count(number)
                        }
                        _ => Op::Reduce(how, nodes.of(x)),
                    }
                }
                StepOp::Softmax { x, over } => {
                    let x = nodes.of(x);
                    nodes.all.push(Node { level: over, shape: step.shape, op: Op::Largest(x) });
                    Op::Share { x, largest: nodes.all.len() - 1 }
                }
                ref op => Op::Step(op.clone()),
            };
            nodes.all.push(Node { level: step.level, shape: step.shape, op });
            nodes.of.push(nodes.all.len() - 1);
        }
        nodes
    }

    /// The vector of a register.
    pub fn of(&self, register: Register) -> NodeId {
        self.of[register.at()]
    }

    /// What a vector is made from.
    pub fn operands(&self, node: NodeId) -> Vec<NodeId> {
        match &self.all[node].op {
            Op::Step(op) => op.operands().into_iter().map(|register| self.of(register)).collect(),
            Op::Count(_) => Vec::new(),
            Op::Reduce(_, x) | Op::Largest(x) => vec![*x],
            Op::Share { x, largest } => vec![*x, *largest],
        }
    }

    /// Rows of which level a reduction goes over; `None` for what is made row by row.
    pub fn source(&self, node: NodeId) -> Option<NodeId> {
        match self.all[node].op {
            Op::Reduce(_, x) | Op::Largest(x) => Some(x),
            _ => None,
        }
    }

    pub fn is_store(&self, node: NodeId) -> bool {
        matches!(self.all[node].op, Op::Step(StepOp::Store(..)))
    }

    /// The buffer that a vector is stored in.
    pub fn stored(&self, node: NodeId) -> Option<BufferId> {
        self.all.iter().find_map(|other| match other.op {
            Op::Step(StepOp::Store(x, to)) if self.of(x) == node => Some(to),
            _ => None,
        })
    }

    /// Vectors that are needed for some, without those that are there.
    pub fn needed(&self, goals: impl IntoIterator<Item = NodeId>, is_there: impl Fn(NodeId) -> bool) -> Vec<NodeId> {
        let mut wanted = vec![false; self.all.len()];
        let mut open: Vec<NodeId> = goals.into_iter().filter(|node| !is_there(*node)).collect();
        while let Some(node) = open.pop() {
            if !std::mem::replace(&mut wanted[node], true) {
                open.extend(self.operands(node).into_iter().filter(|node| !is_there(*node)));
            }
        }
        (0..self.all.len()).filter(|node| wanted[*node]).collect()
    }
}
