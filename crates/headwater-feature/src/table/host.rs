//! A table that the CPU reads: the hottest rows in memory, all others where they were given.
//!
//! Rows that were given in memory are read there. Of rows in a file the hottest are copied, and the rest comes through the
//! file's cache. What comes out is the same to the bit wherever a row lies.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use headwater_memory::host_bytes_available;
use headwater_memory::io::{Engine, EngineConfig, FileOptions};
use headwater_tensor::parallel;
use serde::{Deserialize, Serialize};

use super::map::IdMap;
use super::source::Source;
use crate::disk::{DiskOptions, DiskRows, PageSums, RowFile};
use crate::error::{Error, Result};
use crate::rows::{RowFormat, Stored, decode_row, encode_row};

/// Rows that one thread takes at a time.
const ROWS: usize = 64;

/// Rows of features for the CPU.
#[derive(Debug)]
pub struct HostTable {
    source: Source,
    hot: Option<Hot>,
    memory_rows: AtomicU64,
    file_rows: AtomicU64,
    /// Where fetched rows land, kept from call to call: fresh pages cost more than the copy.
    landing: Mutex<Vec<u8>>,
}

/// Copies of the rows that are read most.
#[derive(Debug)]
struct Hot {
    /// Where each row of the source is among them.
    slots: IdMap,
    bytes: Vec<u8>,
}

/// Opens tables over files; they share what reads files.
pub struct HostTables {
    engine: Arc<Engine>,
    options: DiskOptions,
}

/// What tables for the CPU gave so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostServed {
    /// Rows that were read in memory.
    pub memory_rows: u64,
    /// Bytes of these rows as they are stored.
    pub memory_bytes: u64,
    /// Rows that came from files or their caches.
    pub disk_rows: u64,
    /// Bytes of these rows.
    pub disk_bytes: u64,
    /// Bytes that files were asked for, rows that went to memory included.
    pub read_bytes: u64,
}

impl HostTables {
    /// With an engine of their own.
    pub fn new(options: DiskOptions) -> Result<Self> {
        let depth = (options.in_flight_bytes / options.read_bytes.max(1)).clamp(1, 4096);
        let engine = Arc::new(Engine::new(EngineConfig { depth, ..EngineConfig::default() })?);
        Ok(Self { engine, options })
    }

    /// The rows of a `.npy` file, of which these are copied into memory.
    pub fn open(&self, path: &Path, stored: Stored, hot: &[u64]) -> Result<HostTable> {
        let file = RowFile::npy(path, &FileOptions::default())?;
        let source = Source::file(Arc::new(DiskRows::open(file, &self.engine, &self.options)?), stored)?;
        let hot = if hot.is_empty() { None } else { Some(Hot::of(&source, hot)?) };
        Ok(HostTable { hot, ..HostTable::of(source) })
    }
}

impl std::fmt::Debug for HostTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostTables").field("options", &self.options).finish_non_exhaustive()
    }
}

impl HostTable {
    /// Rows where they were given.
    #[must_use]
    pub fn of(source: Source) -> Self {
        let (memory_rows, file_rows) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { source, hot: None, memory_rows, file_rows, landing: Mutex::default() }
    }

    /// The rows that a file ends with, all of them read into memory of large pages, and checked against the sums of its pages if
    /// there are.
    pub fn read(path: &Path, bytes: usize, format: RowFormat) -> Result<Self> {
        let rows = headwater_memory::read_tail(path, bytes)?;
        if let Some(sums) = PageSums::saved(path)? {
            sums.check_tail(path, rows.as_slice())?;
        }
        Ok(Self::of(Source::memory(rows, Vec::new(), format)?))
    }

    /// Rows, and elements of a row.
    #[must_use]
    pub fn shape(&self) -> [u64; 2] {
        [self.source.rows(), self.source.format().elements as u64]
    }

    /// Where its rows were given.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Whether all rows are read in memory.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.source.disk().is_none()
    }

    /// All rows, where they lie in memory as numbers of 32 bits.
    #[must_use]
    pub fn in_place(&self) -> Option<&[f32]> {
        self.source.in_place()
    }

    /// Counts rows that were read in place.
    pub fn note_reads(&self, rows: u64) {
        self.memory_rows.fetch_add(rows, Relaxed);
    }

    /// `out[i] = row of ids[i]`, its elements as `out_type`. An id that is no row is an error that names it.
    pub fn gather(&self, ids: &[u64], out_type: Stored, out: &mut [u8]) -> Result<()> {
        let Some(hot) = &self.hot else {
            let rows = if self.source.disk().is_some() { &self.file_rows } else { &self.memory_rows };
            self.source.gather(ids, out_type, out)?;
            rows.fetch_add(ids.len() as u64, Relaxed);
            return Ok(());
        };
        let width = self.source.format().elements * out_type.bytes();
        let expected = (ids.len() * width) as u64;
        if !self.source.format().stored.comes_out_as(out_type) || out.len() as u64 != expected {
            return Err(Error::Bytes { name: "the output", found: out.len() as u64, expected });
        }
        let (places, absent) = hot.places(ids);
        // Whoever finds it taken makes one of its own.
        let mut landing = std::mem::take(&mut *self.landing.lock().unwrap_or_else(PoisonError::into_inner));
        landing.resize(landing.len().max(absent.len() * width), 0);
        let cold = &mut landing[..absent.len() * width];
        self.source.gather(&absent, out_type, cold)?;
        self.fill(hot, &places, cold, out_type, out);
        *self.landing.lock().unwrap_or_else(PoisonError::into_inner) = landing;
        self.file_rows.fetch_add(absent.len() as u64, Relaxed);
        self.memory_rows.fetch_add((ids.len() - absent.len()) as u64, Relaxed);
        Ok(())
    }

    fn fill(&self, hot: &Hot, places: &[Place], cold: &[u8], out_type: Stored, out: &mut [u8]) {
        let format = self.source.format();
        let (row_bytes, width) = (format.row_bytes(), (format.elements * out_type.bytes()).max(1));
        let parts = out.chunks_mut(ROWS * width).zip(places.chunks(ROWS));
        parallel::for_each(parts, |_, (out, places)| {
            let mut elements = vec![0f32; format.elements];
            for (out, place) in out.chunks_mut(width).zip(places) {
                match *place {
                    Place::Cold(at) => out.copy_from_slice(&cold[at * width..][..width]),
                    Place::Hot(at) => {
                        let row = &hot.bytes[at * row_bytes..][..row_bytes];
                        if out_type == format.stored {
                            out.copy_from_slice(row);
                        } else {
                            decode_row(row, format.stored, 1.0, &mut elements);
                            encode_row(&elements, out_type, out);
                        }
                    }
                }
            }
        });
    }

    /// What it gave so far.
    #[must_use]
    pub fn served(&self) -> HostServed {
        let row_bytes = self.source.format().row_bytes() as u64;
        let (memory_rows, disk_rows) = (self.memory_rows.load(Relaxed), self.file_rows.load(Relaxed));
        HostServed {
            memory_rows,
            memory_bytes: memory_rows.saturating_mul(row_bytes),
            disk_rows,
            disk_bytes: disk_rows.saturating_mul(row_bytes),
            read_bytes: self.source.disk().map_or(0, |disk| disk.counts().read_bytes),
        }
    }
}

/// Where a row that was asked for is.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Among the copies.
    Hot(usize),
    /// Among the rows that are fetched.
    Cold(usize),
}

impl Hot {
    fn of(source: &Source, rows: &[u64]) -> Result<Self> {
        let asked_bytes = (rows.len() as u64).saturating_mul(source.format().row_bytes() as u64);
        let available = host_bytes_available() as u64;
        if asked_bytes > available {
            return Err(Error::Budget { memory: "host memory", asked_bytes, bytes: available });
        }
        let mut slots = vec![u64::MAX; usize::try_from(source.rows()).unwrap_or(usize::MAX)];
        for (slot, row) in (0..).zip(rows) {
            let place = usize::try_from(*row).ok().and_then(|row| slots.get_mut(row));
            *place.ok_or(Error::Row { row: *row, rows: source.rows() })? = slot;
        }
        let mut bytes = vec![0; rows.len() * source.format().row_bytes()];
        source.gather(rows, source.format().stored, &mut bytes)?;
        Ok(Self { slots: IdMap::of(&slots, rows.len() as u64), bytes })
    }

    /// Where rows are, and those that must be fetched.
    fn places(&self, ids: &[u64]) -> (Vec<Place>, Vec<u64>) {
        let mut absent = Vec::new();
        let mut place = |id: &u64| match self.slots.row(*id) {
            Some(slot) => Place::Hot(usize::try_from(slot).unwrap_or(usize::MAX)),
            None => {
                absent.push(*id);
                Place::Cold(absent.len() - 1)
            }
        };
        let places = ids.iter().map(&mut place).collect();
        (places, absent)
    }
}

impl HostServed {
    /// The share of all rows that was in memory; 1 where none was asked for.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        let all = self.memory_rows + self.disk_rows;
        if all == 0 { 1.0 } else { self.memory_rows as f64 / all as f64 }
    }
}

impl std::iter::Sum for HostServed {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            memory_rows: sum.memory_rows + one.memory_rows,
            memory_bytes: sum.memory_bytes + one.memory_bytes,
            disk_rows: sum.disk_rows + one.disk_rows,
            disk_bytes: sum.disk_bytes + one.disk_bytes,
            read_bytes: sum.read_bytes + one.read_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use headwater_tensor::DType;
    use headwater_tensor::npy::{NpyType, write_array};

    use super::*;

    /// A file of rows, and every row as it comes out.
    fn file(rows: u16) -> (tempfile::TempDir, std::path::PathBuf, Vec<[f32; 3]>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.npy");
        let values: Vec<[f32; 3]> = (0..rows).map(|row| [f32::from(row), 0.5, -f32::from(row)]).collect();
        let bytes: Vec<u8> = values.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
        let mut text = Vec::new();
        write_array(&mut text, NpyType::Tensor(DType::F32), &[rows.into(), 3], &bytes).unwrap();
        std::fs::write(&path, text).unwrap();
        (folder, path, values)
    }

    #[test]
    fn rows_are_the_same_wherever_they_lie() {
        let (_folder, path, values) = file(5000);
        let tables = HostTables::new(DiskOptions { cache_bytes: 8192, ..DiskOptions::default() }).unwrap();
        let ids: Vec<u64> = (0..3000).map(|at| at * at * 31 % 5000).chain([4999, 4999, 0]).collect();
        let all: Vec<u64> = (0..5000).rev().collect();
        for hot in [0, 1, 777, 5000] {
            let table = tables.open(&path, Stored::F32, &all[..hot]).unwrap();
            let mut out = vec![[0f32; 3]; ids.len()];
            table.gather(&ids, Stored::F32, bytemuck::cast_slice_mut(&mut out)).unwrap();
            assert!(ids.iter().zip(&out).all(|(id, row)| *row == values[usize::try_from(*id).unwrap()]));
            let in_memory = ids.iter().filter(|id| **id >= 5000 - hot as u64).count() as u64;
            let served = table.served();
            assert_eq!((served.memory_rows, served.disk_rows), (in_memory, ids.len() as u64 - in_memory));
            assert_eq!(served.memory_bytes + served.disk_bytes, 12 * ids.len() as u64);
            assert!(served.read_bytes > 0);
            for bad in [5000, u64::MAX] {
                let mut out = [0; 24];
                let said = table.gather(&[0, bad], Stored::F32, &mut out).unwrap_err().to_string();
                assert!(said.contains(&bad.to_string()), "{said}");
            }
            assert!(table.gather(&[0], Stored::F32, &mut [0; 11]).is_err());
        }
        assert!(matches!(tables.open(&path, Stored::F32, &[5000]), Err(Error::Row { row: 5000, .. })));
    }

    #[test]
    fn a_page_that_changed_is_an_error_however_rows_are_read() {
        let (_folder, path, values) = file(5000);
        let tables = HostTables::new(DiskOptions { cache_bytes: 1 << 20, ..DiskOptions::default() }).unwrap();
        PageSums::of_file(&path).unwrap().save(&path).unwrap();
        let format = RowFormat::packed(3, Stored::F32);
        let whole = || HostTable::read(&path, 60_000, format);
        let mut out = [[0f32; 3]; 2];
        whole().unwrap().gather(&[0, 4999], Stored::F32, bytemuck::cast_slice_mut(&mut out)).unwrap();
        assert_eq!(out, [values[0], values[4999]]);
        // In the page that the rows begin in the middle of, in one of their own, and in the last, which is short.
        for row in [1usize, 2500, 4999] {
            let good = std::fs::read(&path).unwrap();
            let at = good.len() - 60_000 + row * 12;
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&path, &bad).unwrap();
            let page = format!("the page at byte {} of {}", at / 4096 * 4096, path.display());
            let said = whole().unwrap_err().to_string();
            assert!(said.contains(&page), "{said}");
            let table = tables.open(&path, Stored::F32, &[]).unwrap();
            let said = table.gather(&[row as u64, 9], Stored::F32, bytemuck::cast_slice_mut(&mut out)).unwrap_err();
            assert!(said.to_string().contains(&page), "{said}");
            std::fs::write(&path, &good).unwrap();
        }
        std::fs::write(PageSums::beside(&path), b"no sums").unwrap();
        assert!(
            whole().is_err() && tables.open(&path, Stored::F32, &[]).is_err(),
            "sums that cannot be read are no sums"
        );
    }

    #[test]
    fn a_file_that_is_cut_short_is_an_error_that_names_it() {
        let (_folder, path, _) = file(5000);
        let tables = HostTables::new(DiskOptions { cache_bytes: 4096, ..DiskOptions::default() }).unwrap();
        let table = tables.open(&path, Stored::F32, &[0, 1]).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(20_000).unwrap();
        let mut out = [0; 12];
        table.gather(&[1], Stored::F32, &mut out).unwrap();
        let said = table.gather(&[4999], Stored::F32, &mut out).unwrap_err().to_string();
        assert!(said.contains("rows.npy ends at byte"), "{said}");
    }
}
