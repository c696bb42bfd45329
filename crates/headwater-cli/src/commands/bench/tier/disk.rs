//! Rows of the same batches out of a file through a cache, beside what the disk gives for requests of that size.
//!
//! The probe of a batch reads where its rows were just read, so a disk with a cache of its own helps the probe.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use headwater::feature::{DiskCounts, DiskOptions, DiskRows, RowFile};
use headwater::graph::Progress;
use headwater::graph::dataset::Array;
use headwater::memory::io::{Engine, EngineConfig, FileOptions};
use headwater::memory::{Buffer, Host, host_bytes_available};
use headwater::tensor::gather::{IdSlice, gather_host};
use serde::Serialize;

use super::probe::{Raw, probe, requests};
use super::source::Features;
use super::traffic::Lists;
use crate::args::BenchTierArgs;
use crate::progress::Bar;

/// The longest that batches warm the cache, and that they are timed.
const WARM: Duration = Duration::from_secs(3);
const TIMED: Duration = Duration::from_secs(5);
/// Rows that are compared with the mapped file. More would be read a second time for it.
const CHECKED_ROWS: usize = 1024;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Disk {
    pub file: String,
    /// Whether the page cache is passed by.
    pub is_direct: bool,
    pub engine: String,
    pub cache_share: f64,
    pub cache_bytes: u64,
    pub depth: usize,
    pub plain: Fetched,
    /// With the rows of the next batch asked for ahead.
    pub prefetching: Fetched,
    /// As many requests of the same lengths as the plain ones, and nothing else. Absent when the cache held every row.
    pub raw: Option<Raw>,
    pub raw_gb_per_s: Option<f64>,
    /// What fetches take from the disk over that.
    pub plain_of_raw: Option<f64>,
    pub prefetching_of_raw: Option<f64>,
}

/// Batches out of a file.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Fetched {
    pub batches: usize,
    pub ms_per_batch: f64,
    /// Of the rows that came out.
    pub gb_per_s: f64,
    /// Part of the units that were in the cache.
    pub hit_rate: f64,
    pub reads: u64,
    pub read_bytes: u64,
    /// Of what was read from the disk.
    pub disk_gb_per_s: f64,
    /// Part of the time in which there was nothing to do but to wait for the disk.
    pub waiting_share: f64,
}

/// Opens the features, or the file that was named instead; nothing when the disk is left out.
pub fn open(args: &BenchTierArgs, features: &Features) -> anyhow::Result<Option<RowFile>> {
    if args.disk_cache == 0.0 {
        return Ok(None);
    }
    let path = args.disk_file.as_deref().unwrap_or(features.array.path());
    opened(path, features.source.rows).with_context(|| path.display().to_string()).map(Some)
}

fn opened(path: &Path, rows: u64) -> anyhow::Result<RowFile> {
    // Opening a pipe would wait for somebody to write to it.
    ensure!(path.metadata()?.is_file(), "it is not a file");
    let file = RowFile::npy(path, &FileOptions::default())?;
    ensure!(file.rows >= rows, "it has {} rows, and the table {rows}", file.rows);
    Ok(file)
}

/// One file and the batches to read from it.
pub struct DiskBench<'a> {
    engine: Arc<Engine>,
    rows: RowFile,
    options: DiskOptions,
    warm: &'a [Vec<u64>],
    timed: &'a [Vec<u64>],
}

impl<'a> DiskBench<'a> {
    /// For the first of `lists`.
    pub fn new(args: &BenchTierArgs, rows: RowFile, lists: &'a Lists) -> anyhow::Result<Self> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the rows")]
        let share = (args.disk_cache * rows.rows as f64 * rows.row_bytes as f64) as u64;
        let available = host_bytes_available() as u64;
        ensure!(share <= available / 10 * 8, "a cache of {share} bytes does not fit the {available} available ones");
        let defaults = DiskOptions::default();
        let options = DiskOptions { cache_bytes: share.max(defaults.unit_bytes as u64), ..defaults };
        let depth = options.in_flight_bytes / options.read_bytes;
        let engine = Arc::new(Engine::new(EngineConfig { depth, ..EngineConfig::default() })?);
        let wanted = args.disk_batches.unwrap_or(lists.len().min(16));
        let lists = &lists[..wanted.min(lists.len())];
        let (warm, timed) = lists.split_at(lists.len() / 2);
        Ok(Self { engine, rows, options, warm, timed })
    }

    /// Reads them.
    pub fn run(&self, args: &BenchTierArgs, bar: &Bar) -> anyhow::Result<Disk> {
        bar.begin("rows from disk", 0);
        let (plain, raw) = self.plain()?;
        bar.begin("rows from disk, with those of the next batch", 0);
        let prefetching = self.prefetching()?;
        let raw = (raw.reads > 0).then_some(raw);
        let of_raw = |fetched: &Fetched| raw.map(|raw| fetched.disk_gb_per_s / raw.gb_per_s());
        Ok(Disk {
            file: self.rows.file.path().display().to_string(),
            is_direct: self.rows.file.is_direct(),
            engine: self.engine.kind().to_string(),
            cache_share: args.disk_cache,
            cache_bytes: self.options.cache_bytes,
            depth: self.depth(),
            plain_of_raw: of_raw(&plain),
            prefetching_of_raw: of_raw(&prefetching),
            plain,
            prefetching,
            raw_gb_per_s: raw.map(|raw| raw.gb_per_s()),
            raw,
        })
    }

    /// Batch after batch, and after each the same requests alone: a disk does not go at one speed for long.
    fn plain(&self) -> anyhow::Result<(Fetched, Raw)> {
        let (mut fetcher, mut raw, begun) = (Fetcher::warmed(self)?, Raw::default(), Instant::now());
        for rows in self.timed.iter().take_while(|_| begun.elapsed() < TIMED) {
            let before = fetcher.table.read_sizes();
            fetcher.fetch(rows)?;
            let after = fetcher.table.read_sizes();
            let sizes: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
            let reads = requests(&self.units(rows), self.options.unit_bytes, &sizes);
            raw = raw.and(probe(&self.engine, &self.rows.file, &reads, self.depth())?);
        }
        Ok((fetcher.fetched()?, raw))
    }

    fn prefetching(&self) -> anyhow::Result<Fetched> {
        let (mut fetcher, begun) = (Fetcher::warmed(self)?, Instant::now());
        for (at, rows) in self.timed.iter().enumerate().take_while(|_| begun.elapsed() < TIMED) {
            if let Some(next) = self.timed.get(at + 1) {
                fetcher.table.prefetch(next);
            }
            fetcher.fetch(rows)?;
        }
        fetcher.fetched()
    }

    fn depth(&self) -> usize {
        self.options.in_flight_bytes / self.options.read_bytes
    }

    /// The units that rows begin in, in rising order, each once.
    fn units(&self, rows: &[u64]) -> Vec<u64> {
        let unit_bytes = self.options.unit_bytes as u64;
        let unit = |row: &u64| (self.rows.data_offset + row * self.rows.row_bytes as u64) / unit_bytes;
        let mut units: Vec<u64> = rows.iter().map(unit).collect();
        units.sort_unstable();
        units.dedup();
        units
    }
}

/// A fresh cache and what was fetched through it.
struct Fetcher<'a> {
    bench: &'a DiskBench<'a>,
    table: DiskRows,
    out: Buffer<u8, Host>,
    before: DiskCounts,
    seconds: f64,
    batches: usize,
}

impl<'a> Fetcher<'a> {
    /// With a cache that has seen the first batches.
    fn warmed(bench: &'a DiskBench<'a>) -> anyhow::Result<Self> {
        let table = DiskRows::open(bench.rows.clone(), &bench.engine, &bench.options)?;
        let longest = bench.warm.iter().chain(bench.timed).map(Vec::len).max().unwrap_or(0);
        let out = Buffer::<u8, Host>::new(longest * table.row_bytes())?;
        let before = DiskCounts::default();
        let mut fetcher = Self { bench, table, out, before, seconds: 0.0, batches: 0 };
        let begun = Instant::now();
        for rows in bench.warm.iter().take_while(|_| begun.elapsed() < WARM) {
            fetcher.fetch(rows)?;
        }
        Ok(Self { before: fetcher.table.counts(), seconds: 0.0, batches: 0, ..fetcher })
    }

    fn fetch(&mut self, rows: &[u64]) -> anyhow::Result<()> {
        let out = &mut self.out.as_mut_slice()[..rows.len() * self.table.row_bytes()];
        let begun = Instant::now();
        self.table.fetch(rows, out)?;
        self.seconds += begun.elapsed().as_secs_f64();
        self.batches += 1;
        Ok(())
    }

    /// What that was, after a look at the rows of the last batch.
    fn fetched(&self) -> anyhow::Result<Fetched> {
        let (before, after) = (&self.before, self.table.counts());
        if let Some(rows) = self.bench.timed[..self.batches].last() {
            self.check(rows)?;
        }
        let had = |counts: &DiskCounts| counts.fetched.hits + counts.fetched.joined;
        let (had, missed) = (had(&after) - had(before), after.fetched.misses - before.fetched.misses);
        let waiting_s = (after.waiting - before.waiting).as_secs_f64();
        let gb_per_s = |bytes: u64| bytes as f64 / self.seconds.max(f64::MIN_POSITIVE) / 1e9;
        Ok(Fetched {
            batches: self.batches,
            ms_per_batch: 1e3 * self.seconds / self.batches.max(1) as f64,
            gb_per_s: gb_per_s(after.row_bytes - before.row_bytes),
            hit_rate: had as f64 / (had + missed).max(1) as f64,
            reads: after.reads - before.reads,
            read_bytes: after.read_bytes - before.read_bytes,
            disk_gb_per_s: gb_per_s(after.read_bytes - before.read_bytes),
            waiting_share: waiting_s / self.seconds.max(f64::MIN_POSITIVE),
        })
    }

    fn check(&self, rows: &[u64]) -> anyhow::Result<()> {
        let width = self.table.row_bytes();
        let rows = &rows[..rows.len().min(CHECKED_ROWS)];
        let mapped = Array::map(self.bench.rows.file.path())?;
        let mut wanted = vec![0u8; rows.len() * width];
        gather_host(mapped.data().as_slice(), width, IdSlice::U64(rows), &mut wanted)?;
        ensure!(self.out.as_slice()[..wanted.len()] == wanted, "rows came out other than they are in the file");
        Ok(())
    }
}
