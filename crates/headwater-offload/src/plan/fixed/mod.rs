//! Plans for a step whose order is known before it runs: which operations there are, how long each takes, and which buffers each
//! touches. Stores and loads are put at fixed places between operations, and every buffer at a fixed place of one piece of GPU memory.
//!
//! Candidates differ in how many buffers leave, the oldest first, and in how many operations their copies may overlap with. Each is
//! simulated, and the cheapest that fits is taken.

mod simulate;
#[cfg(test)]
mod tests;

use headwater_memory::{Lifetime, place_by_lifetime};
use serde::Serialize;

use super::{Destination, LinkRates, OffloadRoom, StepForecast};
use simulate::{Timeline, simulate};

/// A step as a list of operations, and what they touch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FixedStep {
    /// Seconds of each operation.
    pub op_s: Vec<f64>,
    /// Buffers on the GPU.
    pub buffers: Vec<FixedBuffer>,
}

/// A buffer of a fixed step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FixedBuffer {
    /// Length in bytes.
    pub bytes: u64,
    /// The operation that writes it.
    pub first: usize,
    /// The last operation that reads it.
    pub last: usize,
    /// Two operations that touch it with none between them that does: in between it may leave.
    pub gap: Option<(usize, usize)>,
}

/// A buffer that leaves, and between which operations what happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BufferMove {
    /// Which buffer.
    pub buffer: usize,
    /// Host memory or disk.
    pub goes: Destination,
    /// Its copy to the host is queued behind this operation.
    pub store_after: usize,
    /// Its GPU memory is used again from this operation on, which goes on behind the copy.
    pub reused_from: usize,
    /// What a disk has of it is read from this operation on.
    pub read_from: usize,
    /// Its copy to the GPU is queued before this operation.
    pub load_before: usize,
    /// This operation waits for that copy.
    pub needed_by: usize,
    /// Behind this operation it is forgotten.
    pub last: usize,
}

/// Where a buffer lies in GPU memory during some operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Residency {
    /// Which buffer.
    pub buffer: usize,
    /// The first of these operations.
    pub first: usize,
    /// The last one.
    pub last: usize,
    /// Where it begins, in bytes.
    pub offset: u64,
}

/// A fixed step with its stores, its loads and its memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FixedPlan {
    /// Length of each buffer.
    pub bytes: Vec<u64>,
    /// Where every buffer lies, and when.
    pub residencies: Vec<Residency>,
    /// Buffers that leave, in the order in which they do.
    pub moves: Vec<BufferMove>,
    /// What is expected of it. The peak is the length of the one piece of GPU memory.
    pub forecast: StepForecast,
}

/// How good a plan is: the smaller, the better.
pub type PlanRank = (u8, u64, u64);

/// Copies may overlap with so many operations; the last is as many as they take.
const OVERLAPS: [usize; 4] = [1, 2, 3, usize::MAX];
/// The most numbers of leaving buffers that are tried.
const MOST_CUTS: usize = 24;
/// Share of the measured rates by which copies are placed.
const CAUTION: f64 = 0.9;
/// Savings below this share of the peak are not worth a copy.
const LEAST_SAVED: f64 = 0.05;

impl FixedPlan {
    /// How it compares with others for the same run. Plans that fit `gpu_bytes` come first; among them those that take at most `slack` of
    /// `base_s` longer, the smallest first; then the fastest.
    #[must_use]
    #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "nanoseconds of a step")]
    pub fn rank(&self, base_s: f64, slack: f64, gpu_bytes: u64) -> PlanRank {
        let StepForecast { peak_bytes, step_s, .. } = self.forecast;
        let nanoseconds = (step_s * 1e9) as u64;
        match peak_bytes <= gpu_bytes {
            false => (2, peak_bytes, nanoseconds),
            true if step_s <= base_s * (1.0 + slack) + 1e-9 => (0, peak_bytes, nanoseconds),
            true => (1, nanoseconds, peak_bytes),
        }
    }

    /// Where a buffer lies during an operation.
    #[must_use]
    pub fn offset(&self, buffer: usize, op: usize) -> Option<u64> {
        let is_there = |own: &&Residency| own.buffer == buffer && own.first <= op && op <= own.last;
        self.residencies.iter().find(is_there).map(|own| own.offset)
    }
}

/// The best plan for a step that takes `base_s` seconds when nothing leaves and nothing is computed twice. One that does not fit
/// `room.gpu_bytes` says how small the step can be.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "lengths of memory")]
pub fn plan_fixed(step: &FixedStep, rates: &LinkRates, room: &OffloadRoom, (base_s, slack): (f64, f64)) -> FixedPlan {
    let limit = room.gpu_bytes.unwrap_or(u64::MAX);
    let kept = laid_out(step, rates, room, Vec::new());
    let mut best = kept.clone();
    let mut candidates: Vec<usize> = (0..step.buffers.len()).filter(|at| may_leave(&step.buffers[*at])).collect();
    candidates.sort_by_key(|at| step.buffers[*at].gap);
    let cuts = candidates.len().min(MOST_CUTS);
    for cut in 1..=cuts {
        let leaving = &candidates[..cut * candidates.len() / cuts];
        let Some(goes) = destinations(step, leaving, rates, room) else { continue };
        for overlap in OVERLAPS {
            let moves = placed_moves(step, &goes, rates, room, overlap);
            let found = laid_out(step, rates, room, moves);
            let (own, other) = (found.rank(base_s, slack, limit), best.rank(base_s, slack, limit));
            let is_worth = (found.forecast.peak_bytes as f64) < (1.0 - LEAST_SAVED) * kept.forecast.peak_bytes as f64;
            // Only where all is well is a small gain not worth a copy.
            if own < other && (own.0 > 0 || own.0 < other.0 || is_worth) {
                best = found;
            }
        }
    }
    best
}

/// Whether there is an operation between the two that touch it.
fn may_leave(buffer: &FixedBuffer) -> bool {
    buffer.bytes > 0 && buffer.gap.is_some_and(|(before, after)| after > before + 1)
}

/// Where buffers go: the newest to host memory as long as there is room, the oldest to disk. `None` where there is no room for all.
fn destinations(
    step: &FixedStep,
    leaving: &[usize],
    rates: &LinkRates,
    room: &OffloadRoom,
) -> Option<Vec<(usize, Destination)>> {
    let has_disk = rates.write > 0.0 && rates.read > 0.0;
    let all: u64 = leaving.iter().map(|at| step.buffers[*at].bytes).sum();
    let longest = leaving.iter().map(|at| step.buffers[*at].bytes).max().unwrap_or(0);
    // What goes to disk passes through host memory: one buffer down and one up.
    let passing = if all > room.host_bytes { 2 * longest } else { 0 };
    let (mut host, mut disk, mut goes) = (0, 0, Vec::new());
    for at in leaving.iter().rev() {
        let bytes = step.buffers[*at].bytes;
        if disk == 0 && host + bytes + passing <= room.host_bytes {
            host += bytes;
            goes.push((*at, Destination::Host));
        } else if has_disk && passing <= room.host_bytes && disk + bytes <= room.disk_bytes {
            disk += bytes;
            goes.push((*at, Destination::Disk));
        } else {
            return None;
        }
    }
    goes.reverse();
    Some(goes)
}

/// Moves of buffers, with copies that overlap with at most so many operations. A buffer that would come back before its memory could be
/// used again stays.
fn placed_moves(
    step: &FixedStep,
    goes: &[(usize, Destination)],
    rates: &LinkRates,
    room: &OffloadRoom,
    overlap: usize,
) -> Vec<BufferMove> {
    let rates = rates.slower(CAUTION);
    let mut goes = goes.to_vec();
    loop {
        let mut moves: Vec<BufferMove> = goes.iter().filter_map(|(at, goes)| first_move(step, *at, *goes)).collect();
        place_loads(step, &mut moves, &rates, overlap);
        simulate(step, &mut moves, &rates, room, Some(overlap));
        let stays = |own: &BufferMove| own.reused_from >= own.load_before;
        if !moves.iter().any(stays) {
            return moves;
        }
        let is_moved = |at: usize| moves.iter().any(|own| own.buffer == at && !stays(own));
        goes.retain(|(at, _)| is_moved(*at));
    }
}

fn first_move(step: &FixedStep, buffer: usize, goes: Destination) -> Option<BufferMove> {
    let FixedBuffer { gap, last, .. } = step.buffers[buffer];
    let (before, after) = gap?;
    Some(BufferMove {
        buffer,
        goes,
        store_after: before,
        reused_from: after,
        read_from: before + 1,
        load_before: after,
        needed_by: after,
        last,
    })
}

/// Puts loads as late as they may begin, one behind the other, and reads of disks two buffers before them.
#[expect(clippy::cast_precision_loss, reason = "lengths of memory")]
fn place_loads(step: &FixedStep, moves: &mut [BufferMove], rates: &LinkRates, overlap: usize) {
    let starts: Vec<f64> = step.op_s.iter().scan(0.0, |sum, op_s| Some(std::mem::replace(sum, *sum + op_s))).collect();
    let mut order: Vec<usize> = (0..moves.len()).collect();
    order.sort_by_key(|at| moves[*at].needed_by);
    let mut next = f64::INFINITY;
    for at in order.iter().rev() {
        let own = &mut moves[*at];
        let takes = step.buffers[own.buffer].bytes as f64 / rates.up.max(1.0);
        next = next.min(starts[own.needed_by]) - takes;
        let latest = starts.partition_point(|start| *start <= next).saturating_sub(1);
        let earliest = (own.needed_by + 1).saturating_sub(overlap).max(own.store_after + 1);
        own.load_before = latest.clamp(earliest.min(own.needed_by), own.needed_by);
    }
    let on_disk: Vec<usize> = order.into_iter().filter(|at| moves[*at].goes == Destination::Disk).collect();
    let all_stored = moves.iter().map(|own| own.store_after + 1).max().unwrap_or(0);
    for (place, at) in on_disk.iter().enumerate() {
        let behind = place.checked_sub(2).map_or(all_stored, |before| moves[on_disk[before]].load_before);
        let own = &mut moves[*at];
        own.read_from = behind.clamp(own.store_after + 1, own.load_before);
    }
}

/// The plan of some moves: one piece of memory for everything, and what is expected.
fn laid_out(step: &FixedStep, rates: &LinkRates, room: &OffloadRoom, mut moves: Vec<BufferMove>) -> FixedPlan {
    let Timeline { step_s, stall_s } = simulate(step, &mut moves, rates, room, None);
    let mut residencies = Vec::new();
    for (buffer, own) in step.buffers.iter().enumerate() {
        let stays = |first, last| Residency { buffer, first, last, offset: 0 };
        match moves.iter().find(|own| own.buffer == buffer) {
            Some(own_move) => {
                residencies.push(stays(own.first, own_move.reused_from - 1));
                residencies.push(stays(own_move.load_before, own.last));
            }
            None => residencies.push(stays(own.first, own.last)),
        }
    }
    let life = |own: &Residency| Lifetime {
        bytes: usize::try_from(step.buffers[own.buffer].bytes).unwrap_or(usize::MAX / 4),
        first: own.first,
        last: own.last,
    };
    let (offsets, total) = place_by_lifetime(&residencies.iter().map(life).collect::<Vec<_>>());
    residencies.iter_mut().zip(offsets).for_each(|(own, offset)| own.offset = offset as u64);
    let bytes_to = |goes: Destination| -> u64 {
        moves.iter().filter(|own| own.goes == goes).map(|own| step.buffers[own.buffer].bytes).sum()
    };
    let (to_host, to_disk) = (bytes_to(Destination::Host), bytes_to(Destination::Disk));
    let forecast = StepForecast {
        peak_bytes: total as u64,
        stall_s,
        step_s,
        moved_bytes: to_host + to_disk,
        host_bytes: to_host,
        written_bytes: to_disk,
    };
    let bytes = step.buffers.iter().map(|own| own.bytes).collect();
    FixedPlan { bytes, residencies, moves, forecast }
}
