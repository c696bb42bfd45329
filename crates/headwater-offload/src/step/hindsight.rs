//! Whether steps by a plan took as long as it said, and what is believed from then on. All from numbers.
//!
//! A step is longer than expected for three reasons. Rates that were measured are lower now: the next plan is made of those. Streams wait for
//! copies although rates seem right: a share of the rates is relied on. Or the GPU computes more slowly while copies are under way, as memory
//! and power are shared: no stream waits, and each byte that moves is taken to cost that time.

use crate::plan::{LinkRates, StepForecast};

/// Steps by a plan after which it is held against them. The first may be longer, as host memory is asked for in it.
pub(super) const LOOK: usize = 3;
/// What the times of steps differ by without a reason, as a share of a step.
const NOISE: f64 = 0.01;
/// Rates that differ by less are the same.
const DRIFT: f64 = 0.15;
/// Steps in time after which a plan that was made smaller may grow; twice as many each time that it is made smaller.
const CALM: u64 = 32;
const MOST_CALM: u64 = 1 << 20;

/// A step by a plan, from the first block that it saves to the last that it needs. Seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PlannedStep {
    pub took_s: f64,
    /// Of that, how long streams waited for copies.
    pub stall_s: f64,
}

/// What plans rely on, from what became of those before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trust {
    /// Share of the measured rates.
    pub caution: f64,
    /// Seconds by which computing takes longer for each byte that moves beside it.
    pub per_byte_s: f64,
    /// Steps in time after which more is tried.
    pub calm: u64,
}

impl Trust {
    /// All that was measured is right.
    pub const FULL: Self = Self { caution: 1.0, per_byte_s: 0.0, calm: CALM };

    pub fn is_full(&self) -> bool {
        self.caution >= 1.0 && self.per_byte_s <= 0.0
    }

    /// More, after steps that were in time: whatever was beside them may be over.
    pub fn more(self) -> Self {
        let per_byte_s = if self.per_byte_s < 1e-15 { 0.0 } else { self.per_byte_s / 2.0 };
        Self { caution: (self.caution * 1.25).min(1.0), per_byte_s, ..self }
    }

    fn less(self, caution: f64, per_byte_s: f64) -> Self {
        Self { caution, per_byte_s, calm: (self.calm * 2).min(MOST_CALM) }
    }
}

/// What a plan says of each step, and what it may cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promise {
    /// How long the step takes if nothing leaves.
    pub kept_s: f64,
    pub expected: StepForecast,
    /// Rates that the plan relies on.
    pub rates: LinkRates,
    /// By how much of its time a step may be longer.
    pub slack: f64,
    /// Whether less memory is wished for than that allows: then a step may also wait for as long as was said.
    pub is_wished: bool,
}

/// What steps say about their plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Finding {
    InTime,
    /// They are too long; what a smaller plan relies on.
    Late(Trust),
    /// They are too long although nothing leaves: the step that was recorded is not what steps are like now.
    Stale,
}

/// Holds the last steps against their plan. The shortest counts: others were held up by something that has passed.
#[expect(clippy::cast_precision_loss, reason = "lengths of memory")]
pub(super) fn judge(steps: &[PlannedStep], promise: &Promise, trust: Trust) -> Finding {
    let shortest = steps.iter().min_by(|one, other| one.took_s.total_cmp(&other.took_s));
    let Some(step) = shortest.filter(|_| steps.len() >= LOOK) else { return Finding::InTime };
    let Promise { kept_s, expected, slack, .. } = promise;
    let longer = step.took_s - kept_s;
    // A wish for memory costs what it costs, once that is known.
    let known = 1.2 * expected.stall_s + trust.per_byte_s * expected.moved_bytes as f64;
    let wished = if promise.is_wished { known } else { 0.0 };
    if longer <= (slack + NOISE) * kept_s + wished {
        return Finding::InTime;
    }
    if expected.moved_bytes == 0 {
        return if trust.is_full() { Finding::InTime } else { Finding::Stale };
    }
    let per_byte_s = (longer - step.stall_s).max(0.0) / expected.moved_bytes as f64;
    let unexpected = (step.stall_s - expected.stall_s).max(0.0);
    let caution = if unexpected > slack / 2.0 * kept_s {
        let busy = busiest_s(expected, &promise.rates);
        trust.caution * (busy / (busy + unexpected)).clamp(0.25, 0.85)
    } else {
        trust.caution
    };
    Finding::Late(trust.less(caution, per_byte_s.max(trust.per_byte_s)))
}

/// How long the link or the disk is busy that is busy the longest.
#[expect(clippy::cast_precision_loss, reason = "lengths of memory")]
fn busiest_s(expected: &StepForecast, rates: &LinkRates) -> f64 {
    let of = |bytes: u64, rate: f64| if bytes > 0 { bytes as f64 / rate.max(1.0) } else { 0.0 };
    let ways = [
        of(expected.moved_bytes, rates.down),
        of(expected.moved_bytes, rates.up),
        of(expected.written_bytes, rates.write),
        of(expected.written_bytes, rates.read),
    ];
    ways.into_iter().fold(0.0, f64::max)
}

/// How rates differ from those that a plan relies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drift {
    Same,
    /// A way that the plan uses is slower.
    Slower,
    Faster,
}

/// Holds rates as they are now against those that a plan relies on.
pub(super) fn drift(relied: &LinkRates, now: &LinkRates, expected: &StepForecast) -> Drift {
    let ways = [
        (relied.down, now.down, expected.moved_bytes),
        (relied.up, now.up, expected.moved_bytes),
        (relied.write, now.write, expected.written_bytes),
        (relied.read, now.read, expected.written_bytes),
    ];
    if ways.iter().any(|(relied, now, bytes)| *bytes > 0 && *now < relied * (1.0 - DRIFT)) {
        return Drift::Slower;
    }
    let is_faster = ways.iter().any(|(relied, now, _)| *now > relied * (1.0 + DRIFT));
    if is_faster { Drift::Faster } else { Drift::Same }
}

/// What to say of disks that are slower than a plan relies on.
pub(super) fn slow_disk(relied: &LinkRates, now: &LinkRates) -> Option<String> {
    let gb = |rate: f64| rate / 1e9;
    let of = |what: &str, relied: f64, now: f64| {
        let is_slower = now < relied * (1.0 - DRIFT);
        is_slower.then(|| format!("{what} {:.2} GB/s where {:.2} GB/s were expected", gb(now), gb(relied)))
    };
    let found = [of("writes", relied.write, now.write), of("reads", relied.read, now.read)];
    let found: Vec<String> = found.into_iter().flatten().collect();
    (!found.is_empty()).then(|| format!("the disk {}; activations are planned anew", found.join(" and ")))
}
