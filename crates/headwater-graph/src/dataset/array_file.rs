//! Writing one `.npy` file in blocks, by many threads at once, with its checksum.
//!
//! Each block is filled, hashed and written by one thread while its bytes are in that thread's cache. Memory is bounded by
//! a block a thread. Blocks are cut where the checksum's tree wants them, not where rows end, so a row on a cut is filled
//! for both of its blocks; blocks are large enough for that to cost nothing.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use headwater_tensor::Shape;
use headwater_tensor::npy::{NpyElement, NpyType, header_bytes_aligned};
use headwater_tensor::parallel;
use rustix::fs::FallocateFlags;

use super::checksum::{BlockSum, block_sum, join};
use super::manifest::FileEntry;
use super::refused;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::topology::index;

/// Every file's data begins here: on a page, with room for any header.
pub(super) const HEADER_BYTES: u64 = 4096;
/// Small enough for a core's cache, large enough for a disk.
pub(super) const BLOCK_BYTES: u64 = 1 << 20;
/// Wide rows get larger blocks, up to this, so that few rows lie on a cut.
const WIDE_BLOCK_BYTES: u64 = 64 << 20;

/// Writes elements that are in memory.
pub(super) fn write_bytes(
    path: &Path,
    kind: NpyType,
    shape: &[u64],
    bytes: &[u8],
    progress: &dyn Progress,
) -> Result<FileEntry> {
    let file = ArrayFile::create(path, kind, shape, BLOCK_BYTES)?;
    if bytes.len() as u64 != file.data_bytes {
        let element_bytes = kind.size_bytes() as u64;
        let (found, expected) = (bytes.len() as u64 / element_bytes, file.data_bytes / element_bytes);
        return Err(Error::Length { name: "the slice", found, expected, of: "the array's shape" });
    }
    progress.begin(&format!("writing {}", file.name()), file.data_bytes);
    file.write(&|range, store| {
        progress.advance(range.end - range.start);
        store(&bytes[index(range.start)..index(range.end)])
    })
}

/// Writes rows that `fill` computes. It is given the rows and their elements, zeroed; it may be asked for a row twice.
pub(super) fn write_rows<T: NpyElement>(
    path: &Path,
    shape: &[u64],
    fill: impl Fn(Range<u64>, &mut [T]) + Sync,
    progress: &dyn Progress,
) -> Result<FileEntry> {
    write_filled(path, T::KIND, shape, elements_of(shape.get(1..).unwrap_or_default()), &fill, progress)
}

/// As [`write_rows`], for elements of any kind as their bytes.
pub(super) fn write_raw_rows(
    path: &Path,
    kind: NpyType,
    shape: &[u64],
    fill: impl Fn(Range<u64>, &mut [u8]) + Sync,
    progress: &dyn Progress,
) -> Result<FileEntry> {
    let row_bytes = elements_of(shape.get(1..).unwrap_or_default()).saturating_mul(kind.size_bytes() as u64);
    write_filled(path, kind, shape, row_bytes, &fill, progress)
}

/// A row is `row_elements` of `T`, whatever the file calls them.
fn write_filled<T: bytemuck::Pod + Send>(
    path: &Path,
    kind: NpyType,
    shape: &[u64],
    row_elements: u64,
    fill: &(dyn Fn(Range<u64>, &mut [T]) + Sync),
    progress: &dyn Progress,
) -> Result<FileEntry> {
    let row_bytes = row_elements.saturating_mul(size_of::<T>() as u64);
    let file = ArrayFile::create(path, kind, shape, block_bytes(row_bytes))?;
    progress.begin(&format!("writing {}", file.name()), file.data_bytes);
    let idle: Mutex<Vec<Vec<T>>> = Mutex::default();
    file.write(&|range, store| {
        if range.is_empty() {
            return store(&[]);
        }
        let rows = range.start / row_bytes..range.end.div_ceil(row_bytes);
        let mut block = idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        block.clear();
        block.resize(index((rows.end - rows.start) * row_elements), T::zeroed());
        let first_byte = rows.start * row_bytes;
        fill(rows, &mut block);
        let bytes = &bytemuck::cast_slice(&block)[index(range.start - first_byte)..index(range.end - first_byte)];
        let stored = store(bytes)?;
        progress.advance(bytes.len() as u64);
        idle.lock().unwrap_or_else(PoisonError::into_inner).push(block);
        Ok(stored)
    })
}

/// A power of two, a few rows at least.
fn block_bytes(row_bytes: u64) -> u64 {
    let few_rows = row_bytes.saturating_mul(64).min(WIDE_BLOCK_BYTES).max(row_bytes);
    few_rows.max(BLOCK_BYTES).checked_next_power_of_two().unwrap_or(1 << 63)
}

/// What makes the bytes of a range of an array's data.
type Produce<'a> = dyn Fn(Range<u64>, &dyn Fn(&[u8]) -> Result<BlockSum>) -> Result<BlockSum> + Sync + 'a;

/// A file of known length.
struct ArrayFile {
    path: PathBuf,
    file: File,
    kind: NpyType,
    shape: Vec<u64>,
    header: Vec<u8>,
    data_bytes: u64,
    block_bytes: u64,
}

impl ArrayFile {
    fn create(path: &Path, kind: NpyType, shape: &[u64], block_bytes: u64) -> Result<Self> {
        let (header, data_bytes) = header(kind, shape)?;
        let file = create(path)?;
        // A disk that is too small says so before the work. File systems that cannot reserve find out while writing.
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, HEADER_BYTES + data_bytes) {
            Err(error @ (rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT | rustix::io::Errno::FBIG)) => {
                Err(refused("write", path)(error.into()))
            }
            _ => Ok(Self { path: path.to_owned(), file, kind, shape: shape.to_vec(), header, data_bytes, block_bytes }),
        }
    }

    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// `produce` hands the bytes of a range of the data to the function it is given. It is called through a pointer, once a
    /// block, so that the splitting between threads is compiled once and not for every kind of array.
    fn write(&self, produce: &Produce<'_>) -> Result<FileEntry> {
        let bytes = HEADER_BYTES + self.data_bytes;
        let block = |at: u64| {
            let start = at * self.block_bytes;
            let end = (start + self.block_bytes).min(bytes);
            let data = start.max(HEADER_BYTES) - HEADER_BYTES..end - HEADER_BYTES;
            produce(data, &|data| self.store(start, data))
        };
        let sums = parallel::try_collect(index(bytes.div_ceil(self.block_bytes)), |at| block(at as u64))?;
        Ok(FileEntry { dtype: self.kind.name().to_owned(), shape: self.shape.clone(), bytes, blake3: join(&sums) })
    }

    fn store(&self, start: u64, data: &[u8]) -> Result<BlockSum> {
        let header: &[u8] = if start == 0 { &self.header } else { &[] };
        let write = |bytes, at| self.file.write_all_at(bytes, at).map_err(refused("write", &self.path));
        write(header, start)?;
        write(data, start + header.len() as u64)?;
        Ok(block_sum(start, &[header, data]))
    }
}

/// Saturates where the shape is too large, which its header's check then says.
pub(super) fn elements_of(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |product, dim| product.saturating_mul(*dim))
}

/// A new file that can be read back.
pub(super) fn create(path: &Path) -> Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(refused("create", path))
}

/// The header of an array and the bytes of its data.
pub(super) fn header(kind: NpyType, shape: &[u64]) -> Result<(Vec<u8>, u64)> {
    let dims: Vec<usize> = shape.iter().map(|dim| index(*dim)).collect();
    let elements = Shape::new(&dims)?.count()? as u64;
    let bytes = elements.checked_mul(kind.size_bytes() as u64).filter(|bytes| *bytes < i64::MAX as u64 / 2);
    let too_large = || headwater_tensor::Error::TooLarge { dims: dims.clone() };
    let bytes = bytes.ok_or_else(too_large)?;
    Ok((header_bytes_aligned(kind, &dims, index(HEADER_BYTES)), bytes))
}
