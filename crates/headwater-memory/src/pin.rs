//! Bytes of others where a GPU reads them: registered where they lie, or copied when that does not go.

use headwater_cuda::{Allocation, Gpu, Span};
use rayon::prelude::*;

use crate::buffer::{Buffer, Pinned};
use crate::error::{Error, Result};
use crate::foreign::Foreign;

/// Arrays up to this are copied. Registering takes whole pages, and the ends of an array in the heap share theirs with other
/// data, which the driver would then no longer copy: it refuses ranges that are registered in part. Beyond this, `malloc`
/// gives every array pages of its own.
const IN_THE_HEAP_BYTES: usize = 32 << 20;

/// Registers the bytes, or copies them where they are few or cannot be registered, as some file mappings.
pub fn pin(gpu: &Gpu, bytes: &Foreign) -> Result<Span> {
    match bytes.as_slice() {
        // No bytes have no address to register, but kernels want one.
        [] => Ok(Span::whole(Allocation::shareable(gpu, 0)?)),
        small if small.len() <= IN_THE_HEAP_BYTES => copied(gpu, small),
        large => bytes.map_into(gpu).or_else(|why| if why.is_out_of_memory() { copied(gpu, large) } else { Err(why) }),
    }
}

fn copied(gpu: &Gpu, bytes: &[u8]) -> Result<Span> {
    const COPY_BYTES: usize = 1 << 20;
    let copy = Buffer::<u8, Pinned>::filled(gpu, bytes.len(), |copy| {
        let parts = copy.par_chunks_mut(COPY_BYTES).zip(bytes.par_chunks(COPY_BYTES));
        parts.for_each(|(to, from)| to.copy_from_slice(from));
        Ok::<(), Error>(())
    })?;
    Ok(copy.whole().clone())
}
