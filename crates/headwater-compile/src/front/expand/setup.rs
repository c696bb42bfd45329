//! Before the first statement: the caller's options and sizes, and from them the layer's inputs and weights.

use std::collections::BTreeMap;

use super::Expand;
use super::meaning::{Meaning, Weight};
use super::scope::Sight;
use crate::adjacency::SelfLoops;
use crate::front::Arguments;
use crate::front::declare::{Declaration, Kind, declarations, graph_parameter, size_names};
use crate::front::fault::{Fault, Outcome};
use crate::front::known::OptionValue;
use crate::front::surface::{Expression, ExpressionKind, Function, Name};
use crate::inter::{Domain, Op, Shape, ValueId};

/// What a size is at most.
const MOST_SIZE: usize = 1 << 20;

impl<'a> Expand<'a> {
    /// Declares what the layer takes, and gives its options as they are in force.
    pub fn declare(&mut self, layer: &'a Function, arguments: &Arguments) -> Outcome<BTreeMap<String, OptionValue>> {
        let declared = declarations(layer)?;
        let options = options(layer, &declared, arguments)?;
        let named = size_names(&declared)?;
        self.sizes = named.into_iter().map(|name| (name, arguments.sizes.get(name).copied())).collect();
        self.scope.enter(Sight::Own);
        self.scope.bind(&graph_parameter(layer)?.text, Meaning::Graph);
        for (declaration, value) in declared.iter().filter_map(|one| Some((one, options.get(&one.name.text)?))) {
            self.scope.bind(&declaration.name.text, Meaning::Known(value.clone()));
        }
        for declaration in &declared {
            self.parameter(declaration)?;
        }
        Ok(options)
    }

    /// What becomes of edges from nodes to themselves: what `@layer` says.
    pub fn self_loops(&mut self, layer: &'a Function) -> Outcome<SelfLoops> {
        let Some(decorator) = &layer.decorator else { return Ok(SelfLoops::AsTheyAre) };
        let expected =
            || decorator.at.fault("expected `@layer`, `@layer(self_loops=True)` or `@layer(drop_self_loops=True)`");
        let is_layer = |e: &Expression| matches!(&e.kind, ExpressionKind::Name(word) if word == "layer");
        match &decorator.kind {
            _ if is_layer(decorator) => Ok(SelfLoops::AsTheyAre),
            ExpressionKind::Call(call) if is_layer(&call.function) && call.arguments.is_empty() => {
                let (name, value) = match &call.keywords[..] {
                    [] => return Ok(SelfLoops::AsTheyAre),
                    [(name, value)] => (name.text.as_str(), value),
                    _ => return Err(expected()),
                };
                let wanted = match name {
                    "self_loops" => SelfLoops::Added,
                    "drop_self_loops" => SelfLoops::Dropped,
                    _ => return Err(expected()),
                };
                Ok(if self.condition(value)? { wanted } else { SelfLoops::AsTheyAre })
            }
            _ => Err(expected()),
        }
    }

    fn parameter(&mut self, declaration: &Declaration<'a>) -> Outcome<()> {
        let name = declaration.name;
        if let Some(condition) = declaration.when
            && !self.condition(condition)?
        {
            self.scope.bind(&name.text, Meaning::Absent);
            return Ok(());
        }
        let at = declaration.annotation.at;
        match declaration.kind {
            Kind::Option(_) => {}
            Kind::Input { domain, sizes, wants_gradient } => {
                let shape = self.declared_shape(sizes, false)?;
                let op = Op::Input { name: name.text.clone(), wants_gradient };
                let value = self.builder.push(op, domain, shape);
                self.inputs.insert(&name.text, self.built(Ok(value), at)?);
            }
            Kind::Weight { domain, sizes, is_matrix } => {
                let shape = self.declared_shape(sizes, is_matrix)?;
                let value = self.builder.parameter(&name.text, domain, shape);
                self.bind_weight(name, self.built(Ok(value), at)?);
            }
        }
        Ok(())
    }

    fn bind_weight(&mut self, name: &'a Name, value: ValueId) {
        match (self.domain(value), self.shape(value)) {
            // Rows of nodes are read as `n.E`, so their name alone means nothing.
            (Domain::Node(_), _) => drop(self.inputs.insert(&name.text, value)),
            (Domain::Const, Shape::Row { .. }) => self.scope.bind(&name.text, Meaning::Rows(value)),
            _ => {
                let weight = Weight { value, chosen: None, is_transposed: false };
                self.scope.bind(&name.text, Meaning::Weight(weight));
            }
        }
    }

    fn declared_shape(&mut self, sizes: &'a [Expression], is_matrix: bool) -> Outcome<Shape> {
        let sizes = sizes.iter().map(|size| self.declared_size(size)).collect::<Outcome<Vec<_>>>()?;
        Ok(match (is_matrix, &sizes[..]) {
            (true, &[heads, rows, cols]) => Shape::Matrix { heads, rows, cols },
            (true, &[rows, cols]) => Shape::matrix(rows, cols),
            (false, &[heads, width]) => Shape::Row { heads, width },
            // The number of sizes was checked when the annotation was read.
            _ => Shape::vector(sizes.first().copied().unwrap_or(1)),
        })
    }

    fn declared_size(&mut self, size: &'a Expression) -> Outcome<usize> {
        let meaning = self.expression(size)?;
        match self.size(&meaning, size.at)? {
            fits @ 1..=MOST_SIZE => Ok(fits),
            other => {
                Err(size.at.fault(format!("{} is {other}; expected 1 to {MOST_SIZE}", self.source.quote(size.at))))
            }
        }
    }
}

/// Every option: the caller's value, or the default.
fn options(
    layer: &Function,
    declared: &[Declaration],
    arguments: &Arguments,
) -> Outcome<BTreeMap<String, OptionValue>> {
    let mut options = BTreeMap::new();
    for declaration in declared {
        let Kind::Option(rule) = &declaration.kind else { continue };
        let name = &declaration.name.text;
        let value = match arguments.options.get(name) {
            Some(value) => {
                rule.accept(value).map_err(|why| declaration.name.at.fault(format!("option `{name}`: {why}")))?
            }
            None => rule.default.clone(),
        };
        options.insert(name.clone(), value);
    }
    match arguments.options.keys().find(|name| !options.contains_key(*name)) {
        Some(unknown) => Err(unknown_option(layer, unknown, &options)),
        None => Ok(options),
    }
}

fn unknown_option(layer: &Function, unknown: &str, options: &BTreeMap<String, OptionValue>) -> Fault {
    let known: Vec<&str> = options.keys().map(String::as_str).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    layer.name.at.fault(format!("there is no option `{unknown}`; `{}` has {known}", layer.name.text))
}
