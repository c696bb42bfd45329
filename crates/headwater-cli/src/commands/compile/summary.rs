//! A compiled layer in numbers and text, for people and programs.

use std::collections::BTreeMap;

use headwater::compile::front::OptionValue;
use headwater::compile::inter::text::print as print_values;
use headwater::compile::intra::{Program, headline, print as print_kernels};
use headwater::compile::pass::cost::{self, Cost};
use headwater::compile::pass::{Compiled, Optimisations, Statistics, compile};
use serde::Serialize;

use super::request::Request;
use crate::args::Level;

/// What a level has to say.
#[derive(Serialize)]
pub struct Summary {
    pub layer: String,
    pub sizes: BTreeMap<String, usize>,
    pub options: BTreeMap<String, OptionValue>,
    pub self_loops: bool,
    pub graph: Rows,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    pub directions: Vec<Direction>,
    #[serde(flatten)]
    pub plan: Option<Plan>,
}

/// What was chosen, what it costs, and what each choice is worth.
#[derive(Serialize)]
pub struct Plan {
    pub plan: Vec<Change>,
    pub training: Totals,
    pub savings: Vec<Saving>,
}

/// Rows of the graph.
#[derive(Serialize)]
pub struct Rows {
    pub name: String,
    pub node_types: f64,
    pub edge_types: f64,
    pub sources: f64,
    pub destinations: f64,
    pub source_pairs: f64,
    pub destination_pairs: f64,
    pub edges: f64,
}

/// A change of order, and what training costs before and after.
#[derive(Serialize)]
pub struct Change {
    pub rule: &'static str,
    pub before: Figures,
    pub after: Figures,
}

/// Kernels from here to there.
#[derive(Serialize)]
pub struct Direction {
    pub name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<String>,
    #[serde(flatten)]
    pub cost: Option<DirectionCost>,
}

/// What a direction costs, kernel by kernel.
#[derive(Serialize)]
pub struct DirectionCost {
    pub costs: Vec<KernelCost>,
    pub total: Figures,
    pub temporary_bytes: f64,
}

/// What one kernel is and costs.
#[derive(Serialize)]
pub struct KernelCost {
    pub kernel: String,
    pub writes: Vec<String>,
    /// How a GPU runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    #[serde(flatten)]
    pub cost: Figures,
}

/// What training costs with everything but one switch, and with that one alone.
#[derive(Serialize)]
pub struct Saving {
    pub switch: &'static str,
    pub without: Totals,
    pub alone: Totals,
}

/// A program's cost.
#[derive(Serialize, Clone, Copy)]
pub struct Figures {
    pub flops: f64,
    pub read_bytes: f64,
    pub written_bytes: f64,
    pub gathered_rows: f64,
}

/// The cost of both directions.
#[derive(Serialize, Clone, Copy)]
pub struct Totals {
    pub bytes: f64,
    pub flops: f64,
    pub kernels: usize,
    /// What the backward pass needs of the forward one.
    pub saved_bytes: f64,
}

impl Summary {
    /// Of a compiled layer.
    pub fn of(request: &Request, compiled: &Compiled, level: Level) -> anyhow::Result<Self> {
        let Statistics {
            node_types, edge_types, sources, destinations, source_pairs, destination_pairs, edges, ..
        } = request.statistics;
        let name = request.graph.clone();
        let values = |values| level.shows(Level::Values).then(|| print_values(values));
        let direction = |name, program: &Program, values: Option<String>| Direction {
            name,
            values,
            kernels: level.shows(Level::Kernels).then(|| print_kernels(program)),
            cost: level.shows(Level::Plan).then(|| DirectionCost::of(program, request)),
        };
        let (forward, backward) = (values(&compiled.values.forward), values(&compiled.values.backward));
        Ok(Self {
            layer: request.layer.program.name.clone(),
            sizes: request.sizes.clone(),
            options: request.layer.options.clone(),
            self_loops: request.layer.self_loops.adds(),
            graph: Rows { name, node_types, edge_types, sources, destinations, source_pairs, destination_pairs, edges },
            source: level.shows(Level::Source).then(|| request.text.clone()),
            directions: vec![
                direction("forward", &compiled.forward, forward),
                direction("backward", &compiled.backward, backward),
                direction("inference", &compiled.inference, None),
            ],
            plan: level.shows(Level::Plan).then(|| Plan::of(request, compiled)).transpose()?,
        })
    }
}

impl Plan {
    fn of(request: &Request, compiled: &Compiled) -> anyhow::Result<Self> {
        Ok(Self {
            plan: compiled.plan.iter().map(Change::of).collect(),
            training: Totals::of([&compiled.forward, &compiled.backward], &request.statistics),
            savings: savings(request)?,
        })
    }
}

impl Change {
    fn of(fired: &headwater::compile::pass::reorder::Fired) -> Self {
        Self { rule: fired.rule.name(), before: fired.before.into(), after: fired.after.into() }
    }
}

impl DirectionCost {
    fn of(program: &Program, request: &Request) -> Self {
        let statistics = &request.statistics;
        let costs = cost::kernels(program, statistics);
        let total = costs.iter().copied().sum::<Cost>().into();
        let written =
            |at: usize| program.kernels[at].writes().into_iter().map(|id| program[id].name.clone()).collect::<Vec<_>>();
        let each = |(at, cost): (usize, Cost)| KernelCost {
            kernel: headline(&program.kernels[at]),
            writes: written(at),
            schedule: request.is_scheduled.then(|| program.schedule(at).to_string()),
            cost: cost.into(),
        };
        Self {
            costs: costs.into_iter().enumerate().map(each).collect(),
            total,
            temporary_bytes: cost::temporary_bytes(program, statistics),
        }
    }
}

impl From<Cost> for Figures {
    fn from(cost: Cost) -> Self {
        let Cost { flops, read_bytes, written_bytes, gathered_rows, .. } = cost;
        Self { flops, read_bytes, written_bytes, gathered_rows }
    }
}

impl Figures {
    /// Bytes in both directions.
    pub fn bytes(&self) -> f64 {
        self.read_bytes + self.written_bytes
    }
}

/// Every switch that is on, turned off and left alone.
fn savings(request: &Request) -> anyhow::Result<Vec<Saving>> {
    let totals = |on: Optimisations| -> anyhow::Result<Totals> {
        let compiled = compile(&request.layer.program, &request.statistics, on)?;
        Ok(Totals::of([&compiled.forward, &compiled.backward], &request.statistics))
    };
    let mut found = Vec::new();
    for switch in Optimisations::SWITCHES {
        if request.on.with(switch, false) == request.on {
            continue;
        }
        let without = totals(request.on.with(switch, false))?;
        found.push(Saving { switch: switch.0, without, alone: totals(Optimisations::NONE.with(switch, true))? });
    }
    Ok(found)
}

impl Totals {
    /// Of two directions.
    fn of(programs: [&Program; 2], statistics: &Statistics) -> Self {
        let cost: Cost = programs.iter().map(|program| cost::total(program, statistics)).sum();
        let kernels = programs.iter().map(|program| program.kernels.len()).sum();
        let saved_bytes = cost::saved_bytes(programs[0], statistics);
        Self { bytes: cost.bytes(), flops: cost.flops, kernels, saved_bytes }
    }
}
