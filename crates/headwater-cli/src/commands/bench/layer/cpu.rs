//! A stack of layers run by CPU threads.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, ensure};
use headwater::compile::adjacency::Adjacency;
use headwater::compile::cpu::fast::{Array, Executor, Given, Run, Workspace};
use headwater::compile::intra::{Buffer, Role};
use headwater::graph::random::Key;
use headwater::memory::host_bytes_available;

use super::figures::Measured;
use super::numbers::{mean_size, numbers};
use super::stack::Stack;

/// Numbers by the names of buffers.
type Arrays = BTreeMap<String, Vec<f32>>;

/// Runs a stack, once without being timed, and then so many times.
pub fn measure(stack: &Stack, graph: &Adjacency, rounds: usize, seed: u64) -> anyhow::Result<Measured> {
    let (bytes, free) = (stack.most_bytes(graph), host_bytes_available());
    ensure!(bytes < free, "its arrays take up to {bytes} bytes, and {free} bytes of host memory are free");
    let layers = Layers::new(stack, graph, seed)?;
    let mut workspace = Workspace::default();
    let out_mean = layers.run(graph, &mut workspace)?;
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        let begun = Instant::now();
        layers.run(graph, &mut workspace)?;
        seconds.push(begun.elapsed().as_secs_f64());
    }
    let kernels: usize = stack.passes().map(|pass| pass.program.kernels.len()).sum();
    Ok(Measured {
        ms: seconds.into_iter().map(|seconds| 1e3 * seconds).collect(),
        launches: stack.layers * kernels,
        peak_bytes: layers.bytes() + workspace.peak_bytes(),
        graph_bytes: None,
        out_mean,
        kernels: Vec::new(),
    })
}

/// Layers ready to run, with what they are given.
struct Layers {
    forward: Executor,
    backward: Option<Executor>,
    /// The first layer's rows, and what layers read besides.
    inputs: Arrays,
    /// Of each layer.
    weights: Vec<Arrays>,
    /// The gradient of what the last layer writes.
    out_gradient: Vec<f32>,
}

impl Layers {
    fn new(stack: &Stack, graph: &Adjacency, seed: u64) -> anyhow::Result<Self> {
        let buffers = &stack.forward.program.buffers;
        let count = |buffer: &Buffer| graph.rows(buffer.domain) * buffer.shape.len();
        let drawn = |role: Role, layer: usize| -> anyhow::Result<Arrays> {
            let own = buffers.iter().filter(|buffer| buffer.role == role);
            own.map(|buffer| Ok((buffer.name.clone(), numbers(seed, layer, &buffer.name, count(buffer))?))).collect()
        };
        let out = buffers.iter().find(|buffer| buffer.name == "out").context("the layer writes no `out`")?;
        Ok(Self {
            inputs: drawn(Role::Input, 0)?,
            weights: (0..stack.layers).map(|layer| drawn(Role::Parameter, layer)).collect::<anyhow::Result<_>>()?,
            out_gradient: if stack.backward.is_some() { numbers(seed, 0, "d.out", count(out))? } else { Vec::new() },
            forward: Executor::new(stack.forward.program.clone()),
            backward: stack.backward.as_ref().map(|pass| Executor::new(pass.program.clone())),
        })
    }

    /// Bytes of what layers are given.
    fn bytes(&self) -> usize {
        let arrays = self.inputs.values().chain(self.weights.iter().flat_map(BTreeMap::values));
        4 * (arrays.map(Vec::len).sum::<usize>() + self.out_gradient.len())
    }

    /// All layers forward and, in training, backward. Says how large the last layer's numbers are.
    fn run(&self, graph: &Adjacency, workspace: &mut Workspace) -> anyhow::Result<f64> {
        let run = Run { graph, step: Key::new(0) };
        let mut made: Vec<Arrays> = Vec::new();
        for weights in &self.weights {
            let x = made.last().and_then(|before| before.get("out"));
            let find = |name: &str| x.filter(|_| name == "x").or_else(|| weights.get(name)).or(self.inputs.get(name));
            let found = self.forward.run(run, &|name| find(name).map(|values| Given::Dense(values)), workspace)?;
            made.push(values_of(found));
        }
        let out_mean = made.last().and_then(|last| last.get("out")).map_or(0.0, |out| mean_size(out));
        if let Some(backward) = &self.backward {
            self.backward(backward, run, &made, workspace)?.into_values().for_each(|array| workspace.give(array));
        }
        made.into_iter().flat_map(BTreeMap::into_values).for_each(|array| workspace.give(array));
        Ok(out_mean)
    }

    /// All layers backward. The first layer's gradients are what is left.
    fn backward(
        &self,
        backward: &Executor,
        run: Run<'_>,
        made: &[Arrays],
        workspace: &mut Workspace,
    ) -> anyhow::Result<Arrays> {
        let mut gradients = Arrays::new();
        for (layer, weights) in self.weights.iter().enumerate().rev() {
            let x = layer.checked_sub(1).and_then(|before| made[before].get("out"));
            let out = gradients.get("d.x").unwrap_or(&self.out_gradient);
            let find = |name: &str| match name {
                "d.out" => Some(out),
                "x" => x.or_else(|| self.inputs.get(name)),
                _ => made[layer].get(name).or_else(|| weights.get(name)).or_else(|| self.inputs.get(name)),
            };
            let found = backward.run(run, &|name| find(name).map(|values| Given::Dense(values)), workspace)?;
            let before = std::mem::replace(&mut gradients, values_of(found));
            before.into_values().for_each(|array| workspace.give(array));
        }
        Ok(gradients)
    }
}

/// Nothing sparse goes in, so nothing sparse comes out.
fn values_of(found: BTreeMap<String, Array>) -> Arrays {
    found.into_iter().map(|(name, array)| (name, array.into_values())).collect()
}
