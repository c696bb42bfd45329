//! A value as rules see it: factors, and what is left once lifts and reshapes are looked through.

use crate::error::Result;
use crate::inter::{Binary, Domain, Op, Path, Shape, Side, ValueId};
use crate::pass::rewrite::Rebuilt;
use crate::pass::simplify::number;

/// A value taken apart.
pub(super) struct Term {
    /// What it is made of, below everything that is looked through.
    pub base: ValueId,
    /// Numbers a row or a head that it is multiplied by, at the rows of the value.
    pub factors: Vec<ValueId>,
    /// Rows on the way, from the base to the value.
    lifts: Vec<(Domain, Path)>,
}

impl Term {
    /// A value without the lifts and reshapes around it.
    pub fn seen(to: &Rebuilt, mut id: ValueId) -> Self {
        let mut lifts = Vec::new();
        loop {
            match to.value(id).op {
                Op::Lift { x, path } => {
                    lifts.insert(0, (to.value(id).domain, path));
                    id = x;
                }
                Op::Reshape { x } => id = x,
                _ => return Self { base: id, factors: Vec::new(), lifts },
            }
        }
    }

    /// A value without factors too.
    pub fn scaled(to: &mut Rebuilt, id: ValueId) -> Result<Self> {
        let mut term = Self::seen(to, id);
        while let Op::Binary { f: Binary::Mul, x, y } = to.value(term.base).op {
            let product = to.value(term.base).shape;
            // Numbers a head say nothing once heads are shaped otherwise, and a row that is repeated is another row.
            let is_whole = product == to.value(id).shape;
            let factor = [(x, y), (y, x)].into_iter().find(|(factor, row)| {
                // Where rows are as narrow as factors, a number is the factor: as rows it would lie in no buffer.
                let is_row = to.value(*row).shape == product && number(to, *row).is_none();
                let factor = to.value(*factor).shape;
                factor.width() == Some(1) && is_row && (factor.heads() == 1 || is_whole)
            });
            let Some((factor, row)) = factor else { break };
            let factor = term.again(to, factor)?;
            let mut inner = Self::seen(to, row);
            inner.lifts.extend(std::mem::take(&mut term.lifts));
            inner.factors = std::mem::take(&mut term.factors);
            inner.factors.push(factor);
            term = inner;
        }
        Ok(term)
    }

    /// Another value of the base's rows, at the rows of the value.
    pub fn again(&self, to: &mut Rebuilt, x: ValueId) -> Result<ValueId> {
        self.lifts.iter().try_fold(x, |x, (domain, path)| to.builder.lift_by(x, *domain, *path))
    }

    /// A value times all factors.
    pub fn times_factors(&self, to: &mut Rebuilt, x: ValueId) -> Result<ValueId> {
        self.factors.iter().rev().try_fold(x, |x, factor| to.builder.binary(Binary::Mul, *factor, x))
    }

    /// Whether the value has more rows than what it is made of.
    pub fn is_lifted(&self) -> bool {
        !self.lifts.is_empty()
    }

    /// Whether every factor is one number a row, or one for each of so many heads.
    pub fn fits(&self, to: &Rebuilt, heads: usize) -> bool {
        self.factors.iter().all(|factor| [1, heads].contains(&to.value(*factor).shape.heads()))
    }

    /// The value at one of the domains on the way, when it passes there.
    pub fn passing(&self, to: &mut Rebuilt, domain: Domain) -> Result<Option<ValueId>> {
        let own = to.value(self.base).domain;
        let passed: Vec<Domain> = std::iter::once(own).chain(self.lifts.iter().map(|lift| lift.0)).collect();
        // A written node is one of those that are read, but not the one at the other end of its edges: what is read before
        // that step belongs to other rows.
        let restricts = |pair: &[Domain]| pair == [Domain::SRC, Domain::DST];
        let first = passed.windows(2).rposition(restricts).map_or(0, |at| at + 1);
        let Some(at) = passed.iter().skip(first).position(|one| *one == domain) else { return Ok(None) };
        let way = &self.lifts[..first + at];
        let lift = |x, (domain, path): &(Domain, Path)| to.builder.lift_by(x, *domain, *path);
        way.iter().try_fold(self.base, lift).map(Some)
    }

    /// The end of an edge by which the value has a node type, when the base has it along `path`.
    pub fn side(&self, to: &Rebuilt, path: Path) -> Option<Side> {
        let first = match (path, to.value(self.base).domain) {
            (Path::By(side), _) | (Path::Only, Domain::Node(side)) => Some(side),
            _ => None,
        };
        self.lifts.iter().fold(first, |side, (domain, path)| match (path, domain) {
            (Path::By(side), _) | (Path::Only, Domain::Node(side)) => Some(*side),
            _ => side,
        })
    }
}

/// A type's value, and the end of the edge whose type it is, where it is a node type's.
#[derive(Clone, Copy)]
pub(super) struct Typed {
    /// The value.
    pub value: ValueId,
    /// The end.
    pub side: Option<Side>,
}

impl Typed {
    /// How a row of a domain finds its type; `None` where it has none.
    pub fn path(self, to: &Rebuilt, from: Domain) -> Option<Path> {
        let types = to.value(self.value).domain;
        let path = match (types, from, self.side) {
            (Domain::NodeType, Domain::Node(own), side) if side.is_none_or(|side| side == own) => Path::Only,
            (Domain::NodeType, Domain::Node(_), _) => return None,
            (Domain::NodeType, _, Some(side)) => Path::By(side),
            _ => Path::Only,
        };
        (from == types || from.maps_to(types, path)).then_some(path)
    }
}

/// The coarsest types of which a row has one of both; where that is, and both sides' end of it.
pub(super) fn common_types(to: &Rebuilt, a: Typed, b: Typed) -> (Domain, Option<Side>) {
    let of = |typed: Typed| to.value(typed.value).domain;
    match (of(a), of(b)) {
        (Domain::Const, other) => (other, b.side),
        (other, Domain::Const) => (other, a.side),
        (x, y) if x == y && (x != Domain::NodeType || a.side == b.side) => (x, a.side),
        _ => (Domain::EdgeType, None),
    }
}

/// A type's value at finer types.
pub(super) fn at_types(to: &mut Rebuilt, typed: Typed, types: Domain) -> Result<Option<ValueId>> {
    if to.value(typed.value).domain == types {
        return Ok(Some(typed.value));
    }
    let Some(path) = typed.path(to, types) else { return Ok(None) };
    to.builder.lift_by(typed.value, types, path).map(Some)
}

/// The heads of a matrix.
pub(super) fn heads(to: &Rebuilt, w: ValueId) -> usize {
    match to.value(w).shape {
        Shape::Matrix { heads, .. } | Shape::Row { heads, .. } => heads,
    }
}
