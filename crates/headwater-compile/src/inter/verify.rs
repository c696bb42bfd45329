//! Whether a program makes sense: operands come first, domains have the maps that operators take, shapes are what operators
//! make of their operands'. Runs between passes in tests, and on everything that is read.

use super::{Domain, Op, Path, Program, Shape, Value, ValueId};
use crate::error::{Error, Result};

/// The first rule that a program breaks.
pub fn verify(program: &Program) -> Result<()> {
    for (id, value) in program.iter() {
        if let Err(why) = check(program, id, value) {
            let label = value.label.as_ref().map_or_else(String::new, |label| format!(" ({label})"));
            return Err(Error::Malformed { program: program.name.clone(), at: format!("%{}{label}", id.at()), why });
        }
    }
    for output in &program.outputs {
        if output.value.at() >= program.values.len() {
            let (program, at) = (program.name.clone(), format!("output {}", output.name));
            return Err(Error::Malformed { program, at, why: "there is no such value".to_owned() });
        }
    }
    Ok(())
}

fn check(program: &Program, id: ValueId, value: &Value) -> Result<(), String> {
    if let Some(late) = value.op.operands().into_iter().find(|operand| operand.at() >= id.at()) {
        return Err(format!("%{} is used before it is computed", late.at()));
    }
    ensure(!value.shape.is_empty(), || format!("{} holds nothing", value.shape))?;
    let is_row = matches!(value.shape, Shape::Row { .. });
    ensure(is_row || value.domain.is_type(), || format!("matrices are a type's, not a row's of {}", value.domain))?;
    match value.op {
        Op::Input { .. } | Op::Parameter { .. } => Ok(()),
        Op::Constant(number) => {
            let fits = value.domain == Domain::Const && value.shape == Shape::SCALAR && number.is_finite();
            ensure(fits, || "a constant is one finite number".to_owned())
        }
        _ => domains(program, value).and_then(|()| shapes(program, value)),
    }
}

fn domains(program: &Program, value: &Value) -> Result<(), String> {
    let of = |id: ValueId| program[id].domain;
    let to = value.domain;
    let along = |fine: Domain, coarse: Domain, path: Path| {
        ensure(fine == coarse || fine.maps_to(coarse, path), || format!("rows of {fine} have no row of {coarse}"))
    };
    match value.op {
        Op::Lift { x, path } => ensure(to.maps_to(of(x), path), || format!("{} cannot be lifted to {to}", of(x))),
        Op::Reduce { x, path, .. } => {
            ensure(of(x).maps_to(to, path), || format!("{} cannot be reduced to {to}", of(x)))
        }
        Op::Linear { x, w, path, .. } => {
            same(of(x), to)?;
            ensure(of(w).is_type(), || format!("weights are a type's, not a row's of {}", of(w)))?;
            along(to, of(w), path)
        }
        Op::Outer { x, y, path } => {
            same(of(x), of(y))?;
            ensure(to.is_type(), || format!("the sum of outer products is a type's, not a row's of {to}"))?;
            along(of(x), to, path)
        }
        Op::Softmax { x, by } => {
            same(of(x), to)?;
            ensure(to.maps_to(by, Path::Only), || format!("rows of {to} do not belong to rows of {by}"))
        }
        _ => value.op.operands().into_iter().try_for_each(|operand| same(of(operand), to)),
    }
}

fn shapes(program: &Program, value: &Value) -> Result<(), String> {
    let of = |id: ValueId| program[id].shape;
    let found = value.shape;
    let wanted = match value.op {
        Op::Linear { x, w, transposed, .. } => linear(of(x), of(w), transposed),
        Op::Outer { x, y, .. } => outer(of(x), of(y)),
        Op::Product { a, b, transpose_a, transpose_b } => product(of(a), transpose_a, of(b), transpose_b),
        Op::Dot { x, y } => match of(x) {
            Shape::Row { heads, .. } if of(x) == of(y) => Some(Shape::Row { heads, width: 1 }),
            _ => None,
        },
        Op::Binary { x, y, .. } => of(x).broadcast(of(y)),
        Op::Concat { x, y } => match (of(x), of(y)) {
            (Shape::Row { heads, width }, Shape::Row { heads: same, width: more }) if heads == same => {
                Some(Shape::Row { heads, width: width + more })
            }
            _ => None,
        },
        Op::Slice { x, from } => inside(found, from, of(x)).then_some(found),
        Op::Pad { x, from } => inside(of(x), from, found).then_some(found),
        Op::Reshape { x } => (of(x).len() == found.len()).then_some(found),
        Op::Expand { x } => of(x).broadcast(found),
        Op::SumHeads { x } => of(x).width().map(Shape::vector),
        Op::SumWidth { x } => of(x).width().map(|_| Shape::Row { heads: of(x).heads(), width: 1 }),
        Op::Dropout { x, probability, .. } => (0.0..1.0).contains(&probability).then(|| of(x)),
        Op::Unary { x, .. } | Op::Lift { x, .. } | Op::Reduce { x, .. } | Op::Softmax { x, .. } => Some(of(x)),
        Op::Input { .. } | Op::Parameter { .. } | Op::Constant(_) => Some(found),
    };
    ensure(wanted == Some(found), || match wanted {
        Some(wanted) => format!("has shape {found}; its operands make {wanted}"),
        None => format!("has shape {found}; its operands do not fit together"),
    })
}

fn linear(x: Shape, w: Shape, transposed: bool) -> Option<Shape> {
    let Shape::Matrix { heads, rows, cols } = w else { return None };
    let (from, to) = if transposed { (cols, rows) } else { (rows, cols) };
    (x == Shape::Row { heads, width: from }).then_some(Shape::Row { heads, width: to })
}

fn outer(x: Shape, y: Shape) -> Option<Shape> {
    match (x, y) {
        (Shape::Row { heads, width: rows }, Shape::Row { heads: same, width: cols }) if heads == same => {
            Some(Shape::Matrix { heads, rows, cols })
        }
        _ => None,
    }
}

fn product(a: Shape, transpose_a: bool, b: Shape, transpose_b: bool) -> Option<Shape> {
    let (Shape::Matrix { heads, rows, cols }, Shape::Matrix { heads: same, rows: more, cols: last }) = (a, b) else {
        return None;
    };
    let (rows, inner) = if transpose_a { (cols, rows) } else { (rows, cols) };
    let (other, cols) = if transpose_b { (last, more) } else { (more, last) };
    (heads == same && inner == other).then_some(Shape::Matrix { heads, rows, cols })
}

/// Whether `part` lies in `whole` from an element on.
fn inside(part: Shape, from: usize, whole: Shape) -> bool {
    match (part, whole) {
        (Shape::Row { heads, width }, Shape::Row { heads: same, width: all }) => heads == same && from + width <= all,
        _ => false,
    }
}

fn same(found: Domain, wanted: Domain) -> Result<(), String> {
    ensure(found == wanted, || format!("an operand has rows of {found}; expected {wanted}"))
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
