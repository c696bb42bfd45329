//! Sums over edges and products with weights change places: whichever comes first decides how many rows are multiplied and
//! how wide the rows are that edges read.

use super::blocks::a_head;
use super::term::{Term, Typed, heads};
use crate::error::Result;
use crate::inter::{Binary, Domain, Op, Path, Reduce, Value, ValueId};
use crate::pass::rewrite::Rebuilt;

/// `sum of s_e (x_e W)` as `(sum of s_e x_e) W`: by pairs first, where edges into a node have different weights.
pub(super) fn aggregate_first(to: &mut Rebuilt, value: &Value) -> Result<Option<ValueId>> {
    let Some(products) = Products::of(to, value)? else { return Ok(None) };
    let fits = products.term.fits(to, heads(to, products.w.value));
    if fits { products.summed_first(to, value, products.w) } else { Ok(None) }
}

/// The same where factors have heads and the matrix has one: rows are summed once a head, and every head has its columns of
/// the matrix.
pub(super) fn heads_first(to: &mut Rebuilt, value: &Value) -> Result<Option<ValueId>> {
    let Some(products) = Products::of(to, value)? else { return Ok(None) };
    let (term, w) = (&products.term, products.w);
    if heads(to, w.value) > 1 || term.fits(to, 1) || !term.fits(to, value.shape.heads()) {
        return Ok(None);
    }
    let own = a_head(to, w.value, value.shape.heads(), products.transposed)?;
    products.summed_first(to, value, Typed { value: own, ..w })
}

/// What a sum over edges is of: products with weights, times factors.
struct Products {
    term: Term,
    x: ValueId,
    w: Typed,
    transposed: bool,
}

impl Products {
    fn of(to: &mut Rebuilt, value: &Value) -> Result<Option<Self>> {
        let Op::Reduce { x: rows, how: Reduce::Sum | Reduce::Mean, path: Path::Only } = value.op else {
            return Ok(None);
        };
        let term = Term::scaled(to, rows)?;
        let Op::Linear { x, w, transposed, path } = to.value(term.base).op else { return Ok(None) };
        let w = Typed { value: w, side: term.side(to, path) };
        Ok((!value.domain.is_type()).then_some(Self { term, x, w, transposed }))
    }

    /// The sum of rows, times weights.
    fn summed_first(&self, to: &mut Rebuilt, value: &Value, w: Typed) -> Result<Option<ValueId>> {
        let Op::Reduce { x: rows, how, .. } = value.op else { return Ok(None) };
        let from = to.value(rows).domain;
        let x = self.term.again(to, self.x)?;
        let x = self.term.times_factors(to, x)?;
        let found = if let Some(path) = w.path(to, value.domain) {
            let sum = to.builder.reduce(x, value.domain, how)?;
            to.builder.linear_by(sum, w.value, self.transposed, path)?
        } else {
            let (Domain::Edge, Domain::Node(side)) = (from, value.domain) else { return Ok(None) };
            let pairs = Domain::Pair(side);
            let Some(path) = w.path(to, pairs) else { return Ok(None) };
            let sum = to.builder.reduce(x, pairs, Reduce::Sum)?;
            let product = to.builder.linear_by(sum, w.value, self.transposed, path)?;
            let sum = to.builder.reduce(product, value.domain, Reduce::Sum)?;
            if how == Reduce::Mean { over_count(to, sum, from)? } else { sum }
        };
        to.builder.reshape(found, value.shape).map(Some)
    }
}

/// `(sum of s_e x_e) W` as `sum of s_e (x_e W)`: rows are multiplied where they come from.
pub(super) fn transform_first(to: &mut Rebuilt, value: &Value) -> Result<Option<ValueId>> {
    let Op::Linear { x: sum, w, transposed, path } = value.op else { return Ok(None) };
    let below = Term::seen(to, sum);
    let Op::Reduce { x: rows, how: how @ (Reduce::Sum | Reduce::Mean), path: Path::Only } = to.value(below.base).op
    else {
        return Ok(None);
    };
    let heads = to.value(w).shape.heads();
    let term = Term::scaled(to, rows)?;
    let is_same = to.value(rows).shape == to.value(sum).shape;
    if below.is_lifted() || !is_same || !term.is_lifted() || value.domain.is_type() || !term.fits(to, heads) {
        return Ok(None);
    }
    let from = to.value(rows).domain;
    let side = match (path, value.domain) {
        (Path::By(side), _) | (Path::Only, Domain::Node(side)) => Some(side),
        _ => None,
    };
    let Some(path) = (Typed { value: w, side }).path(to, from) else { return Ok(None) };
    let x = term.again(to, term.base)?;
    let shape = to.value(rows).shape;
    let x = to.builder.reshape(x, shape)?;
    let product = to.builder.linear_by(x, w, transposed, path)?;
    let product = term.times_factors(to, product)?;
    to.builder.reduce(product, value.domain, how).map(Some)
}

/// The sum over a node's pairs of the sums, or means, over their edges as one sum over the node's edges.
pub(super) fn flatten(to: &mut Rebuilt, value: &Value) -> Result<Option<ValueId>> {
    let Op::Reduce { x: sums, how: Reduce::Sum, path: Path::Only } = value.op else { return Ok(None) };
    let Value { op: Op::Reduce { x: rows, how, path: Path::Only }, domain: pairs, .. } = *to.value(sums) else {
        return Ok(None);
    };
    let (Domain::Node(side), Domain::Pair(of), Domain::Edge) = (value.domain, pairs, to.value(rows).domain) else {
        return Ok(None);
    };
    let rows = match how {
        _ if side != of => return Ok(None),
        Reduce::Sum => rows,
        Reduce::Mean => {
            let counts = count(to, Domain::Edge, pairs)?;
            let one = to.builder.constant(1.0);
            let share = to.builder.binary(Binary::Div, one, counts)?;
            let share = to.builder.lift(share, Domain::Edge)?;
            to.builder.binary(Binary::Mul, rows, share)?
        }
        Reduce::Max => return Ok(None),
    };
    let found = to.builder.reduce(rows, value.domain, Reduce::Sum)?;
    Ok((to.value(found).shape == value.shape).then_some(found))
}

/// A factor that is the same for all rows of a sum, behind the sum.
pub(super) fn hoist(to: &mut Rebuilt, value: &Value) -> Result<Option<ValueId>> {
    let Op::Reduce { x, how: how @ (Reduce::Sum | Reduce::Mean), path } = value.op else { return Ok(None) };
    let candidates = match to.value(x).op {
        Op::Binary { f: Binary::Mul, x, y } => vec![(Binary::Mul, x, y), (Binary::Mul, y, x)],
        Op::Binary { f: Binary::Div, x, y } => vec![(Binary::Div, y, x)],
        _ => vec![],
    };
    for (f, factor, rest) in candidates {
        let Some(factor) = same_for(to, factor, value.domain)? else { continue };
        let sum = to.builder.reduce_by(rest, value.domain, how, path)?;
        let found = to.builder.binary(f, sum, factor)?;
        return Ok((to.value(found).shape == value.shape).then_some(found));
    }
    Ok(None)
}

/// A value at coarser rows, when it is the same for all rows that belong to one of them.
fn same_for(to: &mut Rebuilt, id: ValueId, domain: Domain) -> Result<Option<ValueId>> {
    let (term, shape) = (Term::seen(to, id), to.value(id).shape);
    let found = match term.passing(to, domain)? {
        Some(found) => found,
        None if to.value(term.base).domain.is_type() => {
            let typed = Typed { value: term.base, side: term.side(to, Path::Only) };
            let Some(path) = typed.path(to, domain) else { return Ok(None) };
            to.builder.lift_by(term.base, domain, path)?
        }
        None => return Ok(None),
    };
    to.builder.reshape(found, shape).map(Some)
}

/// A sum over how many rows of `fine` it is of.
fn over_count(to: &mut Rebuilt, sum: ValueId, fine: Domain) -> Result<ValueId> {
    let domain = to.value(sum).domain;
    let counts = count(to, fine, domain)?;
    to.builder.binary(Binary::Div, sum, counts)
}

/// How many rows of `fine` belong to each row of `coarse`, and 1 where there are none.
fn count(to: &mut Rebuilt, fine: Domain, coarse: Domain) -> Result<ValueId> {
    let one = to.builder.constant(1.0);
    let ones = to.builder.lift(one, fine)?;
    let counts = to.builder.reduce(ones, coarse, Reduce::Sum)?;
    to.builder.binary(Binary::Max, counts, one)
}
