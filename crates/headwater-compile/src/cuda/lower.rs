//! Which launches a program is. A product goes on where it is made if that is done element by element; else its rows lie in a
//! buffer in between. Sums over all rows are two launches: parts, and their totals.

use super::element::is_in_place;
use super::split::{Sums, split};
use crate::inter::{Domain, Path, Reduce, Shape};
use crate::intra::{
    Body, Buffer, BufferId, Gemm, Kernel, Library, Outer, Program, Read, Register, Role, StepOp, Traverse,
};

/// Thread blocks of outer products that a GPU runs at once: two on each of 132 SMs.
const BLOCKS: usize = 264;
/// Parts of outer products where every type has a matrix, and so its own blocks.
const PARTS_A_TYPE: usize = 8;
/// Rows and columns that a thread block makes of a matrix of outer products.
pub(super) const OUTER_TILE: usize = 128;

/// What one launch does.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Work {
    Nest(Traverse),
    /// Rows times matrices, and a body that only changes elements in place.
    Product(Gemm),
    /// Sums of every part of the rows.
    Sums(Sums),
    /// Their sums.
    Total(Sums),
    /// Outer products of every part of the rows.
    Outer(Outer, Parts),
    /// Their sums.
    OuterTotal(Outer, Parts),
    Library(Library),
}

impl Work {
    /// What it does, in a few words.
    pub fn what(&self, buffers: &[Buffer]) -> String {
        let shape = |id: BufferId| match buffers[id.at()].shape {
            Shape::Matrix { heads: 1, rows, cols } => format!("{rows} x {cols}"),
            shape => format!("{shape:?}"),
        };
        let over = |nest: &[Domain]| nest.iter().map(ToString::to_string).collect::<Vec<_>>().join(" > ");
        match self {
            Self::Nest(nest) => format!("nest over {}", over(&nest.nest)),
            Self::Product(gemm) => format!("product over {}, {}", gemm.rows, shape(gemm.w)),
            Self::Sums(_) => "sums of parts".to_owned(),
            Self::Total(_) => "sums of sums".to_owned(),
            Self::Outer(outer, _) => format!("outer products over {}, {}", outer.rows, shape(outer.to)),
            Self::OuterTotal(..) => "sums of outer products".to_owned(),
            Self::Library(_) => "product of weights".to_owned(),
        }
    }
}

/// Sums of parts of the rows, all parts of a type beside each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Parts {
    pub count: usize,
    pub partial: BufferId,
}

/// All launches of a program, each with the kernel that it is of, and all buffers: the program's, and those between launches.
pub(super) fn lower(program: &Program) -> (Vec<(usize, Work)>, Vec<Buffer>) {
    let (mut work, mut kernels, mut buffers) = (Vec::new(), Vec::new(), program.buffers.clone());
    for (at, kernel) in program.kernels.iter().enumerate() {
        match kernel {
            Kernel::Traverse(traverse) | Kernel::Flash(traverse) => {
                work.extend(split(traverse, &mut buffers).unwrap_or_else(|| vec![Work::Nest(traverse.clone())]));
            }
            Kernel::Outer(outer) => {
                let parts = parts(outer, &mut buffers);
                work.extend([Work::Outer(outer.clone(), parts), Work::OuterTotal(outer.clone(), parts)]);
            }
            Kernel::Library(library) => work.push(Work::Library(library.clone())),
            Kernel::Gemm(gemm) => product(gemm, &mut work, &mut buffers),
        }
        kernels.resize(work.len(), at);
    }
    (kernels.into_iter().zip(work).collect(), buffers)
}

/// A product, and a nest for what cannot be done where it is made.
fn product(gemm: &Gemm, work: &mut Vec<Work>, buffers: &mut Vec<Buffer>) {
    if gemm.scatter.is_none() && is_in_place(&gemm.body) {
        return work.push(Work::Product(gemm.clone()));
    }
    let to = BufferId::new(buffers.len());
    let shape = gemm.body.steps.first().map_or(Shape::SCALAR, |product| product.shape);
    buffers.push(Buffer { name: "product".to_owned(), domain: gemm.rows, shape, role: Role::Temporary });
    let mut body = Body::default();
    let product = body.push(0, shape, StepOp::Product);
    body.push(0, shape, StepOp::Store(product, to));
    work.push(Work::Product(Gemm { body, scatter: None, ..gemm.clone() }));
    work.push(Work::Nest(after(gemm, to)));
}

/// How rows of outer products are split: so that one matrix keeps a GPU busy.
fn parts(outer: &Outer, buffers: &mut Vec<Buffer>) -> Parts {
    let Buffer { domain, shape, .. } = buffers[outer.to.at()];
    let tiles = match shape {
        Shape::Matrix { heads, rows, cols } => heads * rows.div_ceil(OUTER_TILE) * cols.div_ceil(OUTER_TILE),
        Shape::Row { .. } => 1,
    };
    let count = if domain == Domain::Const { (BLOCKS / tiles.max(1)).max(1) } else { PARTS_A_TYPE };
    let shape = Shape::vector(count * shape.len());
    buffers.push(Buffer { name: "parts".to_owned(), domain, shape, role: Role::Temporary });
    Parts { count, partial: BufferId::new(buffers.len() - 1) }
}

/// What is done with the rows of a product, once they are there. Where they go to other rows, each of these adds up the at
/// most one product that belongs to it.
fn after(gemm: &Gemm, product: BufferId) -> Traverse {
    let read = Read { from: product, hops: Vec::new() };
    let Some(to) = gemm.scatter else {
        let mut body = gemm.body.clone();
        body.steps
            .iter_mut()
            .filter(|step| step.op == StepOp::Product)
            .for_each(|step| step.op = StepOp::Load(read.clone()));
        return Traverse { nest: vec![gemm.rows], path: Path::Only, body };
    };
    let mut body = Body::default();
    let shape = gemm.body.steps.first().map_or(Shape::SCALAR, |product| product.shape);
    let own = body.push(1, shape, StepOp::Load(read));
    let sum = body.push(0, shape, StepOp::Reduce(Reduce::Sum, own));
    for step in &gemm.body.steps[1..] {
        let mut step = step.clone();
        step.op = step.op.with_registers(|register: Register| if register.at() == 0 { sum } else { register.after(1) });
        body.steps.push(step);
    }
    Traverse { nest: vec![to, gemm.rows], path: Path::Only, body }
}
