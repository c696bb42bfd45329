//! The layers of a network as they run on a GPU, and the memory that a step of them takes.

use std::collections::BTreeMap;

use headwater_compile::Optimisations;
use headwater_compile::adjacency::Adjacency;
use headwater_compile::cuda::{DeviceGraph, Executor, Precision, Table, Tuning, tuned};
use headwater_compile::intra::{Buffer, Program, Role};
use headwater_cuda::{Allocation, Span, Stream};

use super::full::{LayerShape, MadeShape};
use crate::device::zeros;
use crate::error::Result;
use crate::network::{DeviceRunning, Network};

/// What a forward program that normalises by the moments of its batch makes of them, for the running ones.
pub(crate) const MOMENTS: [&str; 2] = ["batch_mean", "batch_variance"];

/// One layer.
#[derive(Debug)]
pub(crate) struct DeviceLayer {
    pub forward: Executor,
    pub backward: Executor,
    /// Names in the layer's text, and places among the network's.
    parameters: Vec<(String, usize)>,
    /// Moments of batches, where the layer normalises by them.
    pub running: Option<DeviceRunning>,
}

impl DeviceLayer {
    /// All layers of a network. Where all run on one graph, their schedules may be chosen for it.
    pub fn of(
        stream: &Stream,
        network: &Network,
        precision: Precision,
        tuning: Option<(Tuning, &Adjacency)>,
    ) -> Result<Vec<Self>> {
        let mut layers = Vec::new();
        for (programs, moments) in network.programs(Optimisations::GPU)?.into_iter().zip(network.moments()) {
            let running = moments.map(|(mean, variance)| DeviceRunning::new(stream, mean, variance)).transpose()?;
            let at = layers.len();
            let executor = |program: &Program, pass| -> Result<Executor> {
                let made = match tuning {
                    Some((tuning, graph)) => {
                        let program = tuned(program.clone(), tuning, stream.gpu(), graph, precision)?;
                        Executor::with_precision(&program, precision)
                    }
                    None => Executor::with_precision(program, precision),
                };
                Ok(made.labelled(format!("layer {at} {pass}")))
            };
            layers.push(Self {
                forward: executor(&programs.compiled.forward, "forward")?,
                backward: executor(&programs.compiled.backward, "backward")?,
                parameters: programs.parameters,
                running,
            });
        }
        Ok(layers)
    }

    /// The running moments of its batches.
    pub fn moments(&self, stream: &Stream) -> Result<Option<[Vec<f32>; 2]>> {
        let read = |span: &Span| -> Result<Vec<f32>> {
            let mut values = vec![0.0; span.bytes() / 4];
            stream.download(span, bytemuck::cast_slice_mut(&mut values))?;
            Ok(values)
        };
        let both = |running: &DeviceRunning| Ok([read(running.mean())?, read(running.variance())?]);
        self.running.as_ref().map(both).transpose()
    }

    /// What training asks the graph.
    pub fn tables(&self) -> [&Table; 2] {
        [&self.forward.emitted().table, &self.backward.emitted().table]
    }

    /// The place of a parameter among the network's.
    pub fn parameter(&self, name: &str) -> Option<usize> {
        self.parameters.iter().find(|(own, _)| own == name).map(|(_, place)| *place)
    }
}

/// The memory and the time that a layer takes on a graph.
pub(crate) fn shape_of(layer: &DeviceLayer, graph: &DeviceGraph, (forward_s, backward_s): (f64, f64)) -> LayerShape {
    let given = |executor: &Executor, name: &str| {
        let is_given = |buffer: &&Buffer| matches!(buffer.role, Role::Input | Role::Parameter);
        executor.emitted().buffers.iter().filter(is_given).any(|buffer| buffer.name == name)
    };
    let made = |buffer: &Buffer| MadeShape {
        name: buffer.name.clone(),
        bytes: bytes_of(buffer, graph),
        is_read_back: given(&layer.backward, &buffer.name),
        is_read_last: layer.running.is_some() && MOMENTS.contains(&buffer.name.as_str()),
    };
    LayerShape {
        made: outputs(&layer.forward).map(made).collect(),
        slope_bytes: slope_bytes(layer, graph),
        reads_input: given(&layer.forward, "x"),
        reads_input_back: given(&layer.backward, "x"),
        forward_temporary_bytes: layer.forward.temporary_bytes(graph),
        backward_temporary_bytes: layer.backward.temporary_bytes(graph),
        forward_s,
        backward_s,
    }
}

/// Memory between the kernels of a step. Steps run one after the other, so batches share it.
#[derive(Debug)]
pub(crate) struct Activations {
    /// What the forward program of each layer makes, by name.
    made: Vec<BTreeMap<String, Span>>,
    /// The gradient of what each layer makes.
    slopes: Vec<Span>,
    temporaries: Span,
}

impl Activations {
    /// For graphs of a room, one a layer.
    pub fn new(stream: &Stream, layers: &[DeviceLayer], graphs: &[&DeviceGraph]) -> Result<Self> {
        let room = |bytes: usize| -> Result<Span> { Ok(Span::whole(Allocation::on_stream(stream, bytes.max(16))?)) };
        let (mut made, mut slopes) = (Vec::new(), Vec::new());
        for (layer, graph) in layers.iter().zip(graphs) {
            let mut own = BTreeMap::new();
            for buffer in outputs(&layer.forward) {
                own.insert(buffer.name.clone(), room(bytes_of(buffer, graph))?);
            }
            made.push(own);
            slopes.push(room(slope_bytes(layer, graph))?);
        }
        Ok(Self { made, slopes, temporaries: room(temporary_bytes(layers, graphs))? })
    }

    /// What the passes of one layer alone read and write, all zeros.
    pub fn of_layer(stream: &Stream, layers: &[DeviceLayer], graphs: &[&DeviceGraph], at: usize) -> Result<Self> {
        let (mut made, mut slopes) = (vec![BTreeMap::new(); layers.len()], Vec::new());
        for (layer, (own, graph)) in layers.iter().zip(graphs).enumerate() {
            let is_near = layer == at || layer + 1 == at;
            for buffer in outputs(&own.forward).filter(|buffer| layer == at || is_near && buffer.name == "out") {
                made[layer].insert(buffer.name.clone(), zeros(stream, bytes_of(buffer, graph))?);
            }
            slopes.push(zeros(stream, if is_near { slope_bytes(own, graph) } else { 0 })?);
        }
        let temporaries = zeros(stream, temporary_bytes(&layers[at..=at], &graphs[at..=at]).max(16))?;
        Ok(Self { made, slopes, temporaries })
    }

    /// Bytes that they take.
    pub fn bytes(layers: &[DeviceLayer], graphs: &[&DeviceGraph]) -> usize {
        let own = |(layer, graph): (&DeviceLayer, &&DeviceGraph)| {
            let made: usize = outputs(&layer.forward).map(|buffer| bytes_of(buffer, graph)).sum();
            made + slope_bytes(layer, graph)
        };
        layers.iter().zip(graphs).map(own).sum::<usize>() + temporary_bytes(layers, graphs)
    }

    /// What a layer makes, by name.
    pub fn made(&self, layer: usize, name: &str) -> Option<&Span> {
        self.made.get(layer)?.get(name)
    }

    /// The gradient of what a layer makes.
    pub fn slope(&self, layer: usize) -> Option<&Span> {
        self.slopes.get(layer)
    }

    pub fn temporaries(&self) -> &Span {
        &self.temporaries
    }
}

fn outputs(executor: &Executor) -> impl Iterator<Item = &Buffer> {
    executor.emitted().buffers.iter().filter(|buffer| buffer.role == Role::Output)
}

fn bytes_of(buffer: &Buffer, graph: &DeviceGraph) -> usize {
    4 * graph.room(buffer.domain) * buffer.shape.len()
}

fn slope_bytes(layer: &DeviceLayer, graph: &DeviceGraph) -> usize {
    outputs(&layer.forward).find(|buffer| buffer.name == "out").map_or(0, |buffer| bytes_of(buffer, graph))
}

/// Programs run one after the other, so the largest need is everybody's.
fn temporary_bytes(layers: &[DeviceLayer], graphs: &[&DeviceGraph]) -> usize {
    let both = |(layer, graph): (&DeviceLayer, &&DeviceGraph)| {
        [&layer.forward, &layer.backward].map(|program| program.temporary_bytes(graph)).into_iter().max().unwrap_or(0)
    };
    layers.iter().zip(graphs).map(both).max().unwrap_or(0)
}
