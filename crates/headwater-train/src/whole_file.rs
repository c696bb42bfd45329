//! A file that appears whole or not at all.
//!
//! It is written under a hidden name beside its own, synced, renamed, and the folder is synced. Whoever is killed on the
//! way leaves the file that was there before, or none.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Bytes that go to the system at a time.
const BUFFER_BYTES: usize = 1 << 20;
/// What the name of an unfinished file ends in.
const UNFINISHED: &str = ".partial";

/// Puts a file with this content in its place.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    put(&Real, path, |sink| sink.write_all(content))
}

/// Whether a file can be put in this place, as far as that shows before it is written.
pub fn try_place(path: &Path) -> Result<()> {
    let partial = partial_of(path)?;
    drop(File::create(&partial).map_err(Error::io("write", path))?);
    fs::remove_file(&partial).map_err(Error::io("write", path))?;
    let is_folder = path.is_dir().then(|| io::Error::other("there is a folder of that name"));
    is_folder.map_or(Ok(()), |why| Err(Error::io("write", path)(why)))
}

/// Puts a file in its place whose content `fill` writes.
pub(crate) fn put(disk: &dyn Disk, path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let partial = partial_of(path)?;
    let written = write(disk, &partial, fill).map_err(Error::io("write", path));
    let named = written.and_then(|()| disk.rename(&partial, path).map_err(Error::io("put in its place", path)));
    if named.is_err() {
        // What cannot be removed is overwritten by the next one of its name.
        let _ = disk.remove(&partial);
    }
    named?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    disk.sync_folder(folder).map_err(Error::io("sync", folder))
}

/// Whether a file of this name is one that was not finished.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(UNFINISHED)
}

/// What is asked of a file system. Behind a trait because tests make it fail, and forget what was not synced, at every
/// single step.
pub(crate) trait Disk {
    /// A new file in the place of whatever has this name.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>>;
    /// Gives a file another name, in one step, in the place of whatever has that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a folder outlast a crash.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// A file being written.
pub(crate) trait Sink: Write {
    /// Makes what was written outlast a crash.
    fn sync(&mut self) -> io::Result<()>;
}

/// The file system.
pub(crate) struct Real;

impl Disk for Real {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        Ok(Box::new(File::create(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

impl Sink for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

fn write(disk: &dyn Disk, path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut sink = BufWriter::with_capacity(BUFFER_BYTES, disk.create(path)?);
    fill(&mut sink)?;
    sink.flush()?;
    sink.get_mut().sync()
}

fn partial_of(path: &Path) -> Result<PathBuf> {
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "this is no name for a file");
    let name = path.file_name().ok_or_else(|| Error::io("write", path)(no_name()))?;
    Ok(path.with_file_name(format!(".{}{UNFINISHED}", name.to_string_lossy())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        for content in [&b"first"[..], b"second, longer", b""] {
            write_whole(&path, content).unwrap();
            assert_eq!(fs::read(&path).unwrap(), content);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn what_stops_half_way_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        write_whole(&path, b"old").unwrap();
        let broken = put(&Real, &path, |sink| {
            sink.write_all(&[0; 3 * BUFFER_BYTES])?;
            Err(io::Error::other("enough"))
        });
        let said = broken.unwrap_err().to_string();
        assert!(said.contains("run.toml") && said.contains("enough"), "{said}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn places_that_are_none_are_named() {
        for place in ["/", "/nowhere/at/all", "/proc/file"] {
            let said = write_whole(Path::new(place), b"").unwrap_err().to_string();
            assert!(said.contains(place) && said.contains("cannot write"), "{said}");
        }
    }
}
