//! Memory of arrays that are gone, used for the next: batches come and go, and fresh pages cost more than filling them.
//!
//! Nobody waits for what is kept. Arrays come and go on threads with and without the GIL, and a process that was forked while
//! another thread looked has the lock of a thread that it does not have: whoever finds it taken goes without.

use std::sync::{Mutex, MutexGuard, TryLockError};

/// Bytes that are kept at most.
const MOST_BYTES: usize = 1 << 30;
/// Smaller ones are not worth the while.
const LEAST_BYTES: usize = 1 << 16;

/// What is kept.
static KEPT: Mutex<Vec<Vec<u64>>> = Mutex::new(Vec::new());

/// Zeroed or used memory of at least so many bytes, which goes back when it is dropped.
pub struct Recycled {
    words: Vec<u64>,
    bytes: usize,
}

impl Recycled {
    pub fn new(bytes: usize) -> Self {
        let words = class(bytes.div_ceil(8));
        let found = kept().and_then(|mut kept| {
            let at = kept.iter().position(|own| own.len() == words)?;
            Some(kept.swap_remove(at))
        });
        Self { words: found.unwrap_or_else(|| vec![0; words]), bytes }
    }

    pub fn as_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }
}

fn kept() -> Option<MutexGuard<'static, Vec<Vec<u64>>>> {
    match KEPT.try_lock() {
        Ok(kept) => Some(kept),
        Err(TryLockError::Poisoned(kept)) => Some(kept.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Sizes come in steps of an eighth, so that batches of nearly the same size share memory.
fn class(words: usize) -> usize {
    words.next_multiple_of((words.next_power_of_two() / 16).max(1))
}

impl AsRef<[u8]> for Recycled {
    fn as_ref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }
}

impl Drop for Recycled {
    fn drop(&mut self) {
        if self.bytes < LEAST_BYTES {
            return;
        }
        let Some(mut kept) = kept() else { return };
        let all: usize = kept.iter().map(|words| 8 * words.len()).sum();
        if all + 8 * self.words.len() <= MOST_BYTES {
            kept.push(std::mem::take(&mut self.words));
        }
    }
}
