//! A step played through: when copies are made, when the GPU waits for them, and how much lies where.

use std::collections::VecDeque;

use serde::Serialize;

use super::staging::Staging;
use super::{Destination, LinkRates, OffloadRoom, StepTrace};

/// What a step is expected to be like.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct StepForecast {
    /// The most bytes of saved blocks on the GPU at once.
    pub peak_bytes: u64,
    /// How long the GPU waits for copies.
    pub stall_s: f64,
    /// How long the step takes.
    pub step_s: f64,
    /// Bytes that leave the GPU.
    pub moved_bytes: u64,
    /// The most bytes in host memory at once.
    pub host_bytes: u64,
    /// Bytes that are written to disks.
    pub written_bytes: u64,
}

/// One link that moves one block after the other.
pub(super) struct Link {
    rate: f64,
    free_s: f64,
}

impl Link {
    pub fn new(rate: f64) -> Self {
        Self { rate, free_s: 0.0 }
    }

    /// Moves bytes that are there at `from`; the moments at which that begins and ends.
    #[expect(clippy::cast_precision_loss, reason = "lengths of memory")]
    pub fn move_from(&mut self, from: f64, bytes: u64) -> (f64, f64) {
        let begun = self.free_s.max(from);
        self.free_s = begun + if self.rate > 0.0 { bytes as f64 / self.rate } else { f64::INFINITY };
        (begun, self.free_s)
    }
}

/// Bytes that come and go over time.
#[derive(Default)]
struct Level(Vec<(f64, i128)>);

impl Level {
    fn hold(&mut self, from: f64, to: f64, bytes: u64) {
        if to > from {
            self.0.push((from, i128::from(bytes)));
            self.0.push((to, -i128::from(bytes)));
        }
    }

    fn most(mut self) -> u64 {
        // What goes makes room for what comes at the same moment.
        self.0.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let mut now = 0;
        let most = self.0.iter().map(|(_, change)| {
            now += change;
            now
        });
        u64::try_from(most.max().unwrap_or(0)).unwrap_or(0)
    }
}

/// When a block was saved, when the GPU went on, when there was host memory for it, when its copy was over, and when the disk had it; never,
/// where it does not go.
#[derive(Clone, Copy)]
struct Left {
    bytes: u64,
    saved_s: f64,
    passed_s: f64,
    room_s: f64,
    down_s: f64,
    written_s: f64,
    /// When the GPU can use its memory for others: with the first block that is saved when it is down. Never, where none is.
    freed_s: f64,
}

impl Left {
    fn never(saved_s: f64, bytes: u64) -> Self {
        let never = f64::INFINITY;
        Self { bytes, saved_s, passed_s: saved_s, room_s: never, down_s: never, written_s: never, freed_s: never }
    }
}

/// What a step is like in which blocks go where `goes` says.
#[must_use]
pub fn forecast(trace: &StepTrace, goes: &[Destination], rates: &LinkRates, room: &OffloadRoom) -> StepForecast {
    play(trace, goes, rates, room).forecast
}

/// A step that was played through.
pub(super) struct Played {
    pub forecast: StepForecast,
    /// Bytes of copies to the host that are under way when each block has been saved.
    pub under_way: Vec<u64>,
    /// Blocks in the order in which they are needed.
    pub order: Vec<usize>,
    /// When each block is needed.
    pub needed_s: Vec<f64>,
    /// When its copy to the GPU begins, where there is one.
    pub up_s: Vec<Option<f64>>,
    /// Where blocks go that the GPU has no longer when they are needed; nowhere for others, which need not leave.
    pub goes: Vec<Destination>,
}

/// Plays a step in which blocks go where `goes` says.
pub(super) fn play(trace: &StepTrace, goes: &[Destination], rates: &LinkRates, room: &OffloadRoom) -> Played {
    let count = trace.blocks.len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|one, other| trace.blocks[*one].needed_s.total_cmp(&trace.blocks[*other].needed_s));
    let forecast = StepForecast::default();
    let mut played = Played {
        forecast,
        under_way: Vec::new(),
        order,
        needed_s: vec![0.0; count],
        up_s: vec![None; count],
        goes: vec![Destination::Nowhere; count],
    };
    let mut delays = Delays::default();
    let left = forward(trace, goes, rates, room, &mut delays);
    played.under_way = under_way(&left);
    backward(trace, goes, rates, room, &left, &mut delays, &mut played);
    played.forecast.stall_s = delays.late();
    played.forecast.step_s = trace.step_s + delays.late();
    played
}

/// How late a step is, from which moment of the trace on.
#[derive(Default)]
struct Delays(Vec<(f64, f64)>);

impl Delays {
    fn late(&self) -> f64 {
        self.0.last().map_or(0.0, |(_, late)| *late)
    }

    fn add(&mut self, from: f64, more: f64) {
        if more > 0.0 {
            self.0.push((from, self.late() + more));
        }
    }

    /// When something happens that happens at `moment` of the trace.
    fn shift(&self, moment: f64) -> f64 {
        let before = self.0.partition_point(|(from, _)| *from <= moment);
        moment + if before == 0 { 0.0 } else { self.0[before - 1].1 }
    }
}

/// Bytes that are still to be copied when each block has been saved. Copies end in the order in which blocks are saved.
fn under_way(left: &[Left]) -> Vec<u64> {
    let (mut queue, mut sum) = (VecDeque::<(f64, u64)>::new(), 0);
    let each = left.iter().map(|own| {
        if own.down_s.is_finite() {
            queue.push_back((own.down_s, own.bytes));
            sum += own.bytes;
        }
        while let Some((_, bytes)) = queue.front().filter(|(until, _)| *until <= own.passed_s) {
            sum -= bytes;
            queue.pop_front();
        }
        sum
    });
    each.collect()
}

/// Copies to the host, which host memory has to have room for: blocks stay there, or until a disk has them.
struct Leaving<'a> {
    down: Link,
    write: Link,
    room: &'a OffloadRoom,
    /// Bytes that stay in host memory, and those that a disk will have, with the moment.
    hosted_bytes: u64,
    passing: VecDeque<(f64, u64)>,
    /// When the block before has its memory: nobody has it before.
    room_s: f64,
    /// Copies: when they are queued and when they end, and their bytes.
    under_way: VecDeque<(f64, f64, u64)>,
}

impl Leaving<'_> {
    /// Lets a block leave that is saved at `now`; never, where there is no room for it.
    fn leave(&mut self, now: f64, bytes: u64, goes: Destination) -> Left {
        let mut from = now.max(self.room_s);
        while self.hosted_bytes + self.passing.iter().map(|(_, bytes)| bytes).sum::<u64>() + bytes
            > self.room.host_bytes
        {
            let Some((until, _)) = self.passing.pop_front() else { return Left::never(now, bytes) };
            from = from.max(until);
        }
        self.room_s = from;
        let (_, down_s) = self.down.move_from(from, bytes);
        self.under_way.push_back((from, down_s, bytes));
        let written_s = if goes == Destination::Disk { self.write.move_from(down_s, bytes).1 } else { f64::INFINITY };
        match goes {
            Destination::Disk => self.passing.push_back((written_s, bytes)),
            _ => self.hosted_bytes += bytes,
        }
        Left { room_s: from, down_s, written_s, ..Left::never(now, bytes) }
    }

    /// For how long the GPU waits at `now` until few enough bytes are under way.
    fn wait(&mut self, now: f64, window_bytes: u64) -> f64 {
        let mut until = now;
        while let Some((_, end, _)) = self.under_way.front() {
            let queued = self.under_way.iter().filter(|(queued, ..)| *queued <= until);
            if *end > until && queued.map(|(.., bytes)| bytes).sum::<u64>() <= window_bytes {
                break;
            }
            until = until.max(*end);
            self.under_way.pop_front();
        }
        until - now
    }
}

/// When blocks have left.
fn forward(
    trace: &StepTrace,
    goes: &[Destination],
    rates: &LinkRates,
    room: &OffloadRoom,
    delays: &mut Delays,
) -> Vec<Left> {
    let (down, write) = (Link::new(rates.down), Link::new(rates.write));
    let (passing, under_way) = (VecDeque::new(), VecDeque::new());
    let mut leaving = Leaving { down, write, room, hosted_bytes: 0, passing, room_s: 0.0, under_way };
    let mut left = Vec::with_capacity(trace.blocks.len());
    for (block, goes) in trace.blocks.iter().zip(goes) {
        let now = block.saved_s + delays.late();
        if *goes == Destination::Nowhere {
            left.push(Left::never(now, block.bytes));
            continue;
        }
        let mut own = leaving.leave(now, block.bytes, *goes);
        // Only where little should lie on the GPU does it wait for copies.
        if room.gpu_bytes.is_some() {
            let wait = leaving.wait(now, room.window_bytes.max(2 * block.bytes));
            delays.add(block.saved_s, wait);
            own.passed_s += wait;
        }
        left.push(own);
    }
    free(&mut left);
    left
}

/// Memory of what is down is free for others when the next block is saved, and not before: that is when the host looks.
fn free(left: &mut [Left]) {
    let mut next = 0;
    for at in 0..left.len() {
        next = next.max(at);
        while next < left.len() && left[next].passed_s < left[at].down_s {
            next += 1;
        }
        left[at].freed_s = left.get(next).map_or(f64::INFINITY, |own| own.passed_s);
    }
}

/// Brings blocks back in the order in which they are needed, each as late as it may come, a window earlier; and counts what lies where.
fn backward(
    trace: &StepTrace,
    goes: &[Destination],
    rates: &LinkRates,
    room: &OffloadRoom,
    left: &[Left],
    delays: &mut Delays,
    played: &mut Played,
) {
    let first = played.order.first().map_or(0.0, |first| trace.blocks[*first].needed_s);
    let begun = first + delays.late();
    let latest = latest_starts(trace, &played.order, (left, goes), rates);
    let margin = |rate| Link::new(rate).move_from(0.0, room.window_bytes).1;
    let (mut up, mut read) = (Link::new(rates.up), Link::new(rates.read));
    let (mut gpu, mut host, mut events) = (Level::default(), Level::default(), Vec::new());
    let mut staging = staging(trace, goes, room, left, delays.late());
    let found = &mut played.forecast;
    for &at in &played.order {
        let (block, late) = (trace.blocks[at], delays.late());
        let (needed, Left { saved_s, room_s, down_s, written_s, freed_s, .. }) = (block.needed_s + late, left[at]);
        played.needed_s[at] = needed;
        if freed_s >= needed {
            // It has not gone yet, or never goes: it is taken as it is.
            gpu.hold(saved_s, block.freed_s + late, block.bytes);
            events.push(needed);
            continue;
        }
        found.moved_bytes += block.bytes;
        let mut read_begun = None;
        let mut from = begun.max(down_s).max(latest[at].0 + late - margin(rates.up));
        if goes[at] == Destination::Disk && written_s <= needed {
            found.written_bytes += block.bytes;
            let soonest = written_s.max(begun).max(latest[at].1 + late - margin(rates.read));
            let soonest = staging.room_from(soonest, block.bytes);
            let (begun, read_s) = read.move_from(soonest, block.bytes);
            host.hold(room_s, written_s, block.bytes);
            from = from.max(read_s);
            read_begun = Some(begun);
        } else {
            host.hold(room_s, block.freed_s + late, block.bytes);
        }
        let (up_begun, up_s) = up.move_from(from, block.bytes);
        if let Some(read_begun) = read_begun {
            staging.hold(up_s, block.bytes);
            host.hold(read_begun, up_s, block.bytes);
        }
        played.up_s[at] = Some(up_begun);
        delays.add(block.needed_s, up_s - needed);
        played.goes[at] = goes[at];
        gpu.hold(saved_s, freed_s, block.bytes);
        // Its memory is asked for when the block before it is needed that the copy begins behind.
        let asked =
            events.partition_point(|moment| *moment <= up_begun).checked_sub(1).map_or(up_begun, |at| events[at]);
        gpu.hold(asked, block.freed_s + delays.late(), block.bytes);
        events.push(needed);
    }
    for (at, (moment, bytes)) in trace.beside.iter().enumerate() {
        let until = trace.beside.get(at + 1).map_or(trace.step_s, |(next, _)| *next);
        gpu.hold(delays.shift(*moment), delays.shift(until), *bytes);
    }
    (found.peak_bytes, found.host_bytes) = (gpu.most(), host.most());
}

/// Host memory that blocks have when the first is needed: until a disk has them, or nobody needs them any more.
fn staging(trace: &StepTrace, goes: &[Destination], room: &OffloadRoom, left: &[Left], late: f64) -> Staging {
    let both = trace.blocks.iter().zip(goes).zip(left);
    let held = both.filter(|(_, own)| own.down_s.is_finite()).map(|((block, goes), own)| {
        let is_written = *goes == Destination::Disk && own.written_s <= block.needed_s + late;
        (if is_written { own.written_s } else { block.freed_s + late }, block.bytes)
    });
    Staging::new(room.host_bytes, held)
}

/// When each copy to the GPU, and each read before it, has to begin so that it and all behind it are in time.
fn latest_starts(
    trace: &StepTrace,
    order: &[usize],
    (left, goes): (&[Left], &[Destination]),
    rates: &LinkRates,
) -> Vec<(f64, f64)> {
    let takes = |rate, bytes| Link::new(rate).move_from(0.0, bytes).1;
    let mut latest = vec![(0.0, 0.0); trace.blocks.len()];
    let (mut next_up, mut next_read) = (f64::INFINITY, f64::INFINITY);
    for at in order.iter().copied().rev().filter(|at| left[*at].down_s.is_finite()) {
        let block = trace.blocks[at];
        next_up = next_up.min(block.needed_s) - takes(rates.up, block.bytes);
        if goes[at] == Destination::Disk {
            next_read = next_read.min(next_up) - takes(rates.read, block.bytes);
        }
        latest[at] = (next_up, next_read);
    }
    latest
}
