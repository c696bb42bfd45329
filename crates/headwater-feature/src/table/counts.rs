//! What each tier gave, and how long that took.

use std::time::Duration;

use serde::Serialize;

use super::cuda::{SERVED_WORDS, TIERS};
use crate::disk::DiskCounts;

/// What a table served so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Served {
    /// From the GPU's own copy.
    pub replicated: TierCounts,
    /// From members of the group, itself included.
    pub interleaved: TierCounts,
    /// From host memory.
    pub host: TierCounts,
    /// From disk, or from its cache.
    pub disk: TierCounts,
    /// How the file was read, by everyone who reads it, filling memories included.
    pub disk_reads: DiskCounts,
}

/// What a tier served. Tiers work at the same time, so their times do not add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TierCounts {
    /// Rows.
    pub rows: u64,
    /// Bytes of these rows as they are stored.
    pub bytes: u64,
    /// Time in which it was read. Both tiers in GPU memory are read together, and both have the time of both.
    pub busy: Duration,
}

impl Served {
    /// From the kernel's words, for rows of so many bytes.
    pub(super) fn new(
        words: [u64; SERVED_WORDS],
        row_bytes: usize,
        (disk_rows, busy): (u64, Duration),
        disk_reads: DiskCounts,
    ) -> Self {
        let tier = |at: usize, side: usize| TierCounts {
            rows: words[at],
            bytes: words[at].saturating_mul(row_bytes as u64),
            busy: Duration::from_nanos(words[TIERS + side]),
        };
        let disk = TierCounts { rows: disk_rows, bytes: disk_rows.saturating_mul(row_bytes as u64), busy };
        Self { replicated: tier(0, 0), interleaved: tier(1, 0), host: tier(2, 1), disk, disk_reads }
    }

    /// All tiers, fastest first.
    #[must_use]
    pub fn tiers(&self) -> [TierCounts; 4] {
        [self.replicated, self.interleaved, self.host, self.disk]
    }

    /// The share of all rows that each tier served; nothing before the first.
    #[must_use]
    pub fn hit_rates(&self) -> [f64; 4] {
        let all: u64 = self.tiers().iter().map(|tier| tier.rows).sum();
        self.tiers().map(|tier| if all == 0 { 0.0 } else { tier.rows as f64 / all as f64 })
    }

    /// Bytes that crossed the link to host memory.
    #[must_use]
    pub fn host_link_bytes(&self) -> u64 {
        self.host.bytes + self.disk.bytes
    }

    /// What each tier served since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> [TierCounts; 4] {
        let of = |now: TierCounts, then: TierCounts| TierCounts {
            rows: now.rows.saturating_sub(then.rows),
            bytes: now.bytes.saturating_sub(then.bytes),
            busy: now.busy.saturating_sub(then.busy),
        };
        std::array::from_fn(|at| of(self.tiers()[at], earlier.tiers()[at]))
    }
}
