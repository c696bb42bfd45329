//! A program queued again and again over memory that comes and goes.
//!
//! Callers such as torch give memory anew at every call, and mostly at addresses where it lay before. So what a call makes out of
//! addresses is kept for the next one at the same: the tables at first, and from the second call on one graph of all launches.
//! Neither keeps the memory. It is used in calls alone that give memory at these addresses again, whoever it belongs to by
//! then. Tables are freed in the order of the stream that reads them, so what is forgotten may still be running.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use headwater_cuda::{Allocation, Graph, Span, Stream};
use headwater_graph::random::Key;

use super::cuda::{DeviceRows, Executor, Tables, reached};
use super::graph::DeviceGraph;
use super::tell::tell;
use crate::error::{Error, Result};
use crate::intra::Buffer;

/// Places that are kept at most; the one that was called longest ago goes first. Layers of a network that share a plan have
/// one each, and allocators of callers go around among a few.
pub(crate) const MOST_PLACES: usize = 32;

/// Memory of one call.
#[derive(Debug, Clone, Copy)]
pub struct CallMemory<'a> {
    /// Of buffers that are not temporary, in their order.
    pub given: &'a [Span],
    /// For temporary buffers.
    pub temporaries: &'a Span,
    /// The key of dropouts.
    pub key: StepKey<'a>,
}

/// Where the key of a step comes from.
#[derive(Debug, Clone, Copy)]
pub enum StepKey<'a> {
    /// The host knows it. Work that somebody records has the same one at every replay.
    Told(Key),
    /// It lies in GPU memory: 64 bits that work before this has written.
    Lies(&'a Span),
}

/// How calls went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepeatCounts {
    /// Places that are kept now.
    pub kept: usize,
    /// Calls at a new place.
    pub bound: u64,
    /// Calls at a known place.
    pub repeated: u64,
    /// Those of them that were one launch.
    pub launched_as_one: u64,
}

/// Places at which a program was queued.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// Whether the program draws random numbers: its key is then told at every call.
    draws: bool,
    known: Mutex<Vec<Arc<Repeat>>>,
    bound: AtomicU64,
    repeated: AtomicU64,
    launched_as_one: AtomicU64,
}

impl Repeats {
    /// None yet, of a program that draws random numbers or does not.
    pub fn new(draws: bool) -> Self {
        Self { draws, ..Self::default() }
    }

    /// Queues all launches of a program.
    pub fn queue(
        &self,
        executor: &Executor,
        stream: &Stream,
        graph: &Arc<DeviceGraph>,
        memory: CallMemory<'_>,
    ) -> Result<()> {
        let call = Call { executor, graph, memory };
        let StepKey::Told(key) = memory.key else { return call.queue_once(stream) };
        if stream.is_of_thread() || stream.is_recorded() {
            return call.queue_once(stream);
        }
        match self.find(stream, &call) {
            Some(known) => {
                self.repeated.fetch_add(1, Ordering::Relaxed);
                let is_one = lock(&known.state).queue(stream, &call, Some(key).filter(|_| self.draws))?;
                self.launched_as_one.fetch_add(u64::from(is_one), Ordering::Relaxed);
            }
            None => {
                self.bound.fetch_add(1, Ordering::Relaxed);
                let state = State::first(stream, &call, key)?;
                self.keep(Repeat { place: Place::of(stream, &call), state: Mutex::new(state) });
            }
        }
        Ok(())
    }

    /// How calls went so far.
    pub fn counts(&self) -> RepeatCounts {
        RepeatCounts {
            kept: lock(&self.known).len(),
            bound: self.bound.load(Ordering::Relaxed),
            repeated: self.repeated.load(Ordering::Relaxed),
            launched_as_one: self.launched_as_one.load(Ordering::Relaxed),
        }
    }

    /// What is known of a place, which is from now on the one that was called last.
    fn find(&self, stream: &Stream, call: &Call<'_>) -> Option<Arc<Repeat>> {
        let mut known = lock(&self.known);
        let at = known.iter().position(|own| own.place.is_of(stream, call))?;
        let found = known.remove(at);
        known.push(Arc::clone(&found));
        Some(found)
    }

    /// Keeps a place, in the place of one that is no good any more or was called longest ago.
    fn keep(&self, made: Repeat) {
        let mut known = lock(&self.known);
        let (mut gone, mut there): (Vec<_>, Vec<_>) =
            known.drain(..).partition(|own| own.place.graph.strong_count() == 0);
        if there.len() >= MOST_PLACES {
            gone.push(there.remove(0));
        }
        there.push(Arc::new(made));
        *known = there;
        drop(known);
        // Outside of the lock: the driver is called.
        drop(gone);
    }
}

/// A place, and what was made for it.
#[derive(Debug)]
struct Repeat {
    place: Place,
    /// Locked while launches are queued: those of two calls must not mix, since they share the key.
    state: Mutex<State>,
}

/// Everything that tables and launches depend on.
#[derive(Debug)]
struct Place {
    /// A graph that is gone keeps its address, so that no other is taken for it.
    graph: Weak<DeviceGraph>,
    /// Tables are there in the order of this stream alone.
    stream: Stream,
    /// Address and bytes of all memory of the caller's.
    at: Vec<(u64, usize)>,
}

impl Place {
    fn of(stream: &Stream, call: &Call<'_>) -> Self {
        let at = call.memory.all().map(|span| (span.pointer(), span.bytes())).collect();
        Self { graph: Arc::downgrade(call.graph), stream: stream.clone(), at }
    }

    fn is_of(&self, stream: &Stream, call: &Call<'_>) -> bool {
        let is_same =
            |((pointer, bytes), span): (&(u64, usize), &Span)| *pointer == span.pointer() && *bytes == span.bytes();
        std::ptr::eq(self.graph.as_ptr(), Arc::as_ptr(call.graph))
            && self.at.len() == call.memory.given.len() + 1
            && self.at.iter().zip(call.memory.all()).all(is_same)
            && self.stream.same_as(stream)
    }
}

/// What was made for a place.
#[derive(Debug)]
struct State {
    /// Where temporary buffers begin.
    begins: Vec<usize>,
    /// With the key behind them.
    tables: Tables,
    launches: Launches,
}

/// Tries to record launches: another thread may be recording for the same stream just then.
const MOST_TRIES: u32 = 3;

#[derive(Debug)]
enum Launches {
    /// One by one, after so many tries to record them.
    Single(u32),
    /// All of them as one.
    Recorded(Graph),
}

impl State {
    /// Queues the first call at a place.
    fn first(stream: &Stream, call: &Call<'_>, key: Key) -> Result<Self> {
        let Call { executor, graph, .. } = call;
        let begins = executor.begins(graph);
        let own = call.rows(&begins)?;
        let room = Span::whole(Allocation::on_stream(stream, executor.table_bytes(1))?);
        let tables = executor.tables(stream, graph, &own, (&room, &[key.bits()]))?;
        call.launch(stream, &tables, &own, &tables.more)?;
        Ok(Self { begins, tables, launches: Launches::Single(0) })
    }

    /// Queues another, with a new key where it has one. Whether it was one launch.
    fn queue(&mut self, stream: &Stream, call: &Call<'_>, key: Option<Key>) -> Result<bool> {
        if let Some(key) = key {
            tell(stream, &[key.bits()], &self.tables.more)?;
        }
        // Launches that somebody wants to see cannot be part of one.
        let is_traced = stream.is_traced();
        if let (&Launches::Single(tries @ ..MOST_TRIES), false) = (&self.launches, is_traced) {
            self.launches = self.record(stream, call).map_or(Launches::Single(tries + 1), Launches::Recorded);
        }
        match &mut self.launches {
            Launches::Recorded(recorded) if !is_traced => {
                recorded.launch_over(stream, &call.lent())?;
                Ok(true)
            }
            _ => {
                let own = call.rows(&self.begins)?;
                call.launch(stream, &self.tables, &own, &self.tables.more)?;
                Ok(false)
            }
        }
    }

    /// All launches as one. They are recorded beside the stream, which may be one that cannot be.
    fn record(&self, stream: &Stream, call: &Call<'_>) -> Result<Graph> {
        let own = call.rows(&self.begins)?;
        let record = |recorder: &Stream| call.launch(recorder, &self.tables, &own, &self.tables.more);
        Graph::capture_over(stream.recorder()?, &call.lent(), record)
    }
}

/// One call.
struct Call<'a> {
    executor: &'a Executor,
    graph: &'a Arc<DeviceGraph>,
    memory: CallMemory<'a>,
}

impl<'a> CallMemory<'a> {
    fn all(&self) -> impl Iterator<Item = &'a Span> + use<'a> {
        self.given.iter().chain([self.temporaries])
    }
}

impl Call<'_> {
    /// Queues it with tables of its own, which go with it; where somebody records the stream, with their graph.
    fn queue_once(&self, stream: &Stream) -> Result<()> {
        let queue = |stream: &Stream, room: Span| {
            let own = self.rows(&self.executor.begins(self.graph))?;
            let (told, lies) = match self.memory.key {
                StepKey::Told(key) => (key.bits(), None),
                StepKey::Lies(span) => (0, Some(span)),
            };
            let tables = self.executor.tables(stream, self.graph, &own, (&room, &[told]))?;
            self.launch(stream, &tables, &own, lies.unwrap_or(&tables.more))
        };
        let bytes = self.executor.table_bytes(1);
        if !stream.is_recorded() {
            return queue(stream, Span::whole(Allocation::on_stream(stream, bytes)?));
        }
        // Memory in the order of a stream that is recorded would be there in the graph alone, and cost a little at every replay.
        stream.queue_recorded(|stream| queue(stream, Span::whole(Allocation::shareable(stream.gpu(), bytes)?)))
    }

    /// Memory of all buffers.
    fn rows(&self, begins: &[usize]) -> Result<Vec<DeviceRows>> {
        let mut given = self.memory.given.iter();
        let mut give = |_: &Buffer| Ok(given.next().cloned().map(DeviceRows::from));
        let own = self.executor.rows(self.graph, begins, self.memory.temporaries, &mut give)?;
        match given.count() {
            0 => Ok(own),
            more => Err(Error::Binding {
                name: "memory of a call".to_owned(),
                expected: own.len(),
                found: own.len() + more,
            }),
        }
    }

    fn launch(&self, stream: &Stream, tables: &Tables, own: &[DeviceRows], step: &Span) -> Result<()> {
        let ways = self.executor.ways(stream, self.graph, own);
        let waits = || self.executor.waits(&ways, own);
        self.executor.launch(stream, tables, (&ways, &reached(self.graph, own)), step, &waits)
    }

    /// Memory that belongs to the caller, or to the graph.
    fn lent(&self) -> Vec<Span> {
        self.graph.spans.iter().chain(self.memory.all()).cloned().collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
