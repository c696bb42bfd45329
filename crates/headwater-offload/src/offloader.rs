//! Blocks of one device: stored, found again, loaded, released.
//!
//! Calls come from several threads: one saves, another needs, any may release. All of them take note of what has ended meanwhile, so
//! nothing is left waiting for a thread of its own; the disk alone has one.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::disk::{Disk, DiskConfig, Units};
use crate::error::{Error, Result};
use crate::lane::{CopyMarks, Lane};
use crate::plan::{LinkRates, OffloadRoom};
use crate::slots::Slots;
use crate::step::{DeviceUse, Measuring, OffloadPolicy, StepReport, Steps};
use crate::table::{Copying, Found, Table};

/// Names a block. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u64);

/// How much room blocks have.
#[derive(Debug, Clone)]
pub struct OffloaderConfig {
    /// The most host memory that blocks lie in, and pass through on their way to disk.
    pub host_bytes: usize,
    /// Host memory comes and goes in pieces of this length, and so do requests to disks.
    pub slot_bytes: usize,
    /// Where blocks go that host memory has no room for.
    pub disk: Option<DiskConfig>,
    /// Whether blocks leave by a plan, or all of them.
    pub policy: OffloadPolicy,
    /// Bytes of copies each way that are under way at once without a plan, and by which blocks come back early with one. Enough for the
    /// link to be busy, and little beside what is saved.
    pub window_bytes: usize,
}

/// What became of bytes that should leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreOutcome {
    /// They are on their way. Whoever has them holds them until [`Offloader::drained`] or [`Offloader::follow`] says so.
    Leaving(BlockId),
    /// There is no room for them.
    NoRoom,
}

/// What became of a block that was saved.
#[derive(Debug)]
pub struct SaveOutcome {
    /// Its number among all that were saved, and of its block where it leaves.
    pub number: BlockId,
    /// Whether it leaves; none where it should and there is no room.
    pub leaves: Option<bool>,
    /// Blocks whose memory on the device nobody reads any more.
    pub drained: Vec<BlockId>,
    /// Blocks that the caller's stream goes on behind, as [`Offloader::follow`] names them.
    pub followed: Vec<BlockId>,
}

/// What was done so far. Bytes unless the name says otherwise.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct OffloadCounts {
    /// Blocks that left or were about to.
    pub blocks: u64,
    /// From the device to the host.
    pub down: u64,
    /// From the host to the device.
    pub up: u64,
    /// Bytes written to disks.
    pub written: u64,
    /// Bytes read from disks, checksums right.
    pub read: u64,
    /// Blocks that were taken back from a disk before it began with them.
    pub writes_cancelled: u64,
    /// Blocks that found no room.
    pub refused: u64,
    /// Host memory that is held for blocks.
    pub host: u64,
    /// The most of it that was in use at once.
    pub host_most: u64,
    /// The most that lay on disks at once.
    pub disk_most: u64,
    /// Host memory beyond the limit that a read needed, and that is kept for the next such read.
    pub overdraft: u64,
    /// Nanoseconds that callers waited for a disk.
    pub waited_ns: u64,
    /// Nanoseconds that streams waited for copies, as far as they are over.
    pub stalled_ns: u64,
    /// Why disks are no longer written to.
    pub disk_fault: Option<String>,
    /// What reads and writes files, and why it is not io_uring when it is not.
    pub disk_engine: Option<String>,
}

/// Blocks that have left a device.
pub struct Offloader<L: Lane> {
    table: Mutex<Table<L>>,
    steps: Mutex<Steps<L::Mark>>,
    /// When the last blocks were saved, and their bytes: as long as the device is not at the first of them, it does not wait for the host.
    last: Mutex<VecDeque<(L::Mark, u64)>>,
    room: OffloadRoom,
    lane: L,
    disk: Option<Disk<L::Slot>>,
    made_by: u32,
}

/// How long a caller sleeps before it looks again, should nobody wake it.
const NAP: Duration = Duration::from_millis(20);
/// The longest that somebody who cannot go on without host memory waits for a disk to free it.
const MOST_WAIT: Duration = Duration::from_secs(120);
/// The host is ahead of the device by this share of a window where it waits for a disk, and by so many blocks at most.
const LEAD_SHARE: u64 = 4;
const MOST_LEAD: usize = 64;
/// How long a caller lets a disk make room while its device is busy.
const PATIENCE: Duration = Duration::from_secs(5);

impl<L: Lane> Offloader<L> {
    /// An offloader without blocks. Host memory is asked for when it is needed, files are made at once.
    pub fn new(lane: L, config: &OffloaderConfig) -> Result<Self> {
        let (slot_bytes, page) = (config.slot_bytes, headwater_memory::io::PAGE_BYTES);
        if slot_bytes == 0 || !slot_bytes.is_multiple_of(page) {
            let must_be = "a multiple of 4096, above 0";
            return Err(Error::Setting { field: "slot_bytes", value: slot_bytes as u64, must_be });
        }
        if config.disk.is_some() && config.host_bytes < 2 * slot_bytes {
            let must_be = "room for two slots, through which blocks pass on their way to disk";
            return Err(Error::Setting { field: "host_bytes", value: config.host_bytes as u64, must_be });
        }
        let opened = config.disk.as_ref().map(|disk| Disk::open(&lane, disk, slot_bytes)).transpose()?;
        Ok(Self::over(lane, config, opened))
    }

    /// The same over a disk that is open.
    fn over(lane: L, config: &OffloaderConfig, opened: Option<(Disk<L::Slot>, Units)>) -> Self {
        let slot_bytes = config.slot_bytes;
        let (disk, units) = opened.map_or((None, None), |(disk, units)| (Some(disk), Some(units)));
        let table = Table::new(Slots::new(config.host_bytes / slot_bytes, slot_bytes), units);
        let disk_bytes = config.disk.as_ref().map_or(0, |disk| disk.limit_bytes);
        let room = OffloadRoom {
            host_bytes: config.host_bytes as u64,
            disk_bytes,
            gpu_bytes: None,
            window_bytes: config.window_bytes as u64,
        };
        Self {
            table: Mutex::new(table),
            steps: Mutex::new(Steps::new(config.policy, config.window_bytes as u64)),
            last: Mutex::default(),
            room,
            lane,
            disk,
            made_by: std::process::id(),
        }
    }

    /// One whose disk is a test's, with rates that are known.
    #[cfg(test)]
    pub(crate) fn by_hand(
        lane: L,
        config: &OffloaderConfig,
        (disk, units): (Disk<L::Slot>, Units),
        (write, read): (f64, f64),
    ) -> Self {
        const ENOUGH: usize = 1 << 16;
        let (mut made, begun) = (Self::over(lane, config, Some((disk, units))), Instant::now());
        made.room.disk_bytes = 1 << 40;
        let took = |rate: f64| (begun, begun + Duration::from_secs_f64(ENOUGH as f64 / rate));
        let mut table = lock(&made.table);
        table.meters.write.measured(ENOUGH, took(write));
        table.meters.read.measured(ENOUGH, took(read));
        drop(table);
        made
    }

    /// Lets bytes leave behind what `queue` has to do now, whatever the policy is.
    pub fn store(&self, memory: L::Memory, queue: &L::Queue) -> Result<StoreOutcome> {
        let mut table = self.lock()?;
        table.advance(&self.lane, self.disk.as_ref())?;
        let ready = self.lane.mark(queue)?;
        let (number, _) = lock(&self.steps).save(L::bytes(&memory) as u64, &ready, DeviceUse::default());
        table.store(&self.lane, self.disk.as_ref(), BlockId(number), (memory, ready))
    }

    /// Takes note of bytes that are saved. They leave behind what `queue` has to do now, or stay, as the policy says; and `queue` goes on
    /// behind copies that are over by then.
    pub fn save(&self, memory: L::Memory, queue: &L::Queue, used: DeviceUse) -> Result<SaveOutcome> {
        let (bytes, mut table) = (L::bytes(&memory) as u64, self.lock()?);
        table.advance(&self.lane, self.disk.as_ref())?;
        let ready = self.lane.mark(queue)?;
        let mut steps = lock(&self.steps);
        for (_, seconds) in table.meters.waits.over(&self.lane)? {
            table.note_stall(seconds);
            steps.note_stall(seconds);
        }
        let rates = || {
            if let Some(disk) = self.disk.as_ref().filter(|_| table.meters.write.rate().is_none()) {
                table.try_disk(&self.lane, disk);
            }
            table.meters.rates(&self.lane, self.disk.is_some())
        };
        steps.plan(&self.lane, rates, &self.room)?;
        let (number, advice) = steps.save(bytes, &ready, used);
        let window = advice.window.unwrap_or_else(|| steps.window(used));
        drop(steps);
        let mut leaves = Some(false);
        if advice.leaves {
            table = self.held_back(table, |table| table.must_wait(&self.lane, L::bytes(&memory)))?;
            let stored = table.store(&self.lane, self.disk.as_ref(), BlockId(number), (memory, ready.clone()))?;
            leaves = (stored != StoreOutcome::NoRoom).then_some(true);
        }
        let mut window = usize::try_from(window).unwrap_or(usize::MAX);
        if advice.window.is_some() {
            // A stream cannot go on behind the copy of a block that has no host memory yet. A plan counts these as well.
            table = self.held_back(table, |table| table.may_write() && table.queued_bytes() > window)?;
            window = window.saturating_sub(table.queued_bytes());
        }
        self.note_saved(ready.clone(), bytes);
        let followed = table.follow(&self.lane, queue, window)?;
        if !followed.is_empty() {
            self.note_wait(&mut table, ready, queue)?;
        }
        Ok(SaveOutcome { number: BlockId(number), leaves, drained: table.take_drained(), followed })
    }

    /// The table, when a disk has made so much room that nobody has to wait, or when the device has nothing to do.
    fn held_back<'a>(
        &'a self,
        mut table: MutexGuard<'a, Table<L>>,
        must_wait: impl Fn(&mut Table<L>) -> bool,
    ) -> Result<MutexGuard<'a, Table<L>>> {
        let (Some(disk), begun) = (&self.disk, Instant::now()) else { return Ok(table) };
        let last = lock(&self.last).front().map(|(mark, _)| mark.clone());
        while must_wait(&mut table)
            && begun.elapsed() < PATIENCE
            && last.as_ref().is_some_and(|mark| matches!(self.lane.has_passed(mark), Ok(false)))
        {
            drop(table);
            disk.wait(Duration::from_millis(1));
            table = self.lock()?;
            table.advance(&self.lane, self.disk.as_ref())?;
        }
        Ok(table)
    }

    /// The host may be ahead of the device by a block, or by several that are together a part of a window: with small ones, the device would
    /// be done with one before the host has noticed that.
    fn note_saved(&self, mark: L::Mark, bytes: u64) {
        let mut last = lock(&self.last);
        last.push_back((mark, bytes));
        let mut behind: u64 = last.iter().skip(1).map(|(_, bytes)| bytes).sum();
        while last.len() > 1 && (behind > self.room.window_bytes / LEAD_SHARE || last.len() > MOST_LEAD) {
            last.pop_front();
            behind -= last.front().map_or(0, |(_, bytes)| *bytes);
        }
    }

    fn note_wait(&self, table: &mut Table<L>, begun: L::Mark, queue: &L::Queue) -> Result<()> {
        let waited = CopyMarks { begun, ended: self.lane.mark(queue)? };
        table.meters.waits.add(&waited, 0);
        lock(&self.steps).wait(&waited.begun, &waited.ended);
        Ok(())
    }

    /// Takes note of a block that is needed now, and names those that should be loaded now because they are needed next. Those of `here` are
    /// still on the device, and `early` bytes of others are on their way or there.
    pub fn need(
        &self,
        BlockId(number): BlockId,
        queue: &L::Queue,
        used: DeviceUse,
        (here, early): (&[BlockId], usize),
    ) -> Result<Vec<BlockId>> {
        let mut table = self.lock()?;
        table.advance(&self.lane, self.disk.as_ref())?;
        let mut steps = lock(&self.steps);
        let is_timed = steps.is_timed();
        let is_marked = is_timed || self.disk.is_some() || steps.is_last(number);
        let mark = if is_marked { Some(self.lane.mark(queue)?) } else { None };
        let advice = steps.need(number, mark.as_ref(), used);
        let room = advice.ahead_bytes.unwrap_or_else(|| steps.window(DeviceUse::default()));
        drop(steps);
        let room = usize::try_from(room).unwrap_or(usize::MAX).saturating_sub(early);
        let soon: Vec<u64> = advice.next.into_iter().filter(|own| !here.contains(&BlockId(*own))).collect();
        let mut now = table.ahead(&self.lane, self.disk.as_ref(), &soon, room)?;
        if let Some(mark) = mark.filter(|_| advice.ahead_bytes.is_some() && self.disk.is_some()) {
            if now.is_empty() {
                // A host that is far ahead of the device would queue its work behind reads that have time.
                table = self.held_back(table, |table| table.is_late(&soon, room))?;
                now = table.ahead(&self.lane, self.disk.as_ref(), &soon, room)?;
            }
            self.note_saved(mark, table.bytes_of(BlockId(number)));
        }
        Ok(now)
    }

    /// Of blocks that somebody says are needed soon, those that should be loaded now, as of [`Offloader::need`].
    pub fn expect(&self, soon: &[BlockId], (here, early): (&[BlockId], usize)) -> Result<Vec<BlockId>> {
        let mut table = self.lock()?;
        table.advance(&self.lane, self.disk.as_ref())?;
        let room = usize::try_from(lock(&self.steps).window(DeviceUse::default())).unwrap_or(usize::MAX);
        let soon: Vec<u64> = soon.iter().filter(|own| !here.contains(own)).map(|BlockId(number)| *number).collect();
        table.ahead(&self.lane, self.disk.as_ref(), &soon, room.saturating_sub(early))
    }

    /// Whether a block of so many bytes would stay if it were saved now.
    pub fn would_stay(&self, bytes: u64, used: DeviceUse) -> bool {
        lock(&self.steps).would_stay(bytes, used)
    }

    /// Whether the plan is to keep everything, so that nobody need tell of what is saved. Now and then somebody should.
    pub fn is_idle(&self) -> bool {
        lock(&self.steps).is_idle()
    }

    /// Whether steps keep to a plan, and whether there is memory for one in which nothing leaves.
    pub fn may_keep(&self) -> (bool, bool) {
        lock(&self.steps).may_keep()
    }

    /// Keeps everything that has memory on the device, whatever a plan says, as long as somebody compares such steps with others. Where there
    /// is no memory for all, blocks leave as ever.
    pub fn keep(&self, keeps: bool) {
        lock(&self.steps).keep(keeps);
    }

    /// How closely [`DeviceUse`] is looked at now.
    pub fn measuring(&self) -> Measuring {
        lock(&self.steps).measuring()
    }

    /// How steps went, and what is expected of the next.
    pub fn steps(&self) -> StepReport {
        lock(&self.steps).report()
    }

    /// Blocks whose bytes nobody reads on the device any more, since this was asked last. Every block is named once, here or by
    /// [`Offloader::follow`].
    pub fn drained(&self) -> Result<Vec<BlockId>> {
        let mut table = self.lock()?;
        table.advance(&self.lane, self.disk.as_ref())?;
        Ok(table.take_drained())
    }

    /// Blocks that will still be named, for whoever was interrupted when some were.
    pub fn unnamed(&self) -> Result<Vec<BlockId>> {
        Ok(self.lock()?.unnamed())
    }

    /// Makes `queue` wait for the oldest copies until at most so many bytes are under way, and names their blocks: their memory may
    /// be used again by what `queue` does from here on.
    pub fn follow(&self, queue: &L::Queue, most_bytes: usize) -> Result<Vec<BlockId>> {
        self.lock()?.follow(&self.lane, queue, most_bytes)
    }

    /// Makes `queue` go on behind the copy of a block to host memory: behind that, its memory on the device may be used again. Waits on the
    /// host only as long as there is no host memory for it yet, which a disk has to free.
    pub fn settle(&self, block: BlockId, queue: &L::Queue) -> Result<()> {
        let begun = Instant::now();
        loop {
            let mut table = self.lock()?;
            table.advance(&self.lane, self.disk.as_ref())?;
            match table.copy_of(block)? {
                Some(Copying::Queued) => {}
                Some(Copying::UnderWay(mark)) => {
                    let waits_from = self.lane.mark(queue)?;
                    self.lane.follow(queue, &mark)?;
                    return self.note_wait(&mut table, waits_from, queue);
                }
                None => return Ok(()),
            }
            let is_hopeful = begun.elapsed() < MOST_WAIT && table.will_free();
            let disk = self.disk.as_ref().filter(|disk| is_hopeful && disk.is_alive());
            let disk = disk.ok_or_else(|| table.no_room(block))?;
            drop(table);
            disk.wait(Duration::from_millis(1));
        }
    }

    /// How much room blocks have.
    pub fn room(&self) -> OffloadRoom {
        self.room
    }

    /// Asks for host memory before it is needed, and says how many bytes there are then.
    pub fn reserve(&self, bytes: usize) -> Result<usize> {
        Ok(self.lock()?.reserve(&self.lane, bytes))
    }

    /// How fast bytes move, measured now where that is not known yet.
    pub fn rates(&self) -> Result<LinkRates> {
        let mut table = self.lock()?;
        if let Some(disk) = self.disk.as_ref().filter(|_| table.meters.write.rate().is_none()) {
            table.try_disk(&self.lane, disk);
        }
        let has_disk = self.disk.is_some() && table.may_write();
        table.meters.rates(&self.lane, has_disk)
    }

    /// Brings a block back into `to`, whose memory is free behind what `queue` has to do now. Who uses it goes on behind the mark.
    /// Waits on the host only where a disk has the bytes.
    pub fn load(&self, block: BlockId, to: &L::Memory, queue: &L::Queue) -> Result<L::Mark> {
        let mut asked: Option<Instant> = None;
        loop {
            let mut table = self.lock()?;
            table.advance(&self.lane, self.disk.as_ref())?;
            if let Some(asked) = asked {
                table.note_wait(asked.elapsed());
            }
            match table.find(&self.lane, self.disk.as_ref(), block)? {
                Found::InHostMemory => {
                    let free = self.lane.mark(queue)?;
                    return table.load(&self.lane, block, to, free);
                }
                Found::WithDisk => {}
            }
            drop(table);
            asked = Some(Instant::now());
            if let Some(disk) = &self.disk {
                disk.wait(NAP);
            }
        }
    }

    /// Makes `queue` wait for a mark of [`Offloader::load`].
    pub fn join(&self, queue: &L::Queue, mark: &L::Mark) -> Result<()> {
        if self.lane.has_passed(mark)? {
            return self.lane.follow(queue, mark);
        }
        let begun = self.lane.mark(queue)?;
        self.lane.follow(queue, mark)?;
        self.note_wait(&mut *self.lock()?, begun, queue)
    }

    /// Starts reading a block that is on disk alone, where there is room for it. True when it is, or will be, in host memory.
    pub fn prefetch(&self, block: BlockId) -> Result<bool> {
        let mut table = self.lock()?;
        table.advance(&self.lane, self.disk.as_ref())?;
        table.prefetch(&self.lane, self.disk.as_ref(), block)
    }

    /// Whether a block can be loaded without waiting for a disk.
    pub fn is_near(&self, block: BlockId) -> Result<bool> {
        let mut table = self.lock()?;
        table.advance(&self.lane, self.disk.as_ref())?;
        Ok(table.is_near(block))
    }

    /// Forgets a block. One that is unknown is forgotten already. Its memory on the device stays whose it is until [`Offloader::drained`]
    /// or [`Offloader::follow`] has named it.
    pub fn release(&self, block: BlockId) -> Result<()> {
        let mut table = self.lock()?;
        table.release(self.disk.as_ref(), block);
        lock(&self.steps).release(block.0);
        Ok(())
    }

    /// Blocks that are not released, and their bytes.
    pub fn held(&self) -> Result<(usize, usize)> {
        Ok(self.lock()?.held())
    }

    /// What was done so far.
    pub fn counts(&self) -> Result<OffloadCounts> {
        let mut table = self.lock()?;
        for (_, seconds) in table.meters.waits.over(&self.lane)? {
            table.note_stall(seconds);
            lock(&self.steps).note_stall(seconds);
        }
        let mut counts = table.counts();
        counts.disk_engine = self.disk.as_ref().map(|disk| disk.transfer().to_owned());
        Ok(counts)
    }

    fn lock(&self) -> Result<MutexGuard<'_, Table<L>>> {
        let own = std::process::id();
        if own != self.made_by {
            return Err(Error::Forked { own, made_by: self.made_by });
        }
        Ok(self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<L: Lane> Drop for Offloader<L> {
    fn drop(&mut self) {
        if let Some(disk) = self.disk.as_mut().filter(|_| std::process::id() != self.made_by) {
            disk.forget_thread();
        }
    }
}
