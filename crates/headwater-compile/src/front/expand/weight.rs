//! Weights: which type's matrix or vector is meant, and rows times matrices.

use super::Expand;
use super::meaning::{Meaning, Type, Weight};
use crate::front::fault::{Outcome, Span};
use crate::front::surface::Expression;
use crate::inter::{Domain, Path, Shape, Side};

impl<'a> Expand<'a> {
    /// `W[e.etype]`, `W[n.ntype]`, `E[e.src, e.etype]`
    pub fn choose(&mut self, weight: Weight, indices: &'a [Expression], at: Span) -> Outcome<Meaning> {
        let found = indices.iter().map(|e| self.expression(e)).collect::<Outcome<Vec<_>>>()?;
        let expected = |example: &str| Err(at.fault(format!("expected {example}")));
        let chosen = match (self.domain(weight.value), &found[..]) {
            _ if weight.chosen.is_some() => return expected("one index: its type is chosen already"),
            (Domain::EdgeType, [Meaning::Type(chosen @ Type::Edge)])
            | (Domain::NodeType, [Meaning::Type(chosen @ Type::Node(_))]) => *chosen,
            (Domain::EdgeType, _) => return expected("`[e.etype]`: there is one for every edge type"),
            (Domain::NodeType, _) => return expected("`[n.ntype]`: there is one for every node type"),
            (Domain::Pair(_), [Meaning::Node(Side::Src), Meaning::Type(Type::Edge)]) => {
                return self.lift_here(weight.value, at).map(Meaning::Rows);
            }
            (Domain::Pair(_), _) => return expected("`[e.src, e.etype]`: there is one for every pair of these"),
            _ => return expected("it without an index: there is one for all types"),
        };
        match self.shape(weight.value) {
            Shape::Matrix { .. } => Ok(Meaning::Weight(Weight { chosen: Some(chosen), ..weight })),
            Shape::Row { .. } => {
                let lifted = self.builder.lift_by(weight.value, self.here, self.path(chosen));
                self.built(lifted, at).map(Meaning::Rows)
            }
        }
    }

    /// Rows times the matrix of their type.
    pub fn linear(&mut self, x: (&Meaning, Span), w: (&Meaning, Span), at: Span) -> Outcome<Meaning> {
        let weight = self.matrix(w.0, w.1)?;
        let mut rows = self.rows(x.0, x.1)?;
        let path = match weight.chosen {
            Some(chosen) => {
                rows = self.lift_here(rows, x.1)?;
                self.path(chosen)
            }
            None => Path::Only,
        };
        let product = self.builder.linear_by(rows, weight.value, weight.is_transposed, path);
        self.built(product, at).map(Meaning::Rows)
    }

    /// A matrix whose type is chosen, if it has types.
    pub fn matrix(&self, meaning: &Meaning, at: Span) -> Outcome<Weight> {
        let Meaning::Weight(weight) = meaning else {
            return Err(at.fault(format!("expected a matrix, found {}", self.describe(meaning))));
        };
        let is_matrix = matches!(self.shape(weight.value), Shape::Matrix { .. });
        match (is_matrix, self.domain(weight.value), weight.chosen) {
            (false, ..) => Err(at.fault("expected a matrix, found a vector for every type")),
            (true, Domain::EdgeType, None) => Err(at.fault("there is one for every edge type; expected `[e.etype]`")),
            (true, Domain::NodeType, None) => Err(at.fault("there is one for every node type; expected `[n.ntype]`")),
            _ => Ok(*weight),
        }
    }

    /// How rows of the loop find a type. An edge has a node type at either end.
    fn path(&self, chosen: Type) -> Path {
        match chosen {
            Type::Node(side) if self.here == Domain::Edge => Path::By(side),
            _ => Path::Only,
        }
    }
}
