//! What a table on disk did, in relaxed atomics: cheap enough to be always on.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;

/// A snapshot. Fields are read one by one, not at one instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DiskCounts {
    /// Rows handed out.
    pub rows: u64,
    /// Bytes of these rows.
    pub row_bytes: u64,
    /// Requests to the disk.
    pub reads: u64,
    /// Bytes that came from it.
    pub read_bytes: u64,
    /// Units that fetches wanted.
    pub fetched: UnitCounts,
    /// Units that prefetches wanted.
    pub prefetched: UnitCounts,
    /// Units that had to leave the cache.
    pub evictions: u64,
    /// Time fetches waited for the disk or for each other, summed over callers.
    pub waiting: Duration,
}

/// How units were come by, each counted once a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct UnitCounts {
    /// They were in the cache.
    pub hits: u64,
    /// Another call was bringing them.
    pub joined: u64,
    /// They had to be read.
    pub misses: u64,
}

impl UnitCounts {
    /// The share that was in the cache or on its way; 1 when nothing was wanted.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        let all = self.hits + self.joined + self.misses;
        if all == 0 { 1.0 } else { (self.hits + self.joined) as f64 / all as f64 }
    }
}

/// Lengths of requests that are told apart, in units.
const MOST_UNITS: usize = 65;

#[derive(Debug)]
pub(super) struct Counters {
    pub(super) rows: AtomicU64,
    pub(super) row_bytes: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) fetched: Tally,
    pub(super) prefetched: Tally,
    /// Requests by their length in units; the last is for all that are longer.
    sizes: [AtomicU64; MOST_UNITS],
}

/// The counters of one kind of call.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) hits: AtomicU64,
    pub(super) joined: AtomicU64,
    pub(super) misses: AtomicU64,
    waiting_ns: AtomicU64,
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Relaxed);
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            rows: AtomicU64::default(),
            row_bytes: AtomicU64::default(),
            reads: AtomicU64::default(),
            read_bytes: AtomicU64::default(),
            fetched: Tally::default(),
            prefetched: Tally::default(),
            sizes: std::array::from_fn(|_| AtomicU64::default()),
        }
    }
}

impl Counters {
    /// Counts a request of so many units.
    pub(super) fn read(&self, units: usize) {
        count(&self.reads, 1);
        count(&self.sizes[units.min(MOST_UNITS - 1)], 1);
    }

    /// Requests by their length in units.
    pub(super) fn sizes(&self) -> Vec<u64> {
        self.sizes.iter().map(|count| count.load(Relaxed)).collect()
    }

    pub(super) fn snapshot(&self, evictions: u64) -> DiskCounts {
        DiskCounts {
            rows: self.rows.load(Relaxed),
            row_bytes: self.row_bytes.load(Relaxed),
            reads: self.reads.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            fetched: self.fetched.snapshot(),
            prefetched: self.prefetched.snapshot(),
            evictions,
            waiting: Duration::from_nanos(self.fetched.waiting_ns.load(Relaxed)),
        }
    }
}

impl Tally {
    pub(super) fn waited(&self, time: Duration) {
        self.waiting_ns.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    fn snapshot(&self) -> UnitCounts {
        UnitCounts {
            hits: self.hits.load(Relaxed),
            joined: self.joined.load(Relaxed),
            misses: self.misses.load(Relaxed),
        }
    }
}
