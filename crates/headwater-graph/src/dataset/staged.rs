//! A folder that appears finished or not at all.
//!
//! Work happens in a hidden folder beside the wanted one, on the same file system, so that the last step is one rename.
//! The hidden folder is locked while its writer lives; a lock dies with its process, so a folder that can be locked was
//! left behind and is cleared. A program that is told to stop removes what it is making by [`abandon`].

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headwater_tensor::parallel;
use rustix::fs::{FlockOperation, Mode, OFlags};

use super::refused;
use crate::error::{Error, Result};

/// Folders that this process is making.
struct Making {
    folders: Vec<PathBuf>,
    /// Nothing may be made or published any more.
    is_over: bool,
}

static MAKING: Mutex<Making> = Mutex::new(Making { folders: Vec::new(), is_over: false });

/// Removes every dataset that this process is making and lets no more be made: for a program that is told to stop and will
/// end. What has its name already stays. Other threads may still write meanwhile, and get errors.
pub fn abandon() {
    let mut making = making();
    making.is_over = true;
    for folder in making.folders.drain(..) {
        // A file that another thread creates meanwhile keeps the folder; the next round has it.
        for _ in 0..200 {
            if fs::remove_dir_all(&folder).is_ok() || !folder.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn making() -> MutexGuard<'static, Making> {
    MAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder being made. Dropped before it is published, it is gone.
#[derive(Debug)]
pub(super) struct Staged {
    target: PathBuf,
    partial: PathBuf,
    /// Holds the lock.
    lock: File,
    published: bool,
}

impl Staged {
    /// Begins a folder that will be called `target`, which must not be there or be empty.
    pub(super) fn create(target: &Path) -> Result<Self> {
        let name = target.file_name().ok_or_else(|| unfit(target, "is no name for a new folder"))?;
        check_vacant(target)?;
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(refused("create", parent))?;
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(".partial");
        let partial = parent.join(hidden);
        let mut making = making();
        if making.is_over {
            return Err(unfit(target, "is not made: the program was told to stop"));
        }
        let lock = lock_folder(&partial)?;
        making.folders.push(partial.clone());
        drop(making);
        let staged = Self { target: target.to_owned(), partial, lock, published: false };
        clear(&staged.partial)?;
        Ok(staged)
    }

    /// Where files are put meanwhile.
    pub(super) fn path(&self) -> &Path {
        &self.partial
    }

    /// The folder's name when it is finished.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// Writes everything in it to the disk, `last` after all others, and gives the folder its name.
    pub(super) fn publish(mut self, last: Option<(&str, &[u8])>) -> Result<()> {
        sync_files(&self.partial)?;
        if let Some((name, content)) = last {
            let path = self.partial.join(name);
            fs::write(&path, content).map_err(refused("write", &path))?;
            sync(&path)?;
        }
        self.lock.sync_all().map_err(refused("sync", &self.partial))?;
        // Told to stop, it is either there or not.
        let making = making();
        if making.is_over {
            return Err(unfit(&self.target, "is not made: the program was told to stop"));
        }
        fs::rename(&self.partial, &self.target).map_err(refused("put the finished dataset at", &self.target))?;
        self.published = true;
        drop(making);
        let parent = self.partial.parent().unwrap_or(Path::new("."));
        sync(parent)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.published {
            // What cannot be removed is cleared by the next writer.
            let _ = fs::remove_dir_all(&self.partial);
        }
        making().folders.retain(|folder| *folder != self.partial);
    }
}

fn check_vacant(target: &Path) -> Result<()> {
    match fs::read_dir(target).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(unfit(target, "is there and not empty; choose another folder or remove it")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(why) => Err(Error::File { action: "make a dataset at", path: target.to_owned(), why }),
    }
}

/// Makes the folder or takes over one that nobody holds.
fn lock_folder(partial: &Path) -> Result<File> {
    match fs::create_dir(partial) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(refused("create", partial)(error)),
        _ => {}
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(partial, flags, Mode::empty());
    let lock = File::from(opened.map_err(|error| refused("open", partial)(error.into()))?);
    let busy = || unfit(partial, "another program is writing this dataset");
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(busy()),
        other => other.map_err(|error| refused("lock", partial)(error.into()))?,
    }
    // Its writer may have published it between our opening and our locking; then the name means another folder, or none.
    let held = lock.metadata().map_err(refused("look at", partial))?;
    let named = fs::symlink_metadata(partial).map_err(|_| busy())?;
    if (held.dev(), held.ino()) == (named.dev(), named.ino()) { Ok(lock) } else { Err(busy()) }
}

fn clear(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(refused("read", folder))? {
        let entry = entry.map_err(refused("read", folder))?;
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(refused("remove", &path))?;
    }
    Ok(())
}

/// Syncs every file below a folder, and the folders below it.
fn sync_files(folder: &Path) -> Result<()> {
    let entries: Vec<_> = fs::read_dir(folder).and_then(Iterator::collect).map_err(refused("read", folder))?;
    parallel::try_for_each(entries.iter().map(fs::DirEntry::path), |path| {
        if path.is_dir() {
            sync_files(&path)?;
        }
        sync(&path)
    })
}

fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(refused("sync", path))
}

fn unfit(path: &Path, why: &str) -> Error {
    Error::DatasetFolder { path: path.to_owned(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("below/data");
        let staged = Staged::create(&target).unwrap();
        fs::write(staged.path().join("x"), b"1").unwrap();
        // A second writer does not touch the first one's files.
        let said = Staged::create(&target).unwrap_err().to_string();
        assert!(said.contains(".data.partial") && said.contains("another program"), "{said}");
        assert!(staged.path().join("x").exists() && !target.exists());
        staged.publish(Some(("last", b"2"))).unwrap();
        assert_eq!(
            (fs::read(target.join("x")).unwrap(), fs::read(target.join("last")).unwrap()),
            (vec![b'1'], vec![b'2'])
        );
        assert_eq!(fs::read_dir(target.parent().unwrap()).unwrap().count(), 1);
        assert!(Staged::create(&target).unwrap_err().to_string().contains("not empty"));
    }

    #[test]
    fn what_a_killed_writer_left_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("data");
        fs::create_dir_all(folder.path().join(".data.partial/deep")).unwrap();
        fs::write(folder.path().join(".data.partial/stale"), b"1").unwrap();
        fs::create_dir(&target).unwrap();
        let staged = Staged::create(&target).unwrap();
        assert_eq!(fs::read_dir(staged.path()).unwrap().count(), 0);
        drop(staged);
        assert!(!folder.path().join(".data.partial").exists());
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    }

    #[test]
    fn places_that_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, b"").unwrap();
        assert!(Staged::create(&file).is_err() && Staged::create(&file.join("below")).is_err());
        assert!(Staged::create(Path::new("/")).is_err() && Staged::create(Path::new("..")).is_err());
        // A link in the hidden folder's place is not followed.
        std::os::unix::fs::symlink(folder.path(), folder.path().join(".data.partial")).unwrap();
        assert!(Staged::create(&folder.path().join("data")).is_err());
        assert!(file.exists());
    }
}
