//! All blocks, and the host memory that they share.
//!
//! Blocks are needed in the opposite order of that in which they were saved. So of those in host memory the oldest go to disk, as soon
//! as less than half of the memory is free or will be; and their memory goes to others when it is asked for, not before: a block that is
//! needed meanwhile does not have to be read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::block::{BlockEvent, BlockState};
use crate::disk::{Disk, Done, Job, Piece, Unit, Units, Way};
use crate::entry::{BlockEntry, Draining};
use crate::error::{Error, Result};
use crate::lane::Lane;
use crate::offloader::{BlockId, OffloadCounts, StoreOutcome};
use crate::slots::Slots;

pub(crate) struct Table<L: Lane> {
    blocks: BTreeMap<u64, BlockEntry<L>>,
    slots: Slots<L::Slot>,
    /// Blocks that wait for slots, first come first.
    queued: VecDeque<u64>,
    draining: VecDeque<Draining<L>>,
    drained: Vec<BlockId>,
    units: Option<Units>,
    next: u64,
    /// Slots that blocks would need that are not released, the most of them since there was none, and the same of the time before.
    live: usize,
    most_live: usize,
    most_live_before: Option<usize>,
    /// Blocks in host memory alone, and those that a disk has as well.
    hosted: BTreeSet<u64>,
    mirrored: BTreeSet<u64>,
    /// Slots of blocks that a disk has, or will have.
    coming: usize,
    counts: OffloadCounts,
}

/// Where a block was found.
pub(crate) enum Found {
    InHostMemory,
    /// Ask again when the disk has news.
    WithDisk,
}

impl<L: Lane> Table<L> {
    pub fn new(slots: Slots<L::Slot>, units: Option<Units>) -> Self {
        Self {
            blocks: BTreeMap::new(),
            slots,
            queued: VecDeque::new(),
            draining: VecDeque::new(),
            drained: Vec::new(),
            units,
            next: 0,
            live: 0,
            most_live: 0,
            most_live_before: None,
            hosted: BTreeSet::new(),
            mirrored: BTreeSet::new(),
            coming: 0,
            counts: OffloadCounts::default(),
        }
    }

    pub fn store(
        &mut self,
        lane: &L,
        disk: Option<&Disk<L::Slot>>,
        memory: L::Memory,
        ready: L::Mark,
    ) -> Result<StoreOutcome> {
        let bytes = L::bytes(&memory);
        let (need, block) = (self.slots.for_bytes(bytes), self.next);
        let slots = if self.queued.is_empty() { self.take_slots(lane, need) } else { None };
        let may_wait = disk.is_some() && self.units.is_some() && need <= self.slots.most();
        if slots.is_none() && !may_wait {
            self.counts.refused += 1;
            return Ok(StoreOutcome::NoRoom);
        }
        self.next += 1;
        self.counts.blocks += 1;
        self.live += need;
        self.most_live = self.most_live.max(self.live);
        self.blocks.insert(block, BlockEntry::new(bytes, (memory, ready)));
        match slots {
            Some(slots) => self.start(lane, block, slots)?,
            None => self.queued.push_back(block),
        }
        self.write_behind(disk);
        Ok(StoreOutcome::Leaving(BlockId(block)))
    }

    /// Takes note of what has ended, and begins what can begin.
    pub fn advance(&mut self, lane: &L, disk: Option<&Disk<L::Slot>>) -> Result<()> {
        while let Some(front) = self.draining.front()
            && lane.has_passed(&front.mark)?
        {
            let Some(gone) = self.draining.pop_front() else { break };
            if !gone.is_followed {
                self.drained.push(BlockId(gone.block));
            }
            self.happen(gone.block, BlockEvent::Drained);
        }
        let Some(disk) = disk else { return Ok(()) };
        for done in disk.done() {
            self.finish(done);
        }
        if !disk.is_alive() {
            self.lose_all();
        }
        while let Some(&block) = self.queued.front() {
            let need = self.blocks.get(&block).map_or(0, |block| self.slots.for_bytes(block.bytes));
            let Some(slots) = self.take_slots(lane, need) else { break };
            self.queued.pop_front();
            self.start(lane, block, slots)?;
        }
        self.write_behind(Some(disk));
        Ok(())
    }

    /// Blocks that are still to be named by `take_drained` or `follow`.
    pub fn unnamed(&self) -> Vec<BlockId> {
        let draining = self.draining.iter().filter(|copy| !copy.is_followed).map(|copy| copy.block);
        let queued = self.queued.iter().copied().chain(draining).map(BlockId);
        queued.chain(self.drained.iter().copied()).collect()
    }

    pub fn take_drained(&mut self) -> Vec<BlockId> {
        std::mem::take(&mut self.drained)
    }

    pub fn follow(&mut self, lane: &L, queue: &L::Queue, most_bytes: usize) -> Result<Vec<BlockId>> {
        let mut under_way: usize = self.draining.iter().filter(|copy| !copy.is_followed).map(|copy| copy.bytes).sum();
        let mut behind = Vec::new();
        for copy in self.draining.iter_mut().filter(|copy| !copy.is_followed) {
            if under_way <= most_bytes {
                break;
            }
            lane.follow(queue, &copy.mark)?;
            copy.is_followed = true;
            under_way -= copy.bytes;
            behind.push(BlockId(copy.block));
        }
        Ok(behind)
    }

    /// Where a block is that is needed now. What a disk has not begun to write is taken back; what it has, it is asked for.
    pub fn find(&mut self, lane: &L, disk: Option<&Disk<L::Slot>>, BlockId(id): BlockId) -> Result<Found> {
        let block = self.blocks.get(&id).ok_or(Error::NoBlock { block: id })?;
        match block.state {
            BlockState::Draining | BlockState::Hosted | BlockState::Mirrored => Ok(Found::InHostMemory),
            BlockState::Queued => Err(Error::NotLeft { block: id }),
            BlockState::Leaving | BlockState::Gone => Err(Error::NoBlock { block: id }),
            BlockState::Failed => Err(block.fault.clone().unwrap_or(Error::NoBlock { block: id })),
            BlockState::Writing => {
                if let Some(job) = disk.and_then(|disk| disk.cancel(id)) {
                    self.counts.writes_cancelled += 1;
                    self.take_back(job, BlockEvent::Cancel);
                    return Ok(Found::InHostMemory);
                }
                Ok(Found::WithDisk)
            }
            BlockState::Reading => Ok(Found::WithDisk),
            BlockState::Stored => {
                self.read(lane, disk, id, true)?;
                Ok(Found::WithDisk)
            }
        }
    }

    /// Queues the copy of a block that is in host memory.
    pub fn load(&mut self, lane: &L, BlockId(id): BlockId, to: &L::Memory, free: L::Mark) -> Result<L::Mark> {
        let block = self.blocks.get_mut(&id).ok_or(Error::NoBlock { block: id })?;
        let got = L::bytes(to);
        if got != block.bytes {
            return Err(Error::Length { block: id, bytes: block.bytes, got });
        }
        let after: Vec<L::Mark> = std::iter::once(free).chain(block.left.clone()).collect();
        let mark = lane.up(&after, &block.slots, to)?;
        (block.is_awaited, block.was_loaded) = (false, true);
        self.counts.up += got as u64;
        Ok(mark)
    }

    pub fn prefetch(&mut self, lane: &L, disk: Option<&Disk<L::Slot>>, BlockId(id): BlockId) -> Result<bool> {
        let block = self.blocks.get_mut(&id).ok_or(Error::NoBlock { block: id })?;
        match block.state {
            BlockState::Stored => self.read(lane, disk, id, false),
            BlockState::Mirrored => {
                block.is_awaited = true;
                Ok(true)
            }
            BlockState::Failed => Ok(false),
            _ => Ok(true),
        }
    }

    pub fn is_near(&self, BlockId(id): BlockId) -> bool {
        self.blocks.get(&id).is_some_and(|block| block.state.is_in_host_memory())
    }

    pub fn release(&mut self, disk: Option<&Disk<L::Slot>>, BlockId(id): BlockId) {
        let Some(block) = self.blocks.get(&id).filter(|block| block.state != BlockState::Leaving) else { return };
        if block.state == BlockState::Queued {
            self.queued.retain(|queued| *queued != id);
            self.drained.push(BlockId(id));
        }
        if block.state.is_with_disk()
            && let Some(job) = disk.and_then(|disk| disk.cancel(id))
        {
            self.take_back(job, BlockEvent::Cancel);
        }
        self.happen(id, BlockEvent::Release);
        self.forget_if_gone(id);
    }

    pub fn held(&self) -> (usize, usize) {
        let held = || self.blocks.values().filter(|block| block.state != BlockState::Leaving);
        (held().count(), held().map(|block| block.bytes).sum())
    }

    pub fn note_wait(&mut self, waited: Duration) {
        self.counts.waited_ns += u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
    }

    pub fn counts(&self) -> OffloadCounts {
        let disk_most = self.units.as_ref().map_or(self.counts.disk_most, Units::most_bytes);
        let (host, host_most) = self.slots.used();
        OffloadCounts { host, host_most, disk_most, ..self.counts.clone() }
    }

    /// Begins the copy to host memory.
    fn start(&mut self, lane: &L, id: u64, mut slots: Vec<L::Slot>) -> Result<()> {
        let Some(block) = self.blocks.get_mut(&id) else {
            self.slots.give(slots);
            return Ok(());
        };
        let bytes = block.bytes;
        let copied = match block.source.take() {
            Some((memory, ready)) => lane.down(&ready, &memory, &mut slots),
            None => Err(Error::NoBlock { block: id }),
        };
        match copied {
            Ok(mark) => {
                (block.slots, block.left) = (slots, Some(mark.clone()));
                self.counts.down += bytes as u64;
                self.draining.push_back(Draining { block: id, bytes, mark, is_followed: false });
                self.happen(id, BlockEvent::Start);
                Ok(())
            }
            Err(why) => {
                self.slots.give(slots);
                self.blocks.remove(&id);
                self.live -= self.slots.for_bytes(bytes);
                Err(why)
            }
        }
    }

    /// Gives the oldest blocks to the disk until half of the host memory is free, or will be.
    fn write_behind(&mut self, disk: Option<&Disk<L::Slot>>) {
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
        disk.submit(Job { block: id, way: Way::Write, pieces });
        Some(count)
    }

    /// Asks the disk for a block. Who needs it now gets memory beyond the limit, if there is no other.
    fn read(&mut self, lane: &L, disk: Option<&Disk<L::Slot>>, id: u64, is_needed: bool) -> Result<bool> {
        let (Some(disk), Some(block)) = (disk, self.blocks.get(&id)) else { return Ok(false) };
        let (need, bytes) = (block.places.len(), block.bytes);
        let slots = match self.take_slots(lane, need) {
            Some(slots) => slots,
            None if !is_needed => return Ok(false),
            None => {
                let slots = self.slots.overdraw(lane, need)?;
                let bytes = (need * self.slots.bytes()) as u64;
                self.counts.overdraft = self.counts.overdraft.max(bytes);
                slots
            }
        };
        let Some(block) = self.blocks.get_mut(&id) else { return Ok(false) };
        block.is_awaited = true;
        let slot_bytes = self.slots.bytes();
        let piece = |(at, (slot, (unit, sum))): (usize, (L::Slot, &(Unit, u32)))| Piece {
            slot: Some(slot),
            bytes: slot_bytes.min(bytes - at * slot_bytes),
            unit: *unit,
            sum: *sum,
        };
        let pieces = slots.into_iter().zip(&block.places).enumerate().map(piece).collect();
        self.happen(id, BlockEvent::Read);
        disk.submit(Job { block: id, way: Way::Read, pieces });
        Ok(true)
    }

    /// A job is over.
    fn finish(&mut self, Done { job, result }: Done<L::Slot>) {
        let is_whole = job.pieces.iter().all(|piece| piece.slot.is_some());
        let moved: u64 = job.pieces.iter().map(|piece| piece.bytes as u64).sum();
        let event = match (&result, job.way) {
            (Ok(()), Way::Write) => BlockEvent::Written,
            (Ok(()), Way::Read) => BlockEvent::ReadDone,
            (Err(_), _) if !is_whole => BlockEvent::Lost,
            (Err(_), Way::Write) => BlockEvent::WriteFailed,
            (Err(_), Way::Read) => BlockEvent::ReadFailed,
        };
        match event {
            BlockEvent::Written => self.counts.written += moved,
            BlockEvent::ReadDone => self.counts.read += moved,
            _ => {}
        }
        if let Err(why) = result {
            if let Some(block) = self.blocks.get_mut(&job.block) {
                block.fault = Some(why.clone());
            }
            if job.way == Way::Write {
                self.fail_disk(&why);
            }
        }
        self.take_back(job, event);
    }

    /// Puts what a disk gave back where it belongs after `event`.
    fn take_back(&mut self, job: Job<L::Slot>, event: BlockEvent) {
        let id = job.block;
        self.happen(id, event);
        let keeps_units = !matches!((job.way, event), (Way::Write, BlockEvent::Cancel | BlockEvent::WriteFailed));
        let (mut slots, mut places) = (Vec::new(), Vec::new());
        for piece in job.pieces {
            places.push((piece.unit, piece.sum));
            match piece.slot {
                Some(slot) => slots.push(slot),
                None => self.slots.lose(),
            }
        }
        let block = self.blocks.get_mut(&id);
        let is_used = block.as_ref().is_some_and(|block| block.state.is_in_host_memory());
        match block {
            Some(block) if is_used => block.slots = slots,
            _ => self.slots.give(slots),
        }
        match self.blocks.get_mut(&id) {
            Some(block) if keeps_units => block.places = places,
            _ => self.give_units(places),
        }
        self.forget_if_gone(id);
    }

    /// The thread of the disk has ended: what it had is lost.
    fn lose_all(&mut self) {
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

    fn forget_if_gone(&mut self, id: u64) {
        if self.blocks.get(&id).is_some_and(|block| block.state == BlockState::Gone)
            && let Some(block) = self.blocks.remove(&id)
        {
            self.live -= self.slots.for_bytes(block.bytes);
            if self.live == 0 {
                self.most_live_before = Some(std::mem::take(&mut self.most_live));
            }
            self.slots.give(block.slots);
            self.give_units(block.places);
        }
    }

    fn give_units(&mut self, places: Vec<(Unit, u32)>) {
        if let Some(units) = &mut self.units {
            units.give(places.into_iter().map(|(unit, _)| unit).collect());
        }
    }

    fn happen(&mut self, id: u64, event: BlockEvent) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        let (before, after) = (block.state, block.state.after(event));
        debug_assert!(after.is_some(), "{event:?} happened to a block that is {before:?}");
        block.state = after.unwrap_or(before);
        let (after, slots) = (block.state, self.slots.for_bytes(block.bytes));
        note(&mut self.hosted, id, after == BlockState::Hosted);
        note(&mut self.mirrored, id, after == BlockState::Mirrored);
        let is_coming = |state| matches!(state, BlockState::Writing | BlockState::Mirrored);
        self.coming += if is_coming(after) { slots } else { 0 };
        self.coming -= if is_coming(before) { slots } else { 0 };
    }

    /// So many slots: free ones, new ones, or those of blocks that are on disk as well.
    fn take_slots(&mut self, lane: &L, count: usize) -> Option<Vec<L::Slot>> {
        if count > self.slots.most() {
            return None;
        }
        self.slots.grow(lane, count);
        if self.slots.free() < count {
            self.evict(count);
        }
        self.slots.take(count)
    }

    /// Frees slots of blocks that are on disk as well: those that were loaded first, then the oldest.
    fn evict(&mut self, count: usize) {
        let known = self.mirrored.iter().filter_map(|id| Some((id, self.blocks.get(id)?)));
        let may_go = known.filter(|(_, block)| !block.is_awaited);
        let mut ids: Vec<(bool, u64)> = may_go.map(|(id, block)| (!block.was_loaded, *id)).collect();
        ids.sort_unstable();
        for (_, id) in ids {
            if self.slots.free() >= count {
                return;
            }
            self.happen(id, BlockEvent::Evict);
            if let Some(block) = self.blocks.get_mut(&id) {
                let slots = std::mem::take(&mut block.slots);
                self.slots.give(slots);
            }
        }
    }
}

fn note(set: &mut BTreeSet<u64>, id: u64, belongs: bool) {
    if belongs {
        set.insert(id);
    } else {
        set.remove(&id);
    }
}
