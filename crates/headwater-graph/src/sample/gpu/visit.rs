//! In which order a hop's rows are read, decided from numbers.
//!
//! A GPU that reads host memory translates addresses 64 KiB at a time, remembers under a gigabyte of them, and looks up
//! some 40 million new ones a second, whatever the pages are. Rows visited as they were found cost a translation each
//! once the graph is larger than what is remembered; visited in the order of addresses, each 64 KiB of the graph costs
//! one. Putting them in order costs three launches.

use crate::place::Storage;

/// How the rows of a frontier are visited. Samples do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Visit {
    /// In the order of addresses where that is likely to pay.
    #[default]
    Auto,
    /// In the order they were found.
    AsFound,
    /// In the order of addresses.
    ByAddress,
}

/// Buckets of rows with neighbouring addresses.
pub(super) const BUCKETS: u64 = 8192;

const TRANSLATED_BYTES: f64 = 65_536.0;
const TRANSLATIONS_PER_S: f64 = 40e6;
/// What is remembered.
const REACH_BYTES: f64 = 0.75 * 1024.0 * 1024.0 * 1024.0;
/// Three launches.
const ORDERING_S: f64 = 15e-6;

impl Visit {
    /// Whether to put a hop of `rows` rows, spread over `bytes` of the graph, into order.
    pub(super) fn is_by_address(self, storage: Storage, rows: u64, bytes: u64) -> bool {
        match self {
            Self::AsFound => false,
            Self::ByAddress => rows > 0,
            Self::Auto => storage == Storage::ZeroCopy && pays(rows as f64, bytes as f64),
        }
    }
}

fn pays(rows: f64, bytes: f64) -> bool {
    let spots = (bytes / TRANSLATED_BYTES).max(1.0);
    let as_found = rows * (1.0 - REACH_BYTES / bytes.max(1.0)).max(0.0);
    let by_address = spots * (1.0 - (-rows / spots).exp());
    (as_found - by_address) / TRANSLATIONS_PER_S > ORDERING_S
}

/// Rows of a bucket, as a power of two, when there are so many in all.
pub(super) fn bucket_shift(rows: u64) -> u64 {
    u64::from(rows.div_ceil(BUCKETS).max(1).next_power_of_two().trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_pays_where_many_rows_share_few_translations() {
        let (small, large, huge) = (300 << 20, 1200 << 20, 10 << 30);
        let cases = [
            (Visit::Auto, Storage::ZeroCopy, 150_000, large, true),
            (Visit::Auto, Storage::ZeroCopy, 150_000, small, false),
            (Visit::Auto, Storage::ZeroCopy, 150_000, huge, true),
            (Visit::Auto, Storage::ZeroCopy, 1_000, huge, false),
            (Visit::Auto, Storage::Cuda, 150_000, huge, false),
            (Visit::ByAddress, Storage::Cuda, 1, small, true),
            (Visit::ByAddress, Storage::Cuda, 0, small, false),
            (Visit::AsFound, Storage::ZeroCopy, 150_000, huge, false),
        ];
        for (visit, storage, rows, bytes, want) in cases {
            assert_eq!(visit.is_by_address(storage, rows, bytes), want, "{visit:?} {storage} {rows} {bytes}");
        }
    }

    #[test]
    fn every_row_has_a_bucket() {
        for (rows, want) in [(0, 0), (1, 0), (BUCKETS, 0), (BUCKETS + 1, 1), (1 << 24, 11), (u64::MAX, 51)] {
            assert_eq!(bucket_shift(rows), want, "{rows}");
            assert!(rows.saturating_sub(1) >> want < BUCKETS);
        }
    }
}
