//! Errors, injected and real: each names its place, and none loses a buffer.

use std::process::Command;

use super::dispatch::{Dispatch, Running};
use super::ram::Twin;
use super::*;

/// Writes 8 blocks in one request under a plan of faults.
fn write_under(faults: Vec<Fault>) -> Completion<AlignedBuffer> {
    let file = ram_file(RamOptions::default());
    faulty(faults).write_all_at(&file, 100, filled(8 * BLOCK, 5)).unwrap()
}

#[test]
fn no_space_tells_how_far_the_write_got_and_returns_the_buffer() {
    let completion = write_under(vec![Fault::NoSpaceAfter { bytes: 5000 }]);
    assert!(*completion.buffer == *pattern(8 * BLOCK, 5));
    let Err(Error::NoSpace { at, source }) = completion.result else { panic!() };
    assert_eq!((at.op, at.offset, at.asked_bytes, at.done_bytes), (Op::Write, 100, 8 * BLOCK, 5000));
    assert_eq!(source.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
}

#[test]
fn a_full_file_in_memory_says_no_space() {
    let file = ram_file(RamOptions { capacity_bytes: BLOCK, ..RamOptions::default() });
    for (name, engine) in engines() {
        let completion = engine.write_all_at(&file, 0, filled(2 * BLOCK, 0)).unwrap();
        let Err(Error::NoSpace { at, .. }) = completion.result else { panic!("{name}") };
        assert_eq!(at.done_bytes, BLOCK);
    }
}

#[test]
fn device_errors_surface_by_step_and_by_offset() {
    let by_step = write_under(vec![Fault::Short { bytes: 1000 }, Fault::DeviceAtStep { step: 3 }]);
    let Err(Error::Device { at, .. }) = by_step.result else { panic!() };
    assert_eq!(at.done_bytes, 3000);
    let by_offset = write_under(vec![Fault::DeviceAtOffset { offset: 100 + 12_345 }]);
    let Err(Error::Device { at, .. }) = by_offset.result else { panic!() };
    assert_eq!((at.done_bytes, at.offset), (12_345, 100));
}

#[test]
fn a_failed_request_does_not_disturb_the_others() {
    let engine = faulty(vec![Fault::DeviceAtOffset { offset: 3 * BLOCK as u64 }]);
    let file = ram_file(RamOptions { contents: pattern(8 * BLOCK, 0), ..RamOptions::default() });
    let queue = engine.queue(8).unwrap();
    for block in 0..8u64 {
        // One byte before the bad one is not enough to fail, so that each block stands for itself.
        queue.submit(Request::read(&file, block * BLOCK as u64, buffer(BLOCK)).tag(block)).unwrap();
    }
    let all = queue.wait_all().unwrap();
    let failed: Vec<u64> = all.iter().filter(|c| c.result.is_err()).map(|c| c.tag).collect();
    assert_eq!(failed, [3]);
    assert_eq!(engine.counts().failures, 1);
}

#[test]
fn nuisances_are_counted() {
    let engine = faulty(vec![Fault::Short { bytes: BLOCK }, Fault::Interrupted { period: 2 }]);
    let file = ram_file(RamOptions::default());
    engine.write_all_at(&file, 0, filled(4 * BLOCK, 0)).unwrap().into_result().unwrap();
    let counts = engine.counts();
    assert_eq!((counts.retries, counts.short_transfers, counts.failures), (4, 3, 0));
}

#[test]
fn endless_interruptions_end_in_an_error() {
    let completion = write_under(vec![Fault::Interrupted { period: 1 }]);
    assert!(matches!(completion.result, Err(Error::Os { at, .. }) if at.done_bytes == 0));
}

#[test]
fn completions_come_in_the_planned_order() {
    let tags_under = |order| {
        let dispatch = Arc::new(Dispatch::new(EngineKind::Ram, Duration::from_secs(20), 4096, None));
        let running = Running::new(&dispatch);
        let file = ram_file(RamOptions { contents: pattern(BLOCK, 0), ..RamOptions::default() });
        let queue = Queue::new(&dispatch, 8).unwrap();
        for tag in 0..8 {
            queue.submit(Request::read(&file, 0, buffer(64)).tag(tag)).unwrap();
        }
        // Started only now, so that the engine finds all of them together.
        let twin = Twin::new(Arc::clone(&dispatch), FaultPlan { order, ..FaultPlan::default() }, 8);
        let thread = std::thread::spawn(move || twin.run());
        let tags: Vec<u64> = queue.wait_all().unwrap().iter().map(|c| c.tag).collect();
        dispatch.close("done");
        thread.join().unwrap();
        drop(running);
        tags
    };
    assert_eq!(tags_under(Order::Submitted), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(tags_under(Order::Reversed), [7, 6, 5, 4, 3, 2, 1, 0]);
    let shuffled = tags_under(Order::Shuffled { seed: 1 });
    assert_eq!(shuffled, tags_under(Order::Shuffled { seed: 1 }));
    assert_ne!(shuffled, tags_under(Order::Submitted));
}

#[test]
fn a_file_opened_for_reading_refuses_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = fresh_path(folder.path());
    fs::write(&path, pattern(BLOCK, 0)).unwrap();
    let file = Arc::new(IoFile::open(path, &FileOptions::default()).unwrap());
    for (name, engine) in engines() {
        let completion = engine.write_all_at(&file, 0, buffer(BLOCK)).unwrap();
        assert!(matches!(completion.result, Err(Error::Os { .. })), "{name}");
    }
}

#[test]
fn a_device_that_is_always_full_says_no_space() {
    let options = FileOptions { access: Access::ReadWrite, direct: Direct::Never, preallocate_bytes: 0 };
    let file = match IoFile::open("/dev/full", &options) {
        Ok(file) => Arc::new(file),
        Err(error) => return println!("skipped: {error}"),
    };
    for (name, engine) in engines() {
        let completion = engine.write_all_at(&file, 0, filled(BLOCK, 2)).unwrap();
        assert!(*completion.buffer == *pattern(BLOCK, 2));
        assert!(matches!(completion.result, Err(Error::NoSpace { .. })), "{name}");
    }
}

/// A tmpfs of 64 KiB, unmounted when dropped.
struct TinyDisk(TempDir);

impl TinyDisk {
    fn mount() -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
            .arg(folder.path())
            .output()
            .map_err(|error| error.to_string())?;
        if mounted.status.success() {
            return Ok(Self(folder));
        }
        Err(String::from_utf8_lossy(&mounted.stderr).into_owned())
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_real_full_file_system_says_no_space() {
    let disk = match TinyDisk::mount() {
        Ok(disk) => disk,
        Err(reason) => return println!("skipped: cannot mount a tmpfs: {reason}"),
    };
    for (name, engine) in engines() {
        let path = fresh_path(disk.0.path());
        let options = FileOptions { access: Access::CreateNew, ..FileOptions::default() };
        let file = Arc::new(IoFile::open(&path, &options).unwrap());
        let completion = engine.write_all_at(&file, 0, filled(16 * BLOCK, 2)).unwrap();
        assert!(*completion.buffer == *pattern(16 * BLOCK, 2));
        let Err(Error::NoSpace { at, .. }) = completion.result else { panic!("{name}: {:?}", completion.result) };
        assert!(at.done_bytes <= 8 * BLOCK && at.path == path, "{name}: {at}");
        fs::remove_file(path).unwrap();
    }
    let path = fresh_path(disk.0.path());
    let options = FileOptions { access: Access::CreateNew, preallocate_bytes: 1 << 20, ..FileOptions::default() };
    let error = IoFile::open(path, &options).unwrap_err();
    assert!(matches!(error, Error::File { what: "preallocate", .. }), "{error}");
}
