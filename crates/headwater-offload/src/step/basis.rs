//! What a schedule is made of, and what it says of a block.

use std::sync::Arc;

use super::SaveAdvice;
use super::hindsight::{PlannedStep, Trust};
use crate::plan::{Destination, LinkRates, StepSchedule, StepTrace};

/// What a schedule was made of.
#[derive(Clone)]
pub(super) struct Basis {
    pub trace: StepTrace,
    /// Bytes that are allocated when such a step begins.
    pub base_bytes: u64,
    /// What of all that was measured is relied on.
    pub trust: Trust,
    /// How long such a step takes of which nothing leaves, where that was seen since.
    pub kept_s: Option<f64>,
}

/// A plan, what it was made of, and what steps by it were like.
pub(super) struct Known {
    pub schedule: Arc<StepSchedule>,
    pub basis: Basis,
    /// Which of all plans that were made this is.
    pub made: usize,
    /// Rates that it relies on.
    pub rates: LinkRates,
    /// Whether less memory is wished for than is there, or there is not enough for more: then steps may wait.
    pub is_wished: bool,
    /// Steps by it that are over on the host, and how many there were when they were last held against it; since then, how many the device was
    /// seen to be done with.
    pub steps: u64,
    pub checked: u64,
    pub seen: usize,
    /// The last of these.
    pub latest: Vec<PlannedStep>,
}

/// What a plan says of a block, if the block is like the one that it knows.
pub(super) fn planned(plan: Option<&Arc<StepSchedule>>, at: usize, bytes: u64) -> Option<SaveAdvice> {
    let plan = plan?;
    plan.bytes.get(at).filter(|expected| is_like(bytes, **expected))?;
    Some(SaveAdvice { leaves: plan.plan.goes[at] != Destination::Nowhere, window: Some(plan.windows[at]) })
}

/// Blocks may be a little longer or shorter than those of the step that was recorded.
fn is_like(bytes: u64, expected: u64) -> bool {
    bytes.abs_diff(expected) <= expected / 8
}

/// All that is saved, in half of the step.
#[expect(clippy::cast_precision_loss, reason = "lengths of memory")]
pub(super) fn needed_rate(trace: &StepTrace) -> f64 {
    let bytes: u64 = trace.blocks.iter().map(|block| block.bytes).sum();
    if trace.step_s > 0.0 { bytes as f64 / (trace.step_s / 2.0) } else { 0.0 }
}
