//! Expressions: names, attributes, indices and operators.

use super::Expand;
use super::meaning::{Meaning, Type, plural};
use crate::front::fault::{Outcome, Span};
use crate::front::known::{self, OptionValue};
use crate::front::surface::{Expression, ExpressionKind, Name, Operator, Prefix};
use crate::inter::{Binary, Domain, Shape, Side, Unary, ValueId};

impl<'a> Expand<'a> {
    /// What an expression means here.
    pub fn expression(&mut self, e: &'a Expression) -> Outcome<Meaning> {
        self.deeper(e.at, |this| match &e.kind {
            ExpressionKind::Literal(value) => Ok(Meaning::Known(value.clone())),
            ExpressionKind::Name(name) => this.name(name, e.at),
            ExpressionKind::Attribute(of, name) => this.attribute(of, name, e.at),
            ExpressionKind::Index(of, indices) => this.index(of, indices, e.at),
            ExpressionKind::Call(call) => this.call(call, e.at),
            ExpressionKind::Operator(f, left, right) => this.operator(*f, left, right, e.at),
            ExpressionKind::Prefix(f, operand) => this.prefix(*f, operand, e.at),
            ExpressionKind::Choice(choice) => {
                let holds = this.condition(&choice.condition)?;
                this.expression(if holds { &choice.yes } else { &choice.no })
            }
            ExpressionKind::Slice(..) => Err(e.at.fault("expected a value")),
            ExpressionKind::ForEach(..) => {
                Err(e.at.fault("expected sum(..), mean(..), max(..) or relation_mean(..) around it"))
            }
        })
    }

    /// Whether a condition holds, which must be known now.
    pub fn condition(&mut self, e: &'a Expression) -> Outcome<bool> {
        match self.expression(e)? {
            Meaning::Known(OptionValue::Bool(holds)) => Ok(holds),
            other => {
                let found = self.describe(&other);
                Err(e.at.fault(format!("expected a condition on options or sizes, found {found}")))
            }
        }
    }

    /// Rows that an expression computes.
    pub fn value(&mut self, e: &'a Expression) -> Outcome<ValueId> {
        let meaning = self.expression(e)?;
        self.rows(&meaning, e.at)
    }

    fn name(&mut self, name: &str, at: Span) -> Outcome<Meaning> {
        match self.scope.get(name) {
            // A value of the loop around, at the rows of the inner one.
            Some(&Meaning::Rows(value)) if matches!(self.domain(value), Domain::Node(_)) => {
                self.lift_here(value, at).map(Meaning::Rows)
            }
            Some(Meaning::Absent) => Err(at.fault(absent(name))),
            Some(meaning) => Ok(meaning.clone()),
            None => match self.sizes.get(name) {
                Some(Some(size)) => match i64::try_from(*size) {
                    Ok(size) => Ok(Meaning::Known(OptionValue::Int(size))),
                    Err(_) => Err(at.fault(format!("size `{name}` is {size}, which is too large"))),
                },
                Some(None) => Err(at.fault(format!("size `{name}` is not given"))),
                None => Err(at.fault(self.unknown_name(name))),
            },
        }
    }

    fn unknown_name(&self, name: &str) -> String {
        match self.inputs.get(name).map(|&value| self.domain(value)) {
            Some(Domain::Edge) => format!("`{name}` is read from an edge; expected `e.{name}`"),
            Some(_) => format!("`{name}` is read from a node; expected `n.{name}`, `e.src.{name}` or `e.dst.{name}`"),
            None if self.functions.contains_key(name) => format!("`{name}` is a function; expected `{name}(..)`"),
            None => format!("there is no `{name}` here"),
        }
    }

    fn attribute(&mut self, of: &'a Expression, name: &Name, at: Span) -> Outcome<Meaning> {
        match (self.expression(of)?, name.text.as_str()) {
            (Meaning::Edge, "src") => Ok(Meaning::Node(Side::Src)),
            (Meaning::Edge, "dst") => Ok(Meaning::Node(Side::Dst)),
            (Meaning::Edge, "etype") => Ok(Meaning::Type(Type::Edge)),
            (Meaning::Node(side), "ntype") => Ok(Meaning::Type(Type::Node(side))),
            (Meaning::Edge, "ntype") => Err(at.fault("an edge has two ends; expected `e.src.ntype` or `e.dst.ntype`")),
            (Meaning::Node(_), "etype") => Err(at.fault("a node has no edge type; expected `n.ntype`")),
            (Meaning::Edge, input) => self.input(input, Domain::Edge, at),
            (Meaning::Node(side), input) => self.input(input, Domain::Node(side), at),
            (Meaning::Graph, _) => Err(at.fault("expected a loop such as `for n in g.nodes()`")),
            (other, _) => {
                let found = self.describe(&other);
                Err(of.at.fault(format!("expected a node or an edge in front of `.{}`, found {found}", name.text)))
            }
        }
    }

    /// An input or a learnt row of an element.
    fn input(&mut self, name: &str, element: Domain, at: Span) -> Outcome<Meaning> {
        let Some(&value) = self.inputs.get(name) else {
            return Err(at.fault(self.unknown_input(name, element)));
        };
        let why = match (self.domain(value), element) {
            (has, wanted) if has == wanted || (has, wanted) == (Domain::SRC, Domain::DST) => {
                let own = self.builder.lift(value, element);
                let own = self.built(own, at)?;
                return self.lift_here(own, at).map(Meaning::Rows);
            }
            (Domain::Edge, _) => format!("`{name}` is given on edges; expected `e.{name}`"),
            (_, Domain::Edge) => format!("`{name}` is given on nodes; expected `e.src.{name}` or `e.dst.{name}`"),
            (has, _) => format!("`{name}` is given on {}; expected a node of those", plural(has)),
        };
        Err(at.fault(why))
    }

    fn unknown_input(&self, name: &str, element: Domain) -> String {
        let variable = if element == Domain::Edge { "e" } else { "n" };
        if let Some(Meaning::Absent) = self.scope.get(name) {
            return absent(name);
        }
        if self.fields.find(name).is_some() {
            return format!("`{name}` is computed, not an input; expected `{variable}[\"{name}\"]`");
        }
        let known: Vec<&str> = self.inputs.keys().copied().collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        format!("there is no input `{name}`; there are: {known}")
    }

    fn index(&mut self, of: &'a Expression, indices: &'a [Expression], at: Span) -> Outcome<Meaning> {
        match self.expression(of)? {
            Meaning::Edge => {
                let name = self.field_name(indices, at)?;
                self.field(&name, Domain::Edge, at).map(Meaning::Rows)
            }
            Meaning::Node(side) => {
                let name = self.field_name(indices, at)?;
                self.field(&name, Domain::Node(side), at).map(Meaning::Rows)
            }
            Meaning::Weight(weight) => self.choose(weight, indices, at),
            Meaning::Rows(value) => match indices {
                [Expression { kind: ExpressionKind::Slice(from, to), .. }] => {
                    self.slice(value, from.as_deref(), to.as_deref(), at)
                }
                _ => {
                    Err(at.fault("this is one value for all types; expected it without an index, or a slice `v[a:b]`"))
                }
            },
            other => {
                let found = self.describe(&other);
                Err(of.at.fault(format!("expected a node, an edge or a weight in front of the index, found {found}")))
            }
        }
    }

    /// The string in `n["z"]`.
    pub fn field_name(&mut self, indices: &'a [Expression], at: Span) -> Outcome<String> {
        match indices {
            [Expression { kind: ExpressionKind::Literal(OptionValue::Text(name)), .. }] => Ok(name.clone()),
            _ => Err(at.fault("expected a name in quotes, such as n[\"z\"]")),
        }
    }

    fn slice(
        &mut self,
        value: ValueId,
        from: Option<&'a Expression>,
        to: Option<&'a Expression>,
        at: Span,
    ) -> Outcome<Meaning> {
        let Shape::Row { width, .. } = self.shape(value) else {
            return Err(at.fault("expected a vector in front of the slice"));
        };
        let from = from.map(|e| self.known_size(e)).transpose()?.unwrap_or(0);
        let to = to.map(|e| self.known_size(e)).transpose()?.unwrap_or(width);
        if from >= to || to > width {
            return Err(at.fault(format!("there are no elements {from} to {to}; expected a part of 0 to {width}")));
        }
        let part = self.builder.slice(value, from, to - from);
        self.built(part, at).map(Meaning::Rows)
    }

    /// A size that an expression says.
    pub fn known_size(&mut self, e: &'a Expression) -> Outcome<usize> {
        let meaning = self.expression(e)?;
        self.size(&meaning, e.at)
    }

    fn operator(&mut self, f: Operator, left: &'a Expression, right: &'a Expression, at: Span) -> Outcome<Meaning> {
        let (a, b) = (self.expression(left)?, self.expression(right)?);
        if let (Meaning::Known(a), Meaning::Known(b)) = (&a, &b) {
            return known::operator(f, a, b).map(Meaning::Known).map_err(|why| at.fault(why));
        }
        let f = match f {
            Operator::Add => Binary::Add,
            Operator::Sub => Binary::Sub,
            Operator::Mul => Binary::Mul,
            Operator::Div => Binary::Div,
            Operator::MatMul => return self.linear((&a, left.at), (&b, right.at), at),
            Operator::FloorDiv => return Err(at.fault("expected `/`: rows are no whole numbers")),
            _ => return Err(at.fault("only options and sizes are compared; expected an operator on rows: + - * / @")),
        };
        let (x, y) = (self.rows(&a, left.at)?, self.rows(&b, right.at)?);
        let value = self.builder.binary(f, x, y);
        self.built(value, at).map(Meaning::Rows)
    }

    fn prefix(&mut self, f: Prefix, operand: &'a Expression, at: Span) -> Outcome<Meaning> {
        match (f, self.expression(operand)?) {
            (_, Meaning::Known(known)) => known::prefix(f, &known).map(Meaning::Known).map_err(|why| at.fault(why)),
            (Prefix::Not, _) => Err(at.fault("only options are negated by `not`")),
            (Prefix::Minus, meaning) => {
                let x = self.rows(&meaning, operand.at)?;
                Ok(Meaning::Rows(self.builder.unary(Unary::Neg, x)))
            }
        }
    }
}

fn absent(name: &str) -> String {
    format!("`{name}` is not there with these options: its `when(..)` does not hold")
}
