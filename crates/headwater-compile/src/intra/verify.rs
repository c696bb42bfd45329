//! Whether a program of kernels makes sense: nests whose domains map to each other, steps that read registers before them at
//! the levels they may, buffers that are written once and before they are read.

use super::{
    Body, BufferId, Gemm, GemmSum, Kernel, Library, Outer, Program, Read, Role, RowProduct, Step, StepOp, Traverse,
};
use crate::error::{Error, Result};
use crate::inter::{Domain, Path, Shape};

/// The first rule that a program breaks.
pub fn verify(program: &Program) -> Result<()> {
    let mut written: Vec<bool> =
        program.buffers.iter().map(|buffer| matches!(buffer.role, Role::Input | Role::Parameter)).collect();
    for (at, kernel) in program.kernels.iter().enumerate() {
        let wrong = |why: String| Error::Malformed { program: program.name.clone(), at: format!("kernel {at}"), why };
        if let Some(early) = kernel.reads().into_iter().find(|id| !written.get(id.at()).copied().unwrap_or(false)) {
            return Err(wrong(format!("b{} is read before it is written", early.at())));
        }
        check(program, kernel).map_err(wrong)?;
        for id in kernel.writes() {
            if std::mem::replace(&mut written[id.at()], true) {
                return Err(wrong(format!("b{} is written twice", id.at())));
            }
        }
    }
    let missing =
        program.buffers.iter().zip(&written).find(|(buffer, is_written)| buffer.role == Role::Output && !**is_written);
    missing.map_or(Ok(()), |(buffer, _)| {
        let (program, at) = (program.name.clone(), format!("output {}", buffer.name));
        Err(Error::Malformed { program, at, why: "nothing writes it".to_owned() })
    })
}

fn check(program: &Program, kernel: &Kernel) -> Result<(), String> {
    match kernel {
        Kernel::Gemm(gemm) => check_gemm(program, gemm),
        Kernel::GemmSum(sum) => check_sum(program, sum),
        Kernel::Outer(outer) => check_outer(program, outer),
        Kernel::Traverse(traverse) => check_traverse(program, traverse),
        Kernel::Library(Library::Product { a, b, to }) => {
            let is_matrix = |id: BufferId| matches!(program[id].shape, Shape::Matrix { .. });
            ensure([a.0.from, b.0.from, *to].into_iter().all(is_matrix), || "expected matrices".to_owned())?;
            [a, b].into_iter().try_for_each(|side| reach(program, program[*to].domain, &side.0))
        }
    }
}

fn check_gemm(program: &Program, gemm: &Gemm) -> Result<(), String> {
    let rows = gemm.product.rows;
    let product = check_product(program, &gemm.product)?;
    if let Some(to) = gemm.scatter {
        ensure(rows.is_injective(to), || format!("rows of {rows} may go to the same row of {to}"))?;
    }
    check_product_body(program, product, *gemm.body_rows(), &gemm.body)
}

fn check_sum(program: &Program, sum: &GemmSum) -> Result<(), String> {
    let Domain::Node(side) = sum.to else { return Err(format!("products are not added up for rows of {}", sum.to)) };
    let mut products = Vec::with_capacity(sum.terms.len());
    for term in &sum.terms {
        let is_typed = term.rows == Domain::Pair(side) && program[term.w].domain == Domain::EdgeType;
        let is_one_a_type = term.rows == sum.to || is_typed || term.rows.is_injective(sum.to);
        ensure(is_one_a_type, || {
            format!("rows of {} of one type may belong to the same row of {}", term.rows, sum.to)
        })?;
        products.push(check_product(program, term)?);
    }
    let Some(first) = products.first() else { return Err("nothing is added up".to_owned()) };
    ensure(products.iter().all(|product| product == first), || "products differ in their shapes".to_owned())?;
    check_product_body(program, *first, sum.to, &sum.body)
}

/// The shape of a product.
fn check_product(program: &Program, product: &RowProduct) -> Result<Shape, String> {
    let Shape::Matrix { heads, rows, cols } = program[product.w].shape else {
        return Err("weights are matrices".to_owned());
    };
    let (from, to) = if product.transposed { (cols, rows) } else { (rows, cols) };
    reach(program, product.rows, &product.x)?;
    if let Some(scale) = &product.scale {
        reach(program, product.rows, scale)?;
        ensure(program[scale.from].shape.len() == 1, || "a row has one factor".to_owned())?;
    }
    let types = program[product.w].domain;
    let has_type = types == product.rows || product.rows.maps_to(types, product.path);
    ensure(has_type, || format!("{} has no {types}", product.rows))?;
    ensure(program[product.x.from].shape.len() == heads * from, || "the vector does not fit the matrix".to_owned())?;
    Ok(Shape::Row { heads, width: to })
}

fn check_product_body(program: &Program, product: Shape, rows: Domain, body: &Body) -> Result<(), String> {
    let is_product = body.steps.first().is_some_and(|step| step.op == StepOp::Product && step.shape == product);
    ensure(is_product, || "the first step is the product".to_owned())?;
    check_body(program, &[rows], body)
}

fn check_outer(program: &Program, outer: &Outer) -> Result<(), String> {
    reach(program, outer.rows, &outer.x)?;
    reach(program, outer.rows, &outer.y)?;
    let (x, y, to) = (program[outer.x.from].shape, program[outer.y.from].shape, &program[outer.to]);
    let Shape::Matrix { heads, rows, cols } = to.shape else { return Err("expected matrices".to_owned()) };
    ensure(x.len() == heads * rows && y.len() == heads * cols, || "the vectors do not fit the matrix".to_owned())?;
    let along = to.domain == outer.rows || outer.rows.maps_to(to.domain, outer.path);
    ensure(along, || format!("{} has no {}", outer.rows, to.domain))
}

fn check_traverse(program: &Program, traverse: &Traverse) -> Result<(), String> {
    ensure(!traverse.nest.is_empty(), || "goes over nothing".to_owned())?;
    for (at, levels) in traverse.nest.windows(2).enumerate() {
        let path = if at == 0 { traverse.path } else { Path::Only };
        let is_nested = levels[1].maps_to(levels[0], path);
        ensure(is_nested, || format!("rows of {} do not belong to rows of {}", levels[1], levels[0]))?;
    }
    check_body(program, &traverse.nest, &traverse.body)
}

fn check_body(program: &Program, nest: &[Domain], body: &Body) -> Result<(), String> {
    for (at, step) in body.steps.iter().enumerate() {
        let in_step = |why: String| format!("step {at}: {why}");
        ensure(step.level < nest.len(), || in_step(format!("there is no level {}", step.level)))?;
        let late = step.op.operands().into_iter().find(|register| register.at() >= at);
        ensure(late.is_none(), || in_step("reads a register before it is made".to_owned()))?;
        check_step(program, nest, body, step).map_err(in_step)?;
    }
    Ok(())
}

fn check_step(program: &Program, nest: &[Domain], body: &Body, step: &Step) -> Result<(), String> {
    let level = |register: super::Register| body.steps[register.at()].level;
    match &step.op {
        StepOp::Load(read) => {
            ensure(program[read.from].shape.len() == step.shape.len(), || "loads another shape".to_owned())?;
            reach(program, nest[step.level], read)
        }
        StepOp::Spread(x) => ensure(level(*x) < step.level, || "spreads from a finer level".to_owned()),
        StepOp::Reduce(_, x) => ensure(level(*x) > step.level, || "reduces from a coarser level".to_owned()),
        StepOp::Softmax { x, over } => {
            ensure(level(*x) == step.level && *over < step.level, || "takes the softmax of other levels".to_owned())
        }
        StepOp::Store(x, to) => {
            ensure(level(*x) == step.level && program[*to].domain == nest[step.level], || {
                format!("stores rows of {} into {}", nest[step.level], program[*to].domain)
            })?;
            ensure(program[*to].shape.len() == step.shape.len(), || "stores another shape".to_owned())
        }
        op => {
            let same = op.operands().into_iter().all(|register| level(register) == step.level);
            ensure(same, || "reads a register of another level".to_owned())
        }
    }
}

fn reach(program: &Program, from: Domain, read: &Read) -> Result<(), String> {
    let mut at = from;
    for hop in &read.hops {
        ensure(at.maps_to(hop.to, hop.path), || format!("rows of {at} do not belong to rows of {}", hop.to))?;
        at = hop.to;
    }
    let wanted = program[read.from].domain;
    ensure(at == wanted, || format!("reads b{} of {wanted} from {at}", read.from.at()))
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
