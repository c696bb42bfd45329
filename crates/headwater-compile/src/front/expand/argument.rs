//! Arguments of a call, by position and by name, in the order of a function's parameters.

use crate::front::fault::{Outcome, Span};
use crate::front::surface::{Call, Expression};

/// The argument of each parameter, where there is one. The first `required` must be there.
pub fn arguments<'a>(
    call: &'a Call,
    parameters: &[&str],
    required: usize,
    at: Span,
) -> Outcome<Vec<Option<&'a Expression>>> {
    if let Some(extra) = call.arguments.get(parameters.len()) {
        return Err(extra.at.fault(format!("expected at most {}: {}", parameters.len(), parameters.join(", "))));
    }
    let mut given: Vec<Option<&Expression>> = call.arguments.iter().map(Some).collect();
    given.resize(parameters.len(), None);
    for (name, value) in &call.keywords {
        match parameters.iter().position(|parameter| *parameter == name.text) {
            Some(place) if given[place].is_none() => given[place] = Some(value),
            Some(_) => return Err(name.at.fault(format!("`{}` is given twice", name.text))),
            None => {
                return Err(name.at.fault(format!("expected one of {}, found `{}`", parameters.join(", "), name.text)));
            }
        }
    }
    match given.iter().take(required).position(Option::is_none) {
        Some(missing) => {
            Err(at.fault(format!("expected `{}` too: it takes {}", parameters[missing], parameters.join(", "))))
        }
        None => Ok(given),
    }
}
