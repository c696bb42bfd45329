//! What the sizes of a text are, by the arrays that a caller gives for its inputs and weights.
//!
//! `x: node[d_in]` with rows of 16 says that `d_in` is 16, and `W: matrix[d_in, heads * d_out]` with 32 columns says what
//! `d_out` is once `heads` is known. Where arrays disagree the first one is believed: whoever checks them against the
//! program can name the other.

use std::collections::BTreeMap;

use super::declare::{Declaration, Kind, declarations, size_names};
use super::fault::{Fault, Source};
use super::known::OptionValue;
use super::surface::{Expression, ExpressionKind, Operator};
use super::{Arguments, layer_of, python};
use crate::error::{Error, Result};

/// Adds the sizes that arrays tell to those that a caller gives. `rows` has the extents of a row of each array that there
/// is: those that annotations name. Options are checked on the way. `name` is what errors call the text.
pub fn infer(name: &str, text: &str, rows: &BTreeMap<String, Vec<usize>>, arguments: &mut Arguments) -> Result<()> {
    let source = Source { name, text };
    let wrong = |fault: Fault| source.error(fault);
    let functions = python::parse(text).map_err(wrong)?;
    let declared = layer_of(&functions).and_then(declarations).map_err(wrong)?;
    let mut known = known(&declared, arguments)?;
    let mut equations = Vec::new();
    for (declaration, extents) in
        declared.iter().filter_map(|one| rows.get_key_value(&one.name.text).map(|(_, extents)| (one, extents)))
    {
        let (Kind::Input { sizes, .. } | Kind::Weight { sizes, .. }) = declaration.kind else { continue };
        if sizes.len() != extents.len() || extents.contains(&0) {
            let annotation = source.quote(declaration.annotation.at);
            let why = format!("a row of it is {extents:?}; expected {annotation}, of at least 1 each");
            return Err(Error::Argument { name: declaration.name.text.clone(), why });
        }
        equations.extend(sizes.iter().zip(extents.iter().copied()));
    }
    // One may need what a later one tells.
    while let Some((name, size)) = equations.iter().find_map(|(size, extent)| solve(size, *extent, &known)) {
        known.insert(name, size);
        arguments.sizes.insert(name.to_owned(), size);
    }
    Ok(())
}

/// Sizes that are given, and options that are whole numbers.
fn known<'a>(declared: &[Declaration<'a>], arguments: &Arguments) -> Result<BTreeMap<&'a str, usize>> {
    let mut known = BTreeMap::new();
    for name in size_names(declared).unwrap_or_default() {
        known.extend(arguments.sizes.get(name).map(|size| (name, *size)));
    }
    for declaration in declared {
        let Kind::Option(rule) = &declaration.kind else { continue };
        let name = declaration.name.text.as_str();
        let value = match arguments.options.get(name) {
            Some(value) => rule.accept(value).map_err(|why| Error::Argument { name: name.to_owned(), why })?,
            None => rule.default.clone(),
        };
        if let OptionValue::Int(number) = value {
            known.insert(name, usize::try_from(number).unwrap_or(0));
        }
    }
    Ok(known)
}

/// The one unknown name of an expression, and what it is where the expression is `value`.
fn solve<'a>(e: &'a Expression, value: usize, known: &BTreeMap<&str, usize>) -> Option<(&'a str, usize)> {
    match &e.kind {
        ExpressionKind::Name(name) => (!known.contains_key(name.as_str())).then_some((name.as_str(), value)),
        ExpressionKind::Operator(f, left, right) => {
            let (unknown, other) = match (evaluate(left, known), evaluate(right, known)) {
                (None, Some(other)) => (left, other),
                (Some(other), None) => (right, other),
                _ => return None,
            };
            let rest = match f {
                Operator::Mul if other > 0 && value.is_multiple_of(other) => Some(value / other),
                Operator::Add => value.checked_sub(other).filter(|rest| *rest > 0),
                _ => None,
            };
            solve(unknown, rest?, known)
        }
        _ => None,
    }
}

fn evaluate(e: &Expression, known: &BTreeMap<&str, usize>) -> Option<usize> {
    match &e.kind {
        ExpressionKind::Literal(OptionValue::Int(number)) => usize::try_from(*number).ok(),
        ExpressionKind::Name(name) => known.get(name.as_str()).copied(),
        ExpressionKind::Operator(f, left, right) => {
            let (left, right) = (evaluate(left, known)?, evaluate(right, known)?);
            match f {
                Operator::Add => left.checked_add(right),
                Operator::Sub => left.checked_sub(right),
                Operator::Mul => left.checked_mul(right),
                Operator::FloorDiv => left.checked_div(right),
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rows<'a> = &'a [(&'a str, &'a [usize])];
    type Sizes<'a> = &'a [(&'a str, usize)];

    fn inferred(parameters: &str, rows: Rows<'_>, sizes: Sizes<'_>) -> Result<Vec<(String, usize)>> {
        let text = format!("def f(g, {parameters}):\n    pass\n");
        let rows = rows.iter().map(|(name, extents)| ((*name).to_owned(), extents.to_vec())).collect();
        let sizes = sizes.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
        let mut arguments = Arguments { sizes, ..Arguments::default() };
        infer("f", &text, &rows, &mut arguments)?;
        Ok(arguments.sizes.into_iter().collect())
    }

    #[test]
    fn names_follow_from_extents() {
        let gat = "x: node[d], W: matrix[d, heads * k], al: vector[heads, k]";
        let cases: [(&str, Rows<'_>, Sizes<'_>, Sizes<'_>); 6] = [
            (gat, &[("x", &[6]), ("W", &[6, 8]), ("al", &[2, 4])], &[], &[("d", 6), ("heads", 2), ("k", 4)]),
            (gat, &[("W", &[6, 8])], &[("heads", 4)], &[("d", 6), ("heads", 4), ("k", 2)]),
            (gat, &[("W", &[6, 8])], &[], &[("d", 6)]),
            (gat, &[("W", &[6, 8])], &[("heads", 3)], &[("d", 6), ("heads", 3)]),
            ("x: node[d + 2]", &[("x", &[6])], &[], &[("d", 4)]),
            ("x: node[more * d], more: int = 3", &[("x", &[6])], &[], &[("d", 2)]),
        ];
        for (parameters, rows, sizes, wanted) in cases {
            let wanted: Vec<(String, usize)> = wanted.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
            assert_eq!(inferred(parameters, rows, sizes).unwrap(), wanted, "{parameters} {rows:?}");
        }
    }

    #[test]
    fn an_array_that_is_no_such_row_is_named() {
        for extents in [&[6, 1][..], &[], &[0]] {
            let said = inferred("x: node[d]", &[("x", extents)], &[]).unwrap_err().to_string();
            assert!(said.starts_with("x: ") && said.contains("`node[d]`"), "{said}");
        }
    }
}
