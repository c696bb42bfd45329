//! Blocks against the plainest model of them: bytes in a map.

mod clock;
mod device;
mod faults;
mod folders;
mod forks;
mod planning;
mod random;
mod reactions;
mod refusals;
mod steps;

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use headwater_memory::io::{AlignedBuffer, Choice, IoFile};

use crate::block::{BlockEvent, BlockState};
use crate::disk::DiskConfig;
use crate::disk::transfer::{EngineTransfer, Transfer};
use crate::error::{Error, Result};
use crate::lane::{CopyMarks, Lane};
use crate::offloader::{BlockId, Offloader, OffloaderConfig, StoreOutcome};
use crate::step::OffloadPolicy;

const SLOT: usize = 4096;
const WINDOW: usize = 256 << 20;
const EVERYTHING: OffloadPolicy = OffloadPolicy::All { most_bytes: None };

/// A device whose copies are made at once, and end when a test says so.
#[derive(Clone, Default)]
pub(super) struct Fake(Arc<Clock>);

#[derive(Default)]
struct Clock {
    begun: AtomicU64,
    passed: AtomicU64,
    /// Slots that were asked for.
    slots: AtomicU64,
}

impl Fake {
    /// Lets `count` more copies end.
    fn pass(&self, count: u64) {
        let begun = self.0.begun.load(Ordering::SeqCst);
        let passed = self.0.passed.load(Ordering::SeqCst);
        self.0.passed.store((passed + count).min(begun), Ordering::SeqCst);
    }

    fn pass_all(&self) {
        self.pass(u64::MAX >> 1);
    }

    fn begin(&self) -> u64 {
        self.0.begun.fetch_add(1, Ordering::SeqCst) + 1
    }
}

pub(super) type Bytes = Arc<Mutex<Vec<u8>>>;

impl Lane for Fake {
    type Slot = AlignedBuffer;
    type Memory = Bytes;
    type Queue = ();
    type Mark = u64;

    fn slots(&self, count: usize, bytes: usize) -> Result<Vec<AlignedBuffer>> {
        self.0.slots.fetch_add(count as u64, Ordering::SeqCst);
        (0..count).map(|_| Ok(AlignedBuffer::new(bytes)?)).collect()
    }

    fn transfer(&self, files: &[Arc<IoFile>], config: &DiskConfig) -> Result<Box<dyn Transfer<AlignedBuffer>>> {
        Ok(Box::new(EngineTransfer::new(files, config)?))
    }

    fn bytes(memory: &Bytes) -> usize {
        memory.lock().unwrap().len()
    }

    fn mark(&self, (): &()) -> Result<u64> {
        Ok(0)
    }

    fn down(&self, _: &u64, from: &Bytes, slots: &mut [AlignedBuffer]) -> Result<CopyMarks<u64>> {
        for (slot, part) in slots.iter_mut().zip(from.lock().unwrap().chunks(SLOT)) {
            slot[..part.len()].copy_from_slice(part);
        }
        Ok(CopyMarks { begun: 0, ended: self.begin() })
    }

    fn up(&self, _: &[u64], slots: &[AlignedBuffer], to: &Bytes) -> Result<CopyMarks<u64>> {
        for (slot, part) in slots.iter().zip(to.lock().unwrap().chunks_mut(SLOT)) {
            part.copy_from_slice(&slot[..part.len()]);
        }
        Ok(CopyMarks { begun: 0, ended: 0 })
    }

    fn has_passed(&self, mark: &u64) -> Result<bool> {
        Ok(*mark <= self.0.passed.load(Ordering::SeqCst))
    }

    fn follow(&self, (): &(), _: &u64) -> Result<()> {
        Ok(())
    }

    fn seconds(&self, from: &u64, to: &u64) -> Result<f64> {
        Ok((*to - *from) as f64)
    }

    fn rates(&self) -> Result<(f64, f64)> {
        Ok((1e9, 1e9))
    }
}

/// Bytes that tell which block they are of.
pub(super) fn content(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from((at * 31 + seed * 7919 + at / 251) % 256).unwrap()).collect()
}

pub(super) fn memory(bytes: Vec<u8>) -> Bytes {
    Arc::new(Mutex::new(bytes))
}

pub(super) fn disk(folder: &Path, limit_bytes: u64, engine: Choice) -> DiskConfig {
    DiskConfig { engine, allow_buffered: true, ..DiskConfig::new(vec![folder.to_owned()], limit_bytes) }
}

pub(super) fn offloader(slots: usize, disk: Option<DiskConfig>) -> (Offloader<Fake>, Fake) {
    let lane = Fake::default();
    let config =
        OffloaderConfig { host_bytes: slots * SLOT, slot_bytes: SLOT, disk, policy: EVERYTHING, window_bytes: WINDOW };
    (Offloader::new(lane.clone(), &config).unwrap(), lane)
}

pub(super) fn stored(offloader: &Offloader<Fake>, bytes: Vec<u8>) -> BlockId {
    match offloader.store(memory(bytes), &()).unwrap() {
        StoreOutcome::Leaving(block) => block,
        StoreOutcome::NoRoom => panic!("there should be room"),
    }
}

pub(super) fn loaded(offloader: &Offloader<Fake>, block: BlockId, bytes: usize) -> Result<Vec<u8>> {
    let to = memory(vec![0xcb; bytes]);
    offloader.load(block, &to, &())?;
    let bytes = to.lock().unwrap().clone();
    Ok(bytes)
}

/// Stores blocks one after the other, each when the one before has left.
pub(super) fn store_all(offloader: &Offloader<Fake>, lane: &Fake, sizes: &[usize]) -> Vec<BlockId> {
    let mut blocks = Vec::new();
    for (seed, bytes) in sizes.iter().enumerate() {
        let block = stored(offloader, content(seed, *bytes));
        blocks.push(block);
        let mut left = HashSet::new();
        while !left.contains(&block) {
            lane.pass_all();
            left.extend(offloader.drained().unwrap());
        }
    }
    blocks
}

#[test]
fn what_may_happen_to_a_block() {
    let events = [
        BlockEvent::Start,
        BlockEvent::Drained,
        BlockEvent::Write,
        BlockEvent::Written,
        BlockEvent::WriteFailed,
        BlockEvent::Cancel,
        BlockEvent::Evict,
        BlockEvent::Read,
        BlockEvent::ReadDone,
        BlockEvent::ReadFailed,
        BlockEvent::Lost,
        BlockEvent::Release,
    ];
    let mut reached = HashSet::from([BlockState::Queued]);
    for _ in BlockState::ALL {
        for state in reached.clone() {
            reached.extend(events.iter().filter_map(|event| state.after(*event)));
        }
    }
    assert_eq!(reached.len(), BlockState::ALL.len(), "a state that no block ever has");
    for state in BlockState::ALL {
        let after = state.after(BlockEvent::Release);
        let is_over = matches!(state, BlockState::Leaving | BlockState::Gone);
        assert_eq!(after.is_none(), is_over);
        // What a disk has is waited for, and everything else goes at once.
        let expected = if state.is_with_disk() { BlockState::Leaving } else { BlockState::Gone };
        assert!(is_over || after == Some(expected), "{state:?}");
        assert!(state != BlockState::Gone || events.iter().all(|event| state.after(*event).is_none()));
        assert!(!(state.is_in_host_memory() && state.is_with_disk()));
    }
}

#[test]
fn blocks_come_back_from_host_memory() {
    let (offloader, lane) = offloader(8, None);
    let sizes = [1, SLOT - 1, SLOT, 2 * SLOT + 5];
    let blocks: Vec<BlockId> =
        sizes.iter().enumerate().map(|(seed, bytes)| stored(&offloader, content(seed, *bytes))).collect();
    assert!(offloader.drained().unwrap().is_empty(), "no copy has ended");
    assert_eq!(offloader.unnamed().unwrap(), blocks);
    // In the order of streams they are there already.
    assert_eq!(loaded(&offloader, blocks[3], sizes[3]).unwrap(), content(3, sizes[3]));
    lane.pass(2);
    assert_eq!(offloader.drained().unwrap(), blocks[..2]);
    assert_eq!(offloader.follow(&(), sizes[3]).unwrap(), blocks[2..3]);
    lane.pass_all();
    assert_eq!(offloader.unnamed().unwrap(), blocks[3..]);
    assert_eq!(offloader.drained().unwrap(), blocks[3..], "what was followed is not told again");
    assert!(offloader.unnamed().unwrap().is_empty());
    for (seed, (block, bytes)) in blocks.iter().zip(sizes).enumerate() {
        assert_eq!(loaded(&offloader, *block, bytes).unwrap(), content(seed, bytes));
        assert_eq!(loaded(&offloader, *block, bytes).unwrap(), content(seed, bytes), "a second time");
        assert!(matches!(loaded(&offloader, *block, bytes + 1), Err(Error::Length { .. })));
        offloader.release(*block).unwrap();
        offloader.release(*block).unwrap();
        assert!(matches!(loaded(&offloader, *block, bytes), Err(Error::NoBlock { .. })));
    }
    assert_eq!(offloader.held().unwrap(), (0, 0));
}

#[test]
fn without_room_and_without_a_disk_blocks_stay() {
    let (offloader, _) = offloader(3, None);
    let first = stored(&offloader, content(0, 2 * SLOT));
    assert_eq!(offloader.store(memory(content(1, 2 * SLOT)), &()).unwrap(), StoreOutcome::NoRoom);
    assert_eq!(offloader.store(memory(content(1, 9 * SLOT)), &()).unwrap(), StoreOutcome::NoRoom);
    offloader.release(first).unwrap();
    stored(&offloader, content(1, 2 * SLOT));
    assert_eq!(offloader.counts().unwrap().refused, 2);
}

#[test]
fn two_slots_are_enough_on_the_way_to_disk() {
    let folder = tempfile::tempdir().unwrap();
    for engine in [Choice::Auto, Choice::Threads, Choice::Ram(Default::default())] {
        let (offloader, lane) = offloader(2, Some(disk(folder.path(), 1 << 20, engine)));
        let sizes: Vec<usize> = (0..20).map(|at| 1 + at * 401).collect();
        let blocks = store_all(&offloader, &lane, &sizes);
        for (seed, (block, bytes)) in blocks.iter().zip(&sizes).enumerate().rev() {
            assert_eq!(loaded(&offloader, *block, *bytes).unwrap(), content(seed, *bytes));
            offloader.release(*block).unwrap();
        }
        let counts = offloader.counts().unwrap();
        assert!(counts.written > 0 && counts.read > 0, "{counts:?}");
        assert!(counts.host_most <= 2 * SLOT as u64 && counts.overdraft == 0, "{counts:?}");
        assert_eq!(offloader.held().unwrap(), (0, 0));
    }
}

#[test]
fn a_block_that_waits_is_still_with_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let (offloader, lane) = offloader(2, Some(disk(folder.path(), 1 << 20, Choice::Auto)));
    let first = stored(&offloader, content(0, 2 * SLOT));
    let second = stored(&offloader, content(1, SLOT));
    assert!(matches!(loaded(&offloader, second, SLOT), Err(Error::NotLeft { .. })));
    offloader.release(second).unwrap();
    assert_eq!(offloader.drained().unwrap(), [second], "nobody will read it");
    lane.pass_all();
    offloader.release(first).unwrap();
    assert_eq!(offloader.drained().unwrap(), [first]);
    assert_eq!(offloader.held().unwrap(), (0, 0));
    assert_eq!(offloader.counts().unwrap().down, 2 * SLOT as u64);
}

#[test]
fn a_step_that_fitted_is_not_written_the_next_time() {
    let folder = tempfile::tempdir().unwrap();
    let (offloader, lane) = offloader(8, Some(disk(folder.path(), 1 << 20, Choice::Auto)));
    let mut written = Vec::new();
    for _ in 0..3 {
        let blocks = store_all(&offloader, &lane, &[SLOT; 7]);
        for (seed, block) in blocks.iter().enumerate().rev() {
            assert_eq!(loaded(&offloader, *block, SLOT).unwrap(), content(seed, SLOT));
            offloader.release(*block).unwrap();
        }
        written.push(offloader.counts().unwrap().written);
    }
    assert_eq!(written[1], written[2], "{written:?}");
}

#[test]
fn what_is_read_ahead_stays_until_it_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let (offloader, lane) = offloader(4, Some(disk(folder.path(), 1 << 20, Choice::Auto)));
    let blocks = store_all(&offloader, &lane, &[SLOT; 12]);
    let mut ahead: Vec<BlockId> = Vec::new();
    for (at, block) in blocks.iter().enumerate().rev() {
        for early in blocks[..at].iter().rev().take(2) {
            if offloader.prefetch(*early).unwrap() {
                ahead.push(*early);
            }
        }
        assert_eq!(loaded(&offloader, *block, SLOT).unwrap(), content(at, SLOT));
        offloader.release(*block).unwrap();
    }
    let counts = offloader.counts().unwrap();
    assert!(!ahead.is_empty());
    assert!(counts.read <= 12 * SLOT as u64, "nothing is read twice: {counts:?}");
}

/// Two blocks are awaited in the only two slots, and others are needed: each read beyond the limit has the memory of the one before.
#[test]
fn memory_beyond_the_limit_is_had_once() {
    let folder = tempfile::tempdir().unwrap();
    let (offloader, lane) = offloader(2, Some(disk(folder.path(), 1 << 20, Choice::Auto)));
    for _ in 0..3 {
        let blocks = store_all(&offloader, &lane, &[SLOT; 8]);
        for awaited in &blocks[..2] {
            while !offloader.is_near(*awaited).unwrap() {
                offloader.prefetch(*awaited).unwrap();
            }
        }
        for (seed, block) in blocks.iter().enumerate().rev() {
            assert_eq!(loaded(&offloader, *block, SLOT).unwrap(), content(seed, SLOT));
            offloader.release(*block).unwrap();
        }
        assert_eq!(offloader.held().unwrap(), (0, 0));
        let counts = offloader.counts().unwrap();
        assert_eq!((counts.host, counts.overdraft), (3 * SLOT as u64, SLOT as u64));
    }
    assert_eq!(lane.0.slots.load(Ordering::SeqCst), 3);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let lane = Fake::default();
    for slot_bytes in [0, 100] {
        let config =
            OffloaderConfig { host_bytes: 1 << 20, slot_bytes, disk: None, policy: EVERYTHING, window_bytes: WINDOW };
        assert!(matches!(Offloader::new(lane.clone(), &config), Err(Error::Setting { field: "slot_bytes", .. })));
    }
    let folder = tempfile::tempdir().unwrap();
    let disk = Some(disk(folder.path(), 1 << 20, Choice::Auto));
    let config = OffloaderConfig { host_bytes: SLOT, slot_bytes: SLOT, disk, policy: EVERYTHING, window_bytes: WINDOW };
    assert!(matches!(Offloader::new(lane, &config), Err(Error::Setting { field: "host_bytes", .. })));
}
