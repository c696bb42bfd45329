//! What an engine did, in relaxed atomics: cheap enough to be always on.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A snapshot of an engine's counters. Fields are read one by one, not at one instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests accepted.
    pub requests: u64,
    /// Requests completed with an error.
    pub failures: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes written to files.
    pub bytes_written: u64,
    /// Steps asked again after EINTR or EAGAIN.
    pub retries: u64,
    /// Steps that moved less than asked.
    pub short_transfers: u64,
    /// Requests accepted and not completed now.
    pub in_flight: u64,
    /// The most `in_flight` has been.
    pub max_in_flight: u64,
    /// Time callers spent waiting for room or for completions, summed over threads.
    pub waiting: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    requests: AtomicU64,
    failures: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    retries: AtomicU64,
    short_transfers: AtomicU64,
    in_flight: AtomicU64,
    max_in_flight: AtomicU64,
    waiting_ns: AtomicU64,
}

impl Counters {
    pub(super) fn accepted(&self) {
        self.requests.fetch_add(1, Relaxed);
        let now = self.in_flight.fetch_add(1, Relaxed) + 1;
        self.max_in_flight.fetch_max(now, Relaxed);
    }

    pub(super) fn completed(&self, ok: bool) {
        self.in_flight.fetch_sub(1, Relaxed);
        if !ok {
            self.failures.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn read(&self, bytes: usize) {
        self.bytes_read.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn written(&self, bytes: usize) {
        self.bytes_written.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn retried(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    pub(super) fn fell_short(&self) {
        self.short_transfers.fetch_add(1, Relaxed);
    }

    pub(super) fn waited(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.waiting_ns.fetch_add(ns, Relaxed);
    }

    pub(super) fn snapshot(&self) -> Counts {
        Counts {
            requests: self.requests.load(Relaxed),
            failures: self.failures.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            bytes_written: self.bytes_written.load(Relaxed),
            retries: self.retries.load(Relaxed),
            short_transfers: self.short_transfers.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            max_in_flight: self.max_in_flight.load(Relaxed),
            waiting: Duration::from_nanos(self.waiting_ns.load(Relaxed)),
        }
    }
}
