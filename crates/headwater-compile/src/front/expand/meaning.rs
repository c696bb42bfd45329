//! What an expression means: something known, rows, a weight, or a part of the graph.

use super::Expand;
use crate::front::fault::{Outcome, Span};
use crate::front::known::OptionValue;
use crate::inter::{Domain, Shape, Side, ValueId};

/// What an expression means.
#[derive(Debug, Clone)]
pub enum Meaning {
    /// Known when the text is read.
    Known(OptionValue),
    /// Rows of a loop around, or one row for all.
    Rows(ValueId),
    /// A matrix, or something learnt that has not been asked for its type yet.
    Weight(Weight),
    /// The graph.
    Graph,
    /// A node: of a loop, or at an end of its edge.
    Node(Side),
    /// The edge of the loop.
    Edge,
    /// A type: `e.etype`, `n.ntype`.
    Type(Type),
    /// A parameter whose condition does not hold.
    Absent,
}

/// Whose type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// The edge's.
    Edge,
    /// A node's.
    Node(Side),
}

/// Something learnt, and how it is used.
#[derive(Debug, Clone, Copy)]
pub struct Weight {
    /// All of it.
    pub value: ValueId,
    /// The type whose row is meant.
    pub chosen: Option<Type>,
    /// Whether its matrices are transposed.
    pub is_transposed: bool,
}

/// Elements of a domain, as loops call them.
pub fn plural(domain: Domain) -> &'static str {
    match domain {
        Domain::Edge => "edges",
        Domain::Node(Side::Src) => "nodes",
        Domain::Node(Side::Dst) => "dst_nodes",
        Domain::Pair(_) => "pairs of a node and an edge type",
        Domain::EdgeType | Domain::NodeType => "types",
        Domain::Const => "the whole graph",
    }
}

impl Expand<'_> {
    /// Rows, or what was found in their place.
    pub fn rows(&mut self, meaning: &Meaning, at: Span) -> Outcome<ValueId> {
        match meaning {
            Meaning::Rows(value) => Ok(*value),
            Meaning::Known(known) => match known.number() {
                Some(number) if number.is_finite() => Ok(self.builder.constant(number)),
                _ => Err(at.fault(format!("expected a value or a number, found {known}"))),
            },
            Meaning::Node(_) => Err(at.fault("expected a value of the node, such as n.x or n[\"z\"]")),
            Meaning::Edge => Err(at.fault("expected a value of the edge, such as e.src.x or e[\"z\"]")),
            other => Err(at.fault(format!("expected a value, found {}", self.describe(other)))),
        }
    }

    /// A finite number that is known.
    pub fn number(&self, meaning: &Meaning, at: Span) -> Outcome<f64> {
        match meaning {
            Meaning::Known(known) if known.number().is_some_and(f64::is_finite) => Ok(known.number().unwrap_or(0.0)),
            other => Err(at.fault(format!("expected a number or an option, found {}", self.describe(other)))),
        }
    }

    /// A whole number from 0 on that is known.
    pub fn size(&self, meaning: &Meaning, at: Span) -> Outcome<usize> {
        match meaning {
            Meaning::Known(OptionValue::Int(number)) => {
                usize::try_from(*number).map_err(|_| at.fault(format!("expected a size, found {number}")))
            }
            other => Err(at.fault(format!("expected a whole number, found {}", self.describe(other)))),
        }
    }

    /// A meaning in words.
    pub fn describe(&self, meaning: &Meaning) -> String {
        match meaning {
            Meaning::Known(known) => known.to_string(),
            Meaning::Rows(value) => {
                format!("a value of {} on {}", self.shape(*value), plural(self.domain(*value)))
            }
            Meaning::Weight(weight) => match self.shape(weight.value) {
                Shape::Matrix { .. } => "a matrix".to_owned(),
                Shape::Row { .. } => "a vector for every type".to_owned(),
            },
            Meaning::Graph => "the graph".to_owned(),
            Meaning::Node(_) => "a node".to_owned(),
            Meaning::Edge => "an edge".to_owned(),
            Meaning::Type(_) => "a type".to_owned(),
            Meaning::Absent => "a parameter that is not there".to_owned(),
        }
    }
}
