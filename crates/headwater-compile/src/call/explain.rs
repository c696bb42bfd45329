//! A plan as text: the forms that a layer goes through, as the command line prints them.

use std::fmt::Write;

use super::Plan;
use crate::inter::text::print as print_values;
use crate::intra::print as print_kernels;
use crate::pass::Compiled;

/// How far a layer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Values, forward and backward.
    Values,
    /// Kernels, forward and backward.
    Kernels,
    /// Changes of order that were made, and what each was worth by the estimate.
    Plan,
    /// Everything.
    All,
}

impl Level {
    /// All of them, by name.
    pub const NAMED: [(&'static str, Self); 4] =
        [("values", Self::Values), ("kernels", Self::Kernels), ("plan", Self::Plan), ("all", Self::All)];

    fn shows(self, what: Self) -> bool {
        self == Self::All || self == what
    }
}

impl Plan {
    /// What it is, section by section.
    #[must_use]
    pub fn explain(&self, level: Level) -> String {
        let mut text = String::new();
        let Some(compiled) = self.compiled() else {
            section(&mut text, "kernels, inference", &print_kernels(self.forward_program()));
            return text;
        };
        if level.shows(Level::Values) {
            section(&mut text, "values, forward", &print_values(&compiled.values.forward));
            section(&mut text, "values, backward", &print_values(&compiled.values.backward));
        }
        if level.shows(Level::Kernels) {
            section(&mut text, "kernels, forward", &print_kernels(&compiled.forward));
            section(&mut text, "kernels, backward", &print_kernels(&compiled.backward));
        }
        if level.shows(Level::Plan) {
            section(&mut text, "plan", &changes(compiled));
        }
        text
    }
}

fn section(text: &mut String, name: &str, body: &str) {
    let _ = writeln!(text, "== {name}\n{}", body.trim_end());
}

fn changes(compiled: &Compiled) -> String {
    let mut text = String::new();
    for fired in &compiled.plan {
        let (before, after) = (fired.before, fired.after);
        let _ = writeln!(
            text,
            "{}: training moves {:.0} bytes instead of {:.0} and computes {:.0} operations instead of {:.0}",
            fired.rule.name(),
            after.bytes(),
            before.bytes(),
            after.flops,
            before.flops
        );
    }
    if text.is_empty() { "no change of order pays".to_owned() } else { text }
}
