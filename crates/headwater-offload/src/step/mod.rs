//! Steps, one after the other: each is expected to be like the last.
//!
//! A step begins with the first block that is saved when there is none. The second is recorded: what was saved and needed, and when; and the
//! third: how much memory was in use, which takes so long to ask that it would be part of the times. From that a schedule is made, which the
//! next steps follow as long as they save what it says. One that does not is left alone from that block on, and steps like it are recorded in
//! their turn.

mod basis;
mod hindsight;
mod making;
mod recorder;

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use crate::lane::CopyMarks;
use crate::meter::Spans;
use crate::plan::{LinkRates, PlanLimit, StepForecast, StepSchedule};
use basis::{Known, planned};
use recorder::StepRecorder;

/// Which saved blocks leave the device, and at what cost in time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OffloadPolicy {
    /// All of them, as fast as the link takes them.
    All {
        /// Bytes above which the device waits for copies, if there is such a wish.
        most_bytes: Option<u64>,
    },
    /// Those that a plan says, which steps are measured for. Before there is one, blocks leave where memory is short.
    Plan {
        /// By how much of its time a step may become longer where there is no wish for memory.
        slack: f64,
        /// Bytes that may be allocated on the device at most, if there is such a wish.
        most_bytes: Option<u64>,
        /// Bytes that the device has.
        device_bytes: u64,
    },
}

/// What a caller says with a block that it saves or needs.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeviceUse {
    /// Bytes that are allocated on the device.
    pub allocated: u64,
    /// Of these, bytes of blocks.
    pub blocks: u64,
    /// The most bytes that were allocated so far.
    pub peak: u64,
}

/// What should become of a block that is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SaveAdvice {
    pub leaves: bool,
    /// Bytes of copies that may be under way behind it; none: as ever.
    pub window: Option<u64>,
}

/// What should be on its way back when a block is needed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NeedAdvice {
    /// Numbers of saves whose blocks are needed next, in that order.
    pub next: Vec<u64>,
    /// Bytes of them that may be back ahead; none: as ever.
    pub ahead_bytes: Option<u64>,
}

/// How the last steps went. Bytes and milliseconds.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StepReport {
    /// Steps that are over.
    pub steps: u64,
    /// Steps that kept to a plan.
    pub planned_steps: u64,
    /// What the last plan expects.
    pub expected: Option<StepForecast>,
    /// What it would be like if all were kept.
    pub kept: Option<StepForecast>,
    /// Why not more leaves.
    pub limit: Option<PlanLimit>,
    /// Bytes a second that would have to leave so that all leave in time.
    pub needed_rate: f64,
    /// Rates that the plan relies on.
    pub rates: Option<LinkRates>,
    /// How long the GPU waited for copies in steps with a plan, in all.
    pub planned_stall_s: f64,
    /// Bytes that were allocated when the step began that was recorded.
    pub base_bytes: u64,
    /// Plans that were made smaller because steps took longer than they may.
    pub made_smaller: u64,
    /// What was said of a disk that got slower than was measured, once.
    pub slow_disk: Option<String>,
}

/// Share of a device that may be allocated before blocks leave without a plan, and at all.
const FULL: f64 = 0.75;
const CAPACITY: f64 = 0.92;
/// Plans that are kept, one for each size of a first block.
const MOST_PLANS: usize = 16;
/// Blocks of a step. Where a graph is kept for good, a step never ends.
const MOST_BLOCKS: usize = 1 << 16;
/// Blocks that are named as next.
const NEXT: usize = 64;

/// What is recorded of a step.
enum Recording<M> {
    Times(StepRecorder<M>),
    Memory(Vec<DeviceUse>),
}

/// How closely a caller should look at the memory of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measuring {
    /// Its memory is not looked at.
    Nothing,
    /// So that it is seen when it gets short.
    Roughly,
    /// It asks the allocator at every save and every need.
    Exactly,
}

/// Steps so far. `M` is a lane's mark.
pub(crate) struct Steps<M> {
    policy: OffloadPolicy,
    window_bytes: u64,
    /// Number of the first block of this step, and the lengths of all.
    base: u64,
    sizes: Vec<u64>,
    released: Vec<bool>,
    live: u64,
    /// What this step is held against, as long as it keeps to it.
    following: Option<Arc<StepSchedule>>,
    /// Where in the order of needs the step is.
    position: usize,
    recording: Option<Recording<M>>,
    /// A step whose times were recorded, with the length of its first block, and the memory of one like it.
    timed: Option<(u64, StepRecorder<M>)>,
    uses: Option<Vec<DeviceUse>>,
    plans: HashMap<u64, Known>,
    /// Lengths of first blocks whose steps should be recorded, and how many such steps there were.
    seen: HashMap<u64, u32>,
    /// When this step began and when the last block was needed that the plan names, and the same of steps that are over and not looked at.
    first: Option<M>,
    last: Option<M>,
    spans: Spans<M>,
    /// How many plans were made.
    made: usize,
    /// How long streams waited since a step was looked at last.
    unseen_stall_s: f64,
    /// Whether somebody compares steps, so that all should stay that has memory; and whether something has that the plan lets leave.
    keeps: bool,
    was_kept: bool,
    /// Steps that saved what the plan says, whatever left.
    followed: u64,
    report: StepReport,
}

impl<M: Clone> Steps<M> {
    pub fn new(policy: OffloadPolicy, window_bytes: u64) -> Self {
        Self {
            policy,
            window_bytes,
            base: 0,
            sizes: Vec::new(),
            released: Vec::new(),
            live: 0,
            following: None,
            position: 0,
            recording: None,
            timed: None,
            uses: None,
            plans: HashMap::new(),
            seen: HashMap::new(),
            first: None,
            last: None,
            spans: Spans::default(),
            made: 0,
            unseen_stall_s: 0.0,
            keeps: false,
            was_kept: false,
            followed: 0,
            report: StepReport::default(),
        }
    }

    fn is_planned(&self) -> bool {
        matches!(self.policy, OffloadPolicy::Plan { .. })
    }

    /// The number that the next block gets.
    pub fn next(&self) -> u64 {
        self.base + self.sizes.len() as u64
    }

    /// Whether marks are taken of this step.
    pub fn is_timed(&self) -> bool {
        matches!(self.recording, Some(Recording::Times(_)))
    }

    /// A block is saved: its number, and what should become of it.
    pub fn save(&mut self, bytes: u64, mark: &M, used: DeviceUse) -> (u64, SaveAdvice) {
        if self.live == 0 || self.sizes.len() >= MOST_BLOCKS {
            self.begin(bytes);
            self.first = self.following.is_some().then(|| mark.clone());
        }
        let (number, at) = (self.next(), self.sizes.len());
        self.sizes.push(bytes);
        self.released.push(false);
        self.live += 1;
        match &mut self.recording {
            Some(Recording::Times(recorder)) => recorder.save(bytes, mark.clone()),
            Some(Recording::Memory(uses)) => uses.push(used),
            None => {}
        }
        let mut advice = planned(self.following.as_ref(), at, bytes).unwrap_or_else(|| {
            self.leave_plan();
            SaveAdvice { leaves: self.leaves_unplanned(bytes, used), window: None }
        });
        if advice.leaves && self.stays_compared(bytes, used) {
            (advice.leaves, self.was_kept) = (false, true);
        }
        (number, advice)
    }

    /// Whether a block of so many bytes would stay if it were saved now.
    pub fn would_stay(&self, bytes: u64, used: DeviceUse) -> bool {
        let (plan, at) = match self.live {
            0 => (self.plans.get(&bytes).map(|known| &known.schedule), 0),
            _ => (self.following.as_ref(), self.sizes.len()),
        };
        let leaves = planned(plan, at, bytes).map_or_else(|| self.leaves_unplanned(bytes, used), |own| own.leaves);
        !leaves || self.stays_compared(bytes, used)
    }

    /// Whether a block stays because steps are compared: where all has memory by the plan, and as long as there is as much as that says.
    fn stays_compared(&self, bytes: u64, used: DeviceUse) -> bool {
        self.keeps && self.has_room_for_all() && !self.leaves_unplanned(bytes, used)
    }

    /// From now on all stays that has memory, whatever a plan says, or no longer so.
    pub fn keep(&mut self, keeps: bool) {
        self.keeps = keeps;
    }

    /// This step is unlike the one that it was held against.
    fn leave_plan(&mut self) {
        if self.following.take().is_some()
            && let Some(first) = self.sizes.first().copied()
        {
            self.record_again(first);
        }
    }

    fn leaves_unplanned(&self, bytes: u64, used: DeviceUse) -> bool {
        match self.policy {
            OffloadPolicy::All { .. } => true,
            OffloadPolicy::Plan { most_bytes, device_bytes, .. } => {
                let most = most_bytes.unwrap_or_else(|| share(device_bytes, FULL));
                used.allocated.saturating_add(bytes) > most
            }
        }
    }

    fn begin(&mut self, first: u64) {
        self.base = self.next();
        self.sizes.clear();
        self.released.clear();
        self.live = 0;
        (self.position, self.was_kept, self.first, self.last) = (0, false, None, None);
        if !self.is_planned() {
            return;
        }
        self.following = self.plans.get(&first).map(|known| Arc::clone(&known.schedule));
        if self.seen.len() > MOST_PLANS {
            self.seen.clear();
            self.plans.clear();
        }
        let seen = self.seen.entry(first).or_default();
        *seen += 1;
        self.recording = match (&self.following, &self.timed) {
            // Of the first, much is made that the others find.
            (None, Some((timed, _))) if *timed == first => self.uses.is_none().then(|| Recording::Memory(Vec::new())),
            (None, _) if *seen > 1 => Some(Recording::Times(StepRecorder::new())),
            _ => None,
        };
    }

    /// Whether a block is the last of its step that is needed, by the plan.
    pub fn is_last(&self, number: u64) -> bool {
        let last = self.following.as_ref().and_then(|plan| plan.order.last());
        last.is_some_and(|last| self.base + *last as u64 == number)
    }

    /// A block is needed: what should be on its way back.
    pub fn need(&mut self, number: u64, mark: Option<&M>, used: DeviceUse) -> NeedAdvice {
        let Some(at) = number.checked_sub(self.base).and_then(|at| usize::try_from(at).ok()) else {
            return NeedAdvice::default();
        };
        match (&mut self.recording, mark) {
            (Some(Recording::Times(recorder)), Some(mark)) => recorder.need(at, mark.clone()),
            (Some(Recording::Memory(uses)), _) => uses.push(used),
            _ => {}
        }
        if self.is_last(number) {
            self.last = mark.cloned();
        }
        let plan = self.following.as_ref().filter(|plan| plan.bytes.len() == self.sizes.len());
        let Some(plan) = plan else {
            let before = at.saturating_sub(NEXT)..at;
            return NeedAdvice { next: before.rev().map(|at| self.base + at as u64).collect(), ahead_bytes: None };
        };
        // Blocks may be needed several times, and first in another order than was recorded.
        if let Some(found) = plan.order[self.position..].iter().position(|own| *own == at) {
            self.position += found;
        }
        let next = plan.order[self.position..].iter().filter(|own| **own != at).take(NEXT);
        NeedAdvice {
            next: next.map(|own| self.base + *own as u64).collect(),
            ahead_bytes: plan.ahead.get(self.position).copied(),
        }
    }

    /// A stream waited for copies.
    pub fn wait(&mut self, from: &M, to: &M) {
        if let Some(Recording::Times(recorder)) = &mut self.recording {
            recorder.wait(from.clone(), to.clone());
        }
    }

    /// A block is gone; with the last one, the step is over.
    pub fn release(&mut self, number: u64) {
        let Some(at) = number.checked_sub(self.base).and_then(|at| usize::try_from(at).ok()) else { return };
        if at >= self.sizes.len() || std::mem::replace(&mut self.released[at], true) {
            return;
        }
        self.live -= 1;
        if let Some(Recording::Times(recorder)) = &mut self.recording {
            recorder.release(at);
        }
        if self.live == 0 {
            self.end();
        }
    }

    fn end(&mut self) {
        self.report.steps += 1;
        let kept_to = self.following.as_ref().is_some_and(|plan| plan.bytes.len() == self.sizes.len());
        self.report.planned_steps += u64::from(kept_to && !self.was_kept);
        self.followed += u64::from(kept_to);
        if kept_to {
            self.note_over();
        }
        if self.following.is_some() && !kept_to {
            self.leave_plan();
        }
        match self.recording.take() {
            Some(Recording::Times(recorder)) => {
                (self.timed, self.uses) = (self.sizes.first().map(|first| (*first, recorder)), None);
            }
            Some(Recording::Memory(uses)) => self.uses = Some(uses),
            None => {}
        }
    }

    /// A step by a plan is over; what it was like is known when the device is done with it.
    fn note_over(&mut self) {
        let marks = (self.first.take(), self.last.take());
        let Some(known) = self.sizes.first().and_then(|first| self.plans.get_mut(first)) else { return };
        known.steps += u64::from(!self.was_kept);
        if let (Some(begun), Some(ended)) = marks {
            // Which plan it kept to, and whether nothing left all the same.
            self.spans.add(&CopyMarks { begun, ended }, 2 * known.made + usize::from(self.was_kept));
        }
    }

    /// Whether the plan is to keep everything, and there is memory for much more.
    pub fn is_idle(&self) -> bool {
        let OffloadPolicy::Plan { most_bytes: None, device_bytes, .. } = self.policy else { return false };
        let StepReport { limit, kept, base_bytes, planned_steps, .. } = &self.report;
        let peak = kept.map_or(u64::MAX, |kept| kept.peak_bytes.saturating_add(*base_bytes));
        *limit == Some(PlanLimit::Rate) && *planned_steps > 0 && self.live == 0 && peak < device_bytes / 2
    }

    /// Whether steps keep to a plan, and whether there is memory for one in which nothing leaves.
    pub fn may_keep(&self) -> (bool, bool) {
        (self.followed > 0 && self.live == 0, self.has_room_for_all())
    }

    fn has_room_for_all(&self) -> bool {
        let OffloadPolicy::Plan { most_bytes: None, device_bytes, .. } = self.policy else { return false };
        let StepReport { kept, base_bytes, .. } = &self.report;
        kept.is_some_and(|kept| kept.peak_bytes.saturating_add(*base_bytes) < share(device_bytes, FULL))
    }

    /// Bytes of copies that may be under way without a plan.
    pub fn window(&self, used: DeviceUse) -> u64 {
        let most = match self.policy {
            OffloadPolicy::All { most_bytes } | OffloadPolicy::Plan { most_bytes, .. } => most_bytes,
        };
        let largest = self.sizes.iter().max().copied().unwrap_or(0);
        if most.is_some_and(|most| used.allocated > most) { 0 } else { self.window_bytes.max(2 * largest) }
    }

    /// How closely memory should be looked at.
    pub fn measuring(&self) -> Measuring {
        let is_recorded = match (self.live, &self.recording) {
            (0, _) => self.timed.is_some() && self.uses.is_none(),
            (_, recording) => matches!(recording, Some(Recording::Memory(_))),
        };
        match self.policy {
            _ if is_recorded => Measuring::Exactly,
            _ if self.following.is_some() && self.live > 0 && !self.keeps => Measuring::Nothing,
            OffloadPolicy::All { most_bytes: None } => Measuring::Nothing,
            OffloadPolicy::Plan { most_bytes: None, .. } => Measuring::Roughly,
            _ => Measuring::Exactly,
        }
    }

    pub fn note_stall(&mut self, seconds: f64) {
        self.report.planned_stall_s += seconds;
        self.unseen_stall_s += seconds;
    }

    pub fn report(&self) -> StepReport {
        self.report.clone()
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "lengths of memory"
)]
fn share(bytes: u64, part: f64) -> u64 {
    (bytes as f64 * part) as u64
}
