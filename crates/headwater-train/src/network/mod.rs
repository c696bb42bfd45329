//! A stack of compiled layers with their parameters.
//!
//! Each layer has three programs: forward and backward for training, and inference. They read the layer's input, its
//! parameters, what the graph gives ([`Extras`]) and what the forward pass saved. What a layer writes, the next one reads.

mod initial;
mod layer;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use headwater_compile::Optimisations;
use headwater_compile::adjacency::Adjacency;
use headwater_compile::cpu::fast::{Array, Given, Run, Workspace};
use headwater_compile::pass::Statistics;
use headwater_graph::random::Key;

use self::layer::Layer;
use crate::error::{Error, Result};
use crate::parameter::Parameters;
use crate::run_config::RunConfig;

/// What a network is made for.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// Elements of a node's features; `None` where nodes have none.
    pub in_width: Option<usize>,
    /// Outputs of a node.
    pub classes: usize,
    /// The whole graph: how many rows parameters of nodes, pairs and types have.
    pub graph: &'a Adjacency,
    /// What layers usually run on.
    pub statistics: Statistics,
    /// The text of a layer.
    pub text: &'a str,
    /// What its errors call it.
    pub name: &'a str,
}

/// Inputs of layers besides `x`, by name: scales out of degrees, norms of edges.
pub type Extras = BTreeMap<String, Vec<f32>>;

/// Layers and what they learn.
#[derive(Debug)]
pub struct Network {
    layers: Vec<Layer>,
    /// What is learnt.
    pub parameters: Parameters,
    workspace: Workspace,
}

/// What one layer runs on.
#[derive(Debug, Clone, Copy)]
pub struct Stage<'a> {
    /// The block.
    pub graph: &'a Adjacency,
    /// Other inputs.
    pub extras: &'a Extras,
}

/// What a forward pass leaves for the backward pass: the outputs of every layer, and what it saved.
#[derive(Debug)]
pub struct Trace {
    layers: Vec<BTreeMap<String, Array>>,
    step: Key,
}

impl Trace {
    /// The outputs of the last layer.
    #[must_use]
    pub fn outputs(&self) -> &[f32] {
        self.layers.last().map_or(&[], |layer| dense(layer, "out"))
    }
}

impl Network {
    /// The layers of a run.
    pub fn new(config: &RunConfig, facts: &Facts<'_>) -> Result<Self> {
        let mut parameters = Parameters::new();
        let mut layers = Vec::new();
        let mut width = facts.in_width;
        for at in 0..config.layers {
            let layer = Layer::new(config, facts, at, width, &mut parameters)?;
            width = Some(layer.width);
            layers.push(layer);
        }
        if width != Some(facts.classes) {
            let (found, wanted) = (width.unwrap_or(0), facts.classes);
            return Err(Error::Model { why: format!("the last layer has {found} outputs; the task has {wanted}") });
        }
        Ok(Self { layers, parameters, workspace: Workspace::default() })
    }

    /// How many there are.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.layers.len()
    }

    /// Whether every node needs an edge to itself.
    #[must_use]
    pub fn wants_self_loops(&self) -> bool {
        self.layers.iter().any(|layer| layer.self_loops)
    }

    /// Names of the inputs that layers have besides `x`.
    #[must_use]
    pub fn extra_inputs(&self) -> Vec<&str> {
        self.layers.first().map_or_else(Vec::new, |layer| layer.extras.iter().map(String::as_str).collect())
    }

    /// Whether layers read the scales of a graph convolution.
    #[must_use]
    pub fn needs_scales(&self) -> bool {
        self.extra_inputs().iter().any(|name| name.ends_with("_scale"))
    }

    /// Elements of a row that layer `at` gives.
    #[must_use]
    pub fn width_of(&self, at: usize) -> usize {
        self.layers.get(at).map_or(0, |layer| layer.width)
    }

    /// Bytes that were in use together, besides parameters.
    #[must_use]
    pub fn peak_bytes(&self) -> usize {
        self.workspace.peak_bytes()
    }

    /// From features to outputs. Layer `i` runs on stage `i`; dropouts draw from `step`.
    pub fn forward(&mut self, stages: &[Stage<'_>], x: Option<Given<'_>>, step: Key) -> Result<Trace> {
        let mut trace = Trace { layers: Vec::new(), step };
        for (at, (layer, stage)) in self.layers.iter().zip(stages).enumerate() {
            let before = trace.layers.last();
            let lend = |name: &str| match name {
                "x" => before.map_or(x, |before| Some(Given::Dense(dense(before, "out")))),
                name => layer.lend(name, &self.parameters, stage.extras),
            };
            let run = Run { graph: stage.graph, step: step.of(at as u64) };
            let outputs = layer.forward.run(run, &lend, &mut self.workspace)?;
            trace.layers.push(outputs);
        }
        Ok(trace)
    }

    /// From the gradient of the outputs to those of all parameters, in their order.
    pub fn backward(
        &mut self,
        stages: &[Stage<'_>],
        x: Option<Given<'_>>,
        trace: Trace,
        gradient: Vec<f32>,
    ) -> Result<Vec<Vec<f32>>> {
        let mut gradients: Vec<Vec<f32>> = self.parameters.iter().map(|_| Vec::new()).collect();
        let (mut layers, step) = (trace.layers, trace.step);
        let mut gradient = gradient;
        for (at, (layer, stage)) in self.layers.iter().zip(stages).enumerate().rev() {
            let own = layers.pop().unwrap_or_default();
            let before = layers.last();
            let lend = |name: &str| match name {
                "d.out" => Some(Given::Dense(&gradient)),
                "x" => before.map_or(x, |before| Some(Given::Dense(dense(before, "out")))),
                name => match own.get(name) {
                    Some(Array::Dense(values)) => Some(Given::Dense(values)),
                    Some(Array::Sparse(rows)) => Some(Given::Sparse(rows)),
                    None => layer.lend(name, &self.parameters, stage.extras),
                },
            };
            let run = Run { graph: stage.graph, step: step.of(at as u64) };
            let mut found = layer.backward.run(run, &lend, &mut self.workspace)?;
            for (name, position) in &layer.parameters {
                if let Some(Array::Dense(values)) = found.remove(&format!("d.{name}")) {
                    gradients[*position] = values;
                }
            }
            let next = match found.remove("d.x") {
                Some(Array::Dense(values)) => values,
                _ => Vec::new(),
            };
            self.workspace.give(std::mem::replace(&mut gradient, next));
            for array in own.into_values().chain(found.into_values()) {
                if let Array::Dense(values) = array {
                    self.workspace.give(values);
                }
            }
        }
        self.workspace.give(gradient);
        Ok(gradients)
    }

    /// Gives the memory of gradients back.
    pub fn recycle(&mut self, gradients: Vec<Vec<f32>>) {
        gradients.into_iter().for_each(|values| self.workspace.give(values));
    }

    /// Outputs of layer `at` without dropout.
    pub fn infer(&mut self, at: usize, stage: Stage<'_>, x: Option<Given<'_>>) -> Result<Vec<f32>> {
        let layer = &self.layers[at];
        let lend = |name: &str| match name {
            "x" => x,
            name => layer.lend(name, &self.parameters, stage.extras),
        };
        let run = Run { graph: stage.graph, step: Key::new(0) };
        let mut found = layer.inference.run(run, &lend, &mut self.workspace)?;
        match found.remove("out") {
            Some(Array::Dense(values)) => Ok(values),
            _ => Err(Error::Model { why: "a layer has no output".to_owned() }),
        }
    }

    /// Memory for `len` numbers.
    pub fn take(&mut self, len: usize) -> Vec<f32> {
        self.workspace.take(len)
    }

    /// Gives the memory of outputs back.
    pub fn give(&mut self, values: Vec<f32>) {
        self.workspace.give(values);
    }
}

/// What passes may do for the CPU.
fn optimisations() -> Optimisations {
    Optimisations::CPU
}

fn dense<'a>(arrays: &'a BTreeMap<String, Array>, name: &str) -> &'a [f32] {
    match arrays.get(name) {
        Some(Array::Dense(values)) => values,
        _ => &[],
    }
}
