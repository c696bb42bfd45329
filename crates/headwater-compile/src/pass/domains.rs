//! Every operator where its rows are fewest.
//!
//! A text computes in the loop it is written in: the product of a source's features with a weight is written for every edge.
//! But its rows depend on the source alone, so it is computed once a node and lifted. With a typed weight they depend on the
//! pair of source and edge type: computing those once is Hector's compact materialisation, which costs an index, so it is a
//! choice of its own.

use super::rewrite::{Rebuilt, rewrite};
use crate::error::Result;
use crate::inter::{Domain, Op, Path, Program, Side, Value, ValueId};

/// The program with operators moved to coarser domains that `may_use` allows.
pub fn coarsen(program: &Program, may_use: impl Fn(Domain) -> bool) -> Result<Program> {
    rewrite(program, |to, value| visit(to, value, &may_use))
}

fn visit(to: &mut Rebuilt, value: Value, may_use: &dyn Fn(Domain) -> bool) -> Result<ValueId> {
    let moves = value.op.is_row_wise() && !matches!(value.op, Op::Dropout { .. });
    let is_linear = matches!(value.op, Op::Linear { .. });
    if !(moves || is_linear) {
        return Ok(to.keep(value));
    }
    let Some(natural) = natural(to, &value) else { return Ok(to.keep(value)) };
    if natural == value.domain || !may_use(natural) {
        return Ok(to.keep(value));
    }
    let op = match value.op {
        Op::Linear { x, w, transposed, path } => {
            Op::Linear { x: at(to, x, natural), w, transposed, path: path_to(natural, to.value(w).domain, path) }
        }
        ref op => op.with_operands(|operand| at(to, operand, natural)),
    };
    let coarse = to.push(op, natural, value.shape);
    Ok(to.push(Op::Lift { x: coarse, path: Path::Only }, value.domain, value.shape))
}

/// The coarsest domain that has a row for every different result; `None` where the value stays.
fn natural(to: &Rebuilt, value: &Value) -> Option<Domain> {
    let (operands, weight) = match value.op {
        Op::Linear { x, w, path, .. } => (vec![x], Some((to.value(w).domain, path))),
        ref op => (op.operands(), None),
    };
    let mut sources: Vec<(Domain, Path)> = operands.into_iter().map(|operand| source(to, operand)).collect();
    sources.extend(weight);
    let plain = sources.iter().filter(|(_, path)| *path == Path::Only);
    let mut found = plain.map(|(domain, _)| *domain).try_fold(Domain::Const, Domain::join)?;
    for (_, path) in &sources {
        // Node types by an end of the edge: a node of that side knows them, and so does every edge type.
        if let Path::By(side) = *path {
            found = match found {
                Domain::Const | Domain::NodeType => Domain::EdgeType,
                Domain::Node(other) if other != side => Domain::Pair(other),
                other => other,
            };
        }
    }
    (found == value.domain || value.domain.maps_to(found, Path::Only)).then_some(found)
}

/// Where a value comes from when it is lifted, and the way.
fn source(to: &Rebuilt, id: ValueId) -> (Domain, Path) {
    match to.value(id).op {
        Op::Lift { x, path } => {
            let (fine, coarse) = (to.value(id).domain, to.value(x).domain);
            let restricts = fine == Domain::Node(Side::Dst) && coarse == Domain::Node(Side::Src);
            if restricts { (fine, Path::Only) } else { (coarse, path) }
        }
        _ => (to.value(id).domain, Path::Only),
    }
}

/// An operand at the coarser domain.
fn at(to: &mut Rebuilt, id: ValueId, domain: Domain) -> ValueId {
    let Op::Lift { x, path } = to.value(id).op else { return id };
    if to.value(x).domain == domain || to.value(id).domain == domain {
        return if to.value(id).domain == domain { id } else { x };
    }
    let path = path_to(domain, to.value(x).domain, path);
    let shape = to.value(x).shape;
    to.push(Op::Lift { x, path }, domain, shape)
}

/// The way from a domain to a coarser one, when an edge takes `path`.
fn path_to(fine: Domain, coarse: Domain, path: Path) -> Path {
    match (fine, coarse) {
        (Domain::Node(_), Domain::NodeType) => Path::Only,
        _ => path,
    }
}
