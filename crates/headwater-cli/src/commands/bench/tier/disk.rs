//! Rows of the same batches out of a file through a cache, beside what the disk gives for requests of that size.
//!
//! The probe comes last and reads where rows were just read, so a disk with a cache of its own helps the probe.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use headwater::feature::{DiskOptions, DiskRows, RowFile};
use headwater::graph::Progress;
use headwater::graph::dataset::Array;
use headwater::memory::io::{Engine, EngineConfig, FileOptions};
use headwater::memory::{Buffer, Host};
use headwater::tensor::gather::{IdSlice, gather_host};
use serde::Serialize;

use super::probe::{Raw, probe, requests};
use super::traffic::Lists;
use crate::args::BenchTierArgs;
use crate::progress::Bar;

/// The longest that batches warm the cache, are timed, or are probed.
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
    /// Requests of the number and the mean size of the plain ones. Absent when the cache held every row.
    pub raw: Option<Raw>,
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
    /// That over the probe's.
    pub of_raw: Option<f64>,
}

/// One file and the batches to read from it.
pub struct DiskBench<'a> {
    path: &'a Path,
    engine: Arc<Engine>,
    rows: RowFile,
    options: DiskOptions,
    warm: &'a [Vec<u64>],
    timed: &'a [Vec<u64>],
}

/// Measures rows of `features`, or of the file that was named instead.
pub fn measure(args: &BenchTierArgs, features: &Path, lists: &Lists, bar: &Bar) -> anyhow::Result<Disk> {
    let path = args.disk_file.as_deref().unwrap_or(features);
    DiskBench::new(args, path, lists).and_then(|bench| bench.run(args, bar)).with_context(|| path.display().to_string())
}

impl<'a> DiskBench<'a> {
    fn new(args: &BenchTierArgs, path: &'a Path, lists: &'a Lists) -> anyhow::Result<Self> {
        let rows = RowFile::npy(path, &FileOptions::default())?;
        let need = lists.iter().flatten().max().map_or(0, |row| row + 1);
        ensure!(rows.rows >= need, "it has {} rows, and batches read row {}", rows.rows, need.saturating_sub(1));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the rows")]
        let share = (args.disk_cache * rows.rows as f64 * rows.row_bytes as f64) as u64;
        let defaults = DiskOptions::default();
        let options = DiskOptions { cache_bytes: share.max(defaults.unit_bytes as u64), ..defaults };
        let depth = options.in_flight_bytes / options.read_bytes;
        let engine = Arc::new(Engine::new(EngineConfig { depth, ..EngineConfig::default() })?);
        let lists = &lists[..lists.len().min(args.disk_batches)];
        let (warm, timed) = lists.split_at(lists.len() / 2);
        Ok(Self { path, engine, rows, options, warm, timed })
    }

    fn run(&self, args: &BenchTierArgs, bar: &Bar) -> anyhow::Result<Disk> {
        bar.begin("rows from disk", 0);
        let mut plain = self.fetched(Ahead::No)?;
        bar.begin("rows from disk, with those of the next batch", 0);
        let mut prefetching = self.fetched(Ahead::NextBatch)?;
        bar.begin("the same requests without rows", 0);
        let depth = self.options.in_flight_bytes / self.options.read_bytes;
        let units: Vec<Vec<u64>> = self.timed[..plain.batches].iter().map(|rows| self.units(rows)).collect();
        let reads = requests(&units, self.options.unit_bytes, plain.reads, plain.read_bytes);
        let raw =
            if reads.is_empty() { None } else { Some(probe(&self.engine, &self.rows.file, &reads, depth, TIMED)?) };
        for fetched in [&mut plain, &mut prefetching] {
            fetched.of_raw = raw.filter(|_| fetched.reads > 0).map(|raw| fetched.disk_gb_per_s / raw.gb_per_s);
        }
        Ok(Disk {
            file: self.path.display().to_string(),
            is_direct: self.rows.file.is_direct(),
            engine: self.engine.kind().to_string(),
            cache_share: args.disk_cache,
            cache_bytes: self.options.cache_bytes,
            depth,
            plain,
            prefetching,
            raw,
        })
    }

    /// Through a fresh cache that the first batches warm.
    fn fetched(&self, ahead: Ahead) -> anyhow::Result<Fetched> {
        let table = DiskRows::open(self.rows.clone(), &self.engine, &self.options)?;
        let longest = self.warm.iter().chain(self.timed).map(Vec::len).max().unwrap_or(0);
        let mut out = Buffer::<u8, Host>::new(longest * table.row_bytes())?;
        let out = out.as_mut_slice()?;
        let mut fetch = |rows: &[u64]| table.fetch(rows, &mut out[..rows.len() * table.row_bytes()]);
        let begun = Instant::now();
        for rows in self.warm.iter().take_while(|_| begun.elapsed() < WARM) {
            fetch(rows)?;
        }
        let (before, begun, mut batches) = (table.counts(), Instant::now(), 0);
        for (at, rows) in self.timed.iter().enumerate().take_while(|_| begun.elapsed() < TIMED) {
            if let (Ahead::NextBatch, Some(next)) = (ahead, self.timed.get(at + 1)) {
                table.prefetch(next);
            }
            fetch(rows)?;
            batches += 1;
        }
        let (seconds, after) = (begun.elapsed().as_secs_f64(), table.counts());
        if let Some(rows) = self.timed[..batches].last() {
            self.check(rows, out)?;
        }
        let (reads, read_bytes) = (after.reads - before.reads, after.read_bytes - before.read_bytes);
        let wanted = |counts: headwater::feature::DiskCounts| {
            let units = counts.fetched;
            ((units.hits + units.joined) as f64, (units.hits + units.joined + units.misses) as f64)
        };
        let (had, all) = (wanted(after).0 - wanted(before).0, wanted(after).1 - wanted(before).1);
        Ok(Fetched {
            batches,
            ms_per_batch: 1e3 * seconds / batches.max(1) as f64,
            gb_per_s: (after.row_bytes - before.row_bytes) as f64 / seconds / 1e9,
            hit_rate: had / all.max(1.0),
            reads,
            read_bytes,
            disk_gb_per_s: read_bytes as f64 / seconds / 1e9,
            of_raw: None,
        })
    }

    fn check(&self, rows: &[u64], out: &[u8]) -> anyhow::Result<()> {
        let width = self.rows.row_bytes;
        let rows = &rows[..rows.len().min(CHECKED_ROWS)];
        let mapped = Array::map(self.path)?;
        let mut wanted = vec![0u8; rows.len() * width];
        gather_host(mapped.data().as_slice(), width, IdSlice::U64(rows), &mut wanted)?;
        ensure!(out[..wanted.len()] == wanted, "rows came out other than they are in the file");
        Ok(())
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

/// Whether later rows are asked for.
#[derive(Debug, Clone, Copy)]
enum Ahead {
    No,
    NextBatch,
}
