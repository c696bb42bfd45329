//! A plan as what is done when a block is saved and when one is needed.
//!
//! The host queues work long before a GPU does it, so memory changes hands in the order of streams: with every block that is saved, the
//! stream goes on behind the copies that are over by then if they are as fast as was measured. It waits for none that is in time.

use super::forecast::play;
use super::{LinkRates, OffloadPlan, OffloadRoom, StepTrace};

/// Share of the measured rates that a schedule relies on.
const CAUTION: f64 = 0.9;

/// What is done at which block.
#[derive(Debug, Clone, PartialEq)]
pub struct StepSchedule {
    /// Where blocks go, and what is expected of that.
    pub plan: OffloadPlan,
    /// Length of each block.
    pub bytes: Vec<u64>,
    /// Bytes of copies that may be under way when each block has been saved; the stream goes on behind the others.
    pub windows: Vec<u64>,
    /// Blocks in the order in which they are needed.
    pub order: Vec<usize>,
    /// For each of these, bytes of later ones that are on their way back by then, or back.
    pub ahead: Vec<u64>,
}

/// What has to be done so that a plan comes true.
#[must_use]
pub fn schedule(trace: &StepTrace, mut made: OffloadPlan, rates: &LinkRates, room: &OffloadRoom) -> StepSchedule {
    let rates = rates.slower(CAUTION);
    let played = play(trace, &made.goes, &rates, room);
    // Memory changes hands when the schedule says so, however fast copies are.
    made.forecast.peak_bytes = played.forecast.peak_bytes;
    let bytes: Vec<u64> = trace.blocks.iter().map(|block| block.bytes).collect();
    let ahead = (0..played.order.len()).map(|at| {
        // Until the next block is needed nothing can be begun.
        let until = played.order.get(at + 1).map_or(f64::INFINITY, |next| played.needed_s[*next]);
        let later = played.order[at + 1..].iter();
        let begun = later.take_while(|own| played.up_s[**own].is_none_or(|from| from <= until));
        begun.filter(|own| played.up_s[**own].is_some()).map(|own| bytes[*own]).sum()
    });
    StepSchedule { ahead: ahead.collect(), windows: played.under_way, order: played.order, plan: made, bytes }
}
