//! Blocks of one device: stored, found again, loaded, released.
//!
//! Calls come from several threads: one saves, another needs, any may release. All of them take note of what has ended meanwhile, so
//! nothing is left waiting for a thread of its own; the disk alone has one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::disk::{Disk, DiskConfig};
use crate::error::{Error, Result};
use crate::lane::Lane;
use crate::slots::Slots;
use crate::table::{Found, Table};

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
}

/// What became of bytes that should leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreOutcome {
    /// They are on their way. Whoever has them holds them until [`Offloader::drained`] or [`Offloader::follow`] says so.
    Leaving(BlockId),
    /// There is no room for them.
    NoRoom,
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
    /// Host memory beyond the limit that a read needed.
    pub overdraft: u64,
    /// Nanoseconds that callers waited for a disk.
    pub waited_ns: u64,
    /// Why disks are no longer written to.
    pub disk_fault: Option<String>,
    /// What reads and writes files, and why it is not io_uring when it is not.
    pub disk_engine: Option<String>,
}

/// Blocks that have left a device.
pub struct Offloader<L: Lane> {
    table: Mutex<Table<L>>,
    lane: L,
    disk: Option<Disk<L::Slot>>,
    made_by: u32,
}

/// How long a caller sleeps before it looks again, should nobody wake it.
const NAP: Duration = Duration::from_millis(20);

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
        let opened = config.disk.as_ref().map(|disk| Disk::open(disk, slot_bytes)).transpose()?;
        let (disk, units) = opened.map_or((None, None), |(disk, units)| (Some(disk), Some(units)));
        let table = Table::new(Slots::new(config.host_bytes / slot_bytes, slot_bytes), units);
        Ok(Self { table: Mutex::new(table), lane, disk, made_by: std::process::id() })
    }

    /// Lets bytes leave behind what `queue` has to do now.
    pub fn store(&self, memory: L::Memory, queue: &L::Queue) -> Result<StoreOutcome> {
        let mut table = self.lock()?;
        table.advance(&self.lane, self.disk.as_ref())?;
        let ready = self.lane.mark(queue)?;
        table.store(&self.lane, self.disk.as_ref(), memory, ready)
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
        self.lane.follow(queue, mark)
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
        self.lock()?.release(self.disk.as_ref(), block);
        Ok(())
    }

    /// Blocks that are not released, and their bytes.
    pub fn held(&self) -> Result<(usize, usize)> {
        Ok(self.lock()?.held())
    }

    /// What was done so far.
    pub fn counts(&self) -> Result<OffloadCounts> {
        let mut counts = self.lock()?.counts();
        counts.disk_engine = self.disk.as_ref().map(|disk| match disk.engine() {
            (kind, Some(why)) => format!("{kind} ({why})"),
            (kind, None) => kind.to_string(),
        });
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

impl<L: Lane> Drop for Offloader<L> {
    fn drop(&mut self) {
        if let Some(disk) = self.disk.as_mut().filter(|_| std::process::id() != self.made_by) {
            disk.forget_thread();
        }
    }
}
