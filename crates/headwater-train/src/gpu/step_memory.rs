//! What a step does in order, and where its buffers lie meanwhile: each at a place of its own, or by a plan in one piece of memory that
//! buffers share whose lifetimes do not overlap.

use headwater_compile::cuda::Executor;
use headwater_cuda::Span;

use super::full::PlannedMemory;
use super::layers::{Activations, DeviceLayer};
use super::mover::ActivationMover;
use crate::error::Result;

/// One operation of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepOp {
    /// The forward pass of a layer.
    Forward(usize),
    /// The loss of the outputs, and its gradient.
    Loss,
    /// The forward pass of a layer once more, for what it did not keep.
    Recompute(usize),
    /// The backward pass of a layer.
    Backward(usize),
}

impl StepOp {
    /// The layer that it is of.
    pub fn layer(self) -> Option<usize> {
        match self {
            Self::Forward(at) | Self::Recompute(at) | Self::Backward(at) => Some(at),
            Self::Loss => None,
        }
    }

    /// The program that it runs.
    pub fn program(self, layer: &DeviceLayer) -> &Executor {
        match self {
            Self::Backward(_) => &layer.backward,
            _ => &layer.forward,
        }
    }

    /// Operations of a step in which these layers are computed twice.
    pub fn all(layers: usize, recomputed: &[usize]) -> Vec<Self> {
        let forward = (0..layers).map(Self::Forward).chain([Self::Loss]);
        let back = (0..layers).rev().flat_map(|at| {
            let again = recomputed.contains(&at).then_some(Self::Recompute(at));
            again.into_iter().chain([Self::Backward(at)])
        });
        forward.chain(back).collect()
    }
}

/// Memory of a step's buffers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StepMemory<'a> {
    /// All buffers stay where they are.
    Kept(&'a Activations),
    /// By a plan.
    Planned(&'a PlannedMemory),
}

impl StepMemory<'_> {
    /// What the step does.
    pub fn ops(&self, layers: usize) -> Vec<StepOp> {
        match self {
            Self::Kept(_) => StepOp::all(layers, &[]),
            Self::Planned(memory) => memory.ops().to_vec(),
        }
    }

    /// What a layer's forward program makes, by name, as it lies during an operation.
    pub fn made(&self, place: usize, layer: usize, name: &str) -> Option<Span> {
        match self {
            Self::Kept(all) => all.made(layer, name).cloned(),
            Self::Planned(memory) => memory.made(place, layer, name),
        }
    }

    /// The gradient of what a layer makes.
    pub fn slope(&self, place: usize, layer: usize) -> Option<Span> {
        match self {
            Self::Kept(all) => all.slope(layer).cloned(),
            Self::Planned(memory) => memory.slope(place, layer),
        }
    }

    /// What only the program of an operation needs.
    pub fn temporaries(&self, place: usize) -> Option<Span> {
        match self {
            Self::Kept(all) => Some(all.temporaries().clone()),
            Self::Planned(memory) => memory.temporaries(place),
        }
    }

    /// Whether buffers share memory by a plan.
    pub fn is_planned(&self) -> bool {
        matches!(self, Self::Planned(_))
    }

    /// What moves activations, where some leave.
    pub fn mover(&self) -> Result<Option<ActivationMover>> {
        match self {
            Self::Kept(_) => Ok(None),
            Self::Planned(memory) => memory.mover(),
        }
    }
}
