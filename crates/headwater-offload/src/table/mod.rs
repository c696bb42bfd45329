//! All blocks, and the host memory that they share.
//!
//! Blocks are needed in the opposite order of that in which they were saved. So of those in host memory the oldest go to disk, as soon
//! as less than half of the memory is free or will be; and their memory goes to others when it is asked for, not before: a block that is
//! needed meanwhile does not have to be read.

mod jobs;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::block::{BlockEvent, BlockState};
use crate::disk::{Disk, Units};
use crate::entry::{BlockEntry, Draining};
use crate::error::{Error, Result};
use crate::lane::Lane;
use crate::meter::Meters;
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
    pub meters: Meters<L::Mark>,
}

/// Where a block was found.
pub(crate) enum Found {
    InHostMemory,
    /// Ask again when the disk has news.
    WithDisk,
}

/// A copy to host memory that is not over.
pub(crate) enum Copying<M> {
    /// There is no host memory for it yet.
    Queued,
    UnderWay(M),
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
            live: 0,
            most_live: 0,
            most_live_before: None,
            hosted: BTreeSet::new(),
            mirrored: BTreeSet::new(),
            coming: 0,
            counts: OffloadCounts::default(),
            meters: Meters::default(),
        }
    }

    pub fn store(
        &mut self,
        lane: &L,
        disk: Option<&Disk<L::Slot>>,
        BlockId(block): BlockId,
        (memory, ready): (L::Memory, L::Mark),
    ) -> Result<StoreOutcome> {
        let bytes = L::bytes(&memory);
        let need = self.slots.for_bytes(bytes);
        let slots = if self.queued.is_empty() { self.take_slots(lane, need) } else { None };
        let may_wait = disk.is_some() && self.units.is_some() && need <= self.slots.most();
        if slots.is_none() && !may_wait {
            self.counts.refused += 1;
            return Ok(StoreOutcome::NoRoom);
        }
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
            && lane.has_passed(&front.copied.ended)?
        {
            let Some(gone) = self.draining.pop_front() else { break };
            self.meters.down.add(gone.bytes, lane.seconds(&gone.copied.begun, &gone.copied.ended)?);
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
            lane.follow(queue, &copy.copied.ended)?;
            copy.is_followed = true;
            under_way -= copy.bytes;
            behind.push(BlockId(copy.block));
        }
        Ok(behind)
    }

    /// The copy of a block to host memory, for somebody who waits for it and need not be told when it is over; none where it is.
    pub fn copy_of(&mut self, block: BlockId) -> Result<Option<Copying<L::Mark>>> {
        let entry = self.blocks.get(&block.0).ok_or(Error::NoBlock { block: block.0 })?;
        if entry.state == BlockState::Queued {
            return Ok(Some(Copying::Queued));
        }
        self.drained.retain(|own| *own != block);
        let copy = self.draining.iter_mut().find(|copy| copy.block == block.0);
        Ok(copy.map(|copy| {
            copy.is_followed = true;
            Copying::UnderWay(copy.copied.ended.clone())
        }))
    }

    /// Bytes of blocks that wait for host memory.
    pub fn queued_bytes(&self) -> usize {
        self.queued.iter().filter_map(|id| self.blocks.get(id)).map(|block| block.bytes).sum()
    }

    /// Whether host memory will be free because a disk is at work.
    pub fn will_free(&self) -> bool {
        self.coming > 0 || self.blocks.values().any(|block| block.state.is_with_disk())
    }

    /// Why a block cannot leave.
    pub fn no_room(&self, BlockId(id): BlockId) -> Error {
        let bytes = self.blocks.get(&id).map_or(0, |block| block.bytes);
        Error::NoRoom { bytes, disk: self.counts.disk_fault.clone().unwrap_or_else(|| "no disk frees any".to_owned()) }
    }

    /// Whether disks take what is written.
    pub fn may_write(&self) -> bool {
        self.units.is_some()
    }

    /// Makes host memory; how many bytes there are.
    pub fn reserve(&mut self, lane: &L, bytes: usize) -> usize {
        self.slots.grow(lane, self.slots.for_bytes(bytes));
        usize::try_from(self.slots.used().0).unwrap_or(usize::MAX)
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
        let copied = lane.up(&after, &block.slots, to)?;
        (block.is_awaited, block.was_loaded) = (false, true);
        self.counts.up += got as u64;
        self.meters.rise(lane, &copied, got)?;
        Ok(copied.ended)
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

    /// Of blocks that are needed soon, those that should be loaded now: the first that have not been, are in host memory, and are together
    /// no longer than `room`. What a disk has of them is read.
    pub fn ahead(
        &mut self,
        lane: &L,
        disk: Option<&Disk<L::Slot>>,
        soon: &[u64],
        mut room: usize,
    ) -> Result<Vec<BlockId>> {
        let mut now = Vec::new();
        for id in soon {
            let Some(block) = self.blocks.get(id).filter(|block| !block.was_loaded) else { continue };
            if !block.state.is_in_host_memory() {
                if !self.prefetch(lane, disk, BlockId(*id))? {
                    break;
                }
                continue;
            }
            let Some(left) = room.checked_sub(block.bytes) else { break };
            room = left;
            now.push(BlockId(*id));
        }
        Ok(now)
    }

    /// Whether one of those that should be loaded now is still with a disk.
    pub fn is_late(&self, soon: &[u64], mut room: usize) -> bool {
        for block in soon.iter().filter_map(|id| self.blocks.get(id)).filter(|block| !block.was_loaded) {
            let Some(left) = room.checked_sub(block.bytes) else { return false };
            room = left;
            if !block.state.is_in_host_memory() {
                return true;
            }
        }
        false
    }

    /// Bytes of a block, if there is one.
    pub fn bytes_of(&self, BlockId(id): BlockId) -> u64 {
        self.blocks.get(&id).map_or(0, |block| block.bytes as u64)
    }

    pub fn is_near(&self, BlockId(id): BlockId) -> bool {
        self.blocks.get(&id).is_some_and(|block| block.state.is_in_host_memory())
    }

    /// Whether a block of so many bytes would have to wait for host memory that a disk will free.
    pub fn must_wait(&mut self, lane: &L, bytes: usize) -> bool {
        let need = self.slots.for_bytes(bytes);
        let is_short = !self.queued.is_empty() || {
            self.slots.grow(lane, need);
            self.slots.free() < need && self.slots.free() + self.mirrored_slots() < need
        };
        self.units.is_some() && need <= self.slots.most() && is_short
    }

    fn mirrored_slots(&self) -> usize {
        let known = self.mirrored.iter().filter_map(|id| self.blocks.get(id));
        known.filter(|block| !block.is_awaited && !block.is_overdrawn).map(|block| block.slots.len()).sum()
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

    pub fn note_stall(&mut self, seconds: f64) {
        let waited = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        self.counts.stalled_ns += u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
    }

    pub fn counts(&self) -> OffloadCounts {
        let disk_most = self.units.as_ref().map_or(self.counts.disk_most, Units::most_bytes);
        let (host, host_most) = self.slots.used();
        OffloadCounts { host, host_most, disk_most, ..self.counts.clone() }
    }

    /// Begins the copy to host memory.
    fn start(&mut self, lane: &L, id: u64, mut slots: Vec<L::Slot>) -> Result<()> {
        let Some(block) = self.blocks.get_mut(&id) else {
            self.slots.give(slots, false);
            return Ok(());
        };
        let bytes = block.bytes;
        let copied = match block.source.take() {
            Some((memory, ready)) => lane.down(&ready, &memory, &mut slots),
            None => Err(Error::NoBlock { block: id }),
        };
        match copied {
            Ok(copied) => {
                (block.slots, block.left) = (slots, Some(copied.ended.clone()));
                self.counts.down += bytes as u64;
                self.draining.push_back(Draining { block: id, bytes, copied, is_followed: false });
                self.happen(id, BlockEvent::Start);
                Ok(())
            }
            Err(why) => {
                self.slots.give(slots, false);
                self.blocks.remove(&id);
                self.live -= self.slots.for_bytes(bytes);
                Err(why)
            }
        }
    }

    fn forget_if_gone(&mut self, id: u64) {
        if self.blocks.get(&id).is_some_and(|block| block.state == BlockState::Gone)
            && let Some(block) = self.blocks.remove(&id)
        {
            self.live -= self.slots.for_bytes(block.bytes);
            if self.live == 0 {
                self.most_live_before = Some(std::mem::take(&mut self.most_live));
            }
            self.slots.give(block.slots, block.is_overdrawn);
            self.give_units(block.places);
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
        let is_overdrawn = block.is_overdrawn;
        let is_coming = |state| !is_overdrawn && matches!(state, BlockState::Writing | BlockState::Mirrored);
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

    /// The same, of blocks as well that were read early for somebody who has not come yet: the last that will be needed first.
    fn take_awaited(&mut self, lane: &L, count: usize) -> Option<Vec<L::Slot>> {
        for id in self.mirrored.clone() {
            if self.slots.free() + self.mirrored_slots() >= count {
                break;
            }
            if let Some(block) = self.blocks.get_mut(&id) {
                block.is_awaited = false;
            }
        }
        self.take_slots(lane, count)
    }

    /// Whether copies or disks have memory that they will give back.
    fn is_moving(&self) -> bool {
        !self.draining.is_empty() || self.blocks.values().any(|block| block.state.is_with_disk())
    }

    /// Frees slots of blocks that are on disk as well: those that were loaded first, then the oldest; and last those beyond the limit, which
    /// help nobody but the next read beyond it.
    fn evict(&mut self, count: usize) {
        let known = self.mirrored.iter().filter_map(|id| Some((id, self.blocks.get(id)?)));
        let may_go = known.filter(|(_, block)| !block.is_awaited);
        let mut ids: Vec<(bool, bool, u64)> =
            may_go.map(|(id, block)| (block.is_overdrawn, !block.was_loaded, *id)).collect();
        ids.sort_unstable();
        for (_, _, id) in ids {
            if self.slots.free() >= count {
                return;
            }
            self.happen(id, BlockEvent::Evict);
            if let Some(block) = self.blocks.get_mut(&id) {
                let slots = std::mem::take(&mut block.slots);
                self.slots.give(slots, std::mem::take(&mut block.is_overdrawn));
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
