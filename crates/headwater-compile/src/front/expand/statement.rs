//! Statements: definitions, loops, decisions.

use super::Expand;
use super::meaning::{Meaning, plural};
use crate::front::fault::{Fault, Outcome, Span};
use crate::front::surface::{Each, Expression, ExpressionKind, Statement, StatementKind};
use crate::inter::{Domain, Side};

const LOOPS: &str = "g.edges(), g.nodes(), g.src_nodes(), g.dst_nodes(), n.incoming_edges() or n.outgoing_edges()";

const NOT_WRITTEN: &str = "only nodes that are written have their incoming edges; expected g.dst_nodes() around";
const NOT_ALL: &str = "only a loop over all nodes has their outgoing edges; expected g.nodes() around";

impl<'a> Expand<'a> {
    /// Statements in order, up to a `return`, whose value it gives.
    pub fn block(&mut self, statements: &'a [Statement]) -> Outcome<Option<Meaning>> {
        for statement in statements {
            if let Some(returned) = self.deeper(statement.at, |this| this.statement(statement))? {
                return Ok(Some(returned));
            }
        }
        Ok(None)
    }

    fn statement(&mut self, statement: &'a Statement) -> Outcome<Option<Meaning>> {
        match &statement.kind {
            StatementKind::Assign(target, value) => self.assign(target, value)?,
            StatementKind::Add(target, value) => self.add_to(target, value)?,
            StatementKind::For(each, body) => self.walk(each, body)?,
            StatementKind::If(branches, otherwise) => {
                for (condition, body) in branches {
                    if self.condition(condition)? {
                        return self.block(body);
                    }
                }
                return self.block(otherwise);
            }
            StatementKind::Return(_) if self.calls.len() == 1 => {
                return Err(statement.at.fault("a layer's result is n[\"out\"]; expected no `return`"));
            }
            StatementKind::Return(value) => return self.expression(value).map(Some),
            StatementKind::Do(call) => self.do_call(call)?,
        }
        Ok(None)
    }

    fn assign(&mut self, target: &'a Expression, value: &'a Expression) -> Outcome<()> {
        if let ExpressionKind::Name(name) = &target.kind {
            let meaning = self.expression(value)?;
            if let Meaning::Rows(rows) = meaning {
                self.label(rows, name);
            }
            if !self.scope.set(name, meaning) {
                let why = format!("`{name}` belongs to what is around this loop; expected another name");
                return Err(target.at.fault(why));
            }
            return Ok(());
        }
        let (name, element) = self.target(target)?;
        let value = self.value(value)?;
        self.define(&name, element, value, target.at)
    }

    fn add_to(&mut self, target: &'a Expression, value: &'a Expression) -> Outcome<()> {
        let (name, element) = self.target(target)?;
        let value = self.value(value)?;
        self.add(&name, element, value, target.at)
    }

    /// The name and the element of `n["z"]` on the left.
    fn target(&mut self, target: &'a Expression) -> Outcome<(String, Domain)> {
        let expected = || target.at.fault("expected a value to write, such as n[\"z\"] or e[\"z\"]");
        let ExpressionKind::Index(of, indices) = &target.kind else { return Err(expected()) };
        let element = match self.expression(of)? {
            Meaning::Edge => Domain::Edge,
            Meaning::Node(side) => Domain::Node(side),
            _ => return Err(expected()),
        };
        Ok((self.field_name(indices, target.at)?, element))
    }

    fn walk(&mut self, each: &'a Each, body: &'a [Statement]) -> Outcome<()> {
        let elements = self.elements(&each.over)?;
        self.begin_sums();
        self.inside(elements, |this| {
            this.name_element(each, elements)?;
            match this.block(body)? {
                Some(_) => Err(each.over.at.fault("a loop has no result; expected `return` outside of it")),
                None if elements == Domain::Edge => this.finish_sums(),
                None => Ok(()),
            }
        })
    }

    /// Binds the variable of a loop.
    pub fn name_element(&mut self, each: &'a Each, elements: Domain) -> Outcome<()> {
        let meaning = match elements {
            Domain::Node(side) => Meaning::Node(side),
            _ => Meaning::Edge,
        };
        if !self.scope.set(&each.variable.text, meaning) {
            return Err(each.variable.at.fault("the name means something around this loop; expected another name"));
        }
        Ok(())
    }

    /// What a loop walks.
    pub fn elements(&mut self, over: &'a Expression) -> Outcome<Domain> {
        let expected = || over.at.fault(format!("expected {LOOPS}"));
        let ExpressionKind::Call(call) = &over.kind else { return Err(expected()) };
        let ExpressionKind::Attribute(of, name) = &call.function.kind else { return Err(expected()) };
        if !call.arguments.is_empty() || !call.keywords.is_empty() {
            return Err(expected());
        }
        let whole = self.here == Domain::Const;
        let (elements, is_right_place) = match (self.expression(of)?, name.text.as_str()) {
            (Meaning::Graph, "edges") => (Domain::Edge, whole),
            (Meaning::Graph, "nodes" | "src_nodes") => (Domain::SRC, whole),
            (Meaning::Graph, "dst_nodes") => (Domain::DST, whole),
            (Meaning::Node(Side::Dst), "incoming_edges") => (Domain::Edge, self.here == Domain::DST),
            (Meaning::Node(Side::Src), "outgoing_edges") => (Domain::Edge, self.here == Domain::SRC),
            (Meaning::Node(_), "incoming_edges") => return Err(over.at.fault(NOT_WRITTEN)),
            (Meaning::Node(_), "outgoing_edges") => return Err(over.at.fault(NOT_ALL)),
            _ => return Err(expected()),
        };
        if is_right_place { Ok(elements) } else { Err(self.wrong_place(elements, over.at)) }
    }

    fn wrong_place(&self, elements: Domain, at: Span) -> Fault {
        let (inner, outer) = (plural(elements), plural(self.here));
        at.fault(format!(
            "a loop over {inner} in one over {outer}; expected at most the edges of a node in a loop over nodes"
        ))
    }
}
