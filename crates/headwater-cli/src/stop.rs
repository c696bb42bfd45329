//! Signals while a dataset is written: nothing is left of it.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use headwater::graph::dataset::abandon;

use crate::report;
use crate::signals::{FIRST_CODE, attend};

static IS_STOPPING: AtomicBool = AtomicBool::new(false);

/// From now on a program that is told to stop removes what it is writing and ends. Comes before other threads are started.
pub fn leave_nothing() -> anyhow::Result<()> {
    attend(|signal| {
        if !IS_STOPPING.swap(true, Ordering::SeqCst) {
            abandon();
            report::note("stopped; nothing is left of it");
        }
        exit(FIRST_CODE + signal as i32);
    })
}

/// Waits for the end where it is coming: what fails because files are being removed is not worth a word.
pub fn wait_if_stopping() {
    while IS_STOPPING.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(10));
    }
}
