//! Which blocks should leave, and what does that cost? All from numbers.
//!
//! Blocks are needed in the opposite order of that in which they are saved. So the newest are kept: they would hardly have left before
//! they are needed. Of the others the newest lie in host memory and the oldest on disk, which has the most time for them. What is left to
//! choose is two numbers, and each choice is played through by [`forecast`].

mod fixed;
mod forecast;
mod pause;
mod schedule;
mod spread;
mod staging;

pub use fixed::{BufferMove, FixedBuffer, FixedPlan, FixedStep, PlanRank, Residency, plan_fixed};
use forecast::play;
pub use forecast::{StepForecast, forecast};
pub use pause::{PauseForm, pause_point};
pub use schedule::{StepSchedule, schedule};
pub use spread::{DiskLoad, next_disk};

use serde::Serialize;

/// A block of a step in which nothing left: how long it is, and when it was saved and needed. Seconds since the step began.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SavedBlock {
    /// Length in bytes.
    pub bytes: u64,
    /// When the forward pass has made it.
    pub saved_s: f64,
    /// When the backward pass begins to need it.
    pub needed_s: f64,
    /// When the backward pass is done with it.
    pub freed_s: f64,
}

/// What a step saves, in the order in which it does.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepTrace {
    /// Blocks, oldest first.
    pub blocks: Vec<SavedBlock>,
    /// How long the step takes.
    pub step_s: f64,
    /// Bytes that are allocated beside blocks, from a moment on, above those that were when the step began.
    pub beside: Vec<(f64, u64)>,
}

/// How fast bytes move, a second. A disk of 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LinkRates {
    /// From the GPU to the host.
    pub down: f64,
    /// From the host to the GPU.
    pub up: f64,
    /// Written to all disks together.
    pub write: f64,
    /// Read from all disks together.
    pub read: f64,
}

impl LinkRates {
    /// The same, at a share of the speed.
    #[must_use]
    pub fn slower(&self, share: f64) -> Self {
        Self { down: self.down * share, up: self.up * share, write: self.write * share, read: self.read * share }
    }
}

/// How much room there is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OffloadRoom {
    /// Pinned host memory, in bytes.
    pub host_bytes: u64,
    /// Bytes that may lie on disks at once.
    pub disk_bytes: u64,
    /// Bytes of saved blocks that should lie on the GPU at most, if there is such a wish.
    pub gpu_bytes: Option<u64>,
    /// Bytes of copies that may be under way at once where there is such a wish, and that blocks come back ahead of their need.
    pub window_bytes: u64,
}

/// Where a block goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Destination {
    /// It stays on the GPU.
    Nowhere,
    /// To host memory.
    Host,
    /// Through host memory to disk.
    Disk,
}

/// Where blocks should go, and what that leads to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OffloadPlan {
    /// One for each block.
    pub goes: Vec<Destination>,
    /// What is expected of it.
    pub forecast: StepForecast,
    /// What is expected when nothing leaves.
    pub kept: StepForecast,
    /// Why not more leaves.
    pub limit: PlanLimit,
}

/// What keeps the rest of the blocks on the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanLimit {
    /// Nothing: all leave.
    Nothing,
    /// More would make the step longer than it may be.
    Time,
    /// There is no room for more.
    Space,
    /// More would not lower the peak: it would not have left by then.
    Peak,
    /// What should fit on the GPU does.
    Enough,
    /// So little would have left in time that all is kept.
    Rate,
}

/// By how much a step may become longer, and what makes it longer beside waits for copies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeLimit {
    /// The most, as a share of the step.
    pub slack: f64,
    /// Seconds by which computing takes longer for each byte that leaves and comes back beside it.
    pub per_byte_s: f64,
}

/// Where blocks should go so that the step takes at most `slack` of its time longer (0.02 is two in a hundred). With a wish for the GPU
/// as few leave as it takes, and the step takes as long as that needs.
#[must_use]
pub fn plan(trace: &StepTrace, rates: &LinkRates, room: &OffloadRoom, slack: f64) -> OffloadPlan {
    plan_within(trace, rates, room, &TimeLimit { slack, per_byte_s: 0.0 })
}

#[expect(clippy::cast_precision_loss, reason = "lengths of memory")]
fn plan_within(trace: &StepTrace, rates: &LinkRates, room: &OffloadRoom, time: &TimeLimit) -> OffloadPlan {
    let count = trace.blocks.len();
    let kept = forecast(trace, &vec![Destination::Nowhere; count], rates, room);
    let mut best =
        OffloadPlan { goes: vec![Destination::Nowhere; count], forecast: kept, kept, limit: PlanLimit::Time };
    let is_enough = |found: &StepForecast| room.gpu_bytes.is_some_and(|most| found.peak_bytes <= most);
    if count == 0 || is_enough(&kept) {
        best.limit = if count == 0 { PlanLimit::Nothing } else { PlanLimit::Enough };
        return best;
    }
    let mut limit = PlanLimit::Nothing;
    for leaving in cuts(count) {
        let Some((goes, mut found)) = with_room(trace, rates, room, leaving) else {
            limit = PlanLimit::Space;
            break;
        };
        found.step_s += time.per_byte_s * found.moved_bytes as f64;
        if room.gpu_bytes.is_none() && found.step_s - trace.step_s > time.slack * trace.step_s {
            limit = PlanLimit::Time;
            // Fewer bytes may still leave in time when more do not, but not the other way round.
            break;
        }
        if found.peak_bytes < best.forecast.peak_bytes {
            (best.goes, best.forecast) = (goes, found);
        }
        if is_enough(&found) {
            limit = PlanLimit::Enough;
            break;
        }
    }
    let leaves_some = best.goes.contains(&Destination::Nowhere);
    best.limit = if limit == PlanLimit::Nothing && leaves_some { PlanLimit::Peak } else { limit };
    best
}

/// As [`plan`], but all is kept where less than `least` of the peak would be saved (0.2 is a fifth) and nothing is wished for the GPU: to move
/// a little costs the host more than it gives.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "lengths of memory")]
pub fn plan_if_worth(
    trace: &StepTrace,
    rates: &LinkRates,
    room: &OffloadRoom,
    time: &TimeLimit,
    least: f64,
) -> OffloadPlan {
    let made = plan_within(trace, rates, room, time);
    let saved = 1.0 - made.forecast.peak_bytes as f64 / made.kept.peak_bytes.max(1) as f64;
    let is_slow = !matches!(made.limit, PlanLimit::Nothing | PlanLimit::Space | PlanLimit::Enough);
    let is_worth = saved >= least || (made.forecast.moved_bytes == 0 && !is_slow);
    if room.gpu_bytes.is_some() || is_worth {
        return made;
    }
    let goes = vec![Destination::Nowhere; trace.blocks.len()];
    OffloadPlan { goes, forecast: made.kept, limit: PlanLimit::Rate, ..made }
}

/// How many blocks leave, from few to all: every number for few blocks, some for many.
fn cuts(count: usize) -> impl Iterator<Item = usize> {
    let steps = count.min(64);
    (1..=steps).map(move |step| step * count / steps)
}

/// The first `leaving` blocks leave, as many of them to host memory as have room; `None` when disks have no room for the rest.
fn with_room(
    trace: &StepTrace,
    rates: &LinkRates,
    room: &OffloadRoom,
    leaving: usize,
) -> Option<(Vec<Destination>, StepForecast)> {
    let goes = |to_disk: usize| -> Vec<Destination> {
        let tier = |at: usize| match at {
            at if at < to_disk => Destination::Disk,
            at if at < leaving => Destination::Host,
            _ => Destination::Nowhere,
        };
        (0..trace.blocks.len()).map(tier).collect()
    };
    // Blocks in host memory lie there at the same time, when the forward pass ends.
    let mut hosted: u64 = trace.blocks.iter().take(leaving).map(|block| block.bytes).sum();
    let (mut to_disk, mut on_disk) = (0, 0);
    let has_disk = rates.write > 0.0 && rates.read > 0.0;
    // What goes to disk passes through host memory, which needs room for it.
    let passing = |to_disk: usize| if to_disk > 0 { room.window_bytes } else { 0 };
    while hosted + passing(to_disk) > room.host_bytes {
        let block = trace.blocks.get(to_disk).filter(|_| has_disk && to_disk < leaving)?;
        hosted -= block.bytes;
        on_disk += block.bytes;
        to_disk += 1;
    }
    if on_disk > room.disk_bytes {
        return None;
    }
    // What is still there when it is needed need not leave, and leaves the link to others.
    let goes = play(trace, &goes(to_disk), rates, room).goes;
    let found = forecast(trace, &goes, rates, room);
    Some((goes, found))
}
