//! A layer called with somebody else's arrays, whose autograd asks for gradients.
//!
//! A [`Bound`] is a text with its sizes and options, and with what its caller wants: gradients of these arrays, dropouts or
//! none. It is compiled when it meets a graph, once for all graphs of about the same rows. A [`Plan`] keeps nothing between
//! runs: what the backward pass reads goes to the caller and comes back, so the caller decides how long it lives and where.

mod device;
mod explain;
mod plan;
mod plans;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use device::{DevicePlan, Direction, Tune};
pub use explain::Level;
pub use plan::{Arrays, Plan};
use plans::Plans;

use crate::adjacency::SelfLoops;
use crate::cuda::Precision;
use crate::error::{Error, Result};
use crate::front::{self, Arguments, Declared, Layer, OptionValue};
use crate::inter::{Domain, Op, Program, Shape};
use crate::pass::{Optimisations, Statistics, without_dropout};

/// A layer's text.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// What errors call it.
    pub name: &'a str,
    /// The text.
    pub text: &'a str,
}

/// What a caller wants of a layer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wish {
    /// Inputs and weights whose gradients will be asked for.
    pub gradients: BTreeSet<String>,
    /// Whether dropouts drop: in training they do.
    pub training: bool,
    /// Optimisations to leave out, by name.
    pub without: BTreeSet<String>,
}

/// An array that a layer takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// Its name.
    pub name: String,
    /// Which rows it has. One of [`Domain::Const`] is one row, and has no extent for it.
    pub domain: Domain,
    /// Extents of a row, as the text's annotation has them.
    pub row: Vec<usize>,
    /// Whether it is learnt.
    pub is_weight: bool,
}

/// A layer with sizes and options, for one kind of call.
#[derive(Debug)]
pub struct Bound {
    program: Program,
    self_loops: SelfLoops,
    options: BTreeMap<String, OptionValue>,
    has_dropout: bool,
    wants_gradients: bool,
    taken: Vec<Taken>,
    /// What passes may do for the CPU, and for a GPU.
    on: [Optimisations; 2],
    plans: Plans<Plan>,
    device_plans: Plans<DevicePlan>,
}

impl Bound {
    /// Reads a text. Sizes that `arguments` leaves out follow from `rows`: the extents of a row of each array that is given.
    pub fn new(
        text: Text<'_>,
        rows: &BTreeMap<String, Vec<usize>>,
        mut arguments: Arguments,
        wish: &Wish,
    ) -> Result<Self> {
        front::infer(text.name, text.text, rows, &mut arguments)?;
        let signature = front::signature(text.name, text.text)?;
        let read = front::read(text.name, text.text, &arguments);
        let Layer { program, self_loops, options } =
            read.map_err(|why| missing_size(why, &signature.sizes, &arguments))?;
        let declared: Vec<&Declared> = signature.inputs.iter().chain(&signature.weights).collect();
        let without: Vec<&String> = wish.without.iter().collect();
        let program = if wish.training { program } else { without_dropout(&program) };
        Ok(Self {
            taken: taken(&program, &declared),
            has_dropout: program.values.iter().any(|value| is_dropout(&value.op)),
            wants_gradients: !wish.gradients.is_empty(),
            program: wanting(&program, &wish.gradients)?,
            self_loops,
            options,
            on: [Optimisations::CPU.without(&without)?, Optimisations::GPU.without(&without)?],
            plans: Plans::default(),
            device_plans: Plans::default(),
        })
    }

    /// What it computes.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What becomes of edges from nodes to themselves.
    #[must_use]
    pub fn self_loops(&self) -> SelfLoops {
        self.self_loops
    }

    /// The text's options as they are in force.
    #[must_use]
    pub fn options(&self) -> &BTreeMap<String, OptionValue> {
        &self.options
    }

    /// Whether a run draws random numbers.
    #[must_use]
    pub fn has_dropout(&self) -> bool {
        self.has_dropout
    }

    /// The arrays that it takes, inputs and weights, in the order of the text.
    #[must_use]
    pub fn taken(&self) -> &[Taken] {
        &self.taken
    }

    /// Extents of a row of the output.
    #[must_use]
    pub fn out_row(&self) -> Vec<usize> {
        self.program.output("out").map_or_else(Vec::new, |out| extents(self.program[out].shape, 1))
    }

    /// Whether arrays of these shapes can be run on a graph that has so many rows; the error names the first that cannot, and
    /// one that is missing or too much.
    pub fn check(&self, rows_of: &dyn Fn(Domain) -> usize, shapes: &BTreeMap<String, Vec<usize>>) -> Result<()> {
        let wrong = |name: &str, why: String| Err(Error::Argument { name: name.to_owned(), why });
        for Taken { name, domain, row, .. } in &self.taken {
            let rows = Some(rows_of(*domain)).filter(|_| *domain != Domain::Const);
            let wanted: Vec<usize> = rows.into_iter().chain(row.iter().copied()).collect();
            match shapes.get(name) {
                Some(found) if *found == wanted => {}
                Some(found) => {
                    let reason =
                        rows.map_or_else(String::new, |rows| format!(": the graph has {rows} {}", words(*domain)));
                    return wrong(name, format!("its shape is {found:?}; expected {wanted:?}{reason}"));
                }
                None => return wrong(name, format!("it is missing; expected an array of {wanted:?}")),
            }
        }
        match shapes.keys().find(|name| !self.taken.iter().any(|taken| taken.name == **name)) {
            Some(name) => wrong(name, "the layer does not take it with these options".to_owned()),
            None => Ok(()),
        }
    }

    /// Kernels for a graph with these rows: those that were made for one like it, or new ones. `compile` runs what makes them,
    /// wherever the caller wants that to run; nothing is locked meanwhile.
    pub fn plan<E>(
        &self,
        statistics: &Statistics,
        compile: impl FnOnce(&(dyn Fn() -> Result<Plan> + Sync)) -> std::result::Result<Plan, E>,
    ) -> std::result::Result<Arc<Plan>, E> {
        let make = || Plan::new(&self.program, statistics, self.needs_both(), self.on[0]);
        self.plans.find(|plan| plan.statistics().is_like(statistics), || compile(&make))
    }

    /// The same for a GPU, with products as exact as is said. `tune` schedules new kernels.
    pub fn device_plan<E>(
        &self,
        statistics: &Statistics,
        precision: Precision,
        tune: Tune<'_>,
        compile: impl FnOnce(&(dyn Fn() -> Result<DevicePlan> + Sync)) -> std::result::Result<DevicePlan, E>,
    ) -> std::result::Result<Arc<DevicePlan>, E> {
        let make = || DevicePlan::new(&self.program, statistics, self.needs_both(), (precision, self.on[1]), tune);
        self.device_plans.find(|plan| plan.serves(statistics, precision), || compile(&make))
    }

    /// How many plans for the CPU there are.
    #[must_use]
    pub fn plan_count(&self) -> usize {
        self.plans.count()
    }

    /// Whether both directions are compiled. Dropouts belong to training.
    fn needs_both(&self) -> bool {
        self.wants_gradients || self.has_dropout
    }
}

/// A size that neither the caller nor an array tells is an argument that is missing, and no fault of the text.
fn missing_size(why: Error, sizes: &[String], arguments: &Arguments) -> Error {
    let Error::Text { why: said, .. } = &why else { return why };
    let is_it =
        |size: &&String| !arguments.sizes.contains_key(*size) && said.contains(&format!("size `{size}` is not given"));
    match sizes.iter().find(is_it) {
        Some(size) => {
            Error::Argument { name: size.clone(), why: "no array tells this size; give it by name".to_owned() }
        }
        None => why,
    }
}

fn is_dropout(op: &Op) -> bool {
    matches!(op, Op::Dropout { probability, .. } if *probability > 0.0)
}

/// The program with gradients of these arrays and no others. A weight that does not learn is an input.
fn wanting(program: &Program, gradients: &BTreeSet<String>) -> Result<Program> {
    let mut program = program.clone();
    for value in &mut program.values {
        match &mut value.op {
            Op::Parameter { name } if !gradients.contains(name) => {
                value.op = Op::Input { name: std::mem::take(name), wants_gradient: false };
            }
            Op::Input { name, wants_gradient: false } if gradients.contains(name) => {
                let why = "its gradient is asked for, but the text has it as constant".to_owned();
                return Err(Error::Argument { name: name.clone(), why });
            }
            Op::Input { name, wants_gradient } => *wants_gradient = gradients.contains(name),
            _ => {}
        }
    }
    Ok(program)
}

fn taken(program: &Program, declared: &[&Declared]) -> Vec<Taken> {
    let one = |value: &crate::inter::Value| {
        let (name, is_weight) = match &value.op {
            Op::Input { name, .. } => (name, false),
            Op::Parameter { name } => (name, true),
            _ => return None,
        };
        let sizes = declared.iter().find(|declared| declared.name == *name)?.sizes.len();
        Some(Taken { name: name.clone(), domain: value.domain, row: extents(value.shape, sizes), is_weight })
    };
    program.values.iter().filter_map(one).collect()
}

/// A shape with so many extents at least: one head is told where the text tells it.
fn extents(shape: Shape, least: usize) -> Vec<usize> {
    let (heads, inner) = match shape {
        Shape::Row { heads, width } => (heads, vec![width]),
        Shape::Matrix { heads, rows, cols } => (heads, vec![rows, cols]),
    };
    let heads = Some(heads).filter(|heads| *heads > 1 || inner.len() < least);
    heads.into_iter().chain(inner).collect()
}

fn words(domain: Domain) -> &'static str {
    match domain {
        Domain::Const => "",
        Domain::NodeType => "node types",
        Domain::EdgeType => "edge types",
        Domain::Node(crate::inter::Side::Src) => "nodes",
        Domain::Node(crate::inter::Side::Dst) => "nodes that are written",
        Domain::Pair(_) => "pairs of a node and an edge type",
        Domain::Edge => "edges",
    }
}
