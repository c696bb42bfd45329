//! Which layers of a step keep what they made, let it leave or compute it twice: the cheapest that fits.

use headwater_cuda::Span;
use headwater_offload::plan::{Destination, FixedPlan, LinkRates, OffloadRoom, PlanRank, plan_fixed};
use serde::{Deserialize, Serialize};

use super::shape::{BufferKey, LayerShape, OUT, fixed_step};
use crate::gpu::step_memory::StepOp;

/// All sets of layers are tried below so many; above, those from the first or the last layer on.
const MOST_LAYERS_IN_ALL_SETS: usize = 5;
/// So many of those are tried at most.
const MOST_CUTS: usize = 12;
/// Buffers below this share of all that layers make stay where they are.
pub(super) const LEAST_SHARE: usize = 500;

/// What a plan is made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlanLimits {
    pub rates: LinkRates,
    pub room: OffloadRoom,
    /// By how much of its time a step may become longer where all fits.
    pub slack: f64,
    pub may_recompute: bool,
}

/// A step over the whole graph with its memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StepPlan {
    pub ops: Vec<StepOp>,
    pub keys: Vec<BufferKey>,
    pub fixed: FixedPlan,
    pub recomputed: Vec<usize>,
}

/// What becomes of the activations of a layer between its two passes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LayerActivations {
    /// Which layer, from 0.
    pub layer: usize,
    /// Bytes that stay on the GPU.
    pub kept_bytes: u64,
    /// Bytes that go to host memory.
    pub host_bytes: u64,
    /// Bytes that go to disk.
    pub disk_bytes: u64,
    /// Whether its forward pass is computed twice instead.
    pub is_recomputed: bool,
}

impl StepPlan {
    /// The plan in which everything stays.
    pub fn kept(layers: &[LayerShape]) -> Self {
        let nothing = LinkRates { down: 0.0, up: 0.0, write: 0.0, read: 0.0 };
        let room = OffloadRoom { host_bytes: 0, disk_bytes: 0, gpu_bytes: None, window_bytes: 0 };
        Self::with(layers, Vec::new(), &PlanLimits { rates: nothing, room, slack: 0.0, may_recompute: false }).0
    }

    /// The best plan, and the one in which everything stays.
    pub fn best(layers: &[LayerShape], limits: &PlanLimits) -> (Self, Self) {
        let kept = Self::kept(layers);
        let all = if limits.may_recompute { sets(layers.len()) } else { vec![Vec::new()] };
        let plans = all.into_iter().map(|recomputed| Self::with(layers, recomputed, limits));
        let best = plans.min_by_key(|(_, rank)| *rank).map_or_else(|| kept.clone(), |(plan, _)| plan);
        (best, kept)
    }

    fn with(layers: &[LayerShape], recomputed: Vec<usize>, limits: &PlanLimits) -> (Self, PlanRank) {
        let made: usize = layers.iter().flat_map(|layer| &layer.made).map(|made| made.bytes).sum();
        let (ops, keys, step) = fixed_step(layers, &recomputed, made.div_ceil(LEAST_SHARE));
        let base_s: f64 = layers.iter().map(|layer| layer.forward_s + layer.backward_s).sum();
        let PlanLimits { rates, room, slack, .. } = limits;
        let fixed = plan_fixed(&step, rates, room, (base_s, *slack));
        let rank = fixed.rank(base_s, *slack, room.gpu_bytes.unwrap_or(u64::MAX));
        (Self { ops, keys, fixed, recomputed }, rank)
    }

    /// Whether it fits so many bytes.
    pub fn fits(&self, bytes: u64) -> bool {
        self.fixed.forecast.peak_bytes <= bytes
    }

    /// What becomes of each layer's activations.
    pub fn layers(&self, shapes: &[LayerShape]) -> Vec<LayerActivations> {
        let of = |layer: usize| {
            let goes = |to: Destination| -> u64 {
                let own = self.fixed.moves.iter().filter(|own| own.goes == to);
                own.filter_map(|own| self.made(own.buffer, layer)).map(|name| bytes_of(&shapes[layer], name)).sum()
            };
            let (host_bytes, disk_bytes) = (goes(Destination::Host), goes(Destination::Disk));
            let all: u64 = shapes[layer].made.iter().map(|made| made.bytes as u64).sum();
            let is_recomputed = self.recomputed.contains(&layer);
            // Outputs that the layer above reads are not computed twice for it.
            let out = bytes_of(&shapes[layer], OUT);
            let kept_bytes = if is_recomputed { out } else { all }.saturating_sub(host_bytes + disk_bytes);
            LayerActivations { layer, kept_bytes, host_bytes, disk_bytes, is_recomputed }
        };
        (0..shapes.len()).map(of).collect()
    }

    fn made(&self, buffer: usize, of: usize) -> Option<&str> {
        match &self.keys[buffer] {
            BufferKey::Made { layer, name } if *layer == of => Some(name),
            _ => None,
        }
    }

    /// Where a buffer lies in `memory` during an operation.
    pub fn span(&self, memory: &Span, place: usize, is_it: &dyn Fn(&BufferKey) -> bool) -> Option<Span> {
        let is_there = |buffer: &usize| is_it(&self.keys[*buffer]);
        let found = (0..self.keys.len()).filter(is_there);
        found.into_iter().find_map(|buffer| self.buffer_span(memory, buffer, place))
    }

    /// The same, of a buffer by its number.
    pub fn buffer_span(&self, memory: &Span, buffer: usize, place: usize) -> Option<Span> {
        let offset = self.fixed.offset(buffer, place)?;
        memory.part(usize::try_from(offset).ok()?, usize::try_from(self.fixed.bytes[buffer]).ok()?)
    }
}

fn bytes_of(shape: &LayerShape, name: &str) -> u64 {
    shape.made.iter().find(|made| made.name == name).map_or(0, |made| made.bytes as u64)
}

/// Layers that may be computed twice.
fn sets(layers: usize) -> Vec<Vec<usize>> {
    if layers <= MOST_LAYERS_IN_ALL_SETS {
        let of = |bits: usize| (0..layers).filter(|at| bits >> at & 1 == 1).collect();
        return (0..1 << layers).map(of).collect();
    }
    let some = (0..=MOST_CUTS).map(|at| at * layers / MOST_CUTS);
    let firsts = some.clone().map(|end| (0..end).collect());
    let lasts = some.filter(|begin| (1..layers).contains(begin)).map(|begin| (begin..layers).collect());
    firsts.chain(lasts).collect()
}

#[cfg(test)]
mod tests {
    use super::super::shape::tests::layer;
    use super::*;

    fn limits(rate: f64, gpu_bytes: Option<u64>, may_recompute: bool) -> PlanLimits {
        let rates = LinkRates { down: rate, up: rate, write: 0.0, read: 0.0 };
        let room = OffloadRoom { host_bytes: 1 << 40, disk_bytes: 0, gpu_bytes, window_bytes: 0 };
        PlanLimits { rates, room, slack: 0.02, may_recompute }
    }

    #[test]
    fn a_fast_link_moves_and_a_slow_one_computes_twice() {
        let layers = vec![layer(400 << 20, 100 << 20, 0.02); 3];
        let (free, kept) = StepPlan::best(&layers, &limits(50e9, None, true));
        assert!(!free.fixed.moves.is_empty() && free.recomputed.is_empty(), "{free:?}");
        assert!(free.fixed.forecast.peak_bytes * 10 < kept.fixed.forecast.peak_bytes * 9);
        assert!(free.layers(&layers).iter().any(|own| own.host_bytes > 0));
        // Nothing leaves in time by a slow link; where it has to fit, to compute twice is cheaper.
        let (slow, kept) = StepPlan::best(&layers, &limits(1e8, None, true));
        assert_eq!((slow.fixed.moves.len(), slow.recomputed.len()), (0, 0));
        let tight = kept.fixed.forecast.peak_bytes * 3 / 4;
        let (forced, _) = StepPlan::best(&layers, &limits(1e8, Some(tight), true));
        assert!(!forced.recomputed.is_empty() && forced.fits(tight), "{forced:?}");
        assert!(forced.layers(&layers).iter().any(|own| own.is_recomputed && own.kept_bytes <= 100 << 20));
        let (moved, _) = StepPlan::best(&layers, &limits(1e8, Some(tight), false));
        assert!(
            moved.recomputed.is_empty()
                && moved.fits(tight)
                && moved.fixed.forecast.step_s > forced.fixed.forecast.step_s
        );
    }

    #[test]
    fn what_cannot_fit_says_how_small_it_gets() {
        let layers = vec![layer(400 << 20, 100 << 20, 0.02); 2];
        let (least, _) = StepPlan::best(&layers, &limits(50e9, Some(1), true));
        assert!(!least.fits(1) && least.fixed.forecast.peak_bytes < 1 << 30);
    }
}
