//! Bytes in memory of large pages: rows that are read here and there then cost one look-up of an address each,
//! where small pages cost a walk through tables as large as a cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::foreign::Foreign;
use crate::mapping::Mapping;
use crate::tier::host_bytes_available;

/// Bytes that are read from a file at a time, by one thread.
const PIECE_BYTES: usize = 8 << 20;

/// The last `bytes` of a file, read into memory of large pages.
pub fn read_tail(path: &Path, bytes: usize) -> Result<Foreign> {
    let failed = |why: io::Error| Error::Map {
        asked_bytes: bytes,
        free_bytes: host_bytes_available(),
        why: format!("reading {}: {why}", path.display()),
    };
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let first = length.checked_sub(bytes as u64).ok_or_else(|| failed(io::ErrorKind::UnexpectedEof.into()))?;
    let mut memory = Pages(Mapping::anonymous(bytes)?);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let share = bytes.div_ceil(threads).next_multiple_of(PIECE_BYTES).max(1);
    std::thread::scope(|scope| {
        let parts = memory.as_mut().chunks_mut(share).enumerate();
        let readers: Vec<_> = parts
            .map(|(at, part)| {
                let from = first + (at * share) as u64;
                scope.spawn({
                    let file = &file;
                    move || file.read_exact_at(part, from)
                })
            })
            .collect();
        readers.into_iter().try_for_each(|reader| reader.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
    })
    .map_err(failed)?;
    Ok(Foreign::new(Arc::new(memory)))
}

/// Memory of large pages, filled piece by piece on all threads: `fill` is told where a piece begins.
pub fn filled(bytes: usize, fill: impl Fn(usize, &mut [u8]) + Sync) -> Result<Foreign> {
    let mut memory = Pages(Mapping::anonymous(bytes)?);
    let pieces = memory.as_mut().par_chunks_mut(PIECE_BYTES).enumerate();
    pieces.for_each(|(at, piece)| fill(at * PIECE_BYTES, piece));
    Ok(Foreign::new(Arc::new(memory)))
}

/// A mapping that is nobody else's.
struct Pages(Mapping);

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the mapping is zeroed by the kernel, as long as it says, and lives as long as the borrow.
        unsafe { std::slice::from_raw_parts(self.0.start().as_ptr(), self.0.bytes()) }
    }
}

impl Pages {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; this value alone has the mapping, and it is borrowed for as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(self.0.start().as_ptr(), self.0.bytes()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_filled_where_it_belongs() {
        for bytes in [0, 5, PIECE_BYTES + 4096] {
            let found = filled(bytes, |at, piece| {
                let numbers = (at..).zip(piece);
                numbers.for_each(|(at, byte)| *byte = (at % 251).to_le_bytes()[0]);
            });
            assert!(found.unwrap().as_slice().iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % 251));
        }
    }

    #[test]
    fn the_end_of_a_file_is_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bytes");
        let bytes: Vec<u8> = (0..20_000_003u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
        std::fs::write(&path, &bytes).unwrap();
        for tail in [0, 1, 4096, 9 << 20, bytes.len()] {
            let found = read_tail(&path, tail).unwrap();
            assert!(found.as_slice() == &bytes[bytes.len() - tail..], "{tail}");
        }
        assert!(read_tail(&path, bytes.len() + 1).is_err());
        assert!(read_tail(&folder.path().join("none"), 1).is_err());
    }
}
