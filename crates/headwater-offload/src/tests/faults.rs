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
    assert!(matches!(why, Error::Damaged { block: 0, from: 0, to: SLOT, .. }), "{why}");
    // And again, not something else.
    assert!(matches!(loaded(&offloader, blocks[0], SLOT), Err(Error::Damaged { .. })));
    offloader.release(blocks[0]).unwrap();
    assert_eq!(loaded(&offloader, blocks[9], SLOT).unwrap(), content(9, SLOT), "others are as they were");
}

/// Flips a bit of every page of the nameless files in a folder.
fn damage(folder: &Path) {
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        if !target.starts_with(folder) {
            continue;
        }
        let mut file = std::fs::OpenOptions::new().read(true).write(true).open(entry.path()).unwrap();
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
