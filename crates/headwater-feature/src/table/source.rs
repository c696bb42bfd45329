//! All rows of a table, where they were given: in memory or in a file.
//!
//! Tiers hold copies of some rows. The source has every one, so a table can be placed anew at any time, and what no tier
//! holds is read from here.

use std::sync::Arc;

use headwater_memory::Foreign;
use headwater_tensor::parallel;

use super::cpu::HostRows;
use super::layout::index;
use crate::disk::DiskRows;
use crate::error::{Error, Result};
use crate::rows::{RowFormat, Stored, decode_row, encode_row};

/// Rows that are converted at a time.
const PART_ROWS: usize = 4096;
/// Of those, rows that a thread converts at a time.
const ROWS: usize = 64;

/// All rows of a table. Clones share them.
#[derive(Debug, Clone)]
pub struct Source {
    format: RowFormat,
    rows: u64,
    home: Home,
}

#[derive(Debug, Clone)]
pub(super) enum Home {
    Memory { bytes: Foreign, scales: Arc<[f32]> },
    File(Arc<DiskRows>),
}

impl Source {
    /// Rows in memory, a stride apart. `scales` has one number a row for int8, and none for other formats.
    pub fn memory(bytes: Foreign, scales: Vec<f32>, format: RowFormat) -> Result<Self> {
        format.check()?;
        let element_bytes = format.stored.bytes();
        let off_bytes = bytes.as_slice().as_ptr().addr() as u64 % element_bytes as u64;
        if off_bytes != 0 {
            return Err(Error::Alignment { name: "the table", element_bytes, off_bytes });
        }
        let rows = (bytes.as_slice().len() / format.stride_bytes) as u64;
        let wanted = if format.stored == Stored::I8 { rows } else { 0 };
        if scales.len() as u64 != wanted {
            return Err(Error::Bytes { name: "scales", found: scales.len() as u64 * 4, expected: wanted * 4 });
        }
        Ok(Self { format, rows, home: Home::Memory { bytes, scales: scales.into() } })
    }

    /// Rows in a file, one behind the other. int8 rows need scales, which a file of rows does not have.
    pub fn file(file: Arc<DiskRows>, stored: Stored) -> Result<Self> {
        let (row_bytes, element) = (file.row_bytes(), stored.bytes());
        if stored == Stored::I8 {
            return Err(Error::ElementType { found: "int8" });
        }
        if row_bytes % element != 0 {
            let expected = (row_bytes / element * element) as u64;
            return Err(Error::Bytes { name: "a row of the file", found: row_bytes as u64, expected });
        }
        let format = RowFormat::packed(row_bytes / element, stored);
        Ok(Self { format, rows: file.rows(), home: Home::File(file) })
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How they are stored.
    #[must_use]
    pub fn format(&self) -> &RowFormat {
        &self.format
    }

    /// The file, when they are in one.
    #[must_use]
    pub fn disk(&self) -> Option<&Arc<DiskRows>> {
        match &self.home {
            Home::Memory { .. } => None,
            Home::File(file) => Some(file),
        }
    }

    /// All rows as they are stored, where they lie in memory.
    #[must_use]
    pub fn bytes(&self) -> Option<&Foreign> {
        self.in_memory().map(|(bytes, _)| bytes)
    }

    /// The rows in memory, when they are there.
    pub(super) fn in_memory(&self) -> Option<(&Foreign, &[f32])> {
        match &self.home {
            Home::Memory { bytes, scales } => Some((bytes, scales)),
            Home::File(_) => None,
        }
    }

    /// All elements of all rows, where they lie in memory as numbers of 32 bits and without gaps.
    #[must_use]
    pub fn in_place(&self) -> Option<&[f32]> {
        let is_packed = self.format.stored == Stored::F32 && self.format.stride_bytes == self.format.row_bytes();
        let (bytes, _) = self.in_memory().filter(|_| is_packed)?;
        bytemuck::try_cast_slice(bytes.as_slice()).ok()
    }

    /// `out[i] = row of rows[i]`, its elements as `out_type`, by the CPU. A number that is no row is an error that names the
    /// first.
    pub fn gather(&self, rows: &[u64], out_type: Stored, out: &mut [u8]) -> Result<()> {
        match &self.home {
            Home::Memory { bytes, scales } => {
                HostRows { bytes: bytes.as_slice(), scales, format: self.format }.gather(rows, out_type, out)
            }
            Home::File(file) if out_type == self.format.stored => file.fetch(rows, out),
            Home::File(file) => self.convert(file, rows, out_type, out),
        }
    }

    fn convert(&self, file: &DiskRows, rows: &[u64], out_type: Stored, out: &mut [u8]) -> Result<()> {
        let (width, out_width) = (self.format.row_bytes(), self.format.elements * out_type.bytes());
        let expected = (rows.len() * out_width) as u64;
        if !self.format.stored.comes_out_as(out_type) || out.len() as u64 != expected {
            return Err(Error::Bytes { name: "the output", found: out.len() as u64, expected });
        }
        let mut stored = vec![0u8; PART_ROWS.min(rows.len()) * width];
        for (rows, out) in rows.chunks(PART_ROWS).zip(out.chunks_mut((PART_ROWS * out_width).max(1))) {
            let stored = &mut stored[..rows.len() * width];
            file.fetch(rows, stored)?;
            let parts = stored.chunks((ROWS * width).max(1)).zip(out.chunks_mut((ROWS * out_width).max(1)));
            parallel::for_each(parts, |_, (stored, out)| {
                let mut elements = vec![0f32; self.format.elements];
                for (stored, out) in stored.chunks(width.max(1)).zip(out.chunks_mut(out_width.max(1))) {
                    decode_row(stored, self.format.stored, 1.0, &mut elements);
                    encode_row(&elements, out_type, out);
                }
            });
        }
        Ok(())
    }

    /// Writes the part of an array of rows that begins at byte `at`. Rows of it lie `stride` apart; the k-th is the row that
    /// `row_of` names, and zeros where it names none.
    pub(super) fn write_part(
        &self,
        at: usize,
        part: &mut [u8],
        stride: usize,
        row_of: &(dyn Fn(u64) -> Option<u64> + Sync),
    ) -> Result<()> {
        let (first, end) = (at / stride, (at + part.len()).div_ceil(stride));
        let rows: Vec<Option<u64>> = (first..end).map(|slot| row_of(slot as u64)).collect();
        let width = self.format.row_bytes();
        let fetched = match &self.home {
            Home::Memory { .. } => Vec::new(),
            Home::File(file) => {
                let wanted: Vec<u64> = rows.iter().flatten().copied().collect();
                let mut bytes = vec![0u8; wanted.len() * width];
                file.fetch(&wanted, &mut bytes)?;
                bytes
            }
        };
        let mut from_file = fetched.chunks(width.max(1));
        part.fill(0);
        for (slot, row) in rows.iter().enumerate().filter_map(|(at, row)| Some((first + at, (*row)?))) {
            let bytes = match &self.home {
                Home::Memory { bytes, .. } => {
                    let start = index(row) * self.format.stride_bytes;
                    bytes.as_slice().get(start..start + width).ok_or(Error::Row { row, rows: self.rows })?
                }
                Home::File(_) => from_file.next().unwrap_or_default(),
            };
            put_row(at, part, slot * stride, bytes);
        }
        Ok(())
    }
}

/// Copies what a part that begins at `at` holds of a row that begins at `start`.
fn put_row(at: usize, part: &mut [u8], start: usize, row: &[u8]) {
    let (from, to) = (start.max(at), (start + row.len()).min(at + part.len()));
    if from < to {
        part[from - at..to - at].copy_from_slice(&row[from - start..to - start]);
    }
}
