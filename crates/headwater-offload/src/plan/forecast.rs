//! A step played through: when copies are made, when the GPU waits for them, and how much lies where.

use std::collections::VecDeque;

use serde::Serialize;

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
struct Link {
    rate: f64,
    free_s: f64,
}

impl Link {
    fn new(rate: f64) -> Self {
        Self { rate, free_s: 0.0 }
    }

    /// Moves bytes that are there at `from`; the moments at which that begins and ends.
    #[expect(clippy::cast_precision_loss, reason = "lengths of memory")]
    fn move_from(&mut self, from: f64, bytes: u64) -> (f64, f64) {
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

/// When a block was saved, when there was host memory for it, when its copy was over, and when the disk had it; never, where it does not go.
#[derive(Clone, Copy)]
struct Left {
    saved_s: f64,
    room_s: f64,
    down_s: f64,
    written_s: f64,
}

impl Left {
    fn never(saved_s: f64) -> Self {
        Self { saved_s, room_s: f64::INFINITY, down_s: f64::INFINITY, written_s: f64::INFINITY }
    }
}

/// Plays a step in which blocks go where `goes` says.
#[must_use]
pub fn forecast(trace: &StepTrace, goes: &[Destination], rates: &LinkRates, room: &OffloadRoom) -> StepForecast {
    let mut found = StepForecast::default();
    let (left, late) = forward(trace, goes, rates, room, &mut found);
    backward(trace, goes, rates, room, (&left, late), &mut found);
    found.step_s = trace.step_s + found.stall_s;
    found
}

/// Copies to the host, which host memory has to have room for: blocks stay there, or until a disk has them.
struct Leaving<'a> {
    down: Link,
    write: Link,
    room: &'a OffloadRoom,
    /// Bytes that stay in host memory, and those that a disk will have, with the moment.
    hosted_bytes: u64,
    passing: VecDeque<(f64, u64)>,
    /// Copies: when they are queued and when they end, and their bytes.
    under_way: VecDeque<(f64, f64, u64)>,
}

impl Leaving<'_> {
    /// Lets a block leave that is saved at `now`; never, where there is no room for it.
    fn leave(&mut self, now: f64, bytes: u64, goes: Destination) -> Left {
        let mut from = now;
        while self.hosted_bytes + self.passing.iter().map(|(_, bytes)| bytes).sum::<u64>() + bytes
            > self.room.host_bytes
        {
            let Some((until, _)) = self.passing.pop_front() else { return Left::never(now) };
            from = from.max(until);
        }
        let (_, down_s) = self.down.move_from(from, bytes);
        self.under_way.push_back((from, down_s, bytes));
        let written_s = if goes == Destination::Disk { self.write.move_from(down_s, bytes).1 } else { f64::INFINITY };
        match goes {
            Destination::Disk => self.passing.push_back((written_s, bytes)),
            _ => self.hosted_bytes += bytes,
        }
        Left { saved_s: now, room_s: from, down_s, written_s }
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

/// When blocks have left, and by how much the forward pass is late when it ends.
fn forward(
    trace: &StepTrace,
    goes: &[Destination],
    rates: &LinkRates,
    room: &OffloadRoom,
    found: &mut StepForecast,
) -> (Vec<Left>, f64) {
    let (down, write) = (Link::new(rates.down), Link::new(rates.write));
    let (passing, under_way) = (VecDeque::new(), VecDeque::new());
    let mut leaving = Leaving { down, write, room, hosted_bytes: 0, passing, under_way };
    let (mut left, mut late) = (Vec::with_capacity(trace.blocks.len()), 0.0);
    for (block, goes) in trace.blocks.iter().zip(goes) {
        let now = block.saved_s + late;
        if *goes == Destination::Nowhere {
            left.push(Left::never(now));
            continue;
        }
        left.push(leaving.leave(now, block.bytes, *goes));
        // Only where little should lie on the GPU does it wait for copies.
        if room.gpu_bytes.is_some() {
            late += leaving.wait(now, room.window_bytes.max(2 * block.bytes));
        }
    }
    found.stall_s += late;
    (left, late)
}

/// Brings blocks back in the order in which they are needed, each as late as it may come, a window earlier; and counts what lies where.
fn backward(
    trace: &StepTrace,
    goes: &[Destination],
    rates: &LinkRates,
    room: &OffloadRoom,
    (left, mut late): (&[Left], f64),
    found: &mut StepForecast,
) {
    let mut order: Vec<usize> = (0..trace.blocks.len()).collect();
    order.sort_by(|one, other| trace.blocks[*one].needed_s.total_cmp(&trace.blocks[*other].needed_s));
    let begun = order.first().map_or(0.0, |first| trace.blocks[*first].needed_s) + late;
    let latest = latest_starts(trace, &order, (left, goes), rates);
    let margin = |rate| Link::new(rate).move_from(0.0, room.window_bytes).1;
    let (mut up, mut read) = (Link::new(rates.up), Link::new(rates.read));
    let (mut gpu, mut host) = (Level::default(), Level::default());
    for at in order {
        let block = trace.blocks[at];
        let (needed, Left { saved_s, room_s, down_s, written_s }) = (block.needed_s + late, left[at]);
        if down_s >= needed {
            // It has not gone yet, or never goes: it is taken as it is.
            gpu.hold(saved_s, block.freed_s + late, block.bytes);
            continue;
        }
        found.moved_bytes += block.bytes;
        let mut from = begun.max(down_s).max(latest[at].0 + late - margin(rates.up));
        if goes[at] == Destination::Disk && written_s <= needed {
            found.written_bytes += block.bytes;
            let soonest = written_s.max(begun).max(latest[at].1 + late - margin(rates.read));
            let (read_begun, read_s) = read.move_from(soonest, block.bytes);
            host.hold(room_s, written_s, block.bytes);
            host.hold(read_begun, read_s.max(from), block.bytes);
            from = from.max(read_s);
        } else {
            host.hold(room_s, block.freed_s + late, block.bytes);
        }
        let (up_begun, up_s) = up.move_from(from, block.bytes);
        if up_s > needed {
            found.stall_s += up_s - needed;
            late += up_s - needed;
        }
        gpu.hold(saved_s, down_s, block.bytes);
        gpu.hold(up_begun, block.freed_s + late, block.bytes);
    }
    (found.peak_bytes, found.host_bytes) = (gpu.most(), host.most());
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
