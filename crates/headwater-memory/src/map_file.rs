//! Files read in place: a range of a file as bytes that are there when they are touched.
//!
//! Mapping is how a graph larger than memory is opened in a millisecond. Its hazard is known: when somebody cuts the file
//! short while it is mapped, touching the lost part ends the process, and no check can prevent it. The range is checked
//! against the file's length here, and whoever writes such files must replace them whole instead of changing them.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use memmap2::{Mmap, MmapMut, MmapOptions};

use crate::error::{Error, Result};
use crate::foreign::Foreign;
use crate::tier::host_bytes_available;

/// The bytes of `file` in `range`, mapped read-only. Fails when the file ends before the range does.
pub fn map_file(file: &File, range: Range<u64>) -> Result<Foreign> {
    let length = length_of(file, &range)?;
    // SAFETY: the mapping is private to readers here. That the file is not cut short meanwhile is the caller's promise,
    // as the page above says; a change of content is seen as other plain bytes.
    let map = unsafe { MmapOptions::new().offset(range.start).len(length).map(file) };
    Ok(Foreign::new(Arc::new(Mapped(map.map_err(|why| refused(&range, why.to_string()))?))))
}

/// As [`map_file`], for libraries that do not know memory that must not be written: whoever writes gets a page of their
/// own, and neither the file nor any other mapping of it changes. Pages that nobody writes to take no memory.
pub fn map_file_for_writers(file: &File, range: Range<u64>) -> Result<Foreign> {
    let length = length_of(file, &range)?;
    // Nothing is set aside for pages that are not written: files may be larger than memory.
    // SAFETY: as above, and nobody here looks at what others write there.
    let map = unsafe { MmapOptions::new().offset(range.start).len(length).no_reserve_swap().map_copy(file) };
    Ok(Foreign::new(Arc::new(Writable(map.map_err(|why| refused(&range, why.to_string()))?))))
}

/// Bytes of a range that a file has.
fn length_of(file: &File, range: &Range<u64>) -> Result<usize> {
    let file_bytes = file.metadata().map_err(|why| refused(range, why.to_string()))?.len();
    let bytes = range.end.checked_sub(range.start).filter(|_| range.end <= file_bytes);
    let bytes = bytes.ok_or_else(|| refused(range, format!("{range:?} leaves a file of {file_bytes} bytes")))?;
    usize::try_from(bytes).map_err(|why| refused(range, why.to_string()))
}

fn refused(range: &Range<u64>, why: String) -> Error {
    Error::Map {
        asked_bytes: usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX),
        free_bytes: host_bytes_available(),
        why,
    }
}

struct Mapped(Mmap);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

struct Writable(MmapMut);

impl AsRef<[u8]> for Writable {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn ranges_are_mapped_and_those_past_the_end_refused() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 5000]).unwrap();
        file.write_all(b"tail").unwrap();
        for (range, expected) in [(4998..5002, &b"\x07\x07ta"[..]), (5000..5004, b"tail"), (4096..4096, b"")] {
            assert_eq!(map_file(&file, range.clone()).unwrap().as_slice(), expected);
            assert_eq!(map_file_for_writers(&file, range).unwrap().as_slice(), expected);
        }
        #[expect(clippy::reversed_empty_ranges, reason = "what nobody should ask for")]
        for range in [0..5005, 5004..5005, 10..9, u64::MAX - 1..u64::MAX] {
            assert!(matches!(map_file(&file, range.clone()), Err(Error::Map { .. })));
            assert!(matches!(map_file_for_writers(&file, range), Err(Error::Map { .. })));
        }
    }
}
