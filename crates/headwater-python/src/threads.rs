//! The threads that work runs on. A process that was forked has none of its parent's, and gets its own.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// The threads of the process with this number.
static THREADS: Mutex<Option<(u32, Arc<ThreadPool>)>> = Mutex::new(None);

/// Runs work without the GIL, on this process's threads.
pub fn run<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    // Looked up with the GIL, which whoever forks holds too: nobody forks while this is locked.
    let threads = own()?;
    Ok(py.detach(|| threads.install(work)))
}

fn own() -> PyResult<Arc<ThreadPool>> {
    let mut known = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((_, threads)) = known.as_ref().filter(|(of, _)| *of == process) {
        return Ok(Arc::clone(threads));
    }
    let made = ThreadPoolBuilder::new().thread_name(|at| format!("headwater-{at}")).build();
    let made = Arc::new(made.map_err(|why| PyRuntimeError::new_err(format!("threads could not be started: {why}")))?);
    // The parent's threads are not here, so their end cannot be waited for.
    std::mem::forget(known.replace((process, Arc::clone(&made))));
    Ok(made)
}
