//! What goes to disks and comes back from them.

use std::time::{Duration, Instant};

use headwater_memory::io::Op;

use super::Table;
use crate::block::BlockEvent;
use crate::disk::{Disk, Done, Job, Piece, Unit, Units};
use crate::error::{Error, Result};
use crate::lane::Lane;

/// A block that nobody saved, and how much is written for it.
const PROBE: u64 = u64::MAX;
const PROBE_BYTES: usize = 128 << 20;
const PROBE_PATIENCE: Duration = Duration::from_secs(5);

impl<L: Lane> Table<L> {
    /// Writes and reads a little, so that rates of disks are known before a block goes there. What does not answer is not waited for.
    pub(crate) fn try_disk(&mut self, lane: &L, disk: &Disk<L::Slot>) {
        let count = (PROBE_BYTES / self.slots.bytes()).min(self.slots.most()).max(1);
        let Some(mut slots) = self.take_slots(lane, count) else { return };
        let units = match self.units.as_mut().map(|units| units.take(count)) {
            Some(Ok(Some(units))) => units,
            found => {
                if let Some(Err(why)) = found {
                    self.fail_disk(&why);
                }
                return self.slots.give(slots, false);
            }
        };
        let (mut sums, bytes) = (vec![0; count], self.slots.bytes());
        for op in [Op::Write, Op::Read] {
            let pieces = slots.drain(..).zip(units.iter().zip(&sums));
            let pieces =
                pieces.map(|(slot, (unit, sum))| Piece { slot: Some(slot), bytes, unit: *unit, sum: *sum }).collect();
            disk.submit(Job { block: PROBE, op, pieces });
            let Some(Done { job, result, took }) = self.wait_for_probe(disk) else { return };
            if let Err(why) = &result {
                self.fail_disk(why);
            }
            let Some(took) = took.filter(|_| result.is_ok()) else { return self.take_back(job, BlockEvent::Release) };
            match op {
                Op::Write => self.meters.write.add(count * bytes, took),
                Op::Read => self.meters.read.add(count * bytes, took),
            }
            (slots, sums) = job.pieces.into_iter().filter_map(|piece| Some((piece.slot?, piece.sum))).unzip();
        }
        self.slots.give(slots, false);
        self.give_units(units.into_iter().map(|unit| (unit, 0)).collect());
    }

    fn wait_for_probe(&mut self, disk: &Disk<L::Slot>) -> Option<Done<L::Slot>> {
        let begun = Instant::now();
        let mut found = None;
        while found.is_none() && begun.elapsed() < PROBE_PATIENCE && disk.is_alive() {
            disk.wait(Duration::from_millis(5));
            for done in disk.done() {
                if done.job.block == PROBE {
                    found = Some(done);
                } else {
                    self.finish(done);
                }
            }
        }
        found
    }

    /// Gives the oldest blocks to the disk until half of the host memory is free, or will be.
    pub(super) fn write_behind(&mut self, disk: Option<&Disk<L::Slot>>) {
        let (Some(disk), Some(_)) = (disk, &self.units) else { return };
        let queued = self.queued.front().and_then(|id| self.blocks.get(id));
        let need = queued.map_or(0, |block| self.slots.for_bytes(block.bytes));
        // Steps are alike: where the last one fitted, nothing is written for this one.
        let fitted = self.most_live_before.is_some_and(|before| before.max(self.live) <= self.slots.most());
        let wanted = if fitted { need } else { (self.slots.most() / 2).max(need).max(1) };
        let mut room = self.slots.left() + self.coming;
        let hosted: Vec<u64> = if room < wanted { self.hosted.iter().copied().collect() } else { Vec::new() };
        for id in hosted {
            if room >= wanted {
                return;
            }
            match self.write(disk, id) {
                Some(slots) => room += slots,
                None => return,
            }
        }
    }

    /// Gives one block to the disk; `None` when the disk takes no more.
    fn write(&mut self, disk: &Disk<L::Slot>, id: u64) -> Option<usize> {
        let (block, units) = (self.blocks.get_mut(&id)?, self.units.as_mut()?);
        let count = block.slots.len();
        units.rate(&disk.rates());
        let places = match units.take(count) {
            Ok(places) => places?,
            Err(why) => {
                self.fail_disk(&why);
                return None;
            }
        };
        let block = self.blocks.get_mut(&id)?;
        let (slots, bytes, slot_bytes) = (std::mem::take(&mut block.slots), block.bytes, self.slots.bytes());
        let piece = |(at, (slot, unit)): (usize, (L::Slot, Unit))| Piece {
            slot: Some(slot),
            bytes: slot_bytes.min(bytes - at * slot_bytes),
            unit,
            sum: 0,
        };
        let pieces = slots.into_iter().zip(places).enumerate().map(piece).collect();
        self.happen(id, BlockEvent::Write);
        disk.submit(Job { block: id, op: Op::Write, pieces });
        Some(count)
    }

    /// Asks the disk for a block. Who needs it now gets memory beyond the limit, if there is no other; or that of blocks that were read early,
    /// where the system has no more, and of blocks that are written for it. False where it has to be asked for once more, when others have gone.
    pub(super) fn read(&mut self, lane: &L, disk: Option<&Disk<L::Slot>>, id: u64, is_needed: bool) -> Result<bool> {
        let (Some(disk), Some(block)) = (disk, self.blocks.get(&id)) else { return Ok(false) };
        let (need, bytes) = (block.places.len(), block.bytes);
        let (slots, is_overdrawn) = match self.take_slots(lane, need) {
            Some(slots) => (slots, false),
            None if !is_needed => return Ok(false),
            None if !lane.has_more() && self.makes_room(disk) => return Ok(false),
            None => match self.slots.overdraw(lane, need) {
                Ok(slots) => {
                    let bytes = (need * self.slots.bytes()) as u64;
                    self.counts.overdraft = self.counts.overdraft.max(bytes);
                    (slots, true)
                }
                Err(why) => match self.take_awaited(lane, need) {
                    Some(slots) => (slots, false),
                    None if self.is_moving() => return Ok(false),
                    None => return Err(why),
                },
            },
        };
        let Some(block) = self.blocks.get_mut(&id) else { return Ok(false) };
        (block.is_awaited, block.is_overdrawn) = (true, is_overdrawn);
        let slot_bytes = self.slots.bytes();
        let piece = |(at, (slot, (unit, sum))): (usize, (L::Slot, &(Unit, u32)))| Piece {
            slot: Some(slot),
            bytes: slot_bytes.min(bytes - at * slot_bytes),
            unit: *unit,
            sum: *sum,
        };
        let pieces = slots.into_iter().zip(&block.places).enumerate().map(piece).collect();
        self.happen(id, BlockEvent::Read);
        disk.submit(Job { block: id, op: Op::Read, pieces });
        Ok(true)
    }

    /// Whether there will be room without more memory: copies and disks give theirs back, and the disk takes the oldest block otherwise.
    fn makes_room(&mut self, disk: &Disk<L::Slot>) -> bool {
        self.is_moving() || self.hosted.first().copied().is_some_and(|oldest| self.write(disk, oldest).is_some())
    }

    /// A job is over.
    pub(super) fn finish(&mut self, Done { job, result, took }: Done<L::Slot>) {
        let is_whole = job.pieces.iter().all(|piece| piece.slot.is_some());
        let moved: usize = job.pieces.iter().map(|piece| piece.bytes).sum();
        let event = match (&result, job.op) {
            (Ok(()), Op::Write) => BlockEvent::Written,
            (Ok(()), Op::Read) => BlockEvent::ReadDone,
            (Err(_), _) if !is_whole => BlockEvent::Lost,
            (Err(_), Op::Write) => BlockEvent::WriteFailed,
            (Err(_), Op::Read) => BlockEvent::ReadFailed,
        };
        let (count, meter) = match job.op {
            Op::Write => (&mut self.counts.written, &mut self.meters.write),
            Op::Read => (&mut self.counts.read, &mut self.meters.read),
        };
        if let (Ok(()), Some(took)) = (&result, took) {
            *count += moved as u64;
            meter.add(moved, took);
        }
        if let Err(why) = result {
            if let Some(block) = self.blocks.get_mut(&job.block) {
                block.fault = Some(why.clone());
            }
            if job.op == Op::Write {
                self.fail_disk(&why);
            }
        }
        self.take_back(job, event);
    }

    /// Puts what a disk gave back where it belongs after `event`.
    pub(super) fn take_back(&mut self, job: Job<L::Slot>, event: BlockEvent) {
        let id = job.block;
        self.happen(id, event);
        let keeps_units = !matches!((job.op, event), (Op::Write, BlockEvent::Cancel | BlockEvent::WriteFailed));
        let is_overdrawn = self.blocks.get(&id).is_some_and(|block| block.is_overdrawn);
        let (mut slots, mut places) = (Vec::new(), Vec::new());
        for piece in job.pieces {
            places.push((piece.unit, piece.sum));
            match piece.slot {
                Some(slot) => slots.push(slot),
                None => self.slots.lose(is_overdrawn),
            }
        }
        let block = self.blocks.get_mut(&id);
        let is_used = block.as_ref().is_some_and(|block| block.state.is_in_host_memory());
        match block {
            Some(block) if is_used => block.slots = slots,
            Some(block) => self.slots.give(slots, std::mem::take(&mut block.is_overdrawn)),
            None => self.slots.give(slots, false),
        }
        match self.blocks.get_mut(&id) {
            Some(block) if keeps_units => block.places = places,
            _ => self.give_units(places),
        }
        self.forget_if_gone(id);
    }

    /// The thread of the disk has ended: what it had is lost.
    pub(super) fn lose_all(&mut self) {
        let with_disk: Vec<u64> =
            self.blocks.iter().filter(|(_, block)| block.state.is_with_disk()).map(|(id, _)| *id).collect();
        for id in with_disk {
            let why = Error::Lost { block: id, why: "the thread of its disk has ended".to_owned() };
            self.fail_disk(&why);
            if let Some(block) = self.blocks.get_mut(&id) {
                block.fault = Some(why);
            }
            self.happen(id, BlockEvent::Lost);
            self.forget_if_gone(id);
        }
    }

    fn fail_disk(&mut self, why: &Error) {
        // Units that are taken go back to nobody: nothing is written any more. Reads have their places.
        if self.counts.disk_fault.is_none() {
            log::warn!("activations are no longer written to disk: {why}");
            self.counts.disk_fault = Some(why.to_string());
        }
        self.counts.disk_most = self.counts.disk_most.max(self.units.as_ref().map_or(0, Units::most_bytes));
        self.units = None;
    }

    pub(super) fn give_units(&mut self, places: Vec<(Unit, u32)>) {
        if let Some(units) = &mut self.units {
            units.give(places.into_iter().map(|(unit, _)| unit).collect());
        }
    }
}
