//! A fixed step played through: when copies begin and end, and how long operations wait for them.

use std::collections::VecDeque;

use super::{BufferMove, FixedStep};
use crate::plan::forecast::Link;
use crate::plan::{Destination, LinkRates, OffloadRoom};

/// How long a step takes, and how much of that it waits for copies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Timeline {
    pub step_s: f64,
    pub stall_s: f64,
}

/// When a buffer is down, and what a disk has done with it.
#[derive(Clone, Copy, Default)]
struct Moved {
    down_s: f64,
    written_s: f64,
    read_s: f64,
    up_s: f64,
}

struct Links {
    down: Link,
    up: Link,
    write: Link,
    read: Link,
}

/// Plays a step. With `overlap`, memory of a buffer is used again from the first operation on that begins when its copy is over, or
/// that many operations behind the store, and moves are told so.
pub(super) fn simulate(
    step: &FixedStep,
    moves: &mut [BufferMove],
    rates: &LinkRates,
    room: &OffloadRoom,
    overlap: Option<usize>,
) -> Timeline {
    let links = Links {
        down: Link::new(rates.down),
        up: Link::new(rates.up),
        write: Link::new(rates.write),
        read: Link::new(rates.read),
    };
    let mut play = Play { step, links, room, now: 0.0, stall_s: 0.0, passing: VecDeque::new() };
    let mut moved = vec![Moved::default(); moves.len()];
    let mut is_settled = vec![false; moves.len()];
    for (op, op_s) in step.op_s.iter().enumerate() {
        for (at, own) in moves.iter_mut().enumerate().filter(|(_, own)| own.store_after < op && op <= own.needed_by) {
            if let Some(overlap) = overlap.filter(|_| !is_settled[at]) {
                let is_due = moved[at].down_s <= play.now || op - own.store_after >= overlap || op == own.needed_by;
                own.reused_from = if is_due { op } else { own.needed_by };
            }
            if own.reused_from == op {
                is_settled[at] = true;
                play.wait(moved[at].down_s);
            }
        }
        for (at, own) in moves.iter().enumerate() {
            if own.goes == Destination::Disk && own.read_from == op {
                moved[at].read_s = play.links.read.move_from(play.now.max(moved[at].written_s), play.bytes(own)).1;
            }
        }
        for (at, own) in moves.iter().enumerate().filter(|(_, own)| own.load_before == op) {
            let from = play.now.max(moved[at].down_s).max(moved[at].read_s);
            moved[at].up_s = play.links.up.move_from(from, play.bytes(own)).1;
        }
        for (at, _) in moves.iter().enumerate().filter(|(_, own)| own.needed_by == op) {
            play.wait(moved[at].up_s);
        }
        play.now += op_s;
        for (at, own) in moves.iter().enumerate().filter(|(_, own)| own.store_after == op) {
            play.store(own, &mut moved[at]);
        }
    }
    Timeline { step_s: play.now, stall_s: play.stall_s }
}

struct Play<'a> {
    step: &'a FixedStep,
    links: Links,
    room: &'a OffloadRoom,
    now: f64,
    stall_s: f64,
    /// Bytes in host memory that a disk will have, with the moment.
    passing: VecDeque<(f64, u64)>,
}

impl Play<'_> {
    fn bytes(&self, own: &BufferMove) -> u64 {
        self.step.buffers[own.buffer].bytes
    }

    fn wait(&mut self, until: f64) {
        self.stall_s += (until - self.now).max(0.0);
        self.now = self.now.max(until);
    }

    fn store(&mut self, own: &BufferMove, moved: &mut Moved) {
        let (bytes, mut from) = (self.bytes(own), self.now);
        if own.goes == Destination::Disk {
            while self.passing.iter().map(|(_, bytes)| bytes).sum::<u64>() + bytes > self.room.host_bytes {
                let Some((until, _)) = self.passing.pop_front() else { break };
                from = from.max(until);
            }
        }
        moved.down_s = self.links.down.move_from(from, bytes).1;
        if own.goes == Destination::Disk {
            moved.written_s = self.links.write.move_from(moved.down_s, bytes).1;
            self.passing.push_back((moved.written_s, bytes));
        }
    }
}
