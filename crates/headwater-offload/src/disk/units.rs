//! Which parts of the files are free.

use std::sync::Arc;

use headwater_memory::io::IoFile;

use crate::error::{Error, Result};
use crate::plan::{DiskLoad, next_disk};

/// A part of a file, as long as a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Unit {
    pub file: usize,
    pub at: u64,
}

/// Parts of all files that are taken and free.
#[derive(Debug)]
pub(crate) struct Units {
    files: Vec<Room>,
    unit_bytes: usize,
    taken: u64,
    most_taken: u64,
}

#[derive(Debug)]
struct Room {
    file: Arc<IoFile>,
    free: Vec<u64>,
    /// Units that the file is long.
    length: u64,
    /// Units that it may be long. Less than at first once the disk is full.
    limit: u64,
    /// Bytes a second that it takes, once that is known.
    rate: Option<f64>,
}

/// Files grow by so many units at a time.
const GROWTH: u64 = 64;

impl Units {
    pub fn new(files: Vec<Arc<IoFile>>, unit_bytes: usize, limit_bytes: u64) -> Self {
        let limit = limit_bytes / (unit_bytes as u64) / (files.len().max(1) as u64);
        let room = |file| Room { file, free: Vec::new(), length: 0, limit, rate: None };
        Self { files: files.into_iter().map(room).collect(), unit_bytes, taken: 0, most_taken: 0 }
    }

    /// Takes note of how fast each file is written.
    pub fn rate(&mut self, rates: &[Option<f64>]) {
        self.files.iter_mut().zip(rates).for_each(|(room, rate)| room.rate = *rate);
    }

    /// So many units, spread over the files, fewer on slower ones; `None` when there are not so many left. An error says why a file did not grow, once.
    pub fn take(&mut self, count: usize) -> Result<Option<Vec<Unit>>> {
        let mut units = Vec::with_capacity(count);
        let mut fault = None;
        while units.len() < count {
            let loads: Vec<DiskLoad> = self.files.iter().map(Room::load).collect();
            let Some(file) = next_disk(&loads) else { break };
            match self.files.get_mut(file).map(|room| room.take(self.unit_bytes)) {
                Some(Ok(at)) => units.push(Unit { file, at }),
                Some(Err(why)) => fault = Some(why),
                None => break,
            }
        }
        self.taken += units.len() as u64;
        self.most_taken = self.most_taken.max(self.taken);
        if units.len() == count {
            return Ok(Some(units));
        }
        self.give(units);
        fault.map_or(Ok(None), Err)
    }

    pub fn give(&mut self, units: Vec<Unit>) {
        self.taken -= units.len() as u64;
        for unit in units {
            if let Some(room) = self.files.get_mut(unit.file) {
                room.free.push(unit.at);
            }
        }
    }

    /// The most bytes that were taken at once.
    pub fn most_bytes(&self) -> u64 {
        self.most_taken * self.unit_bytes as u64
    }
}

impl Room {
    fn load(&self) -> DiskLoad {
        let free = self.free.len() as u64;
        DiskLoad { taken: self.length - free, left: free + self.limit.saturating_sub(self.length), rate: self.rate }
    }

    fn take(&mut self, unit_bytes: usize) -> Result<u64> {
        if self.free.is_empty() {
            let length = (self.length + GROWTH).min(self.limit);
            if let Err(why) = self.file.reserve(length * unit_bytes as u64) {
                self.limit = self.length;
                return Err(why.into());
            }
            // The last one is taken first, so from the front on.
            self.free.extend((self.length..length).rev());
            self.length = length;
        }
        self.free.pop().ok_or(Error::Setting { field: "units", value: self.limit, must_be: "more than are taken" })
    }
}
