//! Reading every byte of a dataset and comparing checksums.
//!
//! Files are read, not mapped: a file that somebody cuts short meanwhile is then an error and not the end of the process.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use headwater_tensor::parallel;

use super::array_file::BLOCK_BYTES;
use super::checksum::{BlockSum, block_sum, join};
use super::manifest::{FileEntry, Manifest, read_text};
use super::{MANIFEST, refused, seal};
use crate::error::{Error, Result};
use crate::progress::{Progress, Silent};
use crate::topology::index;

/// Files up to this length are looked at whenever a dataset is opened, as far as they are not more than so many bytes.
const SMALL_FILE_BYTES: u64 = 64 << 10;
const SMALL_FILES_BYTES: u64 = 4 << 20;

/// Fails with the first small file, by name, that is not what was written.
pub(super) fn small_files(folder: &Path, manifest: &Manifest) -> Result<()> {
    let (idle, mut left) = (Mutex::default(), SMALL_FILES_BYTES);
    for (name, entry) in manifest.files.iter().filter(|(_, entry)| entry.bytes <= SMALL_FILE_BYTES) {
        let Some(rest) = left.checked_sub(entry.bytes) else { return Ok(()) };
        left = rest;
        verify_file(&folder.join(name), entry, &idle, &Silent)?;
    }
    Ok(())
}

/// Fails with the manifest, or with the first file, by name, that is not what was written.
pub(super) fn verify(folder: &Path, manifest: &Manifest, progress: &dyn Progress) -> Result<()> {
    progress.begin("verifying", manifest.bytes());
    let path = folder.join(MANIFEST);
    seal::check(&read_text(&path)?, &path)?;
    let idle = Mutex::default();
    // Files one after the other, blocks in parallel: what is read is then near what was read before.
    manifest.files.iter().try_for_each(|(name, entry)| verify_file(&folder.join(name), entry, &idle, progress))
}

fn verify_file(path: &Path, entry: &FileEntry, idle: &Mutex<Vec<Vec<u8>>>, progress: &dyn Progress) -> Result<()> {
    let file = File::open(path).map_err(refused("read", path))?;
    let block = |at: u64| -> Result<BlockSum> {
        let start = at * BLOCK_BYTES;
        let bytes = BLOCK_BYTES.min(entry.bytes - start);
        let mut block = idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        block.resize(index(bytes), 0);
        file.read_exact_at(&mut block, start).map_err(refused("read", path))?;
        let sum = block_sum(start, &[&block]);
        idle.lock().unwrap_or_else(PoisonError::into_inner).push(block);
        progress.advance(bytes);
        Ok(sum)
    };
    let found = join(&parallel::try_collect(index(entry.bytes.div_ceil(BLOCK_BYTES)), |at| block(at as u64))?);
    if found == entry.blake3 {
        return Ok(());
    }
    let (found, expected) = (found.to_string(), entry.blake3.to_string());
    Err(Error::ArrayFile { path: path.to_owned(), what: "the checksum", found, expected })
}
