//! What queues and engine threads share: the jobs waiting to start, and whether anybody is there to start them.
//!
//! Closing is one step under one lock, so a job is either seen by a thread or answered by the closer. Answering
//! locks the job's queue, so it only happens after this lock is released: the order is queue first, then dispatch.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::counters::Counters;
use super::engine::EngineKind;
use super::error::Error;
use super::job::Job;
use super::request::Ticket;

pub(super) struct Dispatch {
    pub(super) kind: EngineKind,
    pub(super) counters: Counters,
    pub(super) timeout: Duration,
    pub(super) max_step_bytes: usize,
    /// Wakes a thread that sleeps in the kernel instead of on `changed`.
    pub(super) bell: Option<OwnedFd>,
    state: Mutex<State>,
    changed: Condvar,
    running: AtomicUsize,
    tickets: AtomicU64,
}

#[derive(Default)]
struct State {
    pending: VecDeque<Job>,
    closed: Option<Arc<str>>,
}

/// What an engine thread found when it looked for work.
pub(super) struct Batch {
    pub(super) jobs: Vec<Job>,
    pub(super) closed: bool,
}

/// Held by an engine thread for as long as it lives; the last one to go closes the engine.
pub(super) struct Running(Arc<Dispatch>);

impl Dispatch {
    pub(super) fn new(kind: EngineKind, timeout: Duration, max_step_bytes: usize, bell: Option<OwnedFd>) -> Self {
        Self {
            kind,
            counters: Counters::default(),
            timeout,
            max_step_bytes,
            bell,
            state: Mutex::default(),
            changed: Condvar::new(),
            running: AtomicUsize::new(0),
            tickets: AtomicU64::new(0),
        }
    }

    pub(super) fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// Queues a job. If the engine closed meanwhile, the job is dropped, which answers it.
    pub(super) fn push(&self, job: Job) {
        let mut state = self.lock();
        if state.closed.is_some() {
            drop(state);
            return drop(job);
        }
        state.pending.push_back(job);
        let first = state.pending.len() == 1;
        drop(state);
        if self.bell.is_none() {
            self.changed.notify_one();
        } else if first {
            // Behind another waiting job the bell has rung already, and its ring is not yet answered.
            self.ring();
        }
    }

    /// Waits for the next job; none when the engine is closed.
    pub(super) fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.pending.pop_front() {
                return Some(job);
            }
            if state.closed.is_some() {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes up to `most` jobs without waiting.
    pub(super) fn take(&self, most: usize) -> Batch {
        let mut state = self.lock();
        let count = most.min(state.pending.len());
        let jobs = state.pending.drain(..count).collect();
        Batch { jobs, closed: state.closed.is_some() }
    }

    /// Takes no more jobs and answers those not started. The first reason stays.
    pub(super) fn close(&self, reason: &str) {
        let mut state = self.lock();
        state.closed.get_or_insert_with(|| Arc::from(reason));
        let cancelled = std::mem::take(&mut state.pending);
        drop(state);
        self.changed.notify_all();
        self.ring();
        drop(cancelled);
    }

    /// Fails when the engine takes no more jobs.
    pub(super) fn check_open(&self) -> Result<(), Error> {
        self.lock().closed.as_ref().map_or(Ok(()), |reason| Err(Error::closed(reason)))
    }

    pub(super) fn closed_error(&self) -> Error {
        let reason = self.lock().closed.clone();
        Error::Closed { reason: reason.unwrap_or_else(|| Arc::from("the request was abandoned")) }
    }

    /// Whether any engine thread lives. Once false, every job has been answered.
    pub(super) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0
    }

    /// Waits until no engine thread lives; false when that took too long.
    pub(super) fn wait_stopped(&self) -> bool {
        let started = Instant::now();
        let mut state = self.lock();
        while self.is_running() {
            let Some(left) = self.timeout.checked_sub(started.elapsed()) else { return false };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn ring(&self) {
        if let Some(bell) = &self.bell {
            // An eventfd only refuses when its count is at the top, and then the bell is ringing already.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    pub(super) fn new(dispatch: &Arc<Dispatch>) -> Self {
        dispatch.running.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(dispatch))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let dispatch = &self.0;
        if std::thread::panicking() {
            dispatch.close("an engine thread panicked");
        }
        if dispatch.running.load(Ordering::Acquire) == 1 {
            dispatch.close("the engine thread ended");
        }
        // Under the lock, or a thread about to wait for this would miss the call.
        let state = dispatch.lock();
        dispatch.running.fetch_sub(1, Ordering::AcqRel);
        drop(state);
        dispatch.changed.notify_all();
    }
}
