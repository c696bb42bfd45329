//! Both passes of a step over the blocks of a batch: programs put over memory once, and queued for every batch that is
//! brought there.

use std::collections::BTreeMap;

use headwater_compile::cuda::{Bound, DeviceGraph, DeviceRows};
use headwater_compile::inter::Domain;
use headwater_compile::intra::Buffer;
use headwater_cuda::{Span, Stream};

use super::flat::Flat;
use super::layers::{DeviceLayer, MOMENTS};
use super::mover::ActivationMover;
use super::step_memory::{StepMemory, StepOp};
use crate::error::{Error, Result};
use crate::network::BatchMoments;

/// What a batch brings.
pub(crate) struct Brought<'a> {
    /// The block of each layer.
    pub graphs: &'a [&'a DeviceGraph],
    /// The rows that the first layer reads; none where it reads none.
    pub x: Option<DeviceRows>,
    /// Other inputs of each layer, by name.
    pub extras: &'a [BTreeMap<String, Span>],
    /// The key of each layer's dropouts.
    pub keys: Vec<Span>,
}

/// Forward and backward programs of all layers, over memory.
#[derive(Debug)]
pub(crate) struct Passes {
    /// What a step does, in order, with the programs of it.
    ops: Vec<(StepOp, Option<Bound>)>,
    keys: Vec<Span>,
    /// Mean, variance and number of rows of what each layer makes, where it normalises by them: as they lie when a step is over.
    moments: Vec<Option<[Span; 3]>>,
    /// What brings activations out of GPU memory and back, where some leave.
    mover: Option<ActivationMover>,
}

impl Passes {
    /// Puts layers over what a batch brings, what lies between kernels, and what is learnt.
    pub fn new(
        stream: &Stream,
        layers: &[DeviceLayer],
        brought: &Brought<'_>,
        memory: &StepMemory<'_>,
        flat: &Flat,
    ) -> Result<Self> {
        let (mut ops, end) = (Vec::new(), memory.ops(layers.len()).len().saturating_sub(1));
        for (place, op) in memory.ops(layers.len()).into_iter().enumerate() {
            ops.push((op, bind(stream, layers, brought, (memory, place, op), flat)?));
        }
        let mut moments = Vec::new();
        for (at, (layer, graph)) in layers.iter().zip(brought.graphs).enumerate() {
            let own = Own { at, place: end, layer, brought, memory, flat };
            moments.push(layer.running.as_ref().and_then(|_| own.moments(graph)));
        }
        Ok(Self { ops, keys: brought.keys.clone(), moments, mover: memory.mover()? })
    }

    /// Queues the forward pass, up to where the loss is computed.
    pub fn forward(&mut self, stream: &Stream, layers: &[DeviceLayer]) -> Result<()> {
        let loss = self.loss_place();
        self.run(stream, layers, 0..loss)?;
        self.before(stream, loss)
    }

    /// Queues the backward pass, behind the loss.
    pub fn backward(&mut self, stream: &Stream, layers: &[DeviceLayer]) -> Result<()> {
        let loss = self.loss_place();
        self.after(stream, loss)?;
        self.run(stream, layers, loss + 1..self.ops.len())
    }

    /// Queues that running moments take those of the batch in, behind the backward pass: a step that fails before has learnt nothing, and can
    /// be made again.
    pub fn see_moments(&self, stream: &Stream, layers: &[DeviceLayer]) -> Result<()> {
        for (layer, moments) in layers.iter().zip(&self.moments) {
            if let (Some(running), Some([mean, variance, rows])) = (&layer.running, moments) {
                running.see(stream, BatchMoments { mean, variance, rows })?;
            }
        }
        Ok(())
    }

    /// What moves activations.
    pub fn mover(&self) -> Option<&ActivationMover> {
        self.mover.as_ref()
    }

    fn loss_place(&self) -> usize {
        self.ops.iter().position(|(op, _)| *op == StepOp::Loss).unwrap_or(self.ops.len())
    }

    fn run(&mut self, stream: &Stream, layers: &[DeviceLayer], places: std::ops::Range<usize>) -> Result<()> {
        for place in places {
            self.before(stream, place)?;
            let (op, bound) = &self.ops[place];
            if let (Some(at), Some(bound)) = (op.layer(), bound) {
                op.program(&layers[at]).queue(stream, bound, &self.keys[at])?;
            }
            self.after(stream, place)?;
        }
        Ok(())
    }

    fn before(&mut self, stream: &Stream, place: usize) -> Result<()> {
        self.mover.as_mut().map_or(Ok(()), |mover| mover.before(stream, place))
    }

    fn after(&mut self, stream: &Stream, place: usize) -> Result<()> {
        self.mover.as_mut().map_or(Ok(()), |mover| mover.after(stream, place))
    }
}

/// Puts the program of one operation of a step over memory; none for an operation that is no program of a layer.
pub(crate) fn bind(
    stream: &Stream,
    layers: &[DeviceLayer],
    brought: &Brought<'_>,
    (memory, place, op): (&StepMemory<'_>, usize, StepOp),
    flat: &Flat,
) -> Result<Option<Bound>> {
    let Some(at) = op.layer() else { return Ok(None) };
    let (layer, graph) = (&layers[at], brought.graphs[at]);
    let own = Own { at, place, layer, brought, memory, flat };
    let missing = || Error::Model { why: format!("layer {at} has no memory for what it computes") };
    let temporaries = memory.temporaries(place).ok_or_else(missing)?;
    let is_backward = matches!(op, StepOp::Backward(_));
    let give = |buffer: &Buffer| if is_backward { own.backward(buffer) } else { own.forward(buffer) };
    Ok(Some(op.program(layer).bind(stream, graph, &temporaries, &give)?))
}

/// Where the buffers of one layer lie during an operation.
struct Own<'a> {
    at: usize,
    place: usize,
    layer: &'a DeviceLayer,
    brought: &'a Brought<'a>,
    memory: &'a StepMemory<'a>,
    flat: &'a Flat,
}

/// Rows that a program may be given.
type Given = headwater_compile::Result<Option<DeviceRows>>;

impl Own<'_> {
    fn moments(&self, graph: &DeviceGraph) -> Option<[Span; 3]> {
        let [mean, variance] = MOMENTS.map(|name| self.memory.made(self.place, self.at, name));
        Some([mean?, variance?, graph.count(Domain::DST)?])
    }

    fn forward(&self, buffer: &Buffer) -> Given {
        let name = buffer.name.as_str();
        if let Some(made) = self.memory.made(self.place, self.at, name) {
            return Ok(Some(made.into()));
        }
        if name == "x" {
            return Ok(match self.at {
                0 => self.brought.x.clone(),
                above => self.memory.made(self.place, above - 1, "out").map(DeviceRows::from),
            });
        }
        if let Some(place) = self.layer.parameter(name) {
            return Ok(self.flat.part(&self.flat.values, place).ok().map(DeviceRows::from));
        }
        Ok(self.brought.extras.get(self.at).and_then(|extras| extras.get(name)).cloned().map(DeviceRows::from))
    }

    fn backward(&self, buffer: &Buffer) -> Given {
        let Some(of) = buffer.name.strip_prefix("d.") else { return self.forward(buffer) };
        if of == "out" {
            return Ok(self.memory.slope(self.place, self.at).map(DeviceRows::from));
        }
        if of == "x" {
            let below = self.at.checked_sub(1).and_then(|below| self.memory.slope(self.place, below));
            return Ok(below.map(DeviceRows::from));
        }
        let place = self.layer.parameter(of);
        Ok(place.and_then(|place| self.flat.part(&self.flat.gradients, place).ok()).map(DeviceRows::from))
    }
}

/// The outputs of a network and their gradient, where the loss is computed. A network without a layer has none.
pub(crate) fn last_outputs(memory: &StepMemory<'_>, layers: &[DeviceLayer]) -> Result<(Span, Span)> {
    let (last, ops) = (layers.len().saturating_sub(1), memory.ops(layers.len()));
    let loss = ops.iter().position(|op| *op == StepOp::Loss).unwrap_or(0);
    let both = memory.made(loss, last, "out").zip(memory.slope(loss, last));
    both.ok_or_else(|| Error::Model { why: "a network without layers has no outputs".to_owned() })
}
