//! The order of linear operators: products, sums over edges and inner products change places where that is cheaper.
//!
//! Each rule says what else a value could be computed from. What that is worth shows only in the kernels: a rule may free a
//! value that another one needs, or make a row wider that every edge reads. So every change is priced by the kernels it leads
//! to (`cost.rs`), alone and, where none pays alone, together with a second one; the best is taken until none is left.

mod aggregate;
mod blocks;
mod linear;
mod term;
#[cfg(test)]
mod tests;

use super::Optimisations;
use super::cost::Cost;
use super::merge::merge_at;
use super::rewrite::{Rebuilt, rewrite};
use crate::error::Result;
use crate::inter::{Op, Program, Value, ValueId};

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// `(x A) B` as `x (A B)`.
    LinearLinear,
    /// `(x W) . a` as `x . (W a)`.
    DotLinear,
    /// `(x W) . y` as `x . (y W')`.
    Bilinear,
    /// The sum of products as the product of the sum.
    AggregateFirst,
    /// The same with factors a head and one matrix: the sum has a row a head.
    HeadsFirst,
    /// The product of a sum as the sum of products.
    TransformFirst,
    /// Sums of sums as one sum.
    Flatten,
    /// A factor of all rows of a sum, behind it.
    Hoist,
    /// Several products of the same rows as one.
    Merge,
}

/// A change that was made, and what the program cost before and after.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fired {
    /// By which rule.
    pub rule: Rule,
    /// The program's cost before. Two changes that only pay together share both numbers.
    pub before: Cost,
    /// And after.
    pub after: Cost,
}

/// Changes that are made at most.
const MOST_CHANGES: usize = 24;
/// A change has to save this part of the price: less than that is noise of the estimate.
const LEAST_SAVING: f64 = 0.002;

/// What a search needs to know.
#[derive(Clone, Copy)]
pub struct Search<'a> {
    /// Which rules are switched on.
    pub on: Optimisations,
    /// Runs after each change.
    pub clean: &'a dyn Fn(&Program) -> Result<Program>,
    /// What a program costs.
    pub price: &'a dyn Fn(&Program) -> Result<Cost>,
    /// Whether changes are looked for that only pay together.
    pub pairs: Pairs,
}

/// Whether changes are looked for that only pay together. There are as many of those as the square of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairs {
    /// Each has to pay by itself.
    Off,
    /// Two together may.
    On,
}

/// The cheapest program that rules lead to, and the changes on the way.
pub fn reorder(program: &Program, search: &Search<'_>) -> Result<(Program, Vec<Fired>)> {
    let mut best = search.priced(program.clone(), Vec::new())?;
    let mut fired: Vec<Fired> = Vec::new();
    while fired.len() < MOST_CHANGES {
        let Some(next) = search.better(&best)? else { break };
        let (before, after) = (best.cost, next.cost);
        fired.extend(next.rules.iter().map(|rule| Fired { rule: *rule, before, after }));
        best = Candidate { rules: Vec::new(), ..next };
    }
    Ok((best.program, fired))
}

/// A program with its cost, and how it came to be.
struct Candidate {
    program: Program,
    cost: Cost,
    rules: Vec<Rule>,
}

impl Search<'_> {
    /// The best program that one change leads to, or two; `None` where nothing is cheaper.
    fn better(&self, from: &Candidate) -> Result<Option<Candidate>> {
        let limit = from.cost.price() * (1.0 - LEAST_SAVING);
        let once = self.changed(from)?;
        let is_cheaper = |candidate: &Candidate| candidate.cost.price() < limit;
        if once.iter().any(is_cheaper) {
            return Ok(cheapest(once));
        }
        if self.pairs == Pairs::Off {
            return Ok(None);
        }
        let mut twice = Vec::new();
        for candidate in &once {
            twice.extend(self.changed(candidate)?);
        }
        Ok(cheapest(twice).filter(is_cheaper))
    }

    /// All programs that one change leads to, with their costs.
    fn changed(&self, from: &Candidate) -> Result<Vec<Candidate>> {
        let rules = |rule: Rule| from.rules.iter().copied().chain([rule]).collect();
        let found = changes(&from.program, self.on, self.clean)?;
        found.into_iter().map(|(rule, program)| self.priced(program, rules(rule))).collect()
    }

    fn priced(&self, program: Program, rules: Vec<Rule>) -> Result<Candidate> {
        Ok(Candidate { cost: (self.price)(&program)?, program, rules })
    }
}

/// All programs that one change leads to: what the search chooses from, whatever each of them costs.
pub fn changes(
    from: &Program,
    on: Optimisations,
    clean: &dyn Fn(&Program) -> Result<Program>,
) -> Result<Vec<(Rule, Program)>> {
    let mut found: Vec<(Rule, Program)> = Vec::new();
    for rule in Rule::all(on) {
        for (id, _) in from.iter().filter(|(_, value)| rule.may_apply(&value.op)) {
            let Some(program) = rule.apply(from, id)? else { continue };
            let program = clean(&program)?;
            if program != *from && found.iter().all(|(_, other)| *other != program) {
                found.push((rule, program));
            }
        }
    }
    Ok(found)
}

fn cheapest(candidates: Vec<Candidate>) -> Option<Candidate> {
    candidates.into_iter().min_by(|a, b| a.cost.price().total_cmp(&b.cost.price()))
}

impl Rule {
    /// Its name, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LinearLinear => "linear_linear",
            Self::DotLinear => "dot_linear",
            Self::Bilinear => "bilinear",
            Self::AggregateFirst => "aggregate_first",
            Self::HeadsFirst => "heads_first",
            Self::TransformFirst => "transform_first",
            Self::Flatten => "flatten",
            Self::Hoist => "hoist",
            Self::Merge => "merge",
        }
    }

    /// Those that are switched on.
    fn all(on: Optimisations) -> Vec<Self> {
        let switches = [
            (Self::LinearLinear, on.linear_linear),
            (Self::DotLinear, on.dot_linear),
            (Self::Bilinear, on.bilinear),
            (Self::AggregateFirst, on.aggregate_first),
            (Self::HeadsFirst, on.heads_first),
            (Self::TransformFirst, on.aggregate_first),
            (Self::Flatten, on.flatten),
            (Self::Hoist, on.hoist),
            (Self::Merge, on.merge),
        ];
        switches.into_iter().filter(|(_, is_on)| *is_on).map(|(rule, _)| rule).collect()
    }

    /// Whether a value is of the kind that the rule is about.
    fn may_apply(self, op: &Op) -> bool {
        match self {
            Self::LinearLinear | Self::TransformFirst | Self::Merge => matches!(op, Op::Linear { .. }),
            Self::DotLinear | Self::Bilinear => matches!(op, Op::Dot { .. }),
            Self::AggregateFirst | Self::HeadsFirst | Self::Flatten | Self::Hoist => matches!(op, Op::Reduce { .. }),
        }
    }

    /// The program with the rule applied to one value; `None` where it says nothing about it.
    fn apply(self, program: &Program, at: ValueId) -> Result<Option<Program>> {
        let visit: fn(&mut Rebuilt, &Value) -> Result<Option<ValueId>> = match self {
            Self::LinearLinear => linear::linear_linear,
            Self::DotLinear => linear::dot_linear,
            Self::Bilinear => linear::bilinear,
            Self::AggregateFirst => aggregate::aggregate_first,
            Self::HeadsFirst => aggregate::heads_first,
            Self::TransformFirst => aggregate::transform_first,
            Self::Flatten => aggregate::flatten,
            Self::Hoist => aggregate::hoist,
            Self::Merge => return merge_at(program, at),
        };
        let (mut next, mut has_fired) = (0, false);
        let found = rewrite(program, |to, value| {
            let is_it = next == at.at();
            next += 1;
            let changed = if is_it { visit(to, &value)? } else { None };
            has_fired |= changed.is_some();
            Ok(changed.unwrap_or_else(|| to.keep(value)))
        })?;
        Ok(has_fired.then_some(found))
    }
}
