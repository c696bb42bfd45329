//! Compiled kernels, and what was measured of them, on disk, shared by every process of the user.
//!
//! A file is named by a hash of everything that shapes its content, so it is never stale. It is written under a name of
//! its own and renamed, so that readers see all of it or none of it, however many processes write at once. The cache is
//! a convenience: when it cannot be read or written, work goes on without it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

/// The folder's size above which the oldest files go.
const LIMIT_BYTES: u64 = 256 << 20;

/// The name of something that is kept: a compiled kernel, or what was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// Of a kernel.
    pub(crate) fn new(text: &str, options: &[String], arch: &str, compiler: &str) -> Self {
        Self::of([text, arch, compiler].into_iter().chain(options.iter().map(String::as_str)))
    }

    /// Of anything that these parts tell from all others.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            // The length goes in too, so that moving a byte from one part to the next changes the key.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        Self(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// What is kept, if it is there and whole.
#[must_use]
pub fn read(key: &Key) -> Option<Vec<u8>> {
    read_from(&folder()?, key)
}

/// Keeps something for the next process.
pub fn write(key: &Key, image: &[u8]) {
    if let Some(folder) = folder() {
        write_to(&folder, key, image, LIMIT_BYTES);
    }
}

/// Drops an image that turned out to be of no use.
pub(crate) fn remove(key: &Key) {
    if let Some(folder) = folder() {
        let _ = fs::remove_file(file(&folder, key));
    }
}

/// Where compiled kernels are kept: `HEADWATER_CACHE`, else the user's cache folder. Empty turns the cache off.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    if let Some(chosen) = std::env::var_os("HEADWATER_CACHE") {
        return (!chosen.is_empty()).then(|| PathBuf::from(chosen));
    }
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(base.join("headwater"))
}

fn file(folder: &Path, key: &Key) -> PathBuf {
    folder.join(format!("{}.cubin", key.0))
}

fn read_from(folder: &Path, key: &Key) -> Option<Vec<u8>> {
    let stored = fs::read(file(folder, key)).ok()?;
    let (sum, image) = stored.split_at_checked(32)?;
    (sum == Sha256::digest(image).as_slice()).then(|| image.to_vec())
}

fn write_to(folder: &Path, key: &Key, image: &[u8], limit_bytes: u64) {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!("{}.{}.{serial}.tmp", key.0, std::process::id()));
    let mut stored = Sha256::digest(image).to_vec();
    stored.extend_from_slice(image);
    let done = fs::create_dir_all(folder)
        .and_then(|()| fs::write(&temporary, stored))
        .and_then(|()| fs::rename(&temporary, file(folder, key)));
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
        return;
    }
    shrink(folder, limit_bytes);
}

fn shrink(folder: &Path, limit_bytes: u64) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let facts = entry.metadata().ok()?;
            // The folder may hold files of other people's; only ours may go.
            entry.path().extension().filter(|ending| *ending == "cubin" || *ending == "tmp")?;
            Some((facts.modified().ok()?, facts.len(), entry.path()))
        })
        .collect();
    files.sort();
    let mut total_bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, bytes, path) in files {
        if total_bytes <= limit_bytes {
            return;
        }
        total_bytes -= bytes;
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text, &["-DA=1".into()], "sm_90", "12.8")
    }

    #[test]
    fn every_part_shapes_the_key() {
        let base = Key::new("ab", &["c".into()], "sm_90", "12.8");
        for other in [
            Key::new("a", &["bc".into()], "sm_90", "12.8"),
            Key::new("ab", &["d".into()], "sm_90", "12.8"),
            Key::new("ab", &["c".into()], "sm_80", "12.8"),
            Key::new("ab", &["c".into()], "sm_90", "13.0"),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn a_damaged_or_truncated_file_is_not_read() {
        let folder = std::env::temp_dir().join(format!("headwater-cache-{}", std::process::id()));
        write_to(&folder, &key("x"), b"image", LIMIT_BYTES);
        assert_eq!(read_from(&folder, &key("x")).as_deref(), Some(&b"image"[..]));
        let path = file(&folder, &key("x"));
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(read_from(&folder, &key("x")), None);
        fs::write(&path, b"short").unwrap();
        assert_eq!(read_from(&folder, &key("x")), None);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn many_writers_leave_whole_files_and_the_folder_stays_bounded() {
        let folder = std::env::temp_dir().join(format!("headwater-cache-many-{}", std::process::id()));
        let image = |i: usize| vec![u8::try_from(i).unwrap(); 1000];
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20).for_each(|i| write_to(&folder, &key(&i.to_string()), &image(i), 10_000)));
            }
        });
        let present: Vec<usize> = (0..20).filter(|i| read_from(&folder, &key(&i.to_string())).is_some()).collect();
        assert!(!present.is_empty() && present.len() <= 10, "{present:?}");
        for i in present {
            assert_eq!(read_from(&folder, &key(&i.to_string())), Some(image(i)));
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
