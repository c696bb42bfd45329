//! A disk that breaks after so many steps.
//!
//! Killed, it does nothing more; then the machine may crash too, and what was not synced is lost: half of a file, or a
//! new name. Full, it refuses to write but still renames and removes.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::whole_file::{Disk, Sink};

/// How it breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The writer dies; the crash loses names that were not synced, or keeps them.
    Killed { lose_names: bool },
    /// There is no more room.
    Full,
}

pub struct Breaking(Rc<Shared>);

struct Shared {
    end: End,
    steps_left: Cell<u32>,
    broke: Cell<bool>,
    unsynced: RefCell<Vec<PathBuf>>,
    renamed: RefCell<Vec<Renamed>>,
}

struct Renamed {
    from: PathBuf,
    to: PathBuf,
    /// What the new name meant before.
    before: Option<Vec<u8>>,
}

impl Breaking {
    pub fn new(end: End, steps: u32) -> Self {
        Self(Rc::new(Shared {
            end,
            steps_left: Cell::new(steps),
            broke: Cell::new(false),
            unsynced: RefCell::default(),
            renamed: RefCell::default(),
        }))
    }

    /// One that holds, and does not wait for the real disk.
    pub fn never() -> Self {
        Self::new(End::Full, u32::MAX)
    }

    /// Whether it came to that.
    pub fn broke(&self) -> bool {
        self.0.broke.get()
    }

    /// The machine stops: what was not synced is lost.
    pub fn crash(&self) {
        if self.0.end == (End::Killed { lose_names: true }) {
            for Renamed { from, to, before } in self.0.renamed.take().into_iter().rev() {
                fs::rename(&to, &from).unwrap();
                before.into_iter().for_each(|bytes| fs::write(&to, bytes).unwrap());
            }
        }
        for path in self.0.unsynced.take().iter().filter(|path| path.exists()) {
            let file = File::options().write(true).open(path).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        }
    }
}

impl Shared {
    /// Counts a step, which fails when it is one too many.
    fn step(&self, writes: bool) -> io::Result<()> {
        if self.end == End::Full && !writes {
            return Ok(());
        }
        match self.steps_left.get().checked_sub(1) {
            Some(left) => self.steps_left.set(left),
            None => {
                self.broke.set(true);
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        Ok(())
    }
}

impl Disk for Breaking {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        self.0.step(true)?;
        self.0.unsynced.borrow_mut().push(path.to_owned());
        Ok(Box::new(BreakingFile { file: File::create(path)?, path: path.to_owned(), disk: Rc::clone(&self.0) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.step(false)?;
        self.0.renamed.borrow_mut().push(Renamed {
            from: from.to_owned(),
            to: to.to_owned(),
            before: fs::read(to).ok(),
        });
        self.0.unsynced.borrow_mut().iter_mut().filter(|path| *path == from).for_each(|path| *path = to.to_owned());
        fs::rename(from, to)
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        self.0.step(false)?;
        self.0.renamed.borrow_mut().clear();
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.step(false)?;
        fs::remove_file(path)
    }
}

struct BreakingFile {
    file: File,
    path: PathBuf,
    disk: Rc<Shared>,
}

impl Write for BreakingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Small pieces, so that it can break between any two of them.
        let bytes = &bytes[..bytes.len().min(256)];
        self.disk.step(true)?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Sink for BreakingFile {
    fn sync(&mut self) -> io::Result<()> {
        self.disk.step(true)?;
        self.disk.unsynced.borrow_mut().retain(|path| *path != self.path);
        Ok(())
    }
}
