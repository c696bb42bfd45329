//! A file that appears whole or not at all.
//!
//! It is written under a hidden name beside its own, synced, renamed, and the folder is synced. Whoever is killed on the
//! way leaves the file that was there before, or none. The hidden name is nobody else's, and its writer holds a lock on
//! it: what nobody holds was left by one that was killed, and goes when somebody writes there again.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Bytes that go to the system at a time.
const BUFFER_BYTES: usize = 1 << 20;
/// What the name of an unfinished file ends in.
const UNFINISHED: &str = ".partial";
/// Names that are tried before a folder counts as one in which nothing can be created.
const MOST_NAMES: usize = 100;

/// Puts a file with this content in its place.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    put(&Real, path, |sink| sink.write_all(content))
}

/// Whether a file can be put in this place, as far as that shows before it is written.
pub fn try_place(path: &Path) -> Result<()> {
    let (partial, _locked) = create(&Real, path)?;
    fs::remove_file(&partial).map_err(Error::io("write", path))?;
    let is_folder = path.is_dir().then(|| io::Error::other("there is a folder of that name"));
    is_folder.map_or(Ok(()), |why| Err(Error::io("write", path)(why)))
}

/// Puts a file in its place whose content `fill` writes.
pub(crate) fn put(disk: &dyn Disk, path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sweep(disk, folder, |name| path.file_name().is_some_and(|own| own.to_string_lossy() == name));
    // Open, and so locked, until it has its name: nobody takes it for one that was left behind.
    let (partial, mut sink) = create(disk, path)?;
    let written = write(&mut *sink, fill).map_err(Error::io("write", path));
    let named = written.and_then(|()| disk.rename(&partial, path).map_err(Error::io("put in its place", path)));
    if named.is_err() {
        // What cannot be removed goes when the next one of its name is written.
        let _ = disk.remove(&partial);
    }
    named?;
    disk.sync_folder(folder).map_err(Error::io("sync", folder))
}

/// Removes unfinished files of a folder whose writers were killed, where they were to have a name that is asked for. What
/// cannot be removed goes next time.
pub(crate) fn sweep(disk: &dyn Disk, folder: &Path, is_asked: impl Fn(&str) -> bool) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_unfinished = name.to_str().and_then(name_of_partial).is_some_and(&is_asked);
        let left = if is_unfinished { File::open(entry.path()).ok() } else { None };
        // The lock is held while the file goes: its writer, if it has only just created it, then sees that it is gone.
        if left.is_some_and(|left| left.try_lock().is_ok() && disk.remove(&entry.path()).is_err()) {
            log::debug!("{} stays for now", entry.path().display());
        }
    }
}

/// What is asked of a file system. Behind a trait because tests make it fail, and forget what was not synced, at every
/// single step.
pub(crate) trait Disk {
    /// A new file that nobody else takes for one that was left behind.
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
        let file = File::options().write(true).create_new(true).open(path)?;
        // File systems without locks have no sweepers either.
        let _ = file.lock();
        if path.exists() { Ok(Box::new(file)) } else { Err(io::ErrorKind::AlreadyExists.into()) }
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

fn write(sink: &mut dyn Sink, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut sink = BufWriter::with_capacity(BUFFER_BYTES, sink);
    fill(&mut sink)?;
    sink.flush()?;
    sink.get_mut().sync()
}

/// A file under a hidden name beside that of `path`, which nobody else has.
fn create(disk: &dyn Disk, path: &Path) -> Result<(PathBuf, Box<dyn Sink>)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let refused = |why: io::Error| Error::io("write", path)(why);
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "this is no name for a file");
    let name = path.file_name().ok_or_else(|| refused(no_name()))?.to_string_lossy();
    // A device or a pipe would be replaced, not written to.
    if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return Err(refused(io::Error::other("what is there is no plain file")));
    }
    for _ in 0..MOST_NAMES {
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let partial = path.with_file_name(format!(".{name}.{process}-{count}{UNFINISHED}"));
        match disk.create(&partial) {
            Ok(sink) => return Ok((partial, sink)),
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
            Err(why) => return Err(refused(why)),
        }
    }
    Err(refused(io::Error::other("every name for it is taken")))
}

/// The name that an unfinished file was to have. Those of earlier versions have no number.
fn name_of_partial(name: &str) -> Option<&str> {
    let name = name.strip_prefix('.')?.strip_suffix(UNFINISHED)?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_numbered = |(_, number): &(&str, &str)| {
        number.split_once('-').is_some_and(|(process, count)| is_number(process) && is_number(count))
    };
    Some(name.rsplit_once('.').filter(is_numbered).map_or(name, |(name, _)| name))
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
    fn what_was_left_goes_and_what_is_being_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let left = [".run.toml.partial", ".run.toml.7-0.partial"];
        let others = [".other.7-0.partial", ".run.toml.7-0", "run.toml.7-0.partial", ".run.toml.x-1.partial"];
        left.iter().chain(&others).for_each(|name| fs::write(at(name), b"left behind").unwrap());
        let path = at("run.toml");
        put(&Real, &path, |sink| {
            // Another writer of the same file, while this one is at it.
            write_whole(&path, b"other").unwrap();
            sink.write_all(b"own")
        })
        .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"own");
        assert!(left.iter().all(|name| !at(name).exists()) && others.iter().all(|name| at(name).exists()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), others.len() + 1);
    }

    /// A file system on which others sweep right before a file gets its name.
    struct Swept;

    impl Disk for Swept {
        fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
            Real.create(path)
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            sweep(&Real, to.parent().unwrap(), |_| true);
            Real.rename(from, to)
        }
        fn sync_folder(&self, folder: &Path) -> io::Result<()> {
            Real.sync_folder(folder)
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            Real.remove(path)
        }
    }

    #[test]
    fn what_is_written_but_has_no_name_yet_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        put(&Swept, &path, |sink| sink.write_all(b"own")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"own");
    }

    #[test]
    fn places_that_are_none_are_named() {
        for place in ["/", "/nowhere/at/all", "/proc/file", "/dev/null"] {
            let said = write_whole(Path::new(place), b"").unwrap_err().to_string();
            assert!(said.contains(place) && said.contains("cannot write"), "{said}");
        }
    }
}
