//! A stack of compiled layers with their parameters.
//!
//! Each layer has three programs: forward and backward for training, and inference. They read the layer's input, its
//! parameters, what the graph gives ([`Extras`]) and what the forward pass saved. What a layer writes, the next one reads; what
//! the first one reads is made by `input/`.

mod initial;
pub mod input;
mod layer;
mod running;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use headwater_compile::Optimisations;
use headwater_compile::adjacency::{Adjacency, SelfLoops};
use headwater_compile::cpu::fast::{Array, Given, Run, Timing, Workspace};
use headwater_compile::front;
use headwater_compile::inter::Domain;
use headwater_compile::pass::Statistics;
use headwater_graph::random::Key;

pub use self::initial::{Beginning, first_values};
pub use self::input::{InputPlan, Inputs, Nodes, Read};
use self::input::{InputStage, Kept, Wanted};
use self::layer::{Layer, LayerPrograms, Outputs, Place, With, give_all};
use self::running::Running;
pub(crate) use self::running::device::kernel_builds as running_builds;
pub use self::running::device::{BatchMoments, DeviceRunning};
use crate::array;
use crate::error::{Error, Result};
use crate::gradient::Gradient;
use crate::parameter::Parameters;
use crate::run_config::RunConfig;

/// What a network is made for.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// What there is of each node type.
    pub node_types: &'a [NodeInput],
    /// Outputs of a node.
    pub classes: usize,
    /// The whole graph: how many rows parameters of nodes, pairs and types have.
    pub graph: &'a Adjacency,
    /// Rows of the whole graph.
    pub statistics: Statistics,
    /// Rows of the block that each layer is trained on; empty where that is the whole graph.
    pub blocks: Vec<Statistics>,
    /// The text of a layer.
    pub text: &'a str,
    /// What its errors call it.
    pub name: &'a str,
}

/// A node type as far as a network depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInput {
    /// Its name.
    pub name: String,
    /// How many nodes it has.
    pub nodes: usize,
    /// Elements of a node's features; `None` where it has none.
    pub width: Option<usize>,
}

/// Inputs of layers besides `x`, by name: scales out of degrees, norms of edges.
pub type Extras = BTreeMap<String, Vec<f32>>;

/// Layers and what they learn.
#[derive(Debug)]
pub struct Network {
    plan: InputPlan,
    input: InputStage,
    layers: Vec<Layer>,
    /// Moments of batches, of the layers that normalise by them.
    running: Vec<Option<Running>>,
    /// What is learnt.
    pub parameters: Parameters,
    pub(crate) workspace: Workspace,
}

/// What one layer runs on.
#[derive(Debug, Clone, Copy)]
pub struct Stage<'a> {
    /// The block.
    pub graph: &'a Adjacency,
    /// Other inputs.
    pub extras: &'a Extras,
}

/// What a forward pass leaves for the backward pass: what the first layer read, the outputs of every layer, and what was saved.
#[derive(Debug)]
pub struct Trace<'a> {
    read: Read<'a>,
    kept: Vec<Kept>,
    layers: Vec<Outputs>,
    step: Key,
}

impl Trace<'_> {
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
        let plan = input_plan(config, facts)?;
        let input = InputStage::new(config, &plan, facts.node_types, &mut parameters)?;
        let mut layers = Vec::new();
        let mut width = plan.width();
        for at in 0..config.layers {
            let place = Place { at, width, wants_input_gradient: at > 0 || plan.learns() };
            let layer = Layer::new(config, facts, place, &mut parameters)?;
            width = Some(layer.width);
            layers.push(layer);
        }
        if width != Some(facts.classes) {
            let (found, wanted) = (width.unwrap_or(0), facts.classes);
            return Err(Error::Model { why: format!("the last layer has {found} outputs; the task has {wanted}") });
        }
        if layers.iter().any(|layer| layer.self_loops != layers[0].self_loops) {
            let why = "@layer says something else of edges to oneself for some layers; all run on one graph".to_owned();
            return Err(Error::Model { why });
        }
        let moments = |(at, layer): (usize, &Layer)| layer.has_moments.then(|| Running::new(at, layer.width));
        let running = layers.iter().enumerate().map(moments).collect();
        Ok(Self { plan, input, layers, running, parameters, workspace: Workspace::default() })
    }

    /// What the first layer reads.
    #[must_use]
    pub fn input_plan(&self) -> &InputPlan {
        &self.plan
    }

    /// How many there are.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.layers.len()
    }

    /// What becomes of edges from nodes to themselves, by the text of a run's layers. It is asked before there is a graph for
    /// them.
    pub fn self_loops(config: &RunConfig, facts: &Facts<'_>) -> Result<SelfLoops> {
        let place = Place { at: 0, width: input_plan(config, facts)?.width(), wants_input_gradient: false };
        Ok(Layer::read(config, facts, place)?.self_loops)
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

    /// All layers compiled with other optimisations but for those that the run leaves out, for whoever runs them elsewhere.
    pub(crate) fn programs(&self, on: Optimisations) -> Result<Vec<LayerPrograms>> {
        self.layers.iter().map(|layer| layer.programs(on)).collect()
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

    /// Notes from now on when kernels run.
    pub fn time_kernels(&mut self) {
        self.workspace.time_kernels();
    }

    /// When kernels ran since this was last asked for.
    pub fn timings(&mut self) -> Vec<Timing> {
        self.workspace.timings()
    }

    /// From features to outputs, in training. Layer `i` runs on stage `i`; dropouts draw from `step`, and running moments see
    /// the batch.
    pub fn forward<'a>(&mut self, stages: &[Stage<'_>], inputs: Inputs<'a>, step: Key) -> Result<Trace<'a>> {
        let (read, kept) = self.input.forward(inputs, &self.parameters, &mut self.workspace)?;
        let mut trace = Trace { read, kept, layers: Vec::new(), step };
        for (at, (layer, stage)) in self.layers.iter().zip(stages).enumerate() {
            let x = below(&trace.read, &trace.layers);
            let outputs = layer.forward(stage.with(x, step.of(at as u64), &self.parameters), &mut self.workspace)?;
            if let Some(running) = &mut self.running[at] {
                let rows = stage.graph.rows(Domain::DST);
                running.see(dense(&outputs, "batch_mean"), dense(&outputs, "batch_variance"), rows)?;
            }
            trace.layers.push(outputs);
        }
        Ok(trace)
    }

    /// From the gradient of the outputs to those of all parameters, in their order.
    pub fn backward(
        &mut self,
        stages: &[Stage<'_>],
        inputs: Inputs<'_>,
        trace: Trace<'_>,
        gradient: Vec<f32>,
    ) -> Result<Vec<Gradient>> {
        let Trace { read, kept, mut layers, step } = trace;
        let mut gradients: Vec<Gradient> = self.parameters.iter().map(|_| Gradient::Dense(Vec::new())).collect();
        let mut gradient = gradient;
        for (at, (layer, stage)) in self.layers.iter().zip(stages).enumerate().rev() {
            let own = layers.pop().unwrap_or_default();
            let with = stage.with(below(&read, &layers), step.of(at as u64), &self.parameters);
            let next = layer.backward(with, &own, &gradient, &mut gradients, &mut self.workspace)?;
            self.workspace.give(std::mem::replace(&mut gradient, next));
            give_all(own, &mut self.workspace);
        }
        self.input.backward(inputs, kept, &gradient, &self.parameters, &mut gradients, &mut self.workspace)?;
        self.workspace.give(gradient);
        if let Read::Made(rows) = read {
            self.workspace.give(rows);
        }
        Ok(gradients)
    }

    /// Gives the memory of gradients back.
    pub fn recycle(&mut self, gradients: Vec<Gradient>) {
        gradients.into_iter().for_each(|gradient| self.workspace.give(gradient.into_values()));
    }

    /// What the first layer reads of these nodes.
    pub fn read<'a>(&mut self, inputs: Inputs<'a>) -> Result<Read<'a>> {
        let (read, kept) = self.input.forward(inputs, &self.parameters, &mut self.workspace)?;
        kept.into_iter().for_each(|kept| kept.give(&mut self.workspace));
        Ok(read)
    }

    /// Outputs of layer `at` without dropout.
    pub fn infer(&mut self, at: usize, stage: Stage<'_>, x: Option<Given<'_>>) -> Result<Vec<f32>> {
        let with = With { running: self.running[at].as_ref(), ..stage.with(x, Key::new(0), &self.parameters) };
        self.layers[at].infer(with, &mut self.workspace)
    }

    /// Mean and variance of the batches that each layer has seen, where it normalises by them.
    pub(crate) fn moments(&self) -> impl Iterator<Item = Option<(&[f32], &[f32])>> {
        self.running.iter().map(|running| {
            let running = running.as_ref()?;
            Some((running.mean.values.as_slice(), running.variance.values.as_slice()))
        })
    }

    /// Takes over moments that were seen elsewhere.
    pub(crate) fn set_moments(&mut self, layer: usize, [mean, variance]: [Vec<f32>; 2]) {
        if let Some(Some(running)) = self.running.get_mut(layer) {
            (running.mean.values, running.variance.values) = (mean, variance);
        }
    }

    /// What is neither learnt nor forgotten: the running moments of batches, by names of their own.
    #[must_use]
    pub fn buffers(&self) -> Vec<array::Array> {
        let both = |running: &Running| [running.mean.clone(), running.variance.clone()];
        self.running.iter().flatten().flat_map(both).collect()
    }

    /// Takes over buffers that were saved.
    pub fn restore_buffers(&mut self, saved: Vec<array::Array>) -> Result<()> {
        let mut saved = saved;
        self.running.iter_mut().flatten().try_for_each(|running| running.restore(&mut saved))?;
        match saved.first() {
            None => Ok(()),
            Some(array) => Err(Error::OtherModel { difference: format!("it has a buffer {:?}", array.name) }),
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

impl<'a> Stage<'a> {
    fn with<'b>(self, x: Option<Given<'b>>, step: Key, parameters: &'b Parameters) -> With<'b>
    where
        'a: 'b,
    {
        With { run: Run { graph: self.graph, step }, x, extras: self.extras, parameters, running: None }
    }
}

/// What the layer above these reads.
fn below<'a>(read: &'a Read<'_>, layers: &'a [Outputs]) -> Option<Given<'a>> {
    match layers.last() {
        Some(outputs) => Some(Given::Dense(dense(outputs, "out"))),
        None => read.given(),
    }
}

/// What the first layer reads. One that can learn rows of its own does so where nothing has features; it needs all nodes.
fn input_plan(config: &RunConfig, facts: &Facts<'_>) -> Result<InputPlan> {
    let signature = front::signature(facts.name, facts.text)?;
    let has_option = signature.options.iter().any(|option| option.name == "features");
    let widths: Vec<Option<usize>> = facts.node_types.iter().map(|node_type| node_type.width).collect();
    let (width, embedding) = config.input_widths();
    Ok(InputPlan::new(&widths, Wanted { width, embedding, does_without: has_option && config.full_graph }))
}

fn dense<'a>(arrays: &'a Outputs, name: &str) -> &'a [f32] {
    match arrays.get(name) {
        Some(Array::Dense(values)) => values,
        _ => &[],
    }
}
