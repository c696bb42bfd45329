//! Bounded pools of GPU-visible memory, handed out as leases.
//!
//! Allocating pinned memory costs milliseconds, so blocks are kept and handed out again. A dropped lease may still be in
//! use by queued GPU work; it waits in the pool until the events recorded at its return have passed. Sizes are rounded to
//! classes, four to a doubling, so that at most a fifth of a block is wasted and blocks fit many requests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headwater_cuda::{Allocation, Event, Gpu, Span};

use crate::arena::pinned_arena;
use crate::error::{Error, Result};
use crate::tier::Tier;

/// Below this a block comes from the driver; above, from an arena in huge pages.
const ARENA_FROM_BYTES: usize = 8 << 20;
const SMALLEST_CLASS_BYTES: usize = 512;
/// How often a waiter looks whether the GPU has finished with a block.
const POLL: Duration = Duration::from_micros(200);

/// What a pool holds and how much of it.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// For messages.
    pub name: &'static str,
    /// Device, pinned or write-combined memory.
    pub tier: Tier,
    /// Bytes it may hold, leased or not.
    pub limit_bytes: usize,
    /// How long a request waits for a lease to come back before it fails.
    pub patience: Duration,
}

/// A pool. Clones share it.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    gpu: Gpu,
    config: PoolConfig,
    state: Mutex<State>,
    returned: Condvar,
    counters: Counters,
}

#[derive(Debug, Default)]
struct State {
    free: BTreeMap<usize, Vec<Span>>,
    in_flight: Vec<Returned>,
    /// Bytes of every block that exists, wherever it is.
    held_bytes: usize,
    free_bytes: usize,
}

/// A block whose lease is gone but which somebody may still use: queued GPU work, or a span that outlived the lease.
#[derive(Debug)]
struct Returned {
    block: Span,
    events: Vec<Event>,
}

impl Returned {
    fn is_settled(&mut self) -> Result<bool> {
        if Arc::strong_count(self.block.allocation()) > 1 {
            return Ok(false);
        }
        // What the last holder wrote happened before it let go.
        fence(Ordering::Acquire);
        // Nobody else holds the block, so after this the list of uses can only shrink.
        self.events.extend(self.block.allocation().pending()?);
        while let Some(event) = self.events.last() {
            if !event.has_passed()? {
                return Ok(false);
            }
            self.events.pop();
        }
        Ok(!self.block.allocation().has_users())
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // The events stand for uses that the blocks no longer know of, so the blocks cannot wait for them themselves.
        let events = self.in_flight.iter().flat_map(|returned| &returned.events);
        events.for_each(|event| drop(event.synchronize()));
    }
}

#[derive(Debug, Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    waits: AtomicU64,
}

/// What a pool has done and holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUse {
    /// Requests served from a kept block.
    pub hits: u64,
    /// Requests that had to allocate.
    pub misses: u64,
    /// Requests that had to wait for a block.
    pub waits: u64,
    /// Bytes held in all.
    pub held_bytes: usize,
    /// Bytes free to hand out.
    pub free_bytes: usize,
    /// Blocks that the GPU may still be using.
    pub blocks_in_flight: usize,
}

/// A block on loan. It goes back by itself.
#[derive(Debug)]
pub struct Lease {
    /// The whole block; taken when the lease ends.
    block: Option<Span>,
    /// The part that was asked for; taken first, so that the pool sees its block unshared.
    span: Option<Span>,
    pool: Pool,
}

impl Pool {
    /// A pool of `config.tier` memory for `gpu`. Nothing is allocated yet.
    #[must_use]
    pub fn new(gpu: &Gpu, config: PoolConfig) -> Self {
        Self(Arc::new(Shared {
            gpu: gpu.clone(),
            config,
            state: Mutex::default(),
            returned: Condvar::new(),
            counters: Counters::default(),
        }))
    }

    /// At least `bytes` of memory, waiting up to the pool's patience when it is at its limit.
    pub fn lease(&self, bytes: usize) -> Result<Lease> {
        let class = size_class(bytes);
        let since = Instant::now();
        let mut waited = false;
        let mut state = self.state();
        if class > self.0.config.limit_bytes {
            // No amount of waiting helps.
            return Err(self.exhausted(&state, bytes, Duration::ZERO));
        }
        loop {
            self.reclaim(&mut state)?;
            if let Some(block) = state.take_free(class) {
                self.0.counters.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(self.lend(block, bytes));
            }
            state.make_room(class, self.0.config.limit_bytes);
            if state.held_bytes + class <= self.0.config.limit_bytes {
                // The bytes are counted before the lock is let go, so that the bound holds while allocating.
                state.held_bytes += class;
                drop(state);
                return self.lend_new(class, bytes);
            }
            if since.elapsed() >= self.0.config.patience {
                return Err(self.exhausted(&state, bytes, since.elapsed()));
            }
            if !std::mem::replace(&mut waited, true) {
                self.0.counters.waits.fetch_add(1, Ordering::Relaxed);
            }
            let woken = self.0.returned.wait_timeout(state, POLL);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What it has done so far.
    #[must_use]
    pub fn usage(&self) -> PoolUse {
        let (state, counters) = (self.state(), &self.0.counters);
        PoolUse {
            hits: counters.hits.load(Ordering::Relaxed),
            misses: counters.misses.load(Ordering::Relaxed),
            waits: counters.waits.load(Ordering::Relaxed),
            held_bytes: state.held_bytes,
            free_bytes: state.free_bytes,
            blocks_in_flight: state.in_flight.len(),
        }
    }

    /// Frees every block that nobody has.
    pub fn trim(&self) -> Result<()> {
        let mut state = self.state();
        self.reclaim(&mut state)?;
        state.drop_free(0);
        Ok(())
    }

    fn lend(&self, block: Span, bytes: usize) -> Lease {
        Lease { span: block.part(0, bytes), block: Some(block), pool: self.clone() }
    }

    fn lend_new(&self, class: usize, bytes: usize) -> Result<Lease> {
        self.0.counters.misses.fetch_add(1, Ordering::Relaxed);
        match self.allocate(class) {
            Ok(block) => Ok(self.lend(block, bytes)),
            Err(error) => {
                self.state().held_bytes -= class;
                Err(error)
            }
        }
    }

    fn allocate(&self, bytes: usize) -> Result<Span> {
        let gpu = &self.0.gpu;
        Ok(match self.0.config.tier {
            Tier::Device => Span::whole(Allocation::shareable(gpu, bytes)?),
            Tier::WriteCombined => Span::whole(Allocation::write_combined(gpu, bytes)?),
            _ if bytes >= ARENA_FROM_BYTES => pinned_arena(gpu, bytes)?,
            _ => Span::whole(Allocation::pinned(gpu, bytes)?),
        })
    }

    /// Moves blocks that nobody can be using any more back to the free list.
    fn reclaim(&self, state: &mut State) -> Result<()> {
        let mut outcome = Ok(());
        for mut returned in std::mem::take(&mut state.in_flight) {
            // A block that cannot be asked about stays, and so do those after it.
            let settled = returned.is_settled();
            if matches!(settled, Ok(true)) {
                state.put_free(returned.block);
            } else {
                state.in_flight.push(returned);
            }
            outcome = outcome.and(settled.map(drop));
        }
        outcome
    }

    fn give_back(&self, block: Span) {
        let mut state = self.state();
        state.in_flight.push(Returned { block, events: Vec::new() });
        // An error here means a lost device; the block stays in flight and the next request reports it.
        let _ = self.reclaim(&mut state);
        // Waiters want different sizes, so the one that can use this block may be any of them.
        self.0.returned.notify_all();
    }

    fn exhausted(&self, state: &State, asked_bytes: usize, waited: Duration) -> Error {
        let config = &self.0.config;
        Error::PoolExhausted {
            pool: config.name,
            asked_bytes,
            used_bytes: state.held_bytes - state.free_bytes,
            limit_bytes: config.limit_bytes,
            waited,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_free(&mut self, class: usize) -> Option<Span> {
        let block = self.free.get_mut(&class)?.pop()?;
        self.free_bytes -= class;
        Some(block)
    }

    fn put_free(&mut self, block: Span) {
        self.free_bytes += block.bytes();
        self.free.entry(block.bytes()).or_default().push(block);
    }

    /// Frees kept blocks of other classes until a block of `class` fits under the limit, largest first.
    fn make_room(&mut self, class: usize, limit_bytes: usize) {
        if self.held_bytes + class > limit_bytes {
            self.drop_free(limit_bytes.saturating_sub(class));
        }
    }

    fn drop_free(&mut self, held_bytes_wanted: usize) {
        while self.held_bytes > held_bytes_wanted {
            let Some((&class, _)) = self.free.iter().next_back() else { return };
            if self.take_free(class).is_some() {
                self.held_bytes -= class;
            } else {
                self.free.remove(&class);
            }
        }
    }
}

impl Lease {
    /// Which memory it is.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.pool.0.config.tier
    }

    /// The memory, exactly as long as asked for. A span may outlive the lease: the block is not lent again before it ends.
    #[must_use]
    pub fn span(&self) -> &Span {
        self.span
            .as_ref()
            .or(self.block.as_ref())
            .unwrap_or_else(|| unreachable!("both are there until the lease ends"))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.span = None;
        if let Some(block) = self.block.take() {
            self.pool.give_back(block);
        }
    }
}

/// The block size that serves a request: the next quarter step of a power of two.
fn size_class(bytes: usize) -> usize {
    if bytes <= SMALLEST_CLASS_BYTES {
        return SMALLEST_CLASS_BYTES;
    }
    let step = (bytes - 1).checked_ilog2().map_or(1, |log| 1usize << log.saturating_sub(2));
    bytes.checked_next_multiple_of(step).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_its_request_and_wastes_little() {
        for bytes in (1..10_000).chain([1 << 20, (1 << 20) + 1, (1 << 30) - 7, usize::MAX]) {
            let class = size_class(bytes);
            assert!(class >= bytes);
            assert!(bytes <= SMALLEST_CLASS_BYTES || class - bytes <= bytes / 4, "{bytes} -> {class}");
        }
        assert_eq!(size_class(0), SMALLEST_CLASS_BYTES);
        assert_eq!(size_class(1 << 20), 1 << 20);
        assert_eq!(size_class((1 << 20) + 1), (1 << 20) + (1 << 18));
    }
}
