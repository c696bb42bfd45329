//! Pinned memory the fast way: map, touch in parallel, register.

use std::any::Any;
use std::sync::Arc;

use headwater_cuda::{Gpu, Span};

use crate::buffer::{Buffer, Pinned};
use crate::error::{Error, Result};
use crate::mapping::Mapping;
use crate::registry::lay_over;

/// A new pinned, mapped, zeroed range of host memory in huge pages where the system has them.
pub fn pinned_arena(gpu: &Gpu, bytes: usize) -> Result<Span> {
    pinned(gpu, Mapping::anonymous(bytes)?)
}

fn pinned(gpu: &Gpu, mapping: Mapping) -> Result<Span> {
    let (bytes, mapping) = (mapping.bytes(), Arc::new(mapping));
    // SAFETY: the mapping is held as the keeper, so it stays mapped as long as the span.
    unsafe { lay_over(gpu, mapping.start(), bytes, mapping.clone()) }
}

/// Pinned memory of `count` times `bytes`, cut into buffers that come and go by themselves: who uses one is known of that one alone.
/// Forked processes do not have it.
pub fn pinned_slots(gpu: &Gpu, count: usize, bytes: usize) -> Result<Vec<Buffer<u8, Pinned>>> {
    let total = count.checked_mul(bytes).ok_or(Error::TooLarge { elements: count, element_bytes: bytes })?;
    let mut mapping = Mapping::anonymous(total)?;
    mapping.keep_from_forks();
    let arena = pinned(gpu, mapping)?;
    let Some(start) = arena.host_pointer() else { return Ok(Vec::new()) };
    let keeper: Arc<dyn Any + Send + Sync> = Arc::new(arena);
    let slot = |at: usize| {
        // SAFETY: inside the arena, which is held as the keeper and stays mapped and registered as long as the span.
        let span = unsafe { lay_over(gpu, start.add(at * bytes), bytes, keeper.clone()) };
        span.map(|span| Buffer::over(span, bytes))
    };
    (0..count).map(slot).collect()
}
