//! The checkpoints of a run: the last few, and the best.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::write::Image;
use super::{Checkpoint, Snapshot, State};
use crate::error::{Error, Result};
use crate::whole_file::{Disk, Real, put, sweep};

const PREFIX: &str = "step-";
const ENDING: &str = ".safetensors";

/// A folder of checkpoints. Nothing is made before the first is saved.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The step it was saved at.
    pub step: u64,
    /// Its file.
    pub path: PathBuf,
}

/// What becomes of checkpoints that are later than the one that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Later {
    Goes,
    Stays,
}

impl Checkpoints {
    /// Those in `folder`, of which the last `keep` stay, at least one, and the best.
    #[must_use]
    pub fn new(folder: &Path, keep: usize) -> Self {
        Self { folder: folder.to_owned(), keep: keep.max(1) }
    }

    /// Saves one. Those before it stay until it is complete; then the ones that are no longer wanted go. After an error
    /// the ones before are all still there, and the caller may go on.
    pub fn save(&self, snapshot: Snapshot<'_>) -> Result<PathBuf> {
        self.save_on(&Real, snapshot)
    }

    pub(super) fn save_on(&self, disk: &dyn Disk, snapshot: Snapshot<'_>) -> Result<PathBuf> {
        fs::create_dir_all(&self.folder).map_err(Error::io("create", &self.folder))?;
        let path = self.path_of(snapshot.state.step);
        let image = Image::new(snapshot).map_err(Error::io("write", &path))?;
        put(disk, &path, |sink| image.write(sink))?;
        // From here on the checkpoint counts; what follows is tidying.
        let description = path.with_extension("json");
        if let Err(why) = put(disk, &description, |sink| sink.write_all(image.description.as_bytes())) {
            log::warn!("{why}");
        }
        self.tidy(disk, snapshot.state, Later::Goes);
        Ok(path)
    }

    /// Removes what a run that was killed had no time to remove, once it goes on from `state`. Checkpoints after it could not be
    /// read; they stay until the run has come past them.
    pub fn tidy_after_kill(&self, state: &State) {
        self.tidy(&Real, state, Later::Stays);
    }

    /// All of them, the newest last. A folder that is not there has none.
    pub fn list(&self) -> Result<Vec<Entry>> {
        let found = self.names()?.into_iter().filter_map(|name| {
            let step = step_of(&name)?;
            Some(Entry { step, path: self.folder.join(name) })
        });
        let mut entries: Vec<Entry> = found.collect();
        entries.sort_by_key(|entry| entry.step);
        Ok(entries)
    }

    /// The newest one that can be read. Those after it that are damaged are warned of; where all are, that is the error.
    pub fn newest(&self) -> Result<Option<Checkpoint>> {
        let mut damaged = Vec::new();
        for entry in self.list()?.into_iter().rev() {
            match Checkpoint::read(&entry.path) {
                Err(why @ Error::Damaged { .. }) => damaged.push(why),
                Ok(found) => {
                    for why in damaged {
                        log::warn!("{why}; the one of step {} is used instead", entry.step);
                    }
                    return Ok(Some(found));
                }
                Err(why) => return Err(why),
            }
        }
        damaged.into_iter().next().map_or(Ok(None), Err)
    }

    /// The one that the newest calls the best where it was saved, or else the newest. A best one that is damaged is warned of.
    pub fn best(&self) -> Result<Option<Checkpoint>> {
        let Some(newest) = self.newest()? else { return Ok(None) };
        let best = newest.state.best.map(|best| self.path_of(best.step));
        let Some(path) = best.filter(|path| *path != self.path_of(newest.state.step) && path.exists()) else {
            return Ok(Some(newest));
        };
        match Checkpoint::read(&path) {
            Err(why @ Error::Damaged { .. }) => {
                log::warn!("{why}; the one of step {} is used instead of the best", newest.state.step);
                Ok(Some(newest))
            }
            found => found.map(Some),
        }
    }

    fn path_of(&self, step: u64) -> PathBuf {
        self.folder.join(format!("{PREFIX}{step:012}{ENDING}"))
    }

    fn names(&self) -> Result<Vec<String>> {
        let refused = |why| Error::io("read", &self.folder)(why);
        let entries = match fs::read_dir(&self.folder) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(refused)?,
        };
        entries.map(|entry| Ok(entry.map_err(refused)?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// Removes what is no longer wanted. What cannot be removed goes next time.
    fn tidy(&self, disk: &dyn Disk, state: &State, later: Later) {
        let Ok(names) = self.names() else { return };
        let is_asked = |step: &u64| later == Later::Goes || *step <= state.step;
        let steps: Vec<u64> = names.iter().filter_map(|name| step_of(name)).filter(is_asked).collect();
        let stale = stale(&steps, state.step, state.best.map(|best| best.step), self.keep);
        for path in stale.into_iter().map(|step| self.path_of(step)) {
            for path in [path.with_extension("json"), path] {
                let _ = disk.remove(&path);
            }
        }
        sweep(disk, &self.folder, |name| step_of(&name.replace(".json", ENDING)).is_some());
    }
}

/// Which steps are no longer wanted once `saved` is there. Later ones are of a course that the run did not take.
fn stale(steps: &[u64], saved: u64, best: Option<u64>, keep: usize) -> Vec<u64> {
    let mut past: Vec<u64> = steps.iter().copied().filter(|&step| step <= saved).collect();
    past.sort_unstable_by(|a, b| b.cmp(a));
    past.truncate(keep);
    let wanted: HashSet<u64> = past.into_iter().chain(best).collect();
    steps.iter().copied().filter(|step| !wanted.contains(step)).collect()
}

fn step_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(ENDING)?;
    let plain = digits.len() >= 12 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_and_the_best_stay() {
        for (steps, saved, best, keep, expected) in [
            (&[1, 2, 3, 4][..], 4, None, 2, &[1, 2][..]),
            (&[4, 2, 1, 3], 4, Some(1), 2, &[2]),
            (&[1, 2, 3], 3, Some(3), 1, &[1, 2]),
            (&[1, 2, 3, 4], 2, None, 3, &[3, 4]),
            (&[5], 5, Some(9), 3, &[]),
            (&[], 5, None, 3, &[]),
        ] {
            assert_eq!(stale(steps, saved, best, keep), expected, "{steps:?}");
        }
    }

    #[test]
    fn only_checkpoints_are_listed() {
        for (name, step) in [
            ("step-000000000012.safetensors", Some(12)),
            ("step-18446744073709551615.safetensors", Some(u64::MAX)),
            ("step-99999999999999999999.safetensors", None),
            ("step-12.safetensors", None),
            ("step-+00000000012.safetensors", None),
            (".step-000000000012.safetensors.partial", None),
            ("step-000000000012.json", None),
        ] {
            assert_eq!(step_of(name), step, "{name}");
        }
    }
}
