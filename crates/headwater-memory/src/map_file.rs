//! Files read in place: a range of a file as bytes that are there when they are touched.
//!
//! Mapping is how a graph larger than memory is opened in a millisecond. Its hazard is known: when somebody cuts the file
//! short while it is mapped, touching the lost part ends the process, and no check can prevent it. The range is checked
//! against the file's length here, and whoever writes such files must replace them whole instead of changing them.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use memmap2::{Mmap, MmapOptions};

use crate::error::{Error, Result};
use crate::foreign::Foreign;
use crate::tier::host_bytes_available;

/// The bytes of `file` in `range`, mapped read-only. Fails when the file ends before the range does.
pub fn map_file(file: &File, range: Range<u64>) -> Result<Foreign> {
    let refused = |why: String| Error::Map {
        asked_bytes: usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX),
        free_bytes: host_bytes_available(),
        why,
    };
    let file_bytes = file.metadata().map_err(|why| refused(why.to_string()))?.len();
    let bytes = range.end.checked_sub(range.start).filter(|_| range.end <= file_bytes);
    let bytes = bytes.ok_or_else(|| refused(format!("{range:?} leaves a file of {file_bytes} bytes")))?;
    let length = usize::try_from(bytes).map_err(|why| refused(why.to_string()))?;
    // SAFETY: the mapping is private to readers here. That the file is not cut short meanwhile is the caller's promise,
    // as the page above says; a change of content is seen as other plain bytes.
    let map = unsafe { MmapOptions::new().offset(range.start).len(length).map(file) };
    Ok(Foreign::new(Arc::new(Mapped(map.map_err(|why| refused(why.to_string()))?))))
}

struct Mapped(Mmap);

impl AsRef<[u8]> for Mapped {
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
            assert_eq!(map_file(&file, range).unwrap().as_slice(), expected);
        }
        #[expect(clippy::reversed_empty_ranges, reason = "what nobody should ask for")]
        for range in [0..5005, 5004..5005, 10..9, u64::MAX - 1..u64::MAX] {
            assert!(matches!(map_file(&file, range), Err(Error::Map { .. })));
        }
    }
}
