//! What the first layer reads: features as they are, features projected to one width, or rows that are learnt.
//!
//! Projections are compiled layers over the nodes of one type without edges, so every back end that runs layers runs them.
//! The gradient of learnt rows is of the rows that were read: in a sample, of few.

mod plan;

use headwater_compile::adjacency::Adjacency;
use headwater_compile::cpu::fast::{Array, Given, Run, Workspace};
use headwater_compile::front::{self, Arguments, builtin};
use headwater_compile::pass::Statistics;
use headwater_compile::pass::decorate::{Around, decorate};
use headwater_graph::random::Key;
use rayon::prelude::*;

pub use plan::{InputPlan, TypePlan, Wanted};

use super::layer::{Layer, Making, Outputs, With, give_all};
use super::{Extras, NodeInput};
use crate::error::{Error, Result};
use crate::gradient::{Gradient, RowGradient};
use crate::init::Init;
use crate::parameter::{Parameter, Parameters};
use crate::run_config::RunConfig;

/// The layer that projects.
const PROJECTION: &str = "mlp";

/// What a network is given of the nodes that its first layer reads.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// Features: one array of all types where they have one width, else one a type; `None` where a type has none.
    pub features: &'a [Option<Given<'a>>],
    /// Which nodes they are, of each type.
    pub nodes: &'a [Nodes<'a>],
}

/// Nodes of one type.
#[derive(Debug, Clone, Copy)]
pub enum Nodes<'a> {
    /// All of them, so many.
    All(usize),
    /// Some of them, none twice.
    Listed(&'a [u64]),
}

impl Nodes<'_> {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::All(count) => *count,
            Self::Listed(ids) => ids.len(),
        }
    }
}

/// The stage that makes what the first layer reads.
#[derive(Debug)]
pub(super) enum InputStage {
    /// What is given is read as it is.
    AsItIs,
    /// Every type by itself.
    Apart(Vec<TypeInput>),
}

/// How the rows of one type are made.
#[derive(Debug)]
pub(super) struct TypeInput {
    name: String,
    /// Elements of a row before it is projected.
    width: usize,
    /// Where the learnt rows are among the parameters, if they are learnt.
    table: Option<usize>,
    projection: Option<Layer>,
}

/// What the first layer reads.
#[derive(Debug)]
pub enum Read<'a> {
    /// Nothing.
    Nothing,
    /// What was given.
    Lent(Given<'a>),
    /// What was made of it.
    Made(Vec<f32>),
}

impl Read<'_> {
    /// It, lent.
    #[must_use]
    pub fn given(&self) -> Option<Given<'_>> {
        match self {
            Self::Nothing => None,
            Self::Lent(given) => Some(*given),
            Self::Made(rows) => Some(Given::Dense(rows)),
        }
    }
}

/// What the backward pass of a type needs: the learnt rows that were read, and what the projection left.
#[derive(Debug, Default)]
pub(super) struct Kept {
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

impl InputStage {
    /// The stage of a plan; what it learns is added to the parameters.
    pub fn new(
        config: &RunConfig,
        plan: &InputPlan,
        node_types: &[NodeInput],
        parameters: &mut Parameters,
    ) -> Result<Self> {
        let InputPlan::Apart { width, types } = plan else { return Ok(Self::AsItIs) };
        let made =
            types.iter().zip(node_types).map(|(plan, own)| TypeInput::new(config, *plan, own, *width, parameters));
        Ok(Self::Apart(made.collect::<Result<_>>()?))
    }

    /// What the first layer reads, and what the backward pass will need.
    pub fn forward<'a>(
        &self,
        inputs: Inputs<'a>,
        parameters: &Parameters,
        workspace: &mut Workspace,
    ) -> Result<(Read<'a>, Vec<Kept>)> {
        let Self::Apart(types) = self else {
            let given = inputs.features.first().copied().flatten();
            return Ok((given.map_or(Read::Nothing, Read::Lent), Vec::new()));
        };
        let mut kept = Vec::new();
        let mut parts = Vec::new();
        for (at, own) in types.iter().enumerate() {
            let (out, own) = own.forward(at, inputs, parameters, workspace)?;
            parts.push(out);
            kept.push(own);
        }
        Ok((Read::Made(joined(parts, workspace)), kept))
    }

    /// From the gradient of what the first layer read to those of what the stage learns.
    pub fn backward(
        &self,
        inputs: Inputs<'_>,
        kept: Vec<Kept>,
        gradient: &[f32],
        parameters: &Parameters,
        gradients: &mut [Gradient],
        workspace: &mut Workspace,
    ) -> Result<()> {
        let Self::Apart(types) = self else { return Ok(()) };
        let rows: usize = inputs.nodes.iter().map(Nodes::count).sum();
        let width = gradient.len().checked_div(rows).unwrap_or(0);
        let mut rest = gradient;
        for (at, (own, kept)) in types.iter().zip(kept).enumerate() {
            let (slope, behind) = rest.split_at(inputs.nodes[at].count() * width);
            rest = behind;
            let back = Back { inputs, parameters, slope };
            own.backward(at, back, kept, gradients, workspace)?;
        }
        Ok(())
    }
}

/// What the backward pass of one type is told.
#[derive(Clone, Copy)]
struct Back<'a> {
    inputs: Inputs<'a>,
    parameters: &'a Parameters,
    /// The gradient of the rows it made.
    slope: &'a [f32],
}

impl TypeInput {
    fn new(
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

    /// The rows of its nodes.
    fn forward(
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

    fn backward(
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

/// Projections read rows and parameters alone.
static NO_EXTRAS: Extras = Extras::new();

/// A learnt row for each of so many nodes, begun as torch's `Embedding`.
fn add_table(
    config: &RunConfig,
    prefix: &str,
    nodes: usize,
    width: usize,
    parameters: &mut Parameters,
) -> Result<usize> {
    let (name, shape) = (format!("{prefix}.embedding"), vec![nodes, width]);
    let values = Init::Normal { deviation: 1.0 }.values(config.seed, &name, &shape);
    parameters.push(Parameter { name, shape, values, group: RunConfig::group_of_layer(0) })
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
    let making = Making { graph: &graph, statistics: &statistics, model: "input", prefix, group };
    Layer::compiled(config, &program, making, parameters)
}

/// Nodes of one type, and nothing else.
fn without_edges(nodes: usize) -> Result<Adjacency> {
    Ok(Adjacency::new(&[nodes], &[nodes], &[])?)
}

/// Arrays one behind the other. What is there alone is not moved.
fn joined(mut parts: Vec<Vec<f32>>, workspace: &mut Workspace) -> Vec<f32> {
    if parts.len() == 1 {
        return parts.pop().unwrap_or_default();
    }
    let mut all = workspace.take(parts.iter().map(Vec::len).sum());
    let mut rest = all.as_mut_slice();
    for part in parts {
        let (own, behind) = rest.split_at_mut(part.len());
        own.copy_from_slice(&part);
        rest = behind;
        workspace.give(part);
    }
    all
}
