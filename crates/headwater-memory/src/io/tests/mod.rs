//! The same bodies over every engine and every kind of file; faults on the in-memory twin; properties of the pure parts.

#![allow(unsafe_code)]

mod engines;
mod failures;
mod files;
mod lifetimes;
mod pure;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use super::ram::{Fault, FaultPlan, Order, RamOptions};
use super::*;

const BLOCK: usize = 8192;

fn config(choice: Choice) -> EngineConfig {
    EngineConfig { choice, depth: 4, timeout: Duration::from_secs(20), ..EngineConfig::default() }
}

fn engine(choice: Choice) -> Engine {
    Engine::new(config(choice)).unwrap()
}

fn faulty(faults: Vec<Fault>) -> Engine {
    engine(Choice::Ram(FaultPlan { faults, ..FaultPlan::default() }))
}

fn slow(latency_ms: u64) -> Choice {
    Choice::Ram(FaultPlan { latency: Duration::from_millis(latency_ms), ..FaultPlan::default() })
}

/// Every engine this machine has, plain, with tiny steps, and with faults that a caller must not notice.
fn engines() -> Vec<(&'static str, Engine)> {
    let tiny = |choice| EngineConfig { max_step_bytes: 4096, ..config(choice) };
    let nuisances = FaultPlan {
        faults: vec![Fault::Short { bytes: 4096 }, Fault::Interrupted { period: 3 }, Fault::Busy { period: 5 }],
        order: Order::Shuffled { seed: 7 },
        ..FaultPlan::default()
    };
    let mut all = vec![
        ("threads", engine(Choice::Threads)),
        ("threads, tiny steps", Engine::new(tiny(Choice::Threads)).unwrap()),
        ("ram", engine(Choice::Ram(FaultPlan::default()))),
        ("ram, nuisances", engine(Choice::Ram(nuisances))),
    ];
    match Engine::new(config(Choice::Uring)) {
        Ok(uring) => {
            all.push(("uring", uring));
            all.push(("uring, tiny steps", Engine::new(tiny(Choice::Uring)).unwrap()));
        }
        Err(error) => println!("skipped: {error}"),
    }
    all
}

/// A folder on disk and, where there is one, on tmpfs.
fn folders() -> Vec<TempDir> {
    let mut all = vec![tempfile::tempdir().unwrap()];
    match tempfile::tempdir_in("/dev/shm") {
        Ok(folder) => all.push(folder),
        Err(error) => println!("skipped: no tmpfs: {error}"),
    }
    all
}

/// One file of every kind, holding `contents`.
fn files(folders: &[TempDir], contents: &[u8]) -> Vec<Arc<IoFile>> {
    let mut all = Vec::new();
    for folder in folders {
        for direct in [Direct::Prefer, Direct::Never] {
            let path = fresh_path(folder.path());
            fs::write(&path, contents).unwrap();
            let options = FileOptions { access: Access::ReadWrite, direct, preallocate_bytes: 0 };
            all.push(Arc::new(IoFile::open(path, &options).unwrap()));
        }
    }
    for alignment_bytes in [1, 4096] {
        all.push(ram_file(RamOptions { contents: contents.to_vec(), alignment_bytes, ..RamOptions::default() }));
    }
    all
}

fn fresh_path(folder: &Path) -> PathBuf {
    static SERIAL: AtomicUsize = AtomicUsize::new(0);
    folder.join(format!("file-{}", SERIAL.fetch_add(1, Ordering::Relaxed)))
}

fn ram_file(options: RamOptions) -> Arc<IoFile> {
    Arc::new(IoFile::ram("memory", &options).unwrap())
}

/// Bytes that differ from block to block.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i / 64 * 31 + i + seed * 17) % 251).unwrap()).collect()
}

fn buffer(len: usize) -> AlignedBuffer {
    AlignedBuffer::new(len).unwrap()
}

fn filled(len: usize, seed: usize) -> AlignedBuffer {
    AlignedBuffer::copy_of(&pattern(len, seed)).unwrap()
}

/// A buffer that counts how many of its kind are alive.
struct Counted(AlignedBuffer, Arc<AtomicUsize>);

impl Counted {
    fn new(len: usize, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self(buffer(len), Arc::clone(alive))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

// SAFETY: forwards to an aligned buffer that it owns.
unsafe impl IoBuffer for Counted {
    fn start(&mut self) -> *mut u8 {
        self.0.start()
    }

    fn len_bytes(&self) -> usize {
        self.0.len_bytes()
    }
}
