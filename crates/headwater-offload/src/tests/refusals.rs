//! Devices that refuse to copy, and systems that refuse memory: an error comes to whoever asked, and what was there before stays.

use std::sync::atomic::AtomicBool;

use super::*;

/// A device that refuses what a test says.
#[derive(Clone, Default)]
struct Refusing {
    inner: Fake,
    refuses: Arc<Refusals>,
}

#[derive(Default)]
struct Refusals {
    down: AtomicBool,
    up: AtomicBool,
    /// Whether copies are over.
    passed: AtomicBool,
    /// Bytes of host memory that may still be had; without a limit, none.
    host_left: Mutex<Option<usize>>,
}

fn lost(call: &'static str) -> Error {
    Error::Cuda(headwater_cuda::Error::Unsupported { what: call, why: "the device is lost".to_owned() })
}

impl Refusing {
    fn unless(refused: &AtomicBool, call: &'static str) -> Result<()> {
        if refused.load(Ordering::SeqCst) { Err(lost(call)) } else { Ok(()) }
    }
}

impl Lane for Refusing {
    type Slot = AlignedBuffer;
    type Memory = Bytes;
    type Queue = ();
    type Mark = u64;

    fn slots(&self, count: usize, bytes: usize) -> Result<Vec<AlignedBuffer>> {
        if let Some(left) = &mut *self.refuses.host_left.lock().unwrap() {
            let why = headwater_memory::Error::TooLarge { elements: count, element_bytes: bytes };
            *left = left.checked_sub(count * bytes).ok_or(why)?;
        }
        self.inner.slots(count, bytes)
    }

    fn transfer(&self, files: &[Arc<IoFile>], config: &DiskConfig) -> Result<Box<dyn Transfer<AlignedBuffer>>> {
        self.inner.transfer(files, config)
    }

    fn bytes(memory: &Bytes) -> usize {
        Fake::bytes(memory)
    }

    fn mark(&self, queue: &()) -> Result<u64> {
        self.inner.mark(queue)
    }

    fn down(&self, after: &u64, from: &Bytes, slots: &mut [AlignedBuffer]) -> Result<CopyMarks<u64>> {
        Self::unless(&self.refuses.down, "a copy to the host")?;
        self.inner.down(after, from, slots)
    }

    fn up(&self, after: &[u64], slots: &[AlignedBuffer], to: &Bytes) -> Result<CopyMarks<u64>> {
        Self::unless(&self.refuses.up, "a copy to the device")?;
        self.inner.up(after, slots, to)
    }

    fn has_passed(&self, mark: &u64) -> Result<bool> {
        Self::unless(&self.refuses.passed, "an event")?;
        self.inner.has_passed(mark)
    }

    fn follow(&self, queue: &(), mark: &u64) -> Result<()> {
        self.inner.follow(queue, mark)
    }

    fn seconds(&self, from: &u64, to: &u64) -> Result<f64> {
        self.inner.seconds(from, to)
    }

    fn rates(&self) -> Result<(f64, f64)> {
        self.inner.rates()
    }
}

fn refusing(slots: usize, disk: Option<DiskConfig>) -> (Offloader<Refusing>, Refusing) {
    let lane = Refusing::default();
    let config =
        OffloaderConfig { host_bytes: slots * SLOT, slot_bytes: SLOT, disk, policy: EVERYTHING, window_bytes: WINDOW };
    (Offloader::new(lane.clone(), &config).unwrap(), lane)
}

fn store(offloader: &Offloader<Refusing>, seed: usize) -> Result<StoreOutcome> {
    offloader.store(memory(content(seed, SLOT)), &())
}

fn load(offloader: &Offloader<Refusing>, block: BlockId) -> Result<Vec<u8>> {
    let to = memory(vec![0xcb; SLOT]);
    offloader.load(block, &to, &())?;
    Ok(to.lock().unwrap().clone())
}

#[test]
fn a_copy_that_fails_is_an_error_and_nothing_of_it_stays() {
    let (offloader, lane) = refusing(4, None);
    let refuses = &lane.refuses;
    let Ok(StoreOutcome::Leaving(first)) = store(&offloader, 0) else { panic!("there is room") };
    refuses.down.store(true, Ordering::SeqCst);
    for _ in 0..8 {
        assert!(store(&offloader, 1).unwrap_err().to_string().contains("the device is lost"));
        // Nobody will name its block, so nobody need keep its memory.
        assert_eq!(offloader.unnamed().unwrap(), [first]);
    }
    assert_eq!(offloader.held().unwrap(), (1, SLOT));
    refuses.down.store(false, Ordering::SeqCst);
    refuses.up.store(true, Ordering::SeqCst);
    assert!(load(&offloader, first).unwrap_err().to_string().contains("a copy to the device"));
    refuses.up.store(false, Ordering::SeqCst);
    assert_eq!(load(&offloader, first).unwrap(), content(0, SLOT), "it is still there");
    refuses.passed.store(true, Ordering::SeqCst);
    assert!(offloader.drained().is_err() && store(&offloader, 2).is_err() && load(&offloader, first).is_err());
    // What is released is gone without asking the device.
    offloader.release(first).unwrap();
    assert_eq!(offloader.held().unwrap(), (0, 0));
    refuses.passed.store(false, Ordering::SeqCst);
    // Slots of copies that failed are as good as any other.
    let blocks: Vec<BlockId> = (0..4)
        .map(|seed| match store(&offloader, seed).unwrap() {
            StoreOutcome::Leaving(block) => block,
            StoreOutcome::NoRoom => panic!("there are four slots"),
        })
        .collect();
    for (seed, block) in blocks.into_iter().enumerate() {
        assert_eq!(load(&offloader, block).unwrap(), content(seed, SLOT));
    }
}

/// All of it or a half: what finds no room stays, and with a disk all passes through what there is.
#[test]
fn host_memory_that_is_refused_is_done_without() {
    let folder = tempfile::tempdir().unwrap();
    for (bytes, with_disk) in [(0, false), (0, true), (600 << 20, false), (600 << 20, true)] {
        // Memory is asked for 256 MiB at a time, and what is refused by halves: of 600 MiB there is all but what is less than a slot.
        let config = OffloaderConfig {
            host_bytes: 1 << 30,
            slot_bytes: 64 << 20,
            disk: with_disk.then(|| disk(folder.path(), 1 << 30, Choice::Auto)),
            policy: EVERYTHING,
            window_bytes: WINDOW,
        };
        let lane = Refusing::default();
        *lane.refuses.host_left.lock().unwrap() = Some(bytes);
        let offloader = Offloader::new(lane.clone(), &config).unwrap();
        let mut left = Vec::new();
        for seed in 0..12 {
            if let StoreOutcome::Leaving(block) = store(&offloader, seed).unwrap() {
                left.push((seed, block));
            }
            lane.inner.pass_all();
            offloader.drained().unwrap();
        }
        let slots = bytes / (64 << 20);
        assert!(left.len() >= slots && (with_disk || left.len() == slots), "{} of {slots}", left.len());
        assert!(bytes > 0 || left.is_empty(), "what needs memory on its way to a disk stays as well");
        assert_eq!(offloader.counts().unwrap().host, (slots * (64 << 20)) as u64);
        for (seed, block) in left.into_iter().rev() {
            match load(&offloader, block) {
                Ok(found) => assert_eq!(found, content(seed, SLOT)),
                // It waits for a disk, and its owner has it.
                Err(why) => assert!(with_disk && matches!(why, Error::NotLeft { .. }), "{why}"),
            }
            offloader.release(block).unwrap();
        }
    }
}

/// The system has two slots and no more. Both have blocks that were read early, which make room for one that is needed now.
#[test]
fn what_was_read_early_makes_room_where_the_system_has_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let (offloader, lane) = refusing(64, Some(disk(folder.path(), 1 << 20, Choice::Auto)));
    *lane.refuses.host_left.lock().unwrap() = Some(2 * SLOT + 1);
    let blocks: Vec<BlockId> = (0..6)
        .map(|seed| {
            let StoreOutcome::Leaving(block) = store(&offloader, seed).unwrap() else {
                panic!("it may wait for a disk")
            };
            while !offloader.drained().unwrap().contains(&block) {
                lane.inner.pass_all();
            }
            block
        })
        .collect();
    for early in &blocks[..2] {
        while !offloader.is_near(*early).unwrap() {
            offloader.prefetch(*early).unwrap();
        }
    }
    for (seed, block) in blocks.iter().enumerate().rev() {
        assert_eq!(load(&offloader, *block).unwrap(), content(seed, SLOT));
        offloader.release(*block).unwrap();
    }
    let counts = offloader.counts().unwrap();
    assert_eq!((counts.host, counts.overdraft, offloader.held().unwrap()), (2 * SLOT as u64, 0, (0, 0)));
}
