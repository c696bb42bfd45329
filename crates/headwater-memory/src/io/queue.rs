//! A caller's end of an engine: submit requests, collect completions.
//!
//! Each caller opens a queue of its own, so nobody collects what another submitted, and each queue has its own
//! bound and its own buffer type. A request holds its place from `submit` until its completion is collected; that
//! bounds the requests in flight and the completions nobody fetched by one number. All waits end: with an answer,
//! with the timeout, or when the engine's threads are gone.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::buffer::IoBuffer;
use super::dispatch::Dispatch;
use super::error::Error;
use super::job::{Flight, Job, Parts};
use super::request::{Completion, Op, Rejected, Request, Ticket};

/// How often a waiting caller checks that the engine is alive. A dying engine wakes waiters itself; this is for
/// the day it cannot.
const LIVENESS: Duration = Duration::from_millis(100);

/// Submits requests and collects their completions. Shared by reference between threads.
///
/// Dropping a queue abandons its requests: they still run, and their buffers are freed when the kernel is done.
pub struct Queue<B: IoBuffer> {
    dispatch: Arc<Dispatch>,
    lane: Arc<Lane<B>>,
    timeout: Duration,
}

impl<B: IoBuffer> Queue<B> {
    pub(super) fn new(dispatch: &Arc<Dispatch>, capacity: usize) -> Result<Self, Error> {
        if capacity == 0 {
            return Err(Error::Config { field: "capacity", value: 0, must_be: "at least 1" });
        }
        let lane = Lane { capacity, state: Mutex::new(LaneState::default()), changed: Condvar::new() };
        Ok(Self { dispatch: Arc::clone(dispatch), lane: Arc::new(lane), timeout: dispatch.timeout })
    }

    /// The same queue with another timeout for every wait.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Hands a request to the engine, waiting for room.
    pub fn submit(&self, request: Request<B>) -> Result<Ticket, Box<Rejected<B>>> {
        self.submit_if(request, |ticket| self.wait_for(|state| self.lane.enter(state, ticket).map(Ok)))
    }

    /// Hands a request to the engine, or refuses with [`Error::TooManyInFlight`] when there is no room now.
    pub fn try_submit(&self, request: Request<B>) -> Result<Ticket, Box<Rejected<B>>> {
        let capacity = self.lane.capacity;
        self.submit_if(request, |ticket| {
            self.lane.enter(&mut self.lane.lock(), ticket).ok_or(Error::TooManyInFlight { capacity })
        })
    }

    /// Takes a completion if there is one.
    pub fn poll(&self) -> Option<Completion<B>> {
        self.lane.take_any(&mut self.lane.lock())
    }

    /// Waits for any completion; none when nothing is in flight.
    pub fn next(&self) -> Result<Option<Completion<B>>, Error> {
        self.wait_for(|state| match self.lane.take_any(state) {
            Some(completion) => Some(Ok(Some(completion))),
            None if state.take_any_lost() => Some(Err(self.dispatch.closed_error())),
            None => state.in_flight.is_empty().then_some(Ok(None)),
        })
    }

    /// Waits for one request.
    pub fn wait(&self, ticket: Ticket) -> Result<Completion<B>, Error> {
        self.wait_for(|state| {
            if let Some(at) = state.ready.iter().position(|completion| completion.ticket == ticket) {
                return self.lane.take(state, at).map(Ok);
            }
            if state.lost.remove(&ticket) {
                return Some(Err(self.dispatch.closed_error()));
            }
            (!state.in_flight.contains(&ticket)).then_some(Err(Error::UnknownTicket { ticket }))
        })
    }

    /// Waits until nothing is in flight and takes every completion, in the order they came.
    ///
    /// On a timeout, completions that came stay in the queue.
    pub fn wait_all(&self) -> Result<Vec<Completion<B>>, Error> {
        self.wait_for(|state| {
            if !state.in_flight.is_empty() {
                return None;
            }
            if state.take_any_lost() {
                return Some(Err(self.dispatch.closed_error()));
            }
            let all = state.ready.drain(..).collect();
            self.lane.changed.notify_all();
            Some(Ok(all))
        })
    }

    /// Requests in flight or completed and not collected.
    pub fn held(&self) -> usize {
        self.lane.lock().held()
    }

    fn submit_if(
        &self,
        mut request: Request<B>,
        enter: impl FnOnce(Ticket) -> Result<(), Error>,
    ) -> Result<Ticket, Box<Rejected<B>>> {
        let ticket = self.dispatch.ticket();
        let checked = request.check().and_then(|()| self.dispatch.check_open()).and_then(|()| enter(ticket));
        if let Err(error) = checked {
            return Err(Box::new(Rejected { request, error }));
        }
        self.dispatch.counters.accepted();
        let job = self.job(request, ticket);
        if job.is_done() {
            job.deliver();
        } else {
            self.dispatch.push(job);
        }
        Ok(ticket)
    }

    fn job(&self, request: Request<B>, ticket: Ticket) -> Job {
        let Request { file, op, offset, buffer, span, at_end, tag } = request;
        let (lane, dispatch) = (Arc::clone(&self.lane), Arc::clone(&self.dispatch));
        let flight = Box::new(Boarded { buffer, ticket, tag, op, lane, dispatch });
        Job::new(Parts { file, op, offset, span, at_end, flight })
    }

    /// Waits until `look` finds what it wants.
    fn wait_for<T>(&self, mut look: impl FnMut(&mut LaneState<B>) -> Option<Result<T, Error>>) -> Result<T, Error> {
        let mut state = self.lane.lock();
        if let Some(found) = look(&mut state) {
            return found;
        }
        let started = Instant::now();
        let answer = loop {
            // Before looking: when no thread lives, all answers that will ever come are there to be seen.
            let alive = self.dispatch.is_running();
            if let Some(found) = look(&mut state) {
                break found;
            }
            let waited = started.elapsed();
            if !alive {
                drop(state);
                break Err(self.dispatch.closed_error());
            }
            if waited >= self.timeout {
                break Err(Error::TimedOut { kind: self.dispatch.kind, waited });
            }
            let nap = (self.timeout - waited).min(LIVENESS);
            state.waiting += 1;
            state = self.lane.changed.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        };
        self.dispatch.counters.waited(started.elapsed());
        answer
    }
}

/// The part of a queue that its requests in flight keep alive.
struct Lane<B> {
    capacity: usize,
    state: Mutex<LaneState<B>>,
    changed: Condvar,
}

struct LaneState<B> {
    in_flight: HashSet<Ticket>,
    ready: VecDeque<Completion<B>>,
    lost: HashSet<Ticket>,
    /// Callers that sleep.
    waiting: usize,
}

impl<B> Lane<B> {
    /// Wakes who waits. Only if there is somebody: waking is a call into the kernel even when nobody sleeps, and costs
    /// as much as the rest of a small request.
    fn wake(&self, state: MutexGuard<'_, LaneState<B>>) {
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, LaneState<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, state: &mut LaneState<B>, ticket: Ticket) -> Option<()> {
        (state.held() < self.capacity).then(|| {
            state.in_flight.insert(ticket);
        })
    }

    fn take_any(&self, state: &mut LaneState<B>) -> Option<Completion<B>> {
        self.take(state, 0)
    }

    fn take(&self, state: &mut LaneState<B>, at: usize) -> Option<Completion<B>> {
        let completion = state.ready.remove(at)?;
        // Somebody may be waiting for the room.
        if state.waiting > 0 {
            self.changed.notify_all();
        }
        Some(completion)
    }
}

impl<B> LaneState<B> {
    fn held(&self) -> usize {
        self.in_flight.len() + self.ready.len() + self.lost.len()
    }

    fn take_any_lost(&mut self) -> bool {
        let ticket = self.lost.iter().next().copied();
        ticket.is_some_and(|ticket| self.lost.remove(&ticket))
    }
}

impl<B> Default for LaneState<B> {
    fn default() -> Self {
        Self { in_flight: HashSet::new(), ready: VecDeque::new(), lost: HashSet::new(), waiting: 0 }
    }
}

/// A request's buffer and its way back.
struct Boarded<B: IoBuffer> {
    buffer: B,
    ticket: Ticket,
    tag: u64,
    op: Op,
    lane: Arc<Lane<B>>,
    dispatch: Arc<Dispatch>,
}

impl<B: IoBuffer> Flight for Boarded<B> {
    fn start(&mut self) -> *mut u8 {
        self.buffer.start()
    }

    fn land(self: Box<Self>, result: Option<Result<usize, Error>>) {
        let Self { buffer, ticket, tag, op, lane, dispatch } = *self;
        let result = result.unwrap_or_else(|| Err(dispatch.closed_error()));
        dispatch.counters.completed(result.is_ok());
        let mut state = lane.lock();
        state.in_flight.remove(&ticket);
        state.ready.push_back(Completion { ticket, tag, op, buffer, result });
        lane.wake(state);
    }

    fn lose(self: Box<Self>) {
        let Self { buffer, ticket, lane, dispatch, .. } = *self;
        std::mem::forget(buffer);
        dispatch.counters.completed(false);
        let mut state = lane.lock();
        state.in_flight.remove(&ticket);
        state.lost.insert(ticket);
        lane.wake(state);
    }
}
