//! What the core warns of, handed on to Python's `logging`. It is kept until a thread of Python's comes by: the threads that
//! warn may hold what such a thread waits for.

use std::sync::{Mutex, PoisonError};

use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::prelude::*;

/// Warnings that are kept at most; later ones say nothing new.
const MOST: usize = 100;

static KEPT: Mutex<Vec<String>> = Mutex::new(Vec::new());
static KEEPER: Keeper = Keeper;

struct Keeper;

impl Log for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if self.enabled(record.metadata()) && kept.len() < MOST {
            kept.push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// From now on warnings are kept.
pub fn listen() {
    if log::set_logger(&KEEPER).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

/// Hands on what was kept.
pub fn pass_on(py: Python<'_>) -> PyResult<()> {
    let kept = std::mem::take(&mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner));
    if kept.is_empty() {
        return Ok(());
    }
    let logger = py.import("logging")?.call_method1("getLogger", ("headwater",))?;
    kept.into_iter().try_for_each(|words| logger.call_method1("warning", ("%s", words)).map(|_| ()))
}
