//! Which launches a program is: products and what is done with their rows are two, and between them is a buffer.

use crate::inter::{Path, Reduce, Shape};
use crate::intra::{Body, Buffer, BufferId, Gemm, Kernel, Library, Outer, Program, Read, Role, StepOp, Traverse};

/// What one launch does.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Work {
    Nest(Traverse),
    /// Rows times matrices into a buffer.
    Product(Gemm, BufferId),
    Outer(Outer),
    Library(Library),
}

/// All launches of a program, and all buffers: the program's, and those between launches.
pub(super) fn lower(program: &Program) -> (Vec<Work>, Vec<Buffer>) {
    let (mut work, mut buffers) = (Vec::new(), program.buffers.clone());
    for kernel in &program.kernels {
        match kernel {
            Kernel::Traverse(traverse) | Kernel::Flash(traverse) => work.push(Work::Nest(traverse.clone())),
            Kernel::Outer(outer) => work.push(Work::Outer(outer.clone())),
            Kernel::Library(library) => work.push(Work::Library(library.clone())),
            Kernel::Gemm(gemm) => match stored_as_it_is(gemm) {
                Some(to) => work.push(Work::Product(gemm.clone(), to)),
                None => {
                    let to = BufferId::new(buffers.len());
                    buffers.push(between(gemm));
                    work.push(Work::Product(gemm.clone(), to));
                    work.push(Work::Nest(after(gemm, to)));
                }
            },
        }
    }
    (work, buffers)
}

/// Where products go, if nothing else happens to them.
fn stored_as_it_is(gemm: &Gemm) -> Option<BufferId> {
    match &gemm.body.steps[..] {
        [product, store] if product.op == StepOp::Product && gemm.scatter.is_none() => match store.op {
            StepOp::Store(_, to) => Some(to),
            _ => None,
        },
        _ => None,
    }
}

fn between(gemm: &Gemm) -> Buffer {
    let shape = gemm.body.steps.first().map_or(Shape::SCALAR, |product| product.shape);
    Buffer { name: "product".to_owned(), domain: gemm.rows, shape, role: Role::Temporary }
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
        step.op = step.op.with_registers(|register| if register.at() == 0 { sum } else { register.after(1) });
        body.steps.push(step);
    }
    Traverse { nest: vec![to, gemm.rows], path: Path::Only, body }
}
