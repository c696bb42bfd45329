//! Disks that fail: data is kept, or an error says what is lost. Never are there other bytes.

use std::io::{Seek, SeekFrom, Write};
use std::time::Duration;

use headwater_memory::io::ram::{Fault, FaultPlan};

use super::*;

fn failing(faults: Vec<Fault>) -> Choice {
    Choice::Ram(FaultPlan { faults, ..FaultPlan::default() })
}

#[test]
fn a_disk_that_is_full_keeps_nothing_from_anybody() {
    let folder = tempfile::tempdir().unwrap();
    let engine = failing(vec![Fault::NoSpaceAfter { bytes: 3 * SLOT as u64 }]);
    let (offloader, lane) = offloader(4, Some(disk(folder.path(), 1 << 20, engine)));
    let blocks: Vec<BlockId> = (0..10).map(|seed| stored(&offloader, content(seed, SLOT))).collect();
    let mut left = HashSet::new();
    let mut fault = None;
    for _ in 0..200 {
        lane.pass_all();
        left.extend(offloader.drained().unwrap());
        fault = offloader.counts().unwrap().disk_fault;
        if fault.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(fault.unwrap().contains("no space"));
    for (seed, block) in blocks.iter().enumerate() {
        match loaded(&offloader, *block, SLOT) {
            Ok(bytes) => assert_eq!(bytes, content(seed, SLOT)),
            // Nobody was told that its memory may go.
            Err(Error::NotLeft { .. }) => assert!(!left.contains(block)),
            Err(why) => panic!("{why}"),
        }
    }
    // The next step does without the disk.
    blocks.iter().for_each(|block| offloader.release(*block).unwrap());
    let block = stored(&offloader, content(3, SLOT));
    assert_eq!(loaded(&offloader, block, SLOT).unwrap(), content(3, SLOT));
    assert_eq!(offloader.store(memory(content(0, 4 * SLOT)), &()).unwrap(), StoreOutcome::NoRoom);
}

/// Blocks until the first of them are on disk alone.
fn on_disk(offloader: &Offloader<Fake>, lane: &Fake) -> Vec<BlockId> {
    store_all(offloader, lane, &[SLOT; 10])
}

#[test]
fn a_read_that_fails_once_is_repeated_and_one_that_fails_twice_raises() {
    let folder = tempfile::tempdir().unwrap();
    // Of so many steps the first are writes: every later one is tried as the one that fails.
    let mut raised = 0;
    for step in 0..40 {
        let engine = failing(vec![Fault::DeviceAtStep { step }]);
        let (offloader, lane) = offloader(2, Some(disk(folder.path(), 1 << 20, engine)));
        let mut blocks = Vec::new();
        for seed in 0..10 {
            // Once a write has failed, there may be no room.
            let StoreOutcome::Leaving(block) = offloader.store(memory(content(seed, SLOT)), &()).unwrap() else {
                break;
            };
            blocks.push(block);
            lane.pass_all();
            offloader.drained().unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
        for (seed, block) in blocks.iter().enumerate().rev() {
            match loaded(&offloader, *block, SLOT) {
                Ok(bytes) => assert_eq!(bytes, content(seed, SLOT)),
                Err(Error::NotLeft { .. }) => {}
                Err(_) => raised += 1,
            }
        }
    }
    assert_eq!(raised, 0, "one fault is one repetition");
    let engine = failing(vec![Fault::DeviceAtStep { step: 1000 }]);
    let (offloader, lane) = offloader(2, Some(disk(folder.path(), 1 << 20, engine)));
    let blocks = on_disk(&offloader, &lane);
    damage(folder.path());
    let why = loaded(&offloader, blocks[0], SLOT).unwrap_err();
    assert!(matches!(why, Error::Damaged { block: 0, bytes: SLOT, from: 0, to: SLOT, .. }), "{why}");
    // And again, not something else.
    assert!(matches!(loaded(&offloader, blocks[0], SLOT), Err(Error::Damaged { .. })));
    offloader.release(blocks[0]).unwrap();
    assert_eq!(loaded(&offloader, blocks[9], SLOT).unwrap(), content(9, SLOT), "others are as they were");
}

/// Two faults in a row meet a read and its repetition.
#[test]
fn a_read_that_fails_twice_raises_and_others_are_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let mut raised = 0;
    for step in 0..24 {
        let engine = failing(vec![Fault::DeviceAtStep { step }, Fault::DeviceAtStep { step: step + 1 }]);
        let (offloader, lane) = offloader(2, Some(disk(folder.path(), 1 << 20, engine)));
        let mut blocks = Vec::new();
        for seed in 0..8 {
            let StoreOutcome::Leaving(block) = offloader.store(memory(content(seed, SLOT)), &()).unwrap() else {
                break;
            };
            blocks.push(block);
            for _ in 0..50 {
                lane.pass_all();
                offloader.drained().unwrap();
                if offloader.counts().unwrap().written >= seed.saturating_sub(1) as u64 * SLOT as u64 {
                    break;
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        let mut lost = 0;
        for (seed, block) in blocks.iter().enumerate().rev() {
            match loaded(&offloader, *block, SLOT) {
                Ok(bytes) => assert_eq!(bytes, content(seed, SLOT)),
                Err(Error::NotLeft { .. }) => {}
                Err(why) => {
                    lost += 1;
                    assert!(matches!(why, Error::Unreadable { bytes: SLOT, .. }), "{why}");
                    assert!(why.to_string().contains("4096 bytes"), "{why}");
                    // And again: it is not there the second time either.
                    assert!(loaded(&offloader, *block, SLOT).is_err());
                }
            }
            offloader.release(*block).unwrap();
        }
        assert!(lost <= 1, "one fault and its repetition are one block's");
        raised += lost;
        assert_eq!(offloader.held().unwrap(), (0, 0));
    }
    assert!(raised > 0);
}

/// Somebody else cuts the file: what lay behind its end is an error, and zeroes are not what was saved.
#[test]
fn a_file_that_was_cut_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for engine in [Choice::Auto, Choice::Threads] {
        let (offloader, lane) = offloader(2, Some(disk(folder.path(), 1 << 20, engine)));
        let blocks = on_disk(&offloader, &lane);
        for file in nameless(folder.path()) {
            file.set_len(0).unwrap();
        }
        let why = loaded(&offloader, blocks[0], SLOT).unwrap_err();
        // A write that was under way makes it longer again, with nothing in it.
        assert!(matches!(why, Error::Unreadable { .. } | Error::Damaged { .. }), "{why}");
        for file in nameless(folder.path()) {
            file.set_len(1 << 20).unwrap();
        }
        let why = loaded(&offloader, blocks[1], SLOT).unwrap_err();
        assert!(matches!(why, Error::Damaged { .. }), "{why}");
        assert_eq!(loaded(&offloader, blocks[9], SLOT).unwrap(), content(9, SLOT), "it is in host memory");
    }
}

#[test]
fn a_slow_disk_is_waited_for_and_one_that_does_not_answer_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let run = |latency, timeout| {
        let plan = FaultPlan { latency, ..FaultPlan::default() };
        let config = DiskConfig { timeout, ..disk(folder.path(), 1 << 20, Choice::Ram(plan)) };
        let (offloader, lane) = offloader(2, Some(config));
        let blocks: Vec<BlockId> = (0..6).map(|seed| stored(&offloader, content(seed, SLOT))).collect();
        let begun = std::time::Instant::now();
        while offloader.counts().unwrap().disk_fault.is_none() && begun.elapsed() < Duration::from_millis(400) {
            lane.pass_all();
            offloader.drained().unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut lost = Vec::new();
        for (seed, block) in blocks.iter().enumerate().rev() {
            match loaded(&offloader, *block, SLOT) {
                Ok(bytes) => assert_eq!(bytes, content(seed, SLOT)),
                Err(Error::NotLeft { .. }) => {}
                Err(why) => lost.push(why.to_string()),
            }
            offloader.release(*block).unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody waits for good");
        (offloader.counts().unwrap(), lost)
    };
    let (counts, lost) = run(Duration::from_millis(5), Duration::from_secs(60));
    assert!(lost.is_empty() && counts.waited_ns > 0 && counts.read > 0, "{counts:?} {lost:?}");
    let (counts, lost) = run(Duration::from_millis(900), Duration::from_millis(30));
    assert!(!lost.is_empty() && lost.iter().all(|why| why.contains("is lost")), "{lost:?}");
    assert!(counts.disk_fault.is_some() && counts.read == 0, "{counts:?}");
}

/// A disk that has enough to do: a block that it has not begun to write is taken back when it is needed, and never written.
#[test]
fn a_write_that_has_not_begun_is_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let plan = FaultPlan { latency: Duration::from_millis(100), ..FaultPlan::default() };
    let (offloader, lane) = offloader(64, Some(disk(folder.path(), 1 << 20, Choice::Ram(plan))));
    let blocks: Vec<BlockId> = (0..60).map(|seed| stored(&offloader, content(seed, SLOT))).collect();
    lane.pass_all();
    // The oldest go to the disk until half of the memory is free or will be. It takes sixteen at once.
    offloader.drained().unwrap();
    let begun = std::time::Instant::now();
    assert_eq!(loaded(&offloader, blocks[26], SLOT).unwrap(), content(26, SLOT));
    assert!(begun.elapsed() < Duration::from_millis(90), "nobody waits for the disk");
    let counts = offloader.counts().unwrap();
    assert_eq!((counts.writes_cancelled, counts.read, counts.waited_ns), (1, 0, 0), "{counts:?}");
    blocks.iter().for_each(|block| offloader.release(*block).unwrap());
}

/// Files without a name in a folder, as somebody else who can open them has them.
fn nameless(folder: &Path) -> Vec<std::fs::File> {
    let own = std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path());
    let there = own.filter(|path| std::fs::read_link(path).is_ok_and(|target| target.starts_with(folder)));
    there.map(|path| std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap()).collect()
}

/// Flips a bit of every page of the nameless files in a folder.
fn damage(folder: &Path) {
    for mut file in nameless(folder) {
        let pages = file.metadata().unwrap().len() / SLOT as u64;
        for page in 0..pages {
            file.seek(SeekFrom::Start(page * SLOT as u64 + 7)).unwrap();
            file.write_all(&[0x55]).unwrap();
        }
        file.sync_all().unwrap();
    }
}

#[test]
fn a_disk_that_dies_loses_what_it_had_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for step in 0..12 {
        let plan = FaultPlan { dies_at_step: Some(step), ..FaultPlan::default() };
        let (offloader, lane) = offloader(4, Some(disk(folder.path(), 1 << 20, Choice::Ram(plan))));
        let blocks: Vec<BlockId> = (0..10).map(|seed| stored(&offloader, content(seed, SLOT))).collect();
        let mut told = HashSet::new();
        for _ in 0..20 {
            lane.pass_all();
            told.extend(offloader.drained().unwrap());
            std::thread::sleep(Duration::from_micros(300));
        }
        for (seed, block) in blocks.iter().enumerate().rev() {
            match loaded(&offloader, *block, SLOT) {
                Ok(bytes) => assert_eq!(bytes, content(seed, SLOT)),
                Err(Error::NotLeft { .. }) => assert!(!told.contains(block)),
                Err(why) => assert!(!why.to_string().is_empty()),
            }
            offloader.release(*block).unwrap();
        }
        assert_eq!(offloader.held().unwrap(), (0, 0));
    }
}
