//! From values to kernels: what belongs together becomes one kernel, and loops come back as its nest.
//!
//! `group.rs` decides which values share a kernel, from the program alone; `emit.rs` writes those kernels down. A value that
//! only its own kernel reads stays in registers; the others get a buffer. Lifts of rows never get one: they are how rows are read.

mod emit;
mod group;
mod product;
#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::inter;
use crate::inter::{Domain, Op, Program, Shape, Side, ValueId};
use crate::intra;
use crate::intra::Hop;

/// Which values share kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fusion {
    /// None: a kernel a value.
    Off,
    /// All that may.
    On,
}

/// The kernels of a program.
pub fn select(program: &Program, fusion: Fusion) -> Result<intra::Program> {
    let groups = group::group(program, fusion);
    let kernels = emit::emit(program, &groups)?;
    intra::verify(&kernels)?;
    Ok(kernels)
}

/// Whether a value is how others are read, and no more. Matrices are read as they lie, so a lifted one is copied.
fn is_map(program: &Program, id: ValueId) -> bool {
    matches!(program[id].op, Op::Lift { .. }) && matches!(program[id].shape, Shape::Row { .. })
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
