//! The folder of a run, and who may write in it.
//!
//! Two programs that train in one folder destroy each other's checkpoints, so whoever writes there holds a lock on `run.lock`.
//! The system lets go of it when the process ends, however it ends. The file says whose it was last: a trainer that let go
//! for a while finds out whether somebody else came by.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::checkpoint::Checkpoints;
use crate::error::{Error, Result};

const LOCK: &str = "run.lock";
/// A run has this file, whatever else is missing.
const CONFIG: &str = "config.toml";
/// Longest text of a lock that is read.
const MOST_BYTES: u64 = 1 << 12;

/// A folder that this process alone writes a run into, until it lets go.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    owner: Owner,
    /// Held as long as it is open.
    lock: Option<File>,
    purpose: Purpose,
    /// What goes again when nothing comes of the run.
    made: Made,
}

/// What a folder was claimed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A run that begins.
    Begin,
    /// A run that is there.
    Resume,
    /// Whatever its checkpoints say.
    Either,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Made {
    Nothing,
    Lock,
    Folder,
}

/// Who claimed a folder last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    process: u32,
    host: String,
    /// Tells two claims of one process apart.
    claim: String,
}

/// Where a run is to be: a path, which is claimed, or a folder that was.
#[derive(Debug)]
pub enum Place {
    /// A path.
    Path(PathBuf),
    /// A folder.
    Claimed(RunFolder),
}

impl<P: AsRef<Path> + ?Sized> From<&P> for Place {
    fn from(path: &P) -> Self {
        Self::Path(path.as_ref().to_owned())
    }
}

impl From<RunFolder> for Place {
    fn from(folder: RunFolder) -> Self {
        Self::Claimed(folder)
    }
}

impl Place {
    /// The folder, claimed for whatever its checkpoints say where it was not.
    pub(crate) fn claim(self) -> Result<RunFolder> {
        match self {
            Self::Path(path) => RunFolder::claim(&path, Purpose::Either),
            Self::Claimed(folder) => Ok(folder),
        }
    }
}

impl RunFolder {
    /// Claims a folder for a new run. One that has checkpoints is refused.
    pub fn begin(path: &Path) -> Result<Self> {
        let folder = Self::claim(path, Purpose::Begin)?;
        let is_used = Checkpoints::new(&path.join("checkpoints"), 1).list().is_ok_and(|found| !found.is_empty());
        if is_used { Err(Error::UsedFolder { folder: path.to_owned() }) } else { Ok(folder) }
    }

    /// Claims the first folder `parent/stem-N` that is not there yet. Programs that start together get one each.
    pub fn fresh(parent: &Path, stem: &str) -> Result<Self> {
        fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        for number in 1u64.. {
            let path = parent.join(format!("{stem}-{number}"));
            match fs::create_dir(&path) {
                Ok(()) => {
                    let mut folder = Self::claim(&path, Purpose::Begin)?;
                    folder.made = Made::Folder;
                    return Ok(folder);
                }
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
                Err(why) => return Err(Error::io("create", &path)(why)),
            }
        }
        Err(Error::UsedFolder { folder: parent.to_owned() })
    }

    /// Claims the folder of a run that is to go on.
    pub fn resume(path: &Path) -> Result<Self> {
        if !path.join(CONFIG).is_file() {
            return Err(Error::NoRun { folder: path.to_owned() });
        }
        Self::claim(path, Purpose::Resume)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// From now on the folder stays, whatever happens.
    pub(crate) fn settle(&mut self) {
        self.made = Made::Nothing;
    }

    /// Lets others at the folder.
    pub(crate) fn release(&mut self) {
        let lock = self.lock.take().filter(|_| self.is_own());
        // Closing it would not do where a process that was forked has it too.
        if lock.is_some_and(|lock| lock.unlock().is_err()) {
            log::debug!("{} is let go when the process ends", self.path.display());
        }
    }

    /// Whether this is the process that claimed it, and not one that was forked from it.
    fn is_own(&self) -> bool {
        self.owner.process == std::process::id()
    }

    /// Claims it again after [`release`](Self::release). Nobody else may have claimed it meanwhile: what this one knows of the
    /// run would be out of date.
    pub(crate) fn retake(&mut self) -> Result<()> {
        if self.lock.is_some() {
            return Ok(());
        }
        let path = self.path.join(LOCK);
        let mut lock = locked(&self.path, &path)?.0;
        match owner(&mut lock) {
            Some(last) if last != self.owner => Err(Error::TakenOver { folder: self.path.clone(), by: last.said() }),
            _ => {
                self.lock = Some(lock);
                Ok(())
            }
        }
    }

    fn claim(path: &Path, purpose: Purpose) -> Result<Self> {
        let is_there = path.exists();
        fs::create_dir_all(path).map_err(Error::io("create", path))?;
        let (mut lock, is_new) = locked(path, &path.join(LOCK))?;
        let owner = Owner::new();
        if let Err(why) = write(&mut lock, &owner) {
            log::warn!("{} does not say who has it: {why}", path.join(LOCK).display());
        }
        let made = match (is_there, is_new) {
            (false, _) => Made::Folder,
            (true, true) => Made::Lock,
            (true, false) => Made::Nothing,
        };
        Ok(Self { path: path.to_owned(), owner, lock: Some(lock), purpose, made })
    }
}

impl Drop for RunFolder {
    /// Nothing is left of a run that never began.
    fn drop(&mut self) {
        if self.made >= Made::Lock && self.lock.is_some() && self.is_own() {
            let _ = fs::remove_file(self.path.join(LOCK));
            if self.made == Made::Folder {
                let _ = fs::remove_dir(&self.path);
            }
        }
        self.release();
    }
}

impl Owner {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let claim = format!("{since}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self { process: std::process::id(), host, claim }
    }

    fn said(&self) -> String {
        let own = self.process == std::process::id() && self.host == Self::new().host;
        if own { "this process".to_owned() } else { format!("process {} on {}", self.process, self.host) }
    }
}

/// The lock file of a folder, held, and whether it is new.
fn locked(folder: &Path, path: &Path) -> Result<(File, bool)> {
    let refused = |why: io::Error| Error::io("lock", path)(why);
    loop {
        let is_new = !path.exists();
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = opened.map_err(refused)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let by = owner(&mut file).map_or_else(|| "another process".to_owned(), |owner| owner.said());
                return Err(Error::InUse { folder: folder.to_owned(), by });
            }
            Err(TryLockError::Error(why)) => {
                log::warn!("{} is not locked, so no other run may use it meanwhile: {why}", folder.display());
                return Ok((file, is_new));
            }
        }
        // Whoever had it may have taken the file away before it let go.
        let own = file.metadata().map_err(refused)?;
        if fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())) {
            return Ok((file, is_new));
        }
    }
}

/// What a lock file says; nothing where it says nothing that can be read.
fn owner(file: &mut File) -> Option<Owner> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write(file: &mut File, owner: &Owner) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&serde_json::to_vec(owner)?)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn said(found: Result<RunFolder>) -> String {
        found.unwrap_err().to_string()
    }

    #[test]
    fn a_folder_is_one_runs_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        assert!(said(RunFolder::resume(&path)).contains("no run") && !path.exists());
        let mut first = RunFolder::begin(&path).unwrap();
        let refused = said(RunFolder::begin(&path));
        assert!(refused.contains("in use by this process") && refused.contains(path.to_str().unwrap()), "{refused}");
        // Who let go may come back, unless somebody else was there.
        first.release();
        first.retake().unwrap();
        first.release();
        first.settle();
        drop(RunFolder::begin(&path).unwrap());
        assert!(first.retake().unwrap_err().to_string().contains("opened by this process since"));
        fs::write(path.join(CONFIG), b"").unwrap();
        assert_eq!(RunFolder::resume(&path).unwrap().purpose(), Purpose::Resume);
        fs::create_dir(path.join("checkpoints")).unwrap();
        fs::write(path.join("checkpoints/step-000000000001.safetensors"), b"").unwrap();
        assert!(said(RunFolder::begin(&path)).contains("holds a run already"));
    }

    #[test]
    fn nothing_is_left_of_a_run_that_never_began() {
        let folder = tempfile::tempdir().unwrap();
        let (new, there) = (folder.path().join("a/new"), folder.path().join("there"));
        fs::create_dir(&there).unwrap();
        for path in [&new, &there] {
            drop(RunFolder::begin(path).unwrap());
        }
        drop(RunFolder::fresh(folder.path(), "name").unwrap());
        assert!(!new.exists() && there.exists() && fs::read_dir(&there).unwrap().next().is_none());
        assert!(!folder.path().join("name-1").exists());
        let mut kept = RunFolder::begin(&new).unwrap();
        kept.settle();
        drop(kept);
        assert!(new.join(LOCK).exists());
    }

    #[test]
    fn fresh_folders_are_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let made: Vec<RunFolder> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(|| RunFolder::fresh(folder.path(), "run").unwrap())).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let mut paths: Vec<&Path> = made.iter().map(RunFolder::path).collect();
        paths.sort();
        let wanted: Vec<PathBuf> = (1..5).map(|number| folder.path().join(format!("run-{number}"))).collect();
        assert_eq!(paths, wanted);
    }

    /// The child is this test again, and is killed while it holds the folder.
    #[test]
    fn the_lock_of_another_process_dies_with_it() {
        const FOLDER: &str = "HEADWATER_TEST_RUN_LOCK";
        if let Ok(folder) = std::env::var(FOLDER) {
            let mut held = RunFolder::begin(Path::new(&folder)).unwrap();
            held.settle();
            fs::write(Path::new(&folder).join("ready"), b"").unwrap();
            std::thread::sleep(std::time::Duration::from_secs(60));
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let name = "run_folder::tests::the_lock_of_another_process_dies_with_it";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let mut child = child.args(["--exact", name]).env(FOLDER, folder.path()).stdout(Stdio::null()).spawn().unwrap();
        while !folder.path().join("ready").exists() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let refused = said(RunFolder::begin(folder.path()));
        assert!(refused.contains(&format!("process {} on ", child.id())), "{refused}");
        child.kill().unwrap();
        child.wait().unwrap();
        RunFolder::begin(folder.path()).unwrap();
    }
}
