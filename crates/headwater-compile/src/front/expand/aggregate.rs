//! What a node makes of its edges in one line: `sum(v for e in n.incoming_edges())`, `mean`, `max`, `relation_mean`.

use super::Expand;
use super::meaning::Meaning;
use crate::front::fault::{Outcome, Span};
use crate::front::surface::{Expression, ExpressionKind};
use crate::inter::{Domain, Reduce};

/// How values of edges are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// All at once.
    All(Reduce),
    /// The mean over the edges of each type, and the sum of those.
    RelationMean,
}

/// The aggregation of this name.
pub fn how(name: &str) -> Option<How> {
    match name {
        "sum" => Some(How::All(Reduce::Sum)),
        "mean" => Some(How::All(Reduce::Mean)),
        "max" => Some(How::All(Reduce::Max)),
        "relation_mean" => Some(How::RelationMean),
        _ => None,
    }
}

impl<'a> Expand<'a> {
    /// Values of a node's edges, combined.
    pub fn aggregate(&mut self, how: How, each: &'a Expression, at: Span) -> Outcome<Meaning> {
        let ExpressionKind::ForEach(value, each) = &each.kind else {
            return Err(each.at.fault("expected `v for e in n.incoming_edges()`; of two values, `maximum(a, b)`"));
        };
        let Domain::Node(side) = self.here else {
            return Err(at.fault("expected a loop over nodes around it, whose edges are combined"));
        };
        let elements = self.elements(&each.over)?;
        let value = self.inside(elements, |this| {
            this.name_element(each, elements)?;
            let rows = this.value(value)?;
            this.lift_here(rows, value.at)
        })?;
        let combined = match how {
            How::All(how) => self.builder.reduce(value, self.here, how),
            How::RelationMean => {
                let means = self.builder.reduce(value, Domain::Pair(side), Reduce::Mean);
                let means = self.built(means, at)?;
                self.builder.reduce(means, self.here, Reduce::Sum)
            }
        };
        self.built(combined, at).map(Meaning::Rows)
    }
}
