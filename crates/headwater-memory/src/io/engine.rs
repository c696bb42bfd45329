//! The engine: picks how bytes move, owns the threads that move them, and stops them in order.
//!
//! io_uring is the first choice. Containers often forbid it, so the choice is made by trying, and the reason for
//! falling back to threads is kept for reports. Dropping an engine lets what the kernel holds finish, answers what
//! has not started, and never waits longer than the timeout: a hung disk then keeps its thread and its buffers.

use std::fmt;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::buffer::IoBuffer;
use super::counters::Counts;
use super::dispatch::{Dispatch, Running};
use super::error::Error;
use super::file::IoFile;
use super::progress::KERNEL_MAX_BYTES;
use super::queue::Queue;
use super::ram::{self, FaultPlan};
use super::request::{Completion, Request};
use super::{threads, uring};

/// Moves bytes between buffers and files.
pub struct Engine {
    dispatch: Arc<Dispatch>,
    threads: Vec<JoinHandle<()>>,
    fallback: Option<String>,
}

/// How an engine is made.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Which engine.
    pub choice: Choice,
    /// The most requests given to the kernel at once; further ones wait their turn. The number of threads, for
    /// the thread engine.
    pub depth: usize,
    /// The most any wait takes, and the most dropping the engine takes.
    pub timeout: Duration,
    /// Longer requests are moved in steps of at most this many bytes. The kernel's own limit is just below 2 GiB.
    pub max_step_bytes: usize,
}

/// Which engine to make.
#[derive(Debug, Clone, Default)]
pub enum Choice {
    /// io_uring, or threads where it is not to be had.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// Threads that read and write, one request each.
    Threads,
    /// One thread that works through a plan of faults. For tests.
    Ram(FaultPlan),
}

/// Which engine was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// io_uring.
    Uring,
    /// Threads.
    Threads,
    /// The in-memory twin.
    Ram,
}

impl Engine {
    /// Starts an engine.
    pub fn new(config: EngineConfig) -> Result<Self, Error> {
        if !(1..=4096).contains(&config.depth) {
            let value = config.depth as u64;
            return Err(Error::Config { field: "depth", value, must_be: "from 1 to 4096" });
        }
        match config.choice.clone() {
            Choice::Threads => Self::with_threads(&config, None),
            Choice::Ram(plan) => Self::with_ram(&config, plan),
            Choice::Uring => {
                Self::with_uring(&config).map_err(|reason| Error::Unavailable { kind: EngineKind::Uring, reason })
            }
            Choice::Auto => Self::with_uring(&config).or_else(|reason| Self::with_threads(&config, Some(reason))),
        }
    }

    /// Opens a queue that holds at most `capacity` requests, counted from submission to collection.
    pub fn queue<B: IoBuffer>(&self, capacity: usize) -> Result<Queue<B>, Error> {
        Queue::new(&self.dispatch, capacity)
    }

    /// Runs one request and waits for it.
    ///
    /// What goes wrong with the transfer is in the completion, with the buffer. An error of this call means that
    /// there is no completion: the wait timed out, or the engine died with the buffer in the kernel's hands.
    pub fn run<B: IoBuffer>(&self, request: Request<B>) -> Result<Completion<B>, Error> {
        let queue = self.queue(1)?;
        match queue.submit(request) {
            Ok(ticket) => queue.wait(ticket),
            Err(rejected) => {
                let (Request { op, tag, buffer, .. }, error) = (rejected.request, rejected.error);
                Ok(Completion { ticket: self.dispatch.ticket(), tag, op, buffer, result: Err(error) })
            }
        }
    }

    /// Fills `buffer` from `offset` on and waits; see [`Engine::run`].
    pub fn read_exact_at<B: IoBuffer>(
        &self,
        file: &Arc<IoFile>,
        offset: u64,
        buffer: B,
    ) -> Result<Completion<B>, Error> {
        self.run(Request::read(file, offset, buffer))
    }

    /// Writes all of `buffer` at `offset` and waits; see [`Engine::run`].
    pub fn write_all_at<B: IoBuffer>(
        &self,
        file: &Arc<IoFile>,
        offset: u64,
        buffer: B,
    ) -> Result<Completion<B>, Error> {
        self.run(Request::write(file, offset, buffer))
    }

    /// Which engine runs.
    pub fn kind(&self) -> EngineKind {
        self.dispatch.kind
    }

    /// Why io_uring was passed over, when it was.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// What the engine has done so far.
    pub fn counts(&self) -> Counts {
        self.dispatch.counters.snapshot()
    }

    fn with_uring(config: &EngineConfig) -> Result<Self, String> {
        let ring = uring::open(config.depth)?;
        let bell =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|errno| format!("eventfd: {errno}"))?;
        let mut engine = Self::empty(config, EngineKind::Uring, Some(bell));
        let driver = uring::Driver::new(ring, Arc::clone(&engine.dispatch), config.depth);
        engine.spawn("io-uring", move || driver.run()).map_err(|error| error.to_string())?;
        Ok(engine)
    }

    fn with_threads(config: &EngineConfig, fallback: Option<String>) -> Result<Self, Error> {
        let mut engine = Self::empty(config, EngineKind::Threads, None);
        engine.fallback = fallback;
        for _ in 0..config.depth {
            let dispatch = Arc::clone(&engine.dispatch);
            engine.spawn("io-thread", move || threads::work(&dispatch))?;
        }
        Ok(engine)
    }

    fn with_ram(config: &EngineConfig, plan: FaultPlan) -> Result<Self, Error> {
        let mut engine = Self::empty(config, EngineKind::Ram, None);
        let twin = ram::Twin::new(Arc::clone(&engine.dispatch), plan, config.depth);
        engine.spawn("io-ram", move || twin.run())?;
        Ok(engine)
    }

    fn empty(config: &EngineConfig, kind: EngineKind, bell: Option<std::os::fd::OwnedFd>) -> Self {
        let dispatch = Dispatch::new(kind, config.timeout, config.max_step_bytes, bell);
        Self { dispatch: Arc::new(dispatch), threads: Vec::new(), fallback: None }
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let running = Running::new(&self.dispatch);
        let kind = self.dispatch.kind;
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            // Dropped last: when it goes, the body's jobs are answered.
            let _running = running;
            body();
        });
        self.threads.push(thread.map_err(|error| Error::Unavailable { kind, reason: error.to_string() })?);
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.dispatch.close("the engine was dropped");
        if self.dispatch.wait_stopped() {
            for thread in self.threads.drain(..) {
                // A panic was told to every waiter already.
                let _ = thread.join();
            }
        }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { choice: Choice::Auto, depth: 16, timeout: Duration::from_secs(60), max_step_bytes: KERNEL_MAX_BYTES }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring => "io_uring",
            Self::Threads => "thread",
            Self::Ram => "in-memory",
        })
    }
}
