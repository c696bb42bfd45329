//! One piece of GPU memory with the buffers of a step in it, by a plan.

use std::sync::Arc;

use headwater_cuda::{Allocation, Span, Stream};
use headwater_offload::{GpuLane, Offloader};

use super::plan::StepPlan;
use super::shape::BufferKey;
use crate::error::{Error, Result};
use crate::gpu::mover::{ActivationMover, Moving};
use crate::gpu::step_memory::StepOp;

/// The memory of a step over the whole graph.
pub(crate) struct PlannedMemory {
    plan: StepPlan,
    arena: Span,
    offloader: Option<Arc<Offloader<GpuLane>>>,
}

impl std::fmt::Debug for PlannedMemory {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PlannedMemory").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl PlannedMemory {
    pub fn new(stream: &Stream, plan: StepPlan, offloader: Option<Arc<Offloader<GpuLane>>>) -> Result<Self> {
        let bytes = usize::try_from(plan.fixed.forecast.peak_bytes).unwrap_or(usize::MAX);
        let arena = Allocation::on_stream(stream, bytes.max(16)).inspect_err(|_| {
            log::warn!(
                "a step over the whole graph takes {bytes} bytes of GPU memory; `offload` lets activations leave"
            );
        })?;
        let arena = Span::whole(arena);
        Ok(Self { plan, arena, offloader })
    }

    pub fn plan(&self) -> &StepPlan {
        &self.plan
    }

    pub fn ops(&self) -> &[StepOp] {
        &self.plan.ops
    }

    /// What a layer's forward program makes, by name.
    pub fn made(&self, place: usize, layer: usize, name: &str) -> Option<Span> {
        let is_it =
            |key: &BufferKey| matches!(key, BufferKey::Made { layer: of, name: own } if *of == layer && own == name);
        self.plan.span(&self.arena, place, &is_it)
    }

    /// The gradient of what a layer makes.
    pub fn slope(&self, place: usize, layer: usize) -> Option<Span> {
        self.plan.span(&self.arena, place, &|key| *key == BufferKey::Slope(layer))
    }

    /// What only the program of an operation needs.
    pub fn temporaries(&self, place: usize) -> Option<Span> {
        self.plan.span(&self.arena, place, &|key| *key == BufferKey::Temporaries)
    }

    /// What moves its activations, where some leave.
    pub fn mover(&self) -> Result<Option<ActivationMover>> {
        let moves = &self.plan.fixed.moves;
        let Some(offloader) = self.offloader.as_ref().filter(|_| !moves.is_empty()) else { return Ok(None) };
        let moving = |own: &headwater_offload::plan::BufferMove| {
            let at = |place: usize| self.plan.buffer_span(&self.arena, own.buffer, place);
            let both = at(own.store_after).zip(at(own.needed_by));
            let missing = || Error::Model { why: "a plan has no place for what it moves".to_owned() };
            both.map(|(from, to)| Moving::new(*own, from, to)).ok_or_else(missing)
        };
        let all = moves.iter().map(moving).collect::<Result<Vec<_>>>()?;
        Ok(Some(ActivationMover::new(Arc::clone(offloader), all)))
    }
}
