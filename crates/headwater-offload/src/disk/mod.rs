//! Blocks on disk: one unnamed file a folder, cut into units as long as a slot of host memory.
//!
//! A file without a name is gone with its process, however that ends. Units are used again, so a file grows to the most that lay
//! there at once and no further. The caller hands slots over and gets them back with the answer; a thread of its own computes
//! checksums and keeps the disk busy, reads before writes: somebody waits for a read.

#[cfg(test)]
pub(crate) mod by_hand;
pub(crate) mod folder;
pub(crate) mod transfer;
mod units;
mod worker;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use headwater_memory::io::{Choice, Direct, FileOptions, IoFile, Op};

use crate::error::{Error, Result};
use crate::lane::Lane;
pub(crate) use units::{Unit, Units};
use worker::Worker;

/// Where blocks go that leave host memory.
#[derive(Debug, Clone)]
pub struct DiskConfig {
    /// Folders, each on a disk of its own: blocks are spread over them.
    pub folders: Vec<PathBuf>,
    /// The most bytes that lie there at once, in all folders together.
    pub limit_bytes: u64,
    /// Whether all of that is reserved at once, so that a disk that is too full says so before the first step.
    pub is_reserved: bool,
    /// Whether a file system without direct I/O will do. What is written then lies in the page cache, and so in host memory.
    pub allow_buffered: bool,
    /// Whether a file system on another machine will do.
    pub allow_network: bool,
    /// How files are read and written.
    pub engine: Choice,
    /// The longest that a disk may take to answer.
    pub timeout: Duration,
}

/// The most requests that a disk is given at once.
pub(crate) const DEPTH: usize = 16;

impl DiskConfig {
    /// Folders and a limit; everything else as most want it.
    #[must_use]
    pub fn new(folders: Vec<PathBuf>, limit_bytes: u64) -> Self {
        Self {
            folders,
            limit_bytes,
            is_reserved: false,
            allow_buffered: false,
            allow_network: false,
            engine: Choice::Auto,
            timeout: Duration::from_secs(60),
        }
    }

    fn files(&self) -> Result<Vec<Arc<IoFile>>> {
        let share = self.limit_bytes / (self.folders.len().max(1) as u64);
        let open = |path: &PathBuf| {
            folder::check(path, self.allow_network)?;
            let preallocate_bytes = if self.is_reserved { share } else { 0 };
            let options = FileOptions { direct: Direct::Prefer, preallocate_bytes, ..FileOptions::default() };
            let file = IoFile::temporary(path, &options).map_err(|why| refused(path, preallocate_bytes, why))?;
            match file.buffered_reason() {
                Some(why) if !self.allow_buffered => {
                    let why =
                        format!("{why}; what is written there would lie in host memory (allow_buffered permits it)");
                    Err(Error::Folder { path: path.clone(), why })
                }
                _ => Ok(Arc::new(file)),
            }
        };
        self.folders.iter().map(open).collect()
    }
}

/// Why a file was not made: where it was too long, with how much room there is.
fn refused(path: &Path, needed: u64, why: headwater_memory::io::Error) -> Error {
    match (&why, folder::free_bytes(path)) {
        (headwater_memory::io::Error::File { what: "preallocate", .. }, Some(free)) => {
            Error::DiskFull { path: path.to_owned(), needed, free, why: Arc::new(why) }
        }
        _ => why.into(),
    }
}

/// A slot, how much of it counts, and where that lies on disk.
pub(crate) struct Piece<S> {
    /// `None` while a disk has it, and for good when the disk never answered.
    pub slot: Option<S>,
    pub bytes: usize,
    pub unit: Unit,
    /// The checksum, once written.
    pub sum: u32,
}

pub(crate) struct Job<S> {
    pub block: u64,
    pub op: Op,
    pub pieces: Vec<Piece<S>>,
}

/// A job that is over.
pub(crate) struct Done<S> {
    pub job: Job<S>,
    pub result: Result<()>,
    /// When the thread began with it, and when it was done.
    pub took: Option<(Instant, Instant)>,
}

/// The disks of an offloader.
pub(crate) struct Disk<S> {
    shared: Arc<Shared<S>>,
    worker: Option<JoinHandle<()>>,
    transfer: String,
    #[cfg(test)]
    hand: Option<by_hand::Hand<S>>,
}

/// What callers and the thread share.
struct Shared<S> {
    state: Mutex<Desk<S>>,
    /// For the thread: there is a job.
    work: Condvar,
    /// For callers: a job is over.
    news: Condvar,
}

struct Desk<S> {
    reads: VecDeque<Job<S>>,
    writes: VecDeque<Job<S>>,
    done: Vec<Done<S>>,
    /// Bytes a second that each file was written, as far as that is known.
    rates: Vec<Option<f64>>,
    is_closed: bool,
    is_alive: bool,
}

impl<S> Shared<S> {
    fn lock(&self) -> MutexGuard<'_, Desk<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Send + 'static> Disk<S> {
    /// Makes the files, and starts the thread. Units are the caller's to count.
    pub fn open<L: Lane<Slot = S>>(lane: &L, config: &DiskConfig, unit_bytes: usize) -> Result<(Self, Units)> {
        if config.folders.is_empty() {
            return Err(Error::Setting { field: "disk folders", value: 0, must_be: "at least one" });
        }
        let files = config.files()?;
        let transfer = lane.transfer(&files, config)?;
        let name = transfer.name();
        let desk = Desk {
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            done: Vec::new(),
            rates: Vec::new(),
            is_closed: false,
            is_alive: true,
        };
        let shared = Arc::new(Shared { state: Mutex::new(desk), work: Condvar::new(), news: Condvar::new() });
        let worker = Worker::new(Arc::clone(&shared), transfer, files.clone(), unit_bytes);
        let thread = Builder::new().name("offload-disk".to_owned()).spawn(move || worker.run());
        let thread = thread.map_err(|why| Error::Thread { why: why.to_string() })?;
        let units = Units::new(files, unit_bytes, config.limit_bytes);
        let made = Self {
            shared,
            worker: Some(thread),
            transfer: name,
            #[cfg(test)]
            hand: None,
        };
        Ok((made, units))
    }

    /// What moves bytes, and why it is not what most want when it is not.
    pub fn transfer(&self) -> &str {
        &self.transfer
    }

    /// Gives the thread a job.
    pub fn submit(&self, job: Job<S>) {
        #[cfg(test)]
        self.hand.iter().for_each(|hand| hand.note(&job));
        let mut desk = self.shared.lock();
        match job.op {
            Op::Read => desk.reads.push_back(job),
            Op::Write => desk.writes.push_back(job),
        }
        drop(desk);
        self.shared.work.notify_one();
    }

    /// Takes a job back that has not begun.
    pub fn cancel(&self, block: u64) -> Option<Job<S>> {
        let mut desk = self.shared.lock();
        let Desk { reads, writes, .. } = &mut *desk;
        [reads, writes].into_iter().find_map(|jobs| {
            let at = jobs.iter().position(|job| job.block == block)?;
            jobs.remove(at)
        })
    }

    /// Jobs that are over since this was asked last. Jobs that nobody will answer any more are among them.
    pub fn done(&self) -> Vec<Done<S>> {
        let mut desk = self.shared.lock();
        #[cfg(test)]
        self.hand.iter().for_each(|hand| hand.play(&mut desk));
        let mut done = std::mem::take(&mut desk.done);
        if !desk.is_alive {
            let Desk { reads, writes, .. } = &mut *desk;
            done.extend(reads.drain(..).chain(writes.drain(..)).map(abandoned));
        }
        done
    }

    /// Bytes a second that each file was written, as far as that is known.
    pub fn rates(&self) -> Vec<Option<f64>> {
        self.shared.lock().rates.clone()
    }

    /// Whether the worker thread is running.
    pub fn is_alive(&self) -> bool {
        self.shared.lock().is_alive
    }

    /// Waits until a job is over, at most for so long.
    pub fn wait(&self, most: Duration) {
        #[cfg(test)]
        if let Some(hand) = &self.hand {
            return hand.wait();
        }
        let desk = self.shared.lock();
        if desk.done.is_empty() && desk.is_alive {
            drop(self.shared.news.wait_timeout(desk, most));
        }
    }

    /// Leaves the thread to itself: it is not one of this process.
    pub fn forget_thread(&mut self) {
        std::mem::forget(self.worker.take());
    }
}

fn abandoned<S>(job: Job<S>) -> Done<S> {
    let why = Error::Lost { block: job.block, why: "its thread has ended".to_owned() };
    Done { job, result: Err(why), took: None }
}

impl<S> Drop for Disk<S> {
    fn drop(&mut self) {
        let Some(worker) = self.worker.take() else { return };
        self.shared.lock().is_closed = true;
        self.shared.work.notify_one();
        // A panic there was told as jobs that were abandoned.
        let _ = worker.join();
    }
}
