//! A table whose rows lie in a file.
//!
//! A fetch reads the rows that are not in the cache, and copies those that are meanwhile. Callers on several threads share
//! cache, disk and buffers; a unit that two of them miss is read by one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headwater_memory::io::{Engine, FileOptions, IoFile};
use headwater_tensor::npy::{NpyFile, Order};

use super::claims::Residents;
use super::counters::{Counters, DiskCounts, Tally, count};
use super::page_sums::PageSums;
use super::pieces::{RowLayout, Wanted};
use super::prefetch::Prefetcher;
use super::reader::Reader;
use super::reads::{ReadCost, ReadRules};
use super::slots::Slots;
use super::staging::Staging;
use crate::error::{Error, Result};

/// Rows in a file, read through a cache.
#[derive(Debug)]
pub struct DiskRows {
    prefetcher: Prefetcher,
    table: Arc<Table>,
}

/// A file, and where in it the rows lie.
#[derive(Debug, Clone)]
pub struct RowFile {
    /// The file.
    pub file: Arc<IoFile>,
    /// Where the first row begins.
    pub data_offset: u64,
    /// Bytes of a row, and from one to the next.
    pub row_bytes: usize,
    /// Rows there are.
    pub rows: u64,
    /// What every page is checked against when it arrives; nothing when it is trusted.
    pub sums: Option<Arc<PageSums>>,
}

/// How a table on disk is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiskOptions {
    /// Memory for rows that are read often.
    pub cache_bytes: u64,
    /// What is read and kept together, a power of two and at least a page.
    pub unit_bytes: usize,
    /// The longest request.
    pub read_bytes: usize,
    /// Memory that requests land in: as many longest requests as fit are in flight at most.
    pub in_flight_bytes: usize,
    /// What requests cost on this disk.
    pub cost: ReadCost,
    /// Batches of prefetches that wait at most.
    pub prefetch_batches: usize,
    /// The longest wait for one request.
    pub timeout: Duration,
}

/// What callers and the prefetcher share.
pub(super) struct Table {
    pub(super) layout: RowLayout,
    pub(super) file: Arc<IoFile>,
    pub(super) engine: Arc<Engine>,
    pub(super) residents: Residents,
    pub(super) slots: Slots,
    pub(super) slots_count: u32,
    pub(super) staging: Staging,
    pub(super) rules: ReadRules,
    pub(super) counters: Counters,
    pub(super) timeout: Duration,
    end: u64,
    sums: Option<Arc<PageSums>>,
}

impl DiskRows {
    /// Opens a table. The file must be as long as its rows.
    pub fn open(rows: RowFile, engine: &Arc<Engine>, options: &DiskOptions) -> Result<Self> {
        let table = Arc::new(Table::new(rows, engine, options)?);
        Ok(Self { prefetcher: Prefetcher::new(&table, options.prefetch_batches)?, table })
    }

    /// Copies rows into `out`, one behind the other, in the order they are named.
    ///
    /// After an error `out` holds some of them, and the next call may succeed.
    pub fn fetch(&self, rows: &[u64], out: &mut [u8]) -> Result<()> {
        let table = &*self.table;
        table.layout.check(rows, out.len())?;
        let out_bytes = out.len();
        let mut pieces = table.layout.cut(rows, out);
        table.bring(pieces.by_unit(), &table.counters.fetched)?;
        count(&table.counters.rows, rows.len());
        count(&table.counters.row_bytes, out_bytes);
        Ok(())
    }

    /// Asks for rows of a later batch in the background; whether that was taken on. At most half of the cache is filled
    /// with one batch. Rows that are not there and reads that fail are left to the fetch.
    pub fn prefetch(&self, rows: &[u64]) -> bool {
        self.prefetcher.ask(rows)
    }

    /// Rows there are.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.table.layout.rows
    }

    /// Bytes of a row.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.table.layout.row_bytes
    }

    /// Requests so far by their length: the n-th is how many were n units long, and the last is for all longer ones.
    #[must_use]
    pub fn read_sizes(&self) -> Vec<u64> {
        self.table.counters.sizes()
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> DiskCounts {
        self.table.counters.snapshot(self.table.residents.evictions())
    }
}

impl RowFile {
    /// The rows of a `.npy` file: its first axis counts them. Pages are checked against the sums beside the file, if there are.
    pub fn npy(path: &Path, options: &FileOptions) -> Result<Self> {
        let header = NpyFile::open(path)?.header;
        let (rows, row) = header.shape.split_first().unwrap_or((&0, &[]));
        let row_bytes = row.iter().try_fold(header.kind.size_bytes(), |bytes, &length| bytes.checked_mul(length));
        if header.order != Order::C {
            return Err(Error::RowOrder { path: path.to_owned() });
        }
        Ok(Self {
            file: Arc::new(IoFile::open(path, options)?),
            data_offset: header.data_offset as u64,
            row_bytes: row_bytes.unwrap_or(usize::MAX),
            rows: *rows as u64,
            sums: PageSums::saved(path)?.map(Arc::new),
        })
    }
}

impl Default for DiskOptions {
    /// 256 MiB of rows, and 128 requests in flight.
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            unit_bytes: 4096,
            read_bytes: 128 << 10,
            in_flight_bytes: 16 << 20,
            cost: ReadCost::default(),
            prefetch_batches: 2,
            timeout: Duration::from_secs(60),
        }
    }
}

impl DiskOptions {
    fn check(&self, file: &IoFile) -> Result<()> {
        let page = headwater_memory::io::PAGE_BYTES.max(file.alignment().offset_bytes);
        let wrong = |name, value: usize, expected| Err(Error::Parameter { name, value: value as f64, expected });
        if !self.unit_bytes.is_power_of_two() || self.unit_bytes < page {
            return wrong("unit_bytes", self.unit_bytes, "a power of two and at least a page");
        }
        if self.read_bytes < self.unit_bytes {
            return wrong("read_bytes", self.read_bytes, "at least a unit");
        }
        if self.in_flight_bytes < self.read_bytes {
            return wrong("in_flight_bytes", self.in_flight_bytes, "at least the longest request");
        }
        if self.cache_bytes < self.unit_bytes as u64 {
            return Err(Error::SmallCache { cache_bytes: self.cache_bytes, unit_bytes: self.unit_bytes });
        }
        Ok(())
    }
}

impl Table {
    fn new(rows: RowFile, engine: &Arc<Engine>, options: &DiskOptions) -> Result<Self> {
        options.check(&rows.file)?;
        let RowFile { file, data_offset, row_bytes, rows, sums } = rows;
        if row_bytes == 0 {
            return Err(Error::Parameter { name: "bytes of a row", value: 0.0, expected: "at least 1" });
        }
        let unit_bytes = options.unit_bytes;
        let layout = RowLayout { data_offset, row_bytes, rows, unit_bytes };
        let (end, bytes) = (layout.end().unwrap_or(u64::MAX), file.len_bytes()?);
        if end > bytes {
            return Err(Error::ShortFile { path: file.path().to_owned(), need_bytes: end, bytes });
        }
        let slots = (options.cache_bytes / unit_bytes as u64).min(layout.units());
        let slots_count = u32::try_from(slots).unwrap_or(u32::MAX - 1).min(u32::MAX - 1);
        let read_bytes = options.read_bytes / unit_bytes * unit_bytes;
        Ok(Self {
            layout,
            engine: Arc::clone(engine),
            residents: Residents::new(slots_count),
            slots: Slots::new(slots_count, unit_bytes)?,
            slots_count,
            staging: Staging::new(options.in_flight_bytes / read_bytes, read_bytes),
            rules: ReadRules { unit_bytes, most_bytes: read_bytes, cost: options.cost },
            counters: Counters::default(),
            timeout: options.timeout,
            end,
            sums,
            file,
        })
    }

    /// Fills all that is wanted, of units in rising order.
    pub(super) fn bring(&self, wanted: Vec<Wanted<'_, '_>>, tally: &Tally) -> Result<()> {
        // A call keeps what it finds from being evicted, at most half of all there is.
        let most = (self.slots_count as usize / 2).max(1);
        let mut left = wanted.into_iter();
        while left.len() > 0 {
            let mut some: Vec<Wanted<'_, '_>> = left.by_ref().take(most).collect();
            while !some.is_empty() {
                some = Reader::new(self, tally, some)?.run()?;
            }
        }
        Ok(())
    }

    /// Refuses bytes that are not what was written.
    pub(super) fn check_sums(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.sums.as_ref().map_or(Ok(()), |sums| sums.check(self.file.path(), offset, bytes))
    }

    /// Refuses a read that ended before the rows did.
    pub(super) fn check_length(&self, offset: u64, bytes: usize, got_bytes: usize) -> Result<()> {
        let need = (offset + bytes as u64).min(self.end);
        let got = offset + got_bytes as u64;
        if got < need {
            return Err(Error::ShortFile { path: self.file.path().to_owned(), need_bytes: need, bytes: got });
        }
        Ok(())
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("file", &self.file).field("layout", &self.layout).finish_non_exhaustive()
    }
}
