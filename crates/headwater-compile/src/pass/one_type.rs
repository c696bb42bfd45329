//! Graphs of one edge type or one node type: what belongs to types belongs to all, and a node and an edge type are a node.
//!
//! Ordinary networks run on graphs of one relation. There a typed weight has one row, and values of pairs are values of
//! nodes without an index. A weight keeps its name and its numbers, so callers see no difference.
//!
//! A pair is there only where an edge is; a node always is. So a value moves from pairs to nodes only if what is summed over
//! pairs is zero for a node without edges.

use super::Statistics;
use super::rewrite::{Rebuilt, rewrite};
use crate::error::Result;
use crate::inter::{Binary, Domain, Op, Path, Program, Unary, Value, ValueId, verify};

/// The program for a graph of these rows.
pub fn one_type(program: &Program, statistics: &Statistics) -> Result<Program> {
    let is_one = |rows: f64| (rows - 1.0).abs() < f64::EPSILON;
    let (edges, nodes) = (is_one(statistics.edge_types), is_one(statistics.node_types));
    if !(edges || nodes) {
        return Ok(program.clone());
    }
    let moves_pairs = edges && pairs_may_move(program);
    let place = |domain: Domain| match domain {
        Domain::EdgeType if edges => Domain::Const,
        Domain::NodeType if nodes => Domain::Const,
        Domain::Pair(side) if moves_pairs => Domain::Node(side),
        other => other,
    };
    let found = rewrite(program, |to, value| Ok(visit(to, value, &place)))?;
    // A node type by the other end of an edge has no counterpart once pairs are gone. Such a program stays as it was.
    Ok(if verify(&found).is_ok() { found } else { program.clone() })
}

fn visit(to: &mut Rebuilt, value: Value, place: &dyn Fn(Domain) -> Domain) -> ValueId {
    let domain = place(value.domain);
    let way = |from: Domain, coarse: Domain, path: Path| match (from, coarse) {
        (_, Domain::Const) | (Domain::Node(_), Domain::NodeType) => Path::Only,
        _ => path,
    };
    let op = match value.op {
        Op::Lift { x, .. } | Op::Reduce { x, .. } if to.value(x).domain == domain => return x,
        Op::Lift { x, path } => Op::Lift { x, path: way(domain, to.value(x).domain, path) },
        Op::Reduce { x, how, path } => Op::Reduce { x, how, path: way(to.value(x).domain, domain, path) },
        Op::Linear { x, w, transposed, path } => {
            Op::Linear { x, w, transposed, path: way(domain, to.value(w).domain, path) }
        }
        Op::Softmax { x, by } => Op::Softmax { x, by: place(by) },
        op => op,
    };
    to.push(op, domain, value.shape)
}

/// Whether all values of pairs can be values of nodes.
fn pairs_may_move(program: &Program) -> bool {
    let mut is_zero = vec![false; program.values.len()];
    for (id, value) in program.iter() {
        is_zero[id.at()] = is_zero_without_edges(&value.op, |id| is_zero[id.at()]);
    }
    let is_pair = |id: ValueId| matches!(program[id].domain, Domain::Pair(_));
    program.iter().all(|(id, value)| match value.op {
        // What the caller gives or asks for has the rows it is declared with, and chance goes by a row's number.
        Op::Input { .. } | Op::Parameter { .. } | Op::Dropout { .. } => !is_pair(id),
        Op::Reduce { x, .. } => !is_pair(x) || is_zero[x.at()],
        Op::Softmax { x, .. } => !is_pair(x),
        Op::Outer { x, y, .. } => !is_pair(x) || is_zero[x.at()] || is_zero[y.at()],
        _ => true,
    }) && program.outputs.iter().all(|output| !is_pair(output.value))
}

/// Whether a value's row is zero for a node that has no edges.
fn is_zero_without_edges(op: &Op, is_zero: impl Fn(ValueId) -> bool) -> bool {
    match *op {
        Op::Reduce { .. } => true,
        Op::Linear { x, .. }
        | Op::Slice { x, .. }
        | Op::Pad { x, .. }
        | Op::Reshape { x }
        | Op::Expand { x }
        | Op::SumHeads { x }
        | Op::SumWidth { x } => is_zero(x),
        Op::Unary { f, x } => {
            let keeps = matches!(f, Unary::Neg | Unary::Relu | Unary::LeakyRelu(_) | Unary::Elu(_));
            (keeps || matches!(f, Unary::Tanh | Unary::Gelu | Unary::Abs | Unary::Sqrt)) && is_zero(x)
        }
        Op::Binary { f: Binary::Mul, x, y } | Op::Dot { x, y } => is_zero(x) || is_zero(y),
        Op::Binary { f: Binary::Add | Binary::Sub, x, y } | Op::Concat { x, y } => is_zero(x) && is_zero(y),
        _ => false,
    }
}
