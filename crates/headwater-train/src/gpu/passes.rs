//! Both passes of a step over the blocks of a batch: programs put over memory once, and queued for every batch that is
//! brought there.

use std::collections::BTreeMap;

use headwater_compile::cuda::{Bound, DeviceGraph, DeviceRows};
use headwater_compile::inter::Domain;
use headwater_compile::intra::Buffer;
use headwater_cuda::{Span, Stream};

use super::flat::Flat;
use super::layers::{Activations, DeviceLayer};
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
    forward: Vec<Bound>,
    backward: Vec<Bound>,
    keys: Vec<Span>,
    /// Mean, variance and number of rows of what each layer makes, where it normalises by them.
    moments: Vec<Option<[Span; 3]>>,
}

impl Passes {
    /// Puts layers over what a batch brings, what lies between kernels, and what is learnt.
    pub fn new(
        stream: &Stream,
        layers: &[DeviceLayer],
        brought: &Brought<'_>,
        activations: &Activations,
        flat: &Flat,
    ) -> Result<Self> {
        let (mut forward, mut backward, mut moments) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (layer, graph)) in layers.iter().zip(brought.graphs).enumerate() {
            let own = Own { at, layer, brought, activations, flat };
            let temporaries = activations.temporaries();
            forward.push(layer.forward.bind(stream, graph, temporaries, &|buffer| own.forward(buffer))?);
            backward.push(layer.backward.bind(stream, graph, temporaries, &|buffer| own.backward(buffer))?);
            moments.push(layer.running.as_ref().and_then(|_| own.moments(graph)));
        }
        Ok(Self { forward, backward, keys: brought.keys.clone(), moments })
    }

    /// Queues the forward pass.
    pub fn forward(&self, stream: &Stream, layers: &[DeviceLayer]) -> Result<()> {
        for (at, layer) in layers.iter().enumerate() {
            layer.forward.queue(stream, &self.forward[at], &self.keys[at])?;
            if let (Some(running), Some([mean, variance, rows])) = (&layer.running, &self.moments[at]) {
                running.see(stream, BatchMoments { mean, variance, rows })?;
            }
        }
        Ok(())
    }

    /// Queues the backward pass.
    pub fn backward(&self, stream: &Stream, layers: &[DeviceLayer]) -> Result<()> {
        for (at, layer) in layers.iter().enumerate().rev() {
            layer.backward.queue(stream, &self.backward[at], &self.keys[at])?;
        }
        Ok(())
    }
}

/// Where the buffers of one layer lie.
struct Own<'a> {
    at: usize,
    layer: &'a DeviceLayer,
    brought: &'a Brought<'a>,
    activations: &'a Activations,
    flat: &'a Flat,
}

/// Rows that a program may be given.
type Given = headwater_compile::Result<Option<DeviceRows>>;

impl Own<'_> {
    fn moments(&self, graph: &DeviceGraph) -> Option<[Span; 3]> {
        let made = |name| self.activations.made(self.at, name).cloned();
        Some([made("batch_mean")?, made("batch_variance")?, graph.count(Domain::DST)?])
    }

    fn forward(&self, buffer: &Buffer) -> Given {
        let name = buffer.name.as_str();
        if let Some(made) = self.activations.made(self.at, name) {
            return Ok(Some(made.clone().into()));
        }
        if name == "x" {
            return Ok(match self.at {
                0 => self.brought.x.clone(),
                above => self.activations.made(above - 1, "out").cloned().map(DeviceRows::from),
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
            return Ok(self.activations.slope(self.at).cloned().map(DeviceRows::from));
        }
        if of == "x" {
            let below = self.at.checked_sub(1).and_then(|below| self.activations.slope(below));
            return Ok(below.cloned().map(DeviceRows::from));
        }
        let place = self.layer.parameter(of);
        Ok(place.and_then(|place| self.flat.part(&self.flat.gradients, place).ok()).map(DeviceRows::from))
    }
}

/// What a network without a layer has no rows of.
pub(crate) fn last_outputs<'a>(activations: &'a Activations, layers: &[DeviceLayer]) -> Result<(&'a Span, &'a Span)> {
    let last = layers.len().saturating_sub(1);
    let both = activations.made(last, "out").zip(activations.slope(last));
    both.ok_or_else(|| Error::Model { why: "a network without layers has no outputs".to_owned() })
}
