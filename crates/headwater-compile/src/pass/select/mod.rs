//! From values to kernels: what belongs together becomes one kernel, and loops come back as its nest.
//!
//! `group.rs` decides which values share a kernel, from the program alone; `emit.rs` writes those kernels down. A value that
//! only its own kernel reads stays in registers; the others get a buffer. Lifts of rows never get one: they are how rows are read.

mod emit;
mod group;
mod product;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use crate::error::Result;
use crate::inter;
use crate::inter::{Binary, Domain, Op, Program, Shape, Side, Unary, Value, ValueId};
use crate::intra;
use crate::intra::Hop;
use crate::pass::rewrite::{Rebuilt, rewrite};
use crate::pass::simplify::number;

/// Which values share kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fusion {
    /// None: a kernel a value.
    Off,
    /// All that may, in nests of at most two levels. What rows make of a row that several of them share is then made under the shared row,
    /// so that it is read once.
    Shallow(Shared),
    /// All that may.
    On,
}

/// Which rows several finer ones read, on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// Pairs of a destination and an edge type, by edges.
    pub pairs_by_edges: bool,
    /// Destinations, by edges.
    pub nodes_by_edges: bool,
    /// Destinations, by their pairs.
    pub nodes_by_pairs: bool,
    /// Numbers that such a row has at least: shorter ones come with a line of memory that is read anyway.
    pub least_numbers: usize,
}

impl Fusion {
    /// Levels that nests have at most.
    fn most_levels(self) -> usize {
        if matches!(self, Self::Shallow(_)) { 2 } else { usize::MAX }
    }
}

/// The kernels of a program.
pub fn select(program: &Program, fusion: Fusion) -> Result<intra::Program> {
    let program = in_memory(program)?;
    let program = &if matches!(fusion, Fusion::Shallow(_)) { in_order(&program) } else { program.into_owned() };
    let groups = group::group(program, fusion);
    let kernels = emit::emit(program, &groups)?;
    intra::verify(&kernels)?;
    Ok(kernels)
}

/// The program with rows of numbers, where products read them, as rows in memory.
fn in_memory(program: &Program) -> Result<Cow<'_, Program>> {
    let is_number = |id: ValueId| matches!(program[source(program, id).base].op, Op::Constant(_));
    let reads_number = |value: &Value| match value.op {
        Op::Linear { x, .. } => is_number(x),
        Op::Outer { x, y, .. } => is_number(x) || is_number(y),
        _ => false,
    };
    if !program.values.iter().any(reads_number) {
        return Ok(Cow::Borrowed(program));
    }
    let found = rewrite(program, |to, value| {
        let op = match value.op {
            Op::Linear { x, w, transposed, path } => Op::Linear { x: made(to, x), w, transposed, path },
            Op::Outer { x, y, path } => Op::Outer { x: made(to, x), y: made(to, y), path },
            _ => return Ok(to.keep(value)),
        };
        Ok(to.keep(Value { op, ..value }))
    })?;
    Ok(Cow::Owned(found))
}

/// A value that a kernel makes, where it is a number.
fn made(to: &mut Rebuilt, id: ValueId) -> ValueId {
    let Some(number) = number(to, id) else { return id };
    let (domain, shape) = (to.value(id).domain, to.value(id).shape);
    let opposite = to.push(Op::Constant(-number), Domain::Const, Shape::SCALAR);
    let rows = match domain {
        Domain::Const => opposite,
        _ => to.push(Op::Lift { x: opposite, path: inter::Path::Only }, domain, Shape::SCALAR),
    };
    to.push(Op::Unary { f: Unary::Neg, x: rows }, domain, shape)
}

/// The program in the order that fills a GPU, which runs kernels beside each other that do not wait for each other: first values of types
/// that depend on weights alone, which then share kernels, and products that are added to something later, which the kernel that makes the
/// sum adds.
fn in_order(program: &Program) -> Program {
    let uses = program.uses();
    let readers = |id: ValueId| program.iter().filter(move |(_, value)| value.op.operands().contains(&id));
    let is_added = |id: ValueId| {
        let is_sum = |value: &Value| matches!(value.op, Op::Binary { f: Binary::Add, .. });
        uses[id.at()] == 1 && readers(id).all(|(_, value)| is_sum(value))
    };
    let mut is_early: Vec<bool> = Vec::with_capacity(program.values.len());
    for (id, value) in program.iter() {
        let may_be = match value.op {
            Op::Linear { .. } => value.domain.is_type() || is_added(id),
            Op::Lift { .. } => value.domain.is_type() || is_map(program, id),
            Op::Outer { .. } | Op::Reduce { .. } => false,
            _ => value.domain.is_type() || value.op.operands().is_empty(),
        };
        is_early.push(may_be && value.op.operands().iter().all(|operand| is_early[operand.at()]));
    }
    let mut order: Vec<ValueId> = program.iter().map(|(id, _)| id).collect();
    order.sort_by_key(|id| !is_early[id.at()]);
    program.of_values(order)
}

/// Whether a value is how others are read, and no more. Products of weights find their matrices by maps, too; for other readers a lifted
/// matrix is copied.
fn is_map(program: &Program, id: ValueId) -> bool {
    let is_found = |value: &Value| matches!(value.op, Op::Product { .. }) || !value.op.operands().contains(&id);
    let is_lift = matches!(program[id].op, Op::Lift { .. });
    is_lift && (matches!(program[id].shape, Shape::Row { .. }) || program.values.iter().all(is_found))
}

/// What is really read when a value is: lifts are maps on the way.
struct Source {
    base: ValueId,
    hops: Vec<Hop>,
}

fn source(program: &Program, mut id: ValueId) -> Source {
    let mut hops = Vec::new();
    while let (Op::Lift { x, path }, true) = (&program[id].op, is_map(program, id)) {
        hops.push(Hop { to: program[*x].domain, path: *path });
        id = *x;
    }
    Source { base: id, hops }
}

/// Whether the rows of a nest's level belong to rows of another along a map that nests have.
fn nests(fine: Domain, coarse: Domain) -> bool {
    let restricts = fine == Domain::Node(Side::Dst) && coarse == Domain::Node(Side::Src);
    fine.maps_to(coarse, inter::Path::Only) && !restricts
}

/// Whether maps stay on levels of a nest.
fn stay_in(hops: &[Hop], from: Domain, nest: &[Domain]) -> bool {
    let mut at = from;
    hops.iter().all(|hop| {
        let stays = nest.contains(&hop.to) && nests(at, hop.to) && hop.path == inter::Path::Only;
        at = hop.to;
        stays
    })
}
