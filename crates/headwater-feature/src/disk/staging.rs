//! Buffers that reads land in, and the bound on how many there are.
//!
//! A read belongs to the engine while it runs, so it cannot go into a cache that others read meanwhile. It lands in a
//! buffer of its own and is copied, which costs a small part of what the disk does. The buffers of a table are shared by
//! its callers: one that has none waits for the next, and nobody who has some takes it away.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headwater_memory::io::{AlignedBuffer, EngineKind, Error as IoError};

use crate::error::Result;

/// Buffers of equal size.
#[derive(Debug)]
pub(super) struct Staging {
    state: Mutex<State>,
    returned: Condvar,
    buffer_bytes: usize,
    most: usize,
}

#[derive(Debug, Default)]
struct State {
    free: Vec<AlignedBuffer>,
    /// Free or lent.
    made: usize,
    waiting: usize,
}

impl Staging {
    /// At most so many buffers. They are made when they are needed.
    pub(super) fn new(most: usize, buffer_bytes: usize) -> Self {
        Self { state: Mutex::default(), returned: Condvar::new(), buffer_bytes, most: most.max(1) }
    }

    /// Buffers at most.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// A buffer if there is one that nobody waits for.
    pub(super) fn try_take(&self) -> Result<Option<AlignedBuffer>> {
        let mut state = self.lock();
        if state.waiting > 0 { Ok(None) } else { self.take_from(&mut state) }
    }

    /// A buffer, once there is one. For callers that have none: then those who have some are not held up by this one.
    pub(super) fn take(&self, kind: EngineKind, timeout: Duration) -> Result<AlignedBuffer> {
        let started = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(buffer) = self.take_from(&mut state)? {
                return Ok(buffer);
            }
            let waited = started.elapsed();
            let Some(left) = timeout.checked_sub(waited).filter(|left| !left.is_zero()) else {
                return Err(IoError::TimedOut { kind, waited }.into());
            };
            state.waiting += 1;
            state = self.returned.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
    }

    /// Gives a buffer back.
    pub(super) fn put(&self, buffer: AlignedBuffer) {
        let mut state = self.lock();
        state.free.push(buffer);
        // Waking is a call into the kernel, even when nobody sleeps.
        if state.waiting > 0 {
            self.returned.notify_one();
        }
    }

    /// Says that so many buffers will not come back: their reads never ended.
    pub(super) fn lose(&self, count: usize) {
        let mut state = self.lock();
        state.made = state.made.saturating_sub(count);
        drop(state);
        self.returned.notify_all();
    }

    fn take_from(&self, state: &mut State) -> Result<Option<AlignedBuffer>> {
        if let Some(buffer) = state.free.pop() {
            return Ok(Some(buffer));
        }
        if state.made == self.most {
            return Ok(None);
        }
        let buffer = AlignedBuffer::new(self.buffer_bytes)?;
        state.made += 1;
        Ok(Some(buffer))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_bounded_and_lost_ones_are_made_again() {
        let staging = Staging::new(2, 4096);
        let soon = Duration::from_millis(5);
        let one = staging.try_take().unwrap().unwrap();
        let _other = staging.take(EngineKind::Ram, soon).unwrap();
        assert!(staging.try_take().unwrap().is_none());
        assert!(staging.take(EngineKind::Ram, soon).is_err());
        staging.put(one);
        let _one = staging.try_take().unwrap().unwrap();
        staging.lose(1);
        assert!(staging.try_take().unwrap().is_some());
        assert!(staging.try_take().unwrap().is_none());
    }

    #[test]
    fn who_waits_comes_first() {
        let staging = Staging::new(1, 4096);
        let only = staging.try_take().unwrap().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| staging.take(EngineKind::Ram, Duration::from_secs(20)).is_ok());
            while staging.lock().waiting == 0 {
                std::thread::yield_now();
            }
            staging.put(only);
            assert!(waiting.join().unwrap());
        });
    }
}
