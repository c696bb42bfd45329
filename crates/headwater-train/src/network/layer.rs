//! One layer: its text read, what stands around it added, compiled, its parameters begun; and how it is run.

use std::collections::BTreeMap;

use headwater_compile::Optimisations;
use headwater_compile::adjacency::{Adjacency, SelfLoops};
use headwater_compile::cpu::fast::{Array, Executor, Given, Run, Workspace};
use headwater_compile::front::{self, Arguments, OptionValue};
use headwater_compile::inter::{Domain, Op, Program, Unary};
use headwater_compile::pass::decorate::{Around, Norm, decorate};
use headwater_compile::pass::{self, Compiled, Workload};

use super::initial::Beginning;
use super::running::Running;
use super::{Extras, Facts, initial};
use crate::error::{Error, Result};
use crate::gradient::Gradient;
use crate::parameter::{Parameter, Parameters};
use crate::run_config::{Activation, RunConfig};

/// A layer and where its parameters are.
#[derive(Debug)]
pub(super) struct Layer {
    /// What it is compiled from, for whoever runs it elsewhere.
    program: Program,
    /// The same for inference, where that is another.
    inference_program: Option<Program>,
    workload: Workload,
    /// Optimisations that it is compiled without.
    without: Vec<String>,
    forward: Executor,
    backward: Executor,
    inference: Executor,
    /// Names in the layer's text, and places among the network's.
    parameters: Vec<(String, usize)>,
    /// Inputs besides `x`.
    pub extras: Vec<String>,
    /// Elements of an output row.
    pub width: usize,
    pub self_loops: SelfLoops,
    /// Whether a forward pass gives the moments of its batch, and inference reads running ones.
    pub has_moments: bool,
}

/// Where a layer stands in its network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// How many layers are below it.
    pub at: usize,
    /// Elements of a row that it reads; `None` where there are no rows.
    pub width: Option<usize>,
    /// Whether something below it learns.
    pub wants_input_gradient: bool,
}

/// How the parameters of a layer are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Making<'a> {
    /// Parameters of nodes, pairs and types have as many rows as this has.
    pub graph: &'a Adjacency,
    /// What the layer usually runs on.
    pub workload: Workload,
    /// The model by whose rules they begin.
    pub model: &'a str,
    /// The text's options as they are in force.
    pub options: &'a BTreeMap<String, OptionValue>,
    /// What their names begin with.
    pub prefix: &'a str,
    /// Their group.
    pub group: usize,
}

/// What a layer runs with.
#[derive(Debug, Clone, Copy)]
pub(super) struct With<'a> {
    pub run: Run<'a>,
    pub x: Option<Given<'a>>,
    pub extras: &'a Extras,
    pub parameters: &'a Parameters,
    /// Moments of batches, where the layer normalises by them.
    pub running: Option<&'a Running>,
}

/// A layer as whoever runs it elsewhere sees it.
#[derive(Debug)]
pub(crate) struct LayerPrograms {
    pub compiled: Compiled,
    /// Names in the layer's text, and places among the network's.
    pub parameters: Vec<(String, usize)>,
}

/// What a forward pass leaves, by name: the layer's outputs and what it saved.
pub(super) type Outputs = BTreeMap<String, Array>;

impl Layer {
    /// A layer of a run, at its place.
    pub fn new(config: &RunConfig, facts: &Facts<'_>, place: Place, parameters: &mut Parameters) -> Result<Self> {
        let is_last = place.at + 1 == config.layers;
        let layer = Self::read(config, facts, place)?;
        if place.width.is_none() && inputs(&layer.program).any(|name| name == "x") {
            let why =
                "nodes have no features, and the text reads them whatever its option \"features\" says".to_owned();
            return Err(Error::Model { why });
        }
        let around = around(config, place, is_last);
        let program = decorate(&layer.program, around)?;
        let prefix = format!("layers.{}", place.at);
        let training = facts.blocks.get(place.at).copied().unwrap_or(facts.statistics);
        let making = Making {
            graph: facts.graph,
            workload: Workload { training, ..Workload::from(&facts.statistics) },
            model: facts.name,
            options: &layer.options,
            prefix: &prefix,
            group: RunConfig::group_of_layer(place.at),
        };
        let mut made = Self::compiled(config, &program, making, parameters)?;
        made.self_loops = layer.self_loops;
        if around.norm == Norm::Batch {
            let program = decorate(&layer.program, Around { norm: Norm::Running, ..around })?;
            let on = config.optimisations(Optimisations::CPU)?;
            made.inference = Executor::new(pass::inference(&program, &facts.statistics, on)?);
            made.inference_program = Some(program);
            made.has_moments = true;
        }
        Ok(made)
    }

    /// What the text means at a place.
    pub fn read(config: &RunConfig, facts: &Facts<'_>, place: Place) -> Result<front::Layer> {
        let is_last = place.at + 1 == config.layers;
        Ok(front::read(facts.name, facts.text, &arguments(config, facts, is_last, place.width)?)?)
    }

    /// A program as a layer. Its parameters are added to those that are there.
    pub fn compiled(
        config: &RunConfig,
        program: &Program,
        making: Making<'_>,
        parameters: &mut Parameters,
    ) -> Result<Self> {
        let compiled = pass::compile(program, making.workload, config.optimisations(Optimisations::CPU)?)?;
        Ok(Self {
            program: program.clone(),
            inference_program: None,
            workload: making.workload,
            without: config.without.clone().unwrap_or_default(),
            forward: Executor::new(compiled.forward),
            backward: Executor::new(compiled.backward),
            inference: Executor::new(compiled.inference),
            parameters: add_parameters(config, program, making, parameters)?,
            extras: inputs(program).filter(|name| *name != "x").map(str::to_owned).collect(),
            width: program.output("out").map_or(0, |out| program[out].shape.len()),
            self_loops: SelfLoops::AsTheyAre,
            has_moments: false,
        })
    }

    /// Its programs with other optimisations, but for those that the run leaves out.
    pub fn programs(&self, on: Optimisations) -> Result<LayerPrograms> {
        let on = on.without(&self.without)?;
        let mut compiled = pass::compile(&self.program, self.workload, on)?;
        if let Some(program) = &self.inference_program {
            compiled.inference = pass::inference(program, &self.workload.inference, on)?;
        }
        Ok(LayerPrograms { compiled, parameters: self.parameters.clone() })
    }

    /// Outputs, and what the backward pass reads.
    pub fn forward(&self, with: With<'_>, workspace: &mut Workspace) -> Result<Outputs> {
        Ok(self.forward.run(with.run, &|name| self.lend(name, with), workspace)?)
    }

    /// Outputs without dropout.
    pub fn infer(&self, with: With<'_>, workspace: &mut Workspace) -> Result<Vec<f32>> {
        let mut found = self.inference.run(with.run, &|name| self.lend(name, with), workspace)?;
        match found.remove("out") {
            Some(Array::Dense(values)) => Ok(values),
            _ => Err(Error::Model { why: "a layer has no output".to_owned() }),
        }
    }

    /// From the gradient of the outputs to that of `x`, which is empty where it is not wanted. Those of parameters go to
    /// their places in `gradients`.
    pub fn backward(
        &self,
        with: With<'_>,
        saved: &Outputs,
        gradient: &[f32],
        gradients: &mut [Gradient],
        workspace: &mut Workspace,
    ) -> Result<Vec<f32>> {
        let lend = |name: &str| match (name, saved.get(name)) {
            ("d.out", _) => Some(Given::Dense(gradient)),
            (_, Some(Array::Dense(values))) => Some(Given::Dense(values)),
            (_, Some(Array::Sparse(rows))) => Some(Given::Sparse(rows)),
            (name, None) => self.lend(name, with),
        };
        let mut found = self.backward.run(with.run, &lend, workspace)?;
        for (name, position) in &self.parameters {
            if let Some(Array::Dense(values)) = found.remove(&format!("d.{name}")) {
                gradients[*position] = Gradient::Dense(values);
            }
        }
        let below = match found.remove("d.x") {
            Some(Array::Dense(values)) => values,
            _ => Vec::new(),
        };
        give_all(found, workspace);
        Ok(below)
    }

    fn lend<'a>(&self, name: &str, with: With<'a>) -> Option<Given<'a>> {
        match (name, with.running) {
            ("x", _) => return with.x,
            ("running_mean", Some(running)) => return Some(Given::Dense(&running.mean.values)),
            ("running_variance", Some(running)) => return Some(Given::Dense(&running.variance.values)),
            _ => {}
        }
        let own = self.parameters.iter().find(|(own, _)| own == name);
        if let Some((_, position)) = own {
            return with.parameters.at(*position).map(|parameter| Given::Dense(&parameter.values));
        }
        with.extras.get(name).map(|values| Given::Dense(values))
    }
}

/// Gives the memory of arrays back.
pub(super) fn give_all(arrays: Outputs, workspace: &mut Workspace) {
    arrays.into_values().for_each(|array| workspace.give(array.into_values()));
}

fn inputs(program: &Program) -> impl Iterator<Item = &str> {
    program.values.iter().filter_map(|value| match &value.op {
        Op::Input { name, .. } => Some(name.as_str()),
        _ => None,
    })
}

/// Sizes and options of a layer, as far as its text has them.
fn arguments(config: &RunConfig, facts: &Facts<'_>, is_last: bool, width: Option<usize>) -> Result<Arguments> {
    let known = front::signature(facts.name, facts.text)?;
    let has = |name: &str| known.options.iter().any(|option| option.name == name);
    let can_mean = has("concat_heads");
    let heads = match (is_last, can_mean) {
        (true, true) => config.output_heads,
        // Heads that are joined would make the output wider than it should be.
        (true, false) if !fits(config.heads, facts.classes) => 1,
        _ => config.heads,
    };
    let d_out = if is_last { facts.classes } else { config.hidden };
    let sizes = [("d_in", width.unwrap_or(1)), ("d_out", d_out), ("heads", heads), ("d_hidden", config.hidden)];
    let mut options: BTreeMap<String, OptionValue> = BTreeMap::new();
    let mut set = |name: &str, value: OptionValue| {
        if has(name) {
            options.insert(name.to_owned(), value);
        }
    };
    set("attention_dropout", OptionValue::Float(config.attention_dropout));
    set("concat_heads", OptionValue::Bool(!is_last));
    set("features", OptionValue::Bool(width.is_some()));
    let sizes = sizes.into_iter().map(|(name, size)| (name.to_owned(), size)).collect();
    Ok(Arguments { sizes, options })
}

/// Whether outputs can be shared by heads.
fn fits(heads: usize, outputs: usize) -> bool {
    heads > 0 && outputs.is_multiple_of(heads)
}

fn around(config: &RunConfig, place: Place, is_last: bool) -> Around {
    let activation = match config.activation {
        Activation::None => None,
        Activation::Relu => Some(Unary::Relu),
        Activation::LeakyRelu => Some(Unary::LeakyRelu(0.01)),
        Activation::Elu => Some(Unary::Elu(1.0)),
        Activation::Gelu => Some(Unary::Gelu),
        Activation::Tanh => Some(Unary::Tanh),
    };
    let norm = match config.norm {
        crate::run_config::Norm::None => Norm::None,
        crate::run_config::Norm::Layer => Norm::Layer,
        crate::run_config::Norm::Batch => Norm::Batch,
    };
    Around {
        input_dropout: config.dropout,
        norm: if is_last { Norm::None } else { norm },
        activation: activation.filter(|_| !is_last),
        residual: config.residual && !is_last,
        wants_input_gradient: place.wants_input_gradient,
    }
}

fn add_parameters(
    config: &RunConfig,
    program: &Program,
    making: Making<'_>,
    parameters: &mut Parameters,
) -> Result<Vec<(String, usize)>> {
    let mut own = Vec::new();
    for value in &program.values {
        let Op::Parameter { name } = &value.op else { continue };
        if matches!(value.domain, Domain::Node(_) | Domain::Pair(_)) && !config.full_graph {
            let why = format!("{name:?} has a row a node, which needs --full-graph");
            return Err(Error::Model { why });
        }
        let shape = initial::shape(making.graph.rows(value.domain), value.domain, value.shape);
        let full = format!("{}.{name}", making.prefix);
        let values = Beginning { model: making.model, program, options: making.options }.of(name).values(
            config.seed,
            &full,
            &shape,
        );
        let parameter = Parameter { name: full, shape, values, group: making.group };
        own.push((name.clone(), parameters.push(parameter)?));
    }
    Ok(own)
}
