//! The rows of one node type: its features or what is learnt in their place, projected to the common width.

use std::collections::BTreeMap;

use headwater_compile::adjacency::Adjacency;
use headwater_compile::cpu::fast::{Array, Given, Run, Workspace};
use headwater_compile::front::{self, Arguments, builtin};
use headwater_compile::pass::decorate::{Around, decorate};
use headwater_compile::pass::{Statistics, Workload};
use headwater_graph::random::Key;
use rayon::prelude::*;

use super::super::layer::{Layer, Making, Outputs, With, give_all};
use super::super::{Extras, NodeInput};
use super::{Inputs, Nodes, TypePlan};
use crate::error::{Error, Result};
use crate::gradient::{Gradient, RowGradient};
use crate::init::Init;
use crate::parameter::{Parameter, Parameters};
use crate::run_config::RunConfig;

/// The layer that projects.
const PROJECTION: &str = "mlp";
/// Projections read rows and parameters alone.
static NO_EXTRAS: Extras = Extras::new();

/// How the rows of one type are made.
#[derive(Debug)]
pub(in super::super) struct TypeInput {
    name: String,
    /// Elements of a row before it is projected.
    width: usize,
    /// Where the learnt rows are among the parameters, if they are learnt.
    table: Option<usize>,
    projection: Option<Layer>,
}

/// What the backward pass of a type needs: the learnt rows that were read, and what the projection left.
#[derive(Debug, Default)]
pub(in super::super) struct Kept {
    rows: Option<Vec<f32>>,
    saved: Outputs,
}

impl Kept {
    /// Gives its memory back.
    pub fn give(self, workspace: &mut Workspace) {
        give_all(self.saved, workspace);
        self.rows.into_iter().for_each(|rows| workspace.give(rows));
    }
}

/// What the backward pass of one type is told.
#[derive(Clone, Copy)]
pub(in super::super) struct Back<'a> {
    pub inputs: Inputs<'a>,
    pub parameters: &'a Parameters,
    /// The gradient of the rows it made.
    pub slope: &'a [f32],
}

impl TypeInput {
    /// What it learns is added to the parameters.
    pub fn new(
        config: &RunConfig,
        plan: TypePlan,
        own: &NodeInput,
        width: usize,
        parameters: &mut Parameters,
    ) -> Result<Self> {
        let prefix = format!("input.{}", own.name);
        let (from, table) = match plan {
            TypePlan::Projected(from) => (from, None),
            TypePlan::Learnt(from) => (from, Some(add_table(config, &prefix, own.nodes, from, parameters)?)),
        };
        let is_projected = table.is_none() || from != width;
        let shape = Projection { from, to: width, learns_rows: table.is_some(), nodes: own.nodes };
        let projection = is_projected.then(|| projection(config, &prefix, shape, parameters)).transpose()?;
        Ok(Self { name: own.name.clone(), width: from, table, projection })
    }

    /// The rows of its nodes, and what the backward pass will need.
    pub fn forward(
        &self,
        at: usize,
        inputs: Inputs<'_>,
        parameters: &Parameters,
        workspace: &mut Workspace,
    ) -> Result<(Vec<f32>, Kept)> {
        let nodes = inputs.nodes[at];
        let rows = self.table.map(|table| self.gather(table, nodes, parameters, workspace));
        let Some(projection) = &self.projection else { return Ok((rows.unwrap_or_default(), Kept::default())) };
        let graph = without_edges(nodes.count())?;
        let with = self.with(&graph, at, inputs, rows.as_deref(), parameters)?;
        let mut saved = projection.forward(with, workspace)?;
        match saved.remove("out") {
            Some(Array::Dense(out)) => Ok((out, Kept { rows, saved })),
            _ => Err(Error::Model { why: format!("the projection of {:?} has no output", self.name) }),
        }
    }

    /// From the gradient of its rows to those of what it learns.
    pub fn backward(
        &self,
        at: usize,
        back: Back<'_>,
        kept: Kept,
        gradients: &mut [Gradient],
        workspace: &mut Workspace,
    ) -> Result<()> {
        let nodes = back.inputs.nodes[at];
        let slope = match &self.projection {
            None => {
                let mut slope = workspace.take(back.slope.len());
                slope.copy_from_slice(back.slope);
                slope
            }
            Some(projection) => {
                let graph = without_edges(nodes.count())?;
                let with = self.with(&graph, at, back.inputs, kept.rows.as_deref(), back.parameters)?;
                projection.backward(with, &kept.saved, back.slope, gradients, workspace)?
            }
        };
        if let Some(table) = self.table {
            gradients[table] = match nodes {
                Nodes::All(_) => Gradient::Dense(slope),
                Nodes::Listed(ids) => Gradient::Rows(RowGradient::new(ids, slope, self.width)?),
            };
        }
        kept.give(workspace);
        Ok(())
    }

    fn with<'a>(
        &self,
        graph: &'a Adjacency,
        at: usize,
        inputs: Inputs<'a>,
        rows: Option<&'a [f32]>,
        parameters: &'a Parameters,
    ) -> Result<With<'a>> {
        let x = rows.map(Given::Dense).or_else(|| inputs.features.get(at).copied().flatten());
        if x.is_none() {
            return Err(Error::Model { why: format!("the features of {:?} were not read", self.name) });
        }
        Ok(With { run: Run { graph, step: Key::new(0) }, x, extras: &NO_EXTRAS, parameters, running: None })
    }

    /// The learnt rows of nodes.
    fn gather(&self, table: usize, nodes: Nodes<'_>, parameters: &Parameters, workspace: &mut Workspace) -> Vec<f32> {
        let table = parameters.at(table).map_or(&[][..], |table| &table.values);
        let mut rows = workspace.take(nodes.count() * self.width);
        match nodes {
            Nodes::All(_) => rows.copy_from_slice(table),
            Nodes::Listed(ids) => {
                rows.par_chunks_exact_mut(self.width).zip(ids).with_min_len(256).for_each(|(row, id)| {
                    let at = usize::try_from(*id).unwrap_or(usize::MAX) * self.width;
                    row.copy_from_slice(&table[at..at + self.width]);
                })
            }
        }
        rows
    }
}

/// A learnt row for each of so many nodes, begun as torch's `Embedding`.
fn add_table(
    config: &RunConfig,
    prefix: &str,
    nodes: usize,
    width: usize,
    parameters: &mut Parameters,
) -> Result<usize> {
    let (name, shape) = (format!("{prefix}.embedding"), vec![nodes, width]);
    // A width that somebody asks for may be more than there is room for; that is no reason to end the process.
    let has_room = |count: usize| Vec::<f32>::new().try_reserve_exact(count).is_ok();
    if !nodes.checked_mul(width).is_some_and(has_room) {
        let why = format!("has {nodes} rows of {width}, for which there is no memory; expected fewer elements a row");
        return Err(Error::Parameter { name, why });
    }
    let values = Init::Normal { deviation: 1.0 }.values(config.seed, &name, &shape);
    parameters.push(Parameter { name, shape, values, group: RunConfig::LEARNT_ROWS })
}

/// The sizes of a projection.
#[derive(Debug, Clone, Copy)]
struct Projection {
    from: usize,
    to: usize,
    /// Whether the rows that it reads are learnt too.
    learns_rows: bool,
    nodes: usize,
}

fn projection(config: &RunConfig, prefix: &str, shape: Projection, parameters: &mut Parameters) -> Result<Layer> {
    let sizes = [("d_in", shape.from), ("d_out", shape.to)].map(|(name, size)| (name.to_owned(), size));
    let arguments = Arguments { sizes: sizes.into_iter().collect(), ..Arguments::default() };
    let read = front::read(PROJECTION, builtin(PROJECTION).unwrap_or_default(), &arguments)?;
    let around = Around { wants_input_gradient: shape.learns_rows, ..Around::default() };
    let program = decorate(&read.program, around)?;
    let graph = without_edges(shape.nodes)?;
    let statistics = Statistics::of(&graph);
    let group = RunConfig::group_of_layer(0);
    let options = BTreeMap::new();
    let making = Making {
        graph: &graph,
        workload: Workload::from(&statistics),
        model: "input",
        options: &options,
        prefix,
        group,
    };
    Layer::compiled(config, &program, making, parameters)
}

/// Nodes of one type, and nothing else.
fn without_edges(nodes: usize) -> Result<Adjacency> {
    Ok(Adjacency::new(&[nodes], &[nodes], &[])?)
}
