//! A checksum for every page of a file, so that rows that rotted on the disk are an error and not features.
//!
//! Files have one checksum in their dataset, which says whether all of a file is as it was; nobody reads a table of a
//! terabyte to know whether the row in hand is. The sums are CRC-32 of 4096 bytes each, a thousandth of the file, in a plain
//! `.npy` beside it, and are checked when pages arrive.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use headwater_tensor::npy::{NpyFile, NpyType, write_array};
use headwater_tensor::parallel;

use crate::error::{Error, Result};

/// Bytes of a page.
const PAGE_BYTES: usize = headwater_memory::io::PAGE_BYTES;
/// Bytes that one thread reads at a time when sums are made.
const PART_BYTES: usize = 1 << 20;

/// The sum of every page of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSums {
    sums: Vec<u32>,
    /// Bytes of the file; its last page may be short.
    file_bytes: u64,
}

impl PageSums {
    /// Reads a whole file.
    pub fn of_file(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(refused("open", path))?;
        let file_bytes = file.metadata().map_err(refused("ask for the length of", path))?.len();
        let starts: Vec<u64> = (0..file_bytes).step_by(PART_BYTES).collect();
        let part = |at: usize| -> Result<Vec<u32>> {
            let start = starts[at];
            let left = usize::try_from(file_bytes - start).unwrap_or(usize::MAX);
            let mut bytes = vec![0; PART_BYTES.min(left)];
            file.read_exact_at(&mut bytes, start).map_err(refused("read", path))?;
            Ok(bytes.chunks(PAGE_BYTES).map(crc32fast::hash).collect())
        };
        let parts = parallel::try_collect(starts.len(), part)?;
        Ok(Self { sums: parts.concat(), file_bytes })
    }

    /// Where the sums of a file are kept.
    #[must_use]
    pub fn beside(path: &Path) -> PathBuf {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".pages.npy");
        path.with_file_name(name)
    }

    /// Writes the sums beside the file they are of. A reader finds the old ones or the new ones, never a part.
    pub fn save(&self, path: &Path) -> Result<()> {
        let to = Self::beside(path);
        let partial = to.with_extension("npy.partial");
        let mut file = File::create(&partial).map_err(refused("create", &partial))?;
        let mut bytes = Vec::new();
        write_array(&mut bytes, NpyType::U32, &[self.sums.len()], bytemuck::cast_slice(&self.sums))?;
        let written = file.write_all(&bytes).and_then(|()| file.sync_all());
        written.and_then(|()| std::fs::rename(&partial, &to)).map_err(|why| {
            // What is left of it helps nobody.
            let _ = std::fs::remove_file(&partial);
            refused("write", &to)(why)
        })
    }

    /// The sums that were saved beside a file.
    pub fn load(path: &Path) -> Result<Self> {
        let beside = Self::beside(path);
        let NpyFile { header, file } = NpyFile::open(&beside)?;
        let file_bytes = std::fs::metadata(path).map_err(refused("ask for the length of", path))?.len();
        let (found, expected) = (header.data_bytes().unwrap_or(u64::MAX), file_bytes.div_ceil(PAGE_BYTES as u64) * 4);
        if header.kind != NpyType::U32 || found != expected {
            return Err(Error::PageSums { path: beside, found, expected });
        }
        let mut sums = vec![0u32; header.shape.iter().product()];
        let read = file.read_exact_at(bytemuck::cast_slice_mut(&mut sums), header.data_offset as u64);
        read.map_err(refused("read", &beside))?;
        Ok(Self { sums, file_bytes })
    }

    /// The same, or none where none were saved.
    pub fn saved(path: &Path) -> Result<Option<Self>> {
        let exists = Self::beside(path).try_exists().map_err(refused("look for sums beside", path))?;
        if exists { Self::load(path).map(Some) } else { Ok(None) }
    }

    /// Checks the last bytes of a file, wherever they begin. A page that lies in them in part is read again as a whole.
    pub(crate) fn check_tail(&self, path: &Path, tail: &[u8]) -> Result<()> {
        let first = self.file_bytes.saturating_sub(tail.len() as u64);
        let page = PAGE_BYTES as u64;
        let whole_from = first.next_multiple_of(page);
        let skipped = usize::try_from(whole_from - first).unwrap_or(usize::MAX).min(tail.len());
        if skipped > 0 {
            let begin = first / page * page;
            let mut bytes = vec![0; usize::try_from(self.file_bytes - begin).unwrap_or(PAGE_BYTES).min(PAGE_BYTES)];
            let file = File::open(path).map_err(refused("open", path))?;
            file.read_exact_at(&mut bytes, begin).map_err(refused("read", path))?;
            self.check(path, begin, &bytes)?;
        }
        let parts = tail[skipped..].chunks(PART_BYTES).enumerate();
        parallel::try_for_each(parts, |(at, part)| self.check(path, whole_from + (at * PART_BYTES) as u64, part))
    }

    /// Checks bytes that were read at `offset`, which is a multiple of a page. What is behind the end of the file is left.
    pub(super) fn check(&self, path: &Path, offset: u64, bytes: &[u8]) -> Result<()> {
        let inside = usize::try_from(self.file_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let first = usize::try_from(offset / PAGE_BYTES as u64).unwrap_or(usize::MAX);
        for (at, page) in bytes[..bytes.len().min(inside)].chunks(PAGE_BYTES).enumerate() {
            if self.sums.get(first + at) != Some(&crc32fast::hash(page)) {
                let offset = offset + (at * PAGE_BYTES) as u64;
                return Err(Error::BadPage { path: path.to_owned(), offset });
            }
        }
        Ok(())
    }
}

fn refused(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |why| Error::File { what, path, why }
}
