//! Disks that a GPU reaches by itself, with the emulator's cuFile in the place of the real one.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_long};
use std::time::{Duration, Instant};

use headwater_memory::io::PAGE_BYTES;
use libloading::Library;

use super::*;

const SLOTS: usize = 8;
const SLOT: usize = 4 * PAGE_BYTES;

/// The emulator's cuFile, as on a machine that was just started.
pub(super) struct StandIn(Library);

impl StandIn {
    /// With `nvidia-fs`, or without.
    pub fn new(has_direct_way: bool) -> Option<Self> {
        let path = std::env::var_os("HEADWATER_LIBCUFILE")?;
        // SAFETY: the file is the one that cuFile's functions are loaded from, so this only counts it up.
        let own = Self(unsafe { Library::new(path) }.ok()?);
        // SAFETY: the functions have these types in emulator/cufile.
        unsafe {
            // A real library has none of these.
            own.0.get::<unsafe extern "C" fn(*const c_char, c_long)>(b"hwemu_cufile").ok()?;
            own.0.get::<unsafe extern "C" fn() -> u64>(b"cuFileDriverClose_v2").ok()?();
        }
        let usual = [
            ("p2p", 0),
            ("parameters", 1),
            ("file", 0),
            ("most", 0),
            ("fail_reads", 0),
            ("fail_writes", 0),
            ("flip", 0),
            ("late_ms", 0),
        ];
        usual.iter().for_each(|(name, value)| own.set(name, *value));
        own.set("nvfs", c_long::from(has_direct_way));
        Some(own)
    }

    fn set(&self, name: &str, value: c_long) {
        let name = CString::new(name).unwrap();
        // SAFETY: the function has this type in emulator/cufile.
        unsafe {
            self.0.get::<unsafe extern "C" fn(*const c_char, c_long)>(b"hwemu_cufile").unwrap()(name.as_ptr(), value)
        }
    }

    fn count(&self, name: &str) -> c_long {
        let name = CString::new(name).unwrap();
        // SAFETY: as above.
        unsafe {
            self.0.get::<unsafe extern "C" fn(*const c_char) -> c_long>(b"hwemu_cufile_count").unwrap()(name.as_ptr())
        }
    }
}

fn config(folder: &Path) -> OffloaderConfig {
    let disk = DiskConfig { timeout: Duration::from_secs(20), ..DiskConfig::new(vec![folder.to_owned()], 4 << 20) };
    OffloaderConfig {
        host_bytes: SLOTS * SLOT,
        slot_bytes: SLOT,
        disk: Some(disk),
        policy: EVERYTHING,
        window_bytes: WINDOW,
    }
}

fn offloader(gpu: &Gpu, folder: &Path) -> Offloader<GpuLane> {
    Offloader::new(GpuLane::direct(gpu).unwrap(), &config(folder)).unwrap()
}

/// A block of many slots whose bytes all differ from their neighbours, stored until it lies on disk alone.
fn on_disk(offloader: &Offloader<GpuLane>, stream: &Stream) -> (BlockId, Vec<u8>) {
    let wanted = content(7, SLOTS / 2 * SLOT - 100);
    let source = Buffer::<u8, Device>::from_slice(stream, &wanted).unwrap();
    let block = stored_from(offloader, &source, stream).unwrap();
    offloader.follow(stream, 0).unwrap();
    stream.synchronize().unwrap();
    // One that needs all of the memory pushes it out.
    let other = Buffer::<u8, Device>::on_stream(stream, SLOTS * SLOT).unwrap();
    let next = stored_from(offloader, &other, stream).unwrap();
    offloader.settle(next, stream).unwrap();
    stream.synchronize().unwrap();
    offloader.drained().unwrap();
    offloader.release(next).unwrap();
    assert!(!offloader.is_near(block).unwrap());
    (block, wanted)
}

fn back(offloader: &Offloader<GpuLane>, stream: &Stream, block: BlockId, bytes: usize) -> Result<Vec<u8>> {
    let to = Buffer::<u8, Device>::on_stream(stream, bytes).unwrap();
    let mark = offloader.load(block, to.whole(), stream)?;
    offloader.join(stream, &mark)?;
    Ok(to.to_vec(stream).unwrap())
}

#[test]
fn blocks_go_past_the_host() {
    let (Some(gpu), Some(cufile)) = (gpu(), StandIn::new(true)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let stream = Stream::new(&gpu).unwrap();
    let sizes: Vec<usize> = (0..24).map(|at| 1 + at * 700).collect();
    // Transfers of any length, as a disk that is asked for more than it likes may make them.
    for most in [0, 4096, 3 * 4096] {
        cufile.set("most", most);
        let offloader = offloader(&gpu, folder.path());
        let mut back = Vec::new();
        for window in [0, 3 * SLOT, usize::MAX, 0] {
            back.extend(step(&offloader, &stream, &sizes, window));
        }
        for (mark, buffer) in back {
            assert!(buffer.to_vec(&stream).unwrap().iter().all(|byte| *byte == mark), "block {mark}");
        }
        let (block, wanted) = on_disk(&offloader, &stream);
        assert!(self::back(&offloader, &stream, block, wanted.len()).unwrap() == wanted);
        offloader.release(block).unwrap();
        let counts = offloader.counts().unwrap();
        assert_eq!(counts.disk_engine.as_deref(), Some("cuFile (nvidia-fs 2.25)"));
        assert!(counts.written > 0 && counts.read > 0, "{counts:?}");
        assert_eq!(offloader.held().unwrap(), (0, 0));
    }
    assert!(cufile.count("reads") > 0 && cufile.count("writes") > 0);
    assert_eq!((cufile.count("through_host"), cufile.count("files"), cufile.count("memory")), (0, 0, 0));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_way_through_the_host_is_not_taken_for_a_direct_one() {
    let (Some(gpu), Some(cufile)) = (gpu(), StandIn::new(false)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let refused = || GpuLane::direct(&gpu).err().map(|why| why.to_string()).unwrap_or_default();
    assert!(
        refused().contains("GPUDirect Storage is not available: cuFileDriverOpen: the driver is not open"),
        "{}",
        refused()
    );
    // As an older library, which cannot be told, on the same machine; and one that another library of the process has opened before.
    drop(cufile);
    let cufile = StandIn::new(false).unwrap();
    cufile.set("parameters", 0);
    assert!(refused().contains("CUFILE_ALLOW_COMPAT_MODE=false"), "{}", refused());
    drop(cufile);
    let cufile = StandIn::new(false).unwrap();
    cufile.set("p2p", 1);
    assert!(Offloader::new(GpuLane::direct(&gpu).unwrap(), &config(folder.path())).is_ok());
    // A disk that has no such way.
    cufile.set("file", 1);
    let why = Offloader::new(GpuLane::direct(&gpu).unwrap(), &config(folder.path())).err().unwrap();
    assert!(matches!(&why, Error::Folder { .. }), "{why}");
    assert!(
        why.to_string().contains("the file system or disk has no direct way to a GPU (cuFile error 5008)"),
        "{why}"
    );
    // And one that gives back something else.
    cufile.set("file", 0);
    cufile.set("flip", 1);
    assert!(Offloader::new(GpuLane::direct(&gpu).unwrap(), &config(folder.path())).is_ok(), "once is not always");
    cufile.set("flip", 2);
    let why = Offloader::new(GpuLane::direct(&gpu).unwrap(), &config(folder.path())).err().unwrap();
    assert!(why.to_string().contains("is not what it wrote"), "{why}");
    assert_eq!(cufile.count("through_host"), 0);
}

#[test]
fn what_a_disk_gives_back_wrong_is_read_again_and_then_an_error() {
    const EIO: c_long = 5;
    const NVFS_ERROR: c_long = 5010;
    let (Some(gpu), Some(cufile)) = (gpu(), StandIn::new(true)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let stream = Stream::new(&gpu).unwrap();
    let offloader = offloader(&gpu, folder.path());
    for (fault, code, words) in [
        ("flip", 0, "was damaged on disk"),
        ("fail_reads", EIO, "device error: read"),
        ("fail_reads", NVFS_ERROR, "nvidia-fs reported an error"),
    ] {
        cufile.set("code", code);
        let (block, wanted) = on_disk(&offloader, &stream);
        cufile.set(fault, 1);
        assert!(back(&offloader, &stream, block, wanted.len()).unwrap() == wanted, "{fault} once");
        offloader.release(block).unwrap();
        let (block, wanted) = on_disk(&offloader, &stream);
        cufile.set(fault, 1000);
        let why = back(&offloader, &stream, block, wanted.len()).map(|_| ()).unwrap_err();
        assert!(why.to_string().contains(words), "{why}");
        cufile.set(fault, 0);
        offloader.release(block).unwrap();
    }
}

#[test]
fn a_full_disk_leaves_blocks_where_they_are() {
    const ENOSPC: c_long = 28;
    let (Some(gpu), Some(cufile)) = (gpu(), StandIn::new(true)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let stream = Stream::new(&gpu).unwrap();
    let offloader = offloader(&gpu, folder.path());
    cufile.set("code", ENOSPC);
    cufile.set("fail_writes", 1_000_000);
    let wanted = content(7, SLOTS / 2 * SLOT);
    let [source, other] =
        [wanted.clone(), vec![0; SLOTS * SLOT]].map(|bytes| Buffer::<u8, Device>::from_slice(&stream, &bytes).unwrap());
    let block = stored_from(&offloader, &source, &stream).unwrap();
    offloader.follow(&stream, 0).unwrap();
    stream.synchronize().unwrap();
    let next = stored_from(&offloader, &other, &stream).unwrap();
    let why = offloader.settle(next, &stream).unwrap_err();
    assert!(why.to_string().contains("no space"), "{why}");
    assert!(back(&offloader, &stream, block, wanted.len()).unwrap() == wanted);
    let counts = offloader.counts().unwrap();
    assert!(counts.disk_fault.as_deref().is_some_and(|why| why.contains("no space")), "{counts:?}");
}

#[test]
fn a_disk_that_does_not_answer_is_given_up() {
    let (Some(gpu), Some(cufile)) = (gpu(), StandIn::new(true)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let stream = Stream::new(&gpu).unwrap();
    let mut config = config(folder.path());
    config.disk.as_mut().unwrap().timeout = Duration::from_secs(3);
    let offloader = Offloader::new(GpuLane::direct(&gpu).unwrap(), &config).unwrap();
    let (block, wanted) = on_disk(&offloader, &stream);
    cufile.set("late_ms", 60_000);
    let begun = Instant::now();
    // Nor is it asked a second time.
    for _ in 0..2 {
        let why = back(&offloader, &stream, block, wanted.len()).map(|_| ()).unwrap_err();
        assert!(why.to_string().contains("no answer from cuFile in 3s"), "{why}");
    }
    drop(offloader);
    assert!(begun.elapsed() < Duration::from_secs(30), "nobody waits for it");
    cufile.set("late_ms", 0);
    // What it had comes back to nobody, and goes.
    while cufile.count("memory") > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{} pieces are still held", cufile.count("memory"));
        std::thread::sleep(Duration::from_millis(20));
    }
}
