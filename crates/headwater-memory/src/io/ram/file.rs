//! A file that is a vector: bounded, so that it can be full, and aligned if asked, so that it is as strict as a disk.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

/// How a file in memory is made.
#[derive(Debug, Clone)]
pub struct RamOptions {
    /// What it holds at first.
    pub contents: Vec<u8>,
    /// Writes beyond this many bytes fail as on a full disk.
    pub capacity_bytes: usize,
    /// What offsets, lengths and addresses must be multiples of; a power of two.
    pub alignment_bytes: usize,
}

impl Default for RamOptions {
    fn default() -> Self {
        Self { contents: Vec::new(), capacity_bytes: 1 << 30, alignment_bytes: 1 }
    }
}

#[derive(Debug)]
pub(in crate::io) struct RamFile {
    bytes: Mutex<Vec<u8>>,
    capacity_bytes: usize,
}

impl RamFile {
    pub(in crate::io) fn new(options: &RamOptions) -> Self {
        Self { bytes: Mutex::new(options.contents.clone()), capacity_bytes: options.capacity_bytes }
    }

    pub(in crate::io) fn len_bytes(&self) -> u64 {
        self.lock().len() as u64
    }

    pub(in crate::io) fn set_len(&self, bytes: u64) -> Result<(), Errno> {
        let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes <= self.capacity_bytes);
        self.lock().resize(bytes.ok_or(Errno::NOSPC)?, 0);
        Ok(())
    }

    /// Copies what there is from `offset` on; nothing at the end.
    pub(in crate::io) fn read(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let file = self.lock();
        let rest = usize::try_from(offset).ok().and_then(|offset| file.get(offset..)).unwrap_or(&[]);
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    /// Writes what fits; refuses when nothing does.
    pub(in crate::io) fn write(&self, from: &[u8], offset: u64) -> Result<usize, Errno> {
        let offset = usize::try_from(offset).map_err(|_| Errno::FBIG)?;
        let len = from.len().min(self.capacity_bytes.saturating_sub(offset));
        if len == 0 && !from.is_empty() {
            return Err(Errno::NOSPC);
        }
        let mut file = self.lock();
        let end = offset + len;
        if file.len() < end {
            file.resize(end, 0);
        }
        file[offset..end].copy_from_slice(&from[..len]);
        Ok(len)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
