//! Units of later batches, read while nobody waits for them.
//!
//! One thread works through a short list of batches. A batch that finds the list full is not taken: by the time it came to
//! its turn its rows would have been fetched. What goes wrong is left to the fetch that wants the row.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use headwater_memory::io::Error as IoError;

use super::pieces::Wanted;
use super::rows::Table;
use crate::error::Result;

/// Units read before the thread looks whether it is to stop.
const STRIDE_UNITS: usize = 4096;

/// The thread, and the list it works through.
#[derive(Debug)]
pub(super) struct Prefetcher {
    batches: Option<SyncSender<Vec<u64>>>,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Prefetcher {
    /// With room for so many batches beside the one in work.
    pub(super) fn new(table: &Arc<Table>, batches: usize) -> Result<Self> {
        let (sender, receiver) = sync_channel(batches);
        let stops = Arc::new(AtomicBool::new(false));
        let (table, stop) = (Arc::clone(table), Arc::clone(&stops));
        let kind = table.engine.kind();
        let thread = Builder::new().name("prefetch".to_owned()).spawn(move || work(&table, &receiver, &stop));
        let thread = thread.map_err(|error| IoError::Unavailable { kind, reason: error.to_string() })?;
        Ok(Self { batches: Some(sender), stops, thread: Some(thread) })
    }

    /// Whether the rows were taken on.
    pub(super) fn ask(&self, rows: &[u64]) -> bool {
        self.batches.as_ref().is_some_and(|batches| batches.try_send(rows.to_vec()).is_ok())
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // It has told nobody anything, so there is nothing to tell when it panicked.
            let _ = thread.join();
        }
    }
}

fn work(table: &Table, batches: &Receiver<Vec<u64>>, stops: &AtomicBool) {
    while let Ok(rows) = batches.recv() {
        let mut units = table.layout.distinct_units(&rows);
        // More would push out what was just brought.
        units.truncate(table.slots_count.div_ceil(2) as usize);
        for stride in units.chunks(STRIDE_UNITS) {
            let wanted = stride.iter().map(|&unit| Wanted::later(unit)).collect();
            if stops.load(Ordering::Relaxed) || table.bring(wanted, &table.counters.prefetched).is_err() {
                break;
            }
        }
    }
}
