//! Calls: functions of the text are expanded where they stand; the others are operators.

use super::Expand;
use super::argument::arguments;
use super::meaning::Meaning;
use super::scope::Sight;
use crate::front::fault::{Fault, Outcome, Span};
use crate::front::surface::{Call, Expression, ExpressionKind, Function};

impl<'a> Expand<'a> {
    /// What a call computes.
    pub fn call(&mut self, call: &'a Call, at: Span) -> Outcome<Meaning> {
        let ExpressionKind::Name(name) = &call.function.kind else {
            return Err(call.function.at.fault("expected the name of a function; loops stand behind `in`"));
        };
        let Some(&function) = self.functions.get(name.as_str()) else { return self.builtin_call(name, call, at) };
        match self.expand_call(function, call, at)? {
            Some(returned) => Ok(returned),
            None => Err(at.fault(format!("`{name}` returns nothing; expected `return` in it, or the call by itself"))),
        }
    }

    /// A call by itself: what the function defines on nodes and edges stays.
    pub fn do_call(&mut self, e: &'a Expression) -> Outcome<()> {
        let expected = || e.at.fault("the result is not used; expected an assignment, or a function without `return`");
        let ExpressionKind::Call(call) = &e.kind else { return Err(expected()) };
        let ExpressionKind::Name(name) = &call.function.kind else { return Err(expected()) };
        let Some(&function) = self.functions.get(name.as_str()) else {
            self.builtin_call(name, call, e.at)?;
            return Err(expected());
        };
        match self.expand_call(function, call, e.at)? {
            Some(_) => Err(expected()),
            None => Ok(()),
        }
    }

    /// The body of a function with its parameters bound. It sees nothing else of its caller.
    fn expand_call(&mut self, function: &'a Function, call: &'a Call, at: Span) -> Outcome<Option<Meaning>> {
        let name = function.name.text.as_str();
        if self.calls.contains(&name) {
            return Err(at.fault(format!("`{name}` calls itself; functions are expanded, so expected none that does")));
        }
        let given = self.given(function, call, at)?;
        self.calls.push(name);
        self.scope.enter(Sight::Own);
        let returned = self.body(function, given).map_err(|fault| self.called(fault, name, at))?;
        self.scope.leave();
        self.calls.pop();
        Ok(returned)
    }

    /// What the caller gives for each parameter.
    fn given(&mut self, function: &'a Function, call: &'a Call, at: Span) -> Outcome<Vec<Option<Meaning>>> {
        if let Some(annotation) = function.parameters.iter().find_map(|parameter| parameter.annotation.as_ref()) {
            return Err(annotation
                .at
                .fault("only the last function, the layer, has annotations; expected a plain name"));
        }
        let names: Vec<&str> = function.parameters.iter().map(|parameter| parameter.name.text.as_str()).collect();
        let required = function.parameters.iter().take_while(|parameter| parameter.default.is_none()).count();
        let given = arguments(call, &names, required, at)?;
        given.into_iter().map(|argument| argument.map(|e| self.expression(e)).transpose()).collect()
    }

    fn body(&mut self, function: &'a Function, given: Vec<Option<Meaning>>) -> Outcome<Option<Meaning>> {
        let mut bound = Vec::with_capacity(given.len());
        for (parameter, given) in function.parameters.iter().zip(given) {
            bound.push(match (given, &parameter.default) {
                (Some(meaning), _) => meaning,
                (None, Some(default)) => self.expression(default)?,
                (None, None) => return Err(parameter.name.at.fault("expected an argument for it")),
            });
        }
        for (parameter, meaning) in function.parameters.iter().zip(bound) {
            if self.scope.get(&parameter.name.text).is_some() {
                return Err(parameter.name.at.fault("there is a parameter of this name already; expected another"));
            }
            self.scope.bind(&parameter.name.text, meaning);
        }
        self.block(&function.body)
    }

    /// A fault in the function that was called last says where from.
    fn called(&self, fault: Fault, name: &str, at: Span) -> Fault {
        match self.calls.last() {
            Some(&last) if last == name => {
                let why = format!("{} (`{name}` is called in line {})", fault.why, self.source.line(at));
                Fault { why, ..fault }
            }
            _ => fault,
        }
    }
}
