//! What the parameters of a layer are: its inputs, its weights and its options, as annotations say.

use super::fault::{Outcome, Span};
use super::known::{self, OptionValue};
use super::surface::{Call, Expression, ExpressionKind, Function, Name, Parameter};
use crate::inter::{Domain, Side};

/// One parameter of a layer.
#[derive(Debug, Clone)]
pub struct Declaration<'a> {
    /// Its name.
    pub name: &'a Name,
    /// What it is.
    pub kind: Kind<'a>,
    /// What must hold for it to be there.
    pub when: Option<&'a Expression>,
    /// Its annotation.
    pub annotation: &'a Expression,
}

/// What a parameter is.
#[derive(Debug, Clone)]
pub enum Kind<'a> {
    /// Known when the text is read.
    Option(OptionRule),
    /// Given at every run.
    Input {
        /// Which rows.
        domain: Domain,
        /// What a row holds: heads, if there are several, and a width.
        sizes: &'a [Expression],
        /// Whether its gradient may be asked for.
        wants_gradient: bool,
    },
    /// Learnt.
    Weight {
        /// Which rows.
        domain: Domain,
        /// Heads, if there are several, and the sizes of one.
        sizes: &'a [Expression],
        /// Whether a row is a matrix a head, not a vector.
        is_matrix: bool,
    },
}

/// What values an option takes.
#[derive(Debug, Clone, PartialEq)]
pub struct OptionRule {
    /// What it is if the caller says nothing. The caller's value is of the same kind.
    pub default: OptionValue,
    /// All values it may have; empty where any is right.
    pub choices: Vec<String>,
}

impl OptionRule {
    /// A value that the caller gives, or what was expected.
    pub fn accept(&self, value: &OptionValue) -> Result<OptionValue, String> {
        match (&self.default, value) {
            (OptionValue::Float(_), OptionValue::Int(_) | OptionValue::Float(_)) => match value.number() {
                Some(number) if number.is_finite() => Ok(OptionValue::Float(number)),
                _ => Err(format!("expected a finite number, found {value}")),
            },
            (OptionValue::Text(_), OptionValue::Text(text)) => {
                if self.choices.is_empty() || self.choices.contains(text) {
                    return Ok(value.clone());
                }
                let choices = self.choices.iter().map(|choice| format!("{choice:?}")).collect::<Vec<_>>();
                Err(format!("expected one of {}, found {value}", choices.join(", ")))
            }
            (default, value) if default.kind() == value.kind() => Ok(value.clone()),
            (default, value) => Err(format!("expected {}, found {value}", default.kind())),
        }
    }
}

/// All parameters of a layer behind the first, which is the graph.
pub fn declarations(layer: &Function) -> Outcome<Vec<Declaration<'_>>> {
    let parameters = graph_parameter(layer).map(|_| &layer.parameters[1..])?;
    let mut declared: Vec<Declaration> = Vec::new();
    for parameter in parameters {
        let name = &parameter.name;
        if declared.iter().any(|other| other.name.text == name.text) || layer.parameters[0].name.text == name.text {
            return Err(name.at.fault(format!("there is a parameter `{}` already; expected another name", name.text)));
        }
        declared.push(declaration(parameter)?);
    }
    Ok(declared)
}

/// The parameter that is the graph.
pub fn graph_parameter(layer: &Function) -> Outcome<&Name> {
    match layer.parameters.first() {
        Some(Parameter { name, annotation: None, default: None }) => Ok(name),
        Some(other) => Err(other.name.at.fault("expected the graph, without annotation and default, in front")),
        None => Err(layer.name.at.fault("a layer takes the graph: expected a first parameter such as `g`")),
    }
}

/// Names in expressions of sizes that are no options: what the caller must give.
pub fn size_names<'a>(declared: &[Declaration<'a>]) -> Outcome<Vec<&'a str>> {
    let mut names = Vec::new();
    for declaration in declared {
        if let Kind::Input { sizes, .. } | Kind::Weight { sizes, .. } = declaration.kind {
            for size in sizes {
                collect_sizes(size, declared, &mut names)?;
            }
        }
    }
    Ok(names)
}

fn collect_sizes<'a>(size: &'a Expression, declared: &[Declaration], names: &mut Vec<&'a str>) -> Outcome<()> {
    match &size.kind {
        ExpressionKind::Literal(_) => Ok(()),
        ExpressionKind::Name(name) => {
            match declared.iter().find(|declaration| declaration.name.text == *name) {
                Some(Declaration { kind: Kind::Option(_), .. }) => {}
                Some(_) => return Err(size.at.fault(format!("`{name}` is a value of the layer; expected a size"))),
                None if names.contains(&name.as_str()) => {}
                None => names.push(name),
            }
            Ok(())
        }
        ExpressionKind::Operator(_, left, right) => {
            collect_sizes(left, declared, names)?;
            collect_sizes(right, declared, names)
        }
        ExpressionKind::Choice(choice) => {
            let parts = [&choice.condition, &choice.yes, &choice.no];
            parts.into_iter().try_for_each(|part| collect_sizes(part, declared, names))
        }
        ExpressionKind::Prefix(_, operand) => collect_sizes(operand, declared, names),
        _ => Err(size.at.fault("expected a size: names and whole numbers with + - * //")),
    }
}

fn declaration(parameter: &Parameter) -> Outcome<Declaration<'_>> {
    let name = &parameter.name;
    let Some(annotation) = &parameter.annotation else {
        return Err(name.at.fault(format!("expected an annotation: `{}: {EXPECTED}`", name.text)));
    };
    let (kind, when) = match &annotation.kind {
        ExpressionKind::Name(_) => (Kind::Option(option(parameter, annotation)?), None),
        ExpressionKind::Index(of, indices) => match &of.kind {
            ExpressionKind::Name(word) if word == "Literal" => (Kind::Option(option(parameter, annotation)?), None),
            ExpressionKind::Name(word) => rows(parameter, word, of.at, indices)?,
            _ => return Err(of.at.fault(format!("expected {EXPECTED}"))),
        },
        _ => return Err(annotation.at.fault(format!("expected {EXPECTED}"))),
    };
    Ok(Declaration { name, kind, when, annotation })
}

const EXPECTED: &str = "node[..], dst_node[..], edge[..], matrix[..], vector[..], float, int, bool, str or Literal[..]";

/// An input or a weight, and what must hold for it.
fn rows<'a>(
    parameter: &'a Parameter,
    word: &str,
    at: Span,
    indices: &'a [Expression],
) -> Outcome<(Kind<'a>, Option<&'a Expression>)> {
    let input = match word {
        "node" => Some(Domain::SRC),
        "dst_node" => Some(Domain::DST),
        "edge" => Some(Domain::Edge),
        "matrix" | "vector" => None,
        _ => return Err(at.fault(format!("expected {EXPECTED}"))),
    };
    let Presence { when, is_constant } = presence(parameter, input.is_some())?;
    let Some(domain) = input else { return Ok((weight(word == "matrix", at, indices)?, when)) };
    count(indices, 1, at, "node[width] or node[heads, width]")?;
    Ok((Kind::Input { domain, sizes: indices, wants_gradient: !is_constant }, when))
}

fn weight(is_matrix: bool, at: Span, indices: &[Expression]) -> Outcome<Kind<'_>> {
    let word = match indices.first().map(|first| &first.kind) {
        Some(ExpressionKind::Name(word)) => word.as_str(),
        _ => "",
    };
    let (domain, sizes) = match word {
        "etype" => (Domain::EdgeType, &indices[1..]),
        "ntype" => (Domain::NodeType, &indices[1..]),
        "node" => (Domain::SRC, &indices[1..]),
        "src_pair" => (Domain::Pair(Side::Src), &indices[1..]),
        _ => (Domain::Const, indices),
    };
    if is_matrix && !domain.is_type() {
        return Err(indices[0].at.fault("a matrix belongs to types; expected `etype`, `ntype` or a size"));
    }
    let example = if is_matrix {
        "matrix[rows, cols] or matrix[heads, rows, cols]"
    } else {
        "vector[width] or vector[heads, width]"
    };
    count(sizes, if is_matrix { 2 } else { 1 }, at, example)?;
    Ok(Kind::Weight { domain, sizes, is_matrix })
}

/// Sizes of a row, with or without heads in front.
fn count(sizes: &[Expression], least: usize, at: Span, example: &str) -> Outcome<()> {
    if sizes.len() == least || sizes.len() == least + 1 {
        return Ok(());
    }
    Err(at.fault(format!("expected {example}, found {} sizes", sizes.len())))
}

#[derive(Default)]
struct Presence<'a> {
    when: Option<&'a Expression>,
    is_constant: bool,
}

/// What the default of an input or a weight says: `constant`, `when(condition)` or `when(condition, constant)`.
fn presence(parameter: &Parameter, is_input: bool) -> Outcome<Presence<'_>> {
    let expected = if is_input { "`constant` or `when(condition)`" } else { "`when(condition)`" };
    let is_constant = |e: &Expression| is_input && matches!(&e.kind, ExpressionKind::Name(word) if word == "constant");
    let Some(default) = &parameter.default else { return Ok(Presence::default()) };
    match &default.kind {
        _ if is_constant(default) => Ok(Presence { when: None, is_constant: true }),
        ExpressionKind::Call(call) => match (when_arguments(call), &call.keywords[..]) {
            (Some([condition]), []) => Ok(Presence { when: Some(condition), is_constant: false }),
            (Some([condition, word]), []) if is_constant(word) => {
                Ok(Presence { when: Some(condition), is_constant: true })
            }
            _ => Err(default.at.fault(format!("expected {expected}"))),
        },
        _ => Err(default.at.fault(format!("expected {expected}"))),
    }
}

fn when_arguments(call: &Call) -> Option<&[Expression]> {
    matches!(&call.function.kind, ExpressionKind::Name(word) if word == "when").then_some(&call.arguments)
}

fn option(parameter: &Parameter, annotation: &Expression) -> Outcome<OptionRule> {
    let name = &parameter.name;
    let Some(default) = &parameter.default else {
        return Err(name.at.fault(format!("an option has a default: expected `{} = ...`", name.text)));
    };
    let value = literal(default)?;
    let rule = match &annotation.kind {
        ExpressionKind::Name(word) => match word.as_str() {
            "float" => OptionRule { default: OptionValue::Float(0.0), choices: vec![] },
            "int" => OptionRule { default: OptionValue::Int(0), choices: vec![] },
            "bool" => OptionRule { default: OptionValue::Bool(false), choices: vec![] },
            "str" => OptionRule { default: OptionValue::Text(String::new()), choices: vec![] },
            _ => return Err(annotation.at.fault(format!("expected {EXPECTED}"))),
        },
        ExpressionKind::Index(_, choices) => {
            let choices = choices.iter().map(choice).collect::<Outcome<_>>()?;
            OptionRule { default: OptionValue::Text(String::new()), choices }
        }
        _ => return Err(annotation.at.fault(format!("expected {EXPECTED}"))),
    };
    let default = rule.accept(&value).map_err(|why| default.at.fault(why))?;
    Ok(OptionRule { default, ..rule })
}

fn choice(e: &Expression) -> Outcome<String> {
    match &e.kind {
        ExpressionKind::Literal(OptionValue::Text(text)) => Ok(text.clone()),
        _ => Err(e.at.fault("expected a string")),
    }
}

fn literal(e: &Expression) -> Outcome<OptionValue> {
    match &e.kind {
        ExpressionKind::Literal(value) => Ok(value.clone()),
        ExpressionKind::Prefix(f, operand) => known::prefix(*f, &literal(operand)?).map_err(|why| e.at.fault(why)),
        _ => Err(e.at.fault("expected a number, True, False or a string")),
    }
}
