//! Products with weights that meet each other, a vector of a type, or another row: weights are few, so what can be done with
//! weights alone is done there.

use super::blocks::{columns, diagonal};
use super::term::{Term, Typed, at_types, common_types};
use crate::error::Result;
use crate::inter::{Binary, Domain, Op, Path, Shape, Value, ValueId};
use crate::pass::rewrite::Rebuilt;

/// `(x A) B` as `x (A B)`, and `(x A + a) B` as `x (A B) + a B`. Where they have different heads, a matrix a head is one
/// matrix with blocks.
pub(super) fn linear_linear(to: &mut Rebuilt, value: &Value) -> Result<Option<ValueId>> {
    let Op::Linear { x, w, transposed, path } = value.op else { return Ok(None) };
    if value.domain.is_type() {
        return Ok(None);
    }
    let Some(first) = Factored::of(to, x) else { return behind_bias(to, value) };
    let side = match (path, value.domain) {
        (Path::By(side), _) | (Path::Only, Domain::Node(side)) => Some(side),
        _ => None,
    };
    let last = Typed { value: w, side };
    let (types, side) = common_types(to, first.w, last);
    let (Some(a), Some(b)) = (at_types(to, first.w, types)?, at_types(to, last, types)?) else { return Ok(None) };
    let is_same = first.shape == to.value(x).shape;
    let (a, b) = if is_same { (a, b) } else { (diagonal(to, a)?, diagonal(to, b)?) };
    let product = to.builder.product(a, b, first.transposed, transposed)?;
    let Some(path) = (Typed { value: product, side }).path(to, value.domain) else { return Ok(None) };
    let x = first.term.again(to, first.x)?;
    let found = to.builder.linear_by(x, product, false, path)?;
    to.builder.reshape(found, value.shape).map(Some)
}

/// `(x A + a) B` where `a` is a type's.
fn behind_bias(to: &mut Rebuilt, value: &Value) -> Result<Option<ValueId>> {
    let Op::Linear { x, w, transposed, path } = value.op else { return Ok(None) };
    let (sum, shape) = (Term::seen(to, x), to.value(x).shape);
    let Op::Binary { f: Binary::Add, x: left, y: right } = to.value(sum.base).op else { return Ok(None) };
    for (row, bias) in [(left, right), (right, left)] {
        let is_type = to.value(Term::seen(to, bias).base).domain.is_type();
        let whole = to.value(sum.base).shape;
        let is_whole = [row, bias].into_iter().all(|id| to.value(id).shape == whole);
        if !is_type || !is_whole || Factored::of(to, row).is_none() {
            continue;
        }
        let at_rows = |to: &mut Rebuilt, id: ValueId| sum.again(to, id).and_then(|id| to.builder.reshape(id, shape));
        let (row, bias) = (at_rows(to, row)?, at_rows(to, bias)?);
        let op = Op::Linear { x: row, w, transposed, path };
        let Some(product) = linear_linear(to, &Value { op, ..value.clone() })? else { continue };
        let bias = to.builder.linear_by(bias, w, transposed, path)?;
        return to.builder.binary(Binary::Add, product, bias).map(Some);
    }
    Ok(None)
}

/// `(x W) . a` as `x . (W a)`, where `a` is a type's. With several heads and one matrix, `W a` has a column a head.
pub(super) fn dot_linear(to: &mut Rebuilt, value: &Value) -> Result<Option<ValueId>> {
    for (row, vector) in operands(value) {
        let Some(linear) = Factored::of(to, row) else { continue };
        let seen = Term::seen(to, vector);
        if value.domain.is_type() || !to.value(seen.base).domain.is_type() {
            continue;
        }
        let shape = to.value(vector).shape;
        let vector = Typed { value: to.builder.reshape(seen.base, shape)?, side: seen.side(to, Path::Only) };
        let found = if linear.shape == shape {
            with_vector(to, &linear, vector, value)?
        } else if linear.shape.heads() == 1 {
            with_columns(to, &linear, vector, value)?
        } else {
            None
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// `(x W) . y` as `x . (y W')`.
pub(super) fn bilinear(to: &mut Rebuilt, value: &Value) -> Result<Option<ValueId>> {
    for (row, other) in operands(value) {
        let Some(linear) = Factored::of(to, row) else { continue };
        let is_type = to.value(Term::seen(to, other).base).domain.is_type();
        if value.domain.is_type() || is_type || linear.shape != to.value(row).shape {
            continue;
        }
        let Some(path) = linear.w.path(to, value.domain) else { continue };
        let other = to.builder.linear_by(other, linear.w.value, !linear.transposed, path)?;
        let x = linear.term.again(to, linear.x)?;
        let shape = to.value(other).shape;
        let x = to.builder.reshape(x, shape)?;
        return to.builder.dot(x, other).map(Some);
    }
    Ok(None)
}

/// A product with a weight, seen through lifts and reshapes.
struct Factored {
    term: Term,
    x: ValueId,
    w: Typed,
    transposed: bool,
    shape: Shape,
}

impl Factored {
    fn of(to: &Rebuilt, id: ValueId) -> Option<Self> {
        let term = Term::seen(to, id);
        let Op::Linear { x, w, transposed, path } = to.value(term.base).op else { return None };
        let w = Typed { value: w, side: term.side(to, path) };
        Some(Self { x, w, transposed, shape: to.value(term.base).shape, term })
    }
}

fn operands(value: &Value) -> Vec<(ValueId, ValueId)> {
    match value.op {
        Op::Dot { x, y } => vec![(x, y), (y, x)],
        _ => vec![],
    }
}

/// `x . (W a)`
fn with_vector(to: &mut Rebuilt, linear: &Factored, a: Typed, value: &Value) -> Result<Option<ValueId>> {
    let (types, side) = common_types(to, linear.w, a);
    let Some(a) = at_types(to, a, types)? else { return Ok(None) };
    let Some(path) = linear.w.path(to, types) else { return Ok(None) };
    let column = to.builder.linear_by(a, linear.w.value, !linear.transposed, path)?;
    let Some(path) = (Typed { value: column, side }).path(to, value.domain) else { return Ok(None) };
    let column = to.builder.lift_by(column, value.domain, path)?;
    let x = linear.term.again(to, linear.x)?;
    let x = to.builder.reshape(x, to.value(column).shape)?;
    to.builder.dot(x, column).map(Some)
}

/// `x (W [a_1 .. a_h])`, a column a head.
fn with_columns(to: &mut Rebuilt, linear: &Factored, a: Typed, value: &Value) -> Result<Option<ValueId>> {
    let columns = Typed { value: columns(to, a.value)?, side: a.side };
    let (types, side) = common_types(to, linear.w, columns);
    let (Some(w), Some(columns)) = (at_types(to, linear.w, types)?, at_types(to, columns, types)?) else {
        return Ok(None);
    };
    let product = to.builder.product(w, columns, linear.transposed, true)?;
    let Some(path) = (Typed { value: product, side }).path(to, value.domain) else { return Ok(None) };
    let x = linear.term.again(to, linear.x)?;
    let found = to.builder.linear_by(x, product, false, path)?;
    to.builder.reshape(found, value.shape).map(Some)
}
