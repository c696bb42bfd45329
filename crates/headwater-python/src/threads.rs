//! The threads that work runs on. A process that was forked has none of its parent's, and gets its own.

use std::any::Any;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater::train::threads::{bounded, refused};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::prelude::*;
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
    let made = Arc::new(make(0)?);
    // The parent's threads are not here, so their end cannot be waited for.
    std::mem::forget(known.replace((process, Arc::clone(&made))));
    Ok(made)
}

/// So many threads; 0 for as many as there are cores.
fn make(count: usize) -> PyResult<ThreadPool> {
    let builder = ThreadPoolBuilder::new().num_threads(bounded(count)).thread_name(|at| format!("headwater-{at}"));
    builder.build().map_err(|why| PyRuntimeError::new_err(refused(count, &why)))
}

/// Threads of a run. One of them waits while callbacks are called, which may want the process's threads themselves.
pub struct Threads(ThreadPool);

impl Threads {
    /// So many; 0 for as many as there are cores.
    pub fn new(count: usize) -> PyResult<Self> {
        make(count).map(Self)
    }

    /// As [`run`], on these threads.
    pub fn run<T: Send>(&self, py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
        py.detach(|| self.0.install(work))
    }

    /// Runs work on these threads while the caller's thread does something with Python, and returns what came of both.
    pub fn beside<T: Send, U>(
        &self,
        py: Python<'_>,
        work: impl FnOnce() -> T + Send,
        meanwhile: impl FnOnce(Python<'_>) -> U,
    ) -> PyResult<(T, U)> {
        std::thread::scope(|scope| {
            let worker = std::thread::Builder::new().spawn_scoped(scope, || self.0.install(work));
            let worker = worker.map_err(|why| PyRuntimeError::new_err(refused(1, &why)))?;
            let other = meanwhile(py);
            // Nothing waits for Python there any more, but what it holds may be large and take a while to go.
            let done = py.detach(|| worker.join()).map_err(|said| broke_off(&*said))?;
            Ok((done, other))
        })
    }
}

/// What Python raises for a panic of another thread.
fn broke_off(said: &(dyn Any + Send)) -> PyErr {
    let text = said.downcast_ref::<&str>().copied().or_else(|| said.downcast_ref::<String>().map(String::as_str));
    PyRuntimeError::new_err(format!("a thread of Headwater panicked: {}", text.unwrap_or("it did not say why")))
}

/// Panics, so that tests see what Python makes of it: on the caller's thread, on the process's, or on those of a run.
#[pyfunction]
#[expect(clippy::panic, reason = "it is what the function is for")]
pub fn _panic(py: Python<'_>, on: &str) -> PyResult<()> {
    match on {
        "threads" => run(py, || (0..64).into_par_iter().for_each(|at| assert!(at < 63, "asked for on {on}"))),
        "run" => {
            Threads::new(1)?.beside(py, || panic!("asked for on {on}"), |_| ())?;
            Ok(())
        }
        _ => panic!("asked for on {on}"),
    }
}

/// Waits for a message without the GIL.
pub fn wait<T: Send>(
    py: Python<'_>,
    messages: &Mutex<Receiver<T>>,
    most: Duration,
) -> std::result::Result<T, RecvTimeoutError> {
    py.detach(|| messages.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(most))
}
