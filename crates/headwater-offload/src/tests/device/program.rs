//! What a model does in its steps, drawn from a seed: what is made, saved, changed, needed and forgotten, and on which streams.

use headwater_memory::io::Choice;

use super::SLOT;
use crate::step::OffloadPolicy;

/// Numbers out of a seed (SplitMix64).
pub(super) struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count.max(1) as u64).unwrap()
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// One thing that a model does. Tensors are numbered in the order in which they are saved in a step.
#[derive(Debug, Clone, Copy)]
pub(super) enum Deed {
    /// A tensor is computed, of so many bytes, changed in place a few times, and saved. The model itself keeps it until the step is over,
    /// or not.
    Save { bytes: usize, changes: usize, is_kept: bool },
    /// A part of the tensor that was saved last is saved as well.
    SavePart { from: usize, bytes: usize },
    /// Something is computed that nobody saves.
    Pass { bytes: usize },
    /// The backward pass needs a tensor. What comes back is kept for the next time, or not; and what has not gone is taken, or loaded
    /// all the same.
    Need { tensor: usize, is_kept: bool, is_forwarded: bool },
    /// Nobody will need a tensor any more.
    Release { tensor: usize },
    /// Another stream goes on behind the one before.
    Switch { stream: usize },
    /// Somebody says that a micro-batch is needed soon, from its last tensor to its first.
    Expect { first: usize, last: usize },
    /// The host waits for the stream, as for a loss.
    Wait,
}

/// A model, and how much room there is for what it saves.
#[derive(Debug)]
pub(super) struct Program {
    pub policy: OffloadPolicy,
    pub host_slots: usize,
    /// Units of a disk, if there is one, and what writes them.
    pub disk_units: Option<u64>,
    pub engine: Choice,
    pub window_bytes: usize,
    pub steps: usize,
    /// Those of each step.
    pub deeds: Vec<Deed>,
}

pub(super) fn program(seed: u64) -> Program {
    let mut draw = Draw(seed);
    let streams = draw.of(&[1, 1, 2, 3]);
    let most_bytes = draw.of(&[None, None, Some(0), Some(200 * SLOT as u64)]);
    let is_planned = draw.once_in(3);
    let policy = match is_planned {
        true => OffloadPolicy::Plan { slack: draw.of(&[0.0, 0.02, 50.0]), most_bytes, device_bytes: 1 << 30 },
        false => OffloadPolicy::All { most_bytes },
    };
    let disk_units = draw.of(&[None, None, Some(6), Some(400)]);
    let host_slots = draw.of(&[2, 4, 12, 200]) + if disk_units.is_none() { 4 } else { 0 };
    let engine = if draw.once_in(2) { Choice::Auto } else { Choice::Threads };
    let window_bytes = draw.of(&[0, SLOT, 4 * SLOT, 400 * SLOT]);
    // A plan is made of the third step.
    let steps = if is_planned { 5 } else { draw.of(&[1, 2]) };
    let deeds = deeds(&mut draw, streams);
    Program { policy, host_slots, disk_units, engine, window_bytes, steps, deeds }
}

/// Micro-batches, forward and back in an order of their own.
fn deeds(draw: &mut Draw, streams: usize) -> Vec<Deed> {
    let (mut deeds, mut saved) = (Vec::new(), 0);
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut to_come = draw.of(&[1, 1, 2, 3]);
    while to_come > 0 || !open.is_empty() {
        if open.is_empty() || (to_come > 0 && !draw.once_in(3)) {
            let first = saved;
            forward(draw, streams, &mut deeds, &mut saved);
            open.push((first, saved));
            to_come -= 1;
        } else {
            let at = draw.below(open.len());
            backward(draw, streams, &mut deeds, open.swap_remove(at));
        }
        if draw.once_in(4) {
            deeds.push(Deed::Wait);
        }
    }
    deeds
}

fn switch(draw: &mut Draw, streams: usize, deeds: &mut Vec<Deed>) {
    if streams > 1 && draw.once_in(5) {
        deeds.push(Deed::Switch { stream: draw.below(streams) });
    }
}

fn forward(draw: &mut Draw, streams: usize, deeds: &mut Vec<Deed>, saved: &mut usize) {
    for _ in 0..2 + draw.below(8) {
        switch(draw, streams, deeds);
        let bytes = 1 + draw.below(7 * SLOT / 2);
        match draw.below(8) {
            0 => deeds.push(Deed::Pass { bytes }),
            1 if matches!(deeds.last(), Some(Deed::Save { bytes: 8.., .. })) => {
                let Some(Deed::Save { bytes, .. }) = deeds.last() else { continue };
                let from = draw.below(bytes / 2);
                deeds.push(Deed::SavePart { from, bytes: 1 + draw.below(bytes / 2) });
                *saved += 1;
            }
            _ => {
                deeds.push(Deed::Save { bytes, changes: draw.of(&[0, 0, 0, 1, 2]), is_kept: draw.once_in(4) });
                *saved += 1;
            }
        }
    }
}

fn backward(draw: &mut Draw, streams: usize, deeds: &mut Vec<Deed>, (first, end): (usize, usize)) {
    let is_abandoned = draw.once_in(10);
    if first < end && draw.once_in(4) {
        deeds.push(Deed::Expect { first, last: end - 1 });
    }
    // With a graph that is kept, everything is needed again.
    for round in (0..draw.of(&[1, 1, 1, 2])).rev() {
        for tensor in (first..end).rev() {
            switch(draw, streams, deeds);
            if !is_abandoned && !draw.once_in(12) {
                let is_forwarded = !draw.once_in(4);
                deeds.push(Deed::Need { tensor, is_kept: draw.once_in(3), is_forwarded });
                deeds.push(Deed::Pass { bytes: 1 + draw.below(SLOT) });
                if draw.once_in(8) {
                    deeds.push(Deed::Need { tensor, is_kept: false, is_forwarded: true });
                }
            }
            if round == 0 {
                deeds.push(Deed::Release { tensor });
            }
        }
    }
}
