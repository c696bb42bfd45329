//! Calls: functions of the text are expanded where they stand; the others are operators.

use super::Expand;
use super::argument::arguments;
use super::meaning::Meaning;
use super::scope::Sight;
use crate::front::fault::{Outcome, Span};
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
        let bound = self.bound(function, call, at)?;
        self.calls.push(name);
        self.scope.enter(Sight::Own);
        for (parameter, meaning) in function.parameters.iter().zip(bound) {
            if !self.scope.set(&parameter.name.text, meaning) {
                return Err(parameter.name.at.fault("expected another name"));
            }
        }
        let returned = self.block(&function.body)?;
        self.scope.leave();
        self.calls.pop();
        Ok(returned)
    }

    /// What each parameter of a function is, in the eyes of the caller.
    fn bound(&mut self, function: &'a Function, call: &'a Call, at: Span) -> Outcome<Vec<Meaning>> {
        if let Some(annotation) = function.parameters.iter().find_map(|parameter| parameter.annotation.as_ref()) {
            return Err(annotation
                .at
                .fault("only the layer, the last function, declares values; expected a plain name"));
        }
        let names: Vec<&str> = function.parameters.iter().map(|parameter| parameter.name.text.as_str()).collect();
        let required = function.parameters.iter().take_while(|parameter| parameter.default.is_none()).count();
        let given = arguments(call, &names, required, at)?;
        let pairs = function.parameters.iter().zip(given);
        let values = pairs.map(|(parameter, given)| {
            let missing = || at.fault(format!("expected `{}` too", parameter.name.text));
            let value = given.or(parameter.default.as_ref()).ok_or_else(missing)?;
            self.expression(value)
        });
        values.collect()
    }
}
