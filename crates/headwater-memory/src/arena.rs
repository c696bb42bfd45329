//! Pinned memory the fast way: map, touch in parallel, register.

use std::sync::Arc;

use headwater_cuda::{Gpu, Span};

use crate::error::Result;
use crate::mapping::Mapping;
use crate::registry::lay_over;

/// A new pinned, mapped, zeroed range of host memory in huge pages where the system has them.
pub fn pinned_arena(gpu: &Gpu, bytes: usize) -> Result<Span> {
    let mapping = Arc::new(Mapping::anonymous(bytes)?);
    // SAFETY: the mapping is held as the keeper, so it stays mapped as long as the span.
    unsafe { lay_over(gpu, mapping.start(), bytes, mapping.clone()) }
}
