//! One layer: its text read, what stands around it added, compiled, its parameters begun.

use std::collections::BTreeMap;

use headwater_compile::cpu::fast::{Executor, Given};
use headwater_compile::front::{self, Arguments, OptionValue};
use headwater_compile::inter::{Domain, Op, Program, Shape, Unary};
use headwater_compile::pass::decorate::{Around, Norm, decorate};
use headwater_compile::pass::{Workload, compile};

use super::{Extras, Facts, initial, optimisations};
use crate::error::{Error, Result};
use crate::parameter::{Parameter, Parameters};
use crate::run_config::{Activation, RunConfig};

/// A layer and where its parameters are.
#[derive(Debug)]
pub(super) struct Layer {
    pub forward: Executor,
    pub backward: Executor,
    pub inference: Executor,
    /// Names in the layer's text, and places among the network's.
    pub parameters: Vec<(String, usize)>,
    /// Inputs besides `x`.
    pub extras: Vec<String>,
    /// Elements of an output row.
    pub width: usize,
    pub self_loops: bool,
}

impl Layer {
    /// Layer `at` of a run, which reads rows of `width` elements.
    pub fn new(
        config: &RunConfig,
        facts: &Facts<'_>,
        at: usize,
        width: Option<usize>,
        parameters: &mut Parameters,
    ) -> Result<Self> {
        let is_last = at + 1 == config.layers;
        // Inference would need the moments of past batches, which are not kept.
        if config.norm == crate::run_config::Norm::Batch {
            return Err(Error::Model { why: "batch norm cannot be trained with yet; use layer norm".to_owned() });
        }
        let layer = front::read(facts.name, facts.text, &arguments(config, facts, is_last, width)?)?;
        if width.is_none() && inputs(&layer.program).any(|name| name == "x") {
            let why = "nodes have no features, and the model's first layer reads them; rgcn can do without".to_owned();
            return Err(Error::Model { why });
        }
        let program = decorate(&layer.program, around(config, at, is_last))?;
        let training = facts.blocks.get(at).copied().unwrap_or(facts.statistics);
        let compiled = compile(&program, Workload { training, inference: facts.statistics }, optimisations())?;
        let out = program.output("out").map_or(0, |out| program[out].shape.len());
        let own = add_parameters(config, facts, at, &program, parameters)?;
        Ok(Self {
            forward: Executor::new(compiled.forward),
            backward: Executor::new(compiled.backward),
            inference: Executor::new(compiled.inference),
            parameters: own,
            extras: inputs(&program).filter(|name| *name != "x").map(str::to_owned).collect(),
            width: out,
            self_loops: layer.self_loops,
        })
    }

    /// A parameter or an extra input.
    pub fn lend<'a>(&self, name: &str, parameters: &'a Parameters, extras: &'a Extras) -> Option<Given<'a>> {
        let own = self.parameters.iter().find(|(own, _)| own == name);
        if let Some((_, position)) = own {
            return parameters.iter().nth(*position).map(|parameter| Given::Dense(&parameter.values));
        }
        extras.get(name).map(|values| Given::Dense(values))
    }
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

fn around(config: &RunConfig, at: usize, is_last: bool) -> Around {
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
        wants_input_gradient: at > 0,
    }
}

fn add_parameters(
    config: &RunConfig,
    facts: &Facts<'_>,
    at: usize,
    program: &Program,
    parameters: &mut Parameters,
) -> Result<Vec<(String, usize)>> {
    let mut own = Vec::new();
    for value in &program.values {
        let Op::Parameter { name } = &value.op else { continue };
        if matches!(value.domain, Domain::Node(_) | Domain::Pair(_)) && !config.full_graph {
            let why = format!("{name:?} has a row a node, which needs --full-graph");
            return Err(Error::Model { why });
        }
        let shape = shape(facts.graph.rows(value.domain), value.domain, value.shape);
        let full = format!("layers.{at}.{name}");
        let values = initial::initial(facts.name, name, program).values(config.seed, &full, &shape);
        let group = RunConfig::group_of_layer(at);
        own.push((name.clone(), parameters.push(Parameter { name: full, shape, values, group })?));
    }
    Ok(own)
}

/// Extents of a parameter: rows where there may be several, heads where there are, then what a head has.
fn shape(rows: usize, domain: Domain, shape: Shape) -> Vec<usize> {
    let rows = Some(rows).filter(|_| domain != Domain::Const);
    let heads = Some(shape.heads()).filter(|heads| *heads > 1);
    let inner = match shape {
        Shape::Row { width, .. } => vec![width],
        Shape::Matrix { rows, cols, .. } => vec![rows, cols],
    };
    rows.into_iter().chain(heads).chain(inner).collect()
}
