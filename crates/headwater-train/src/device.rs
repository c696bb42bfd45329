//! What the parts of a step on a GPU share: memory, launches over elements, and sums that have an order.
//!
//! Parts are queued on a caller's stream and never wait for the host. What changes from step to step (rows, rates,
//! counts) is read from device memory, so that a step can be recorded once and replayed.

#[cfg(test)]
pub(crate) mod testing;

use headwater_cuda::{Allocation, Defines, Grid, Source, Span, Stream};

use crate::error::Result;

/// Sums of many numbers in two stages, for kernel texts.
pub(crate) const SUM: (&str, &str) = ("sum.cuh", include_str!("device/sum.cuh"));
/// Threads of a block.
const THREADS: u32 = 256;
/// Sums that the first stage leaves to the second at most. The same on every GPU, so that sums are too.
const PARTS: u32 = 256;
/// Bytes of the memory between the stages.
pub(crate) const PARTS_BYTES: usize = 8 * PARTS as usize;

/// The grid of what one block does.
pub(crate) const ONE_BLOCK: Grid = Grid { blocks: 1, threads: THREADS, shared_bytes: 0 };

/// The texts of all parts with the defines they are launched with.
#[must_use]
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let parts = [
        crate::blocks::scales::kernel_builds,
        crate::loss::device::kernel_builds,
        crate::network::running_builds,
        crate::optimiser::device::kernel_builds,
    ];
    parts.into_iter().flat_map(|part| part()).collect()
}

/// Device memory that is zero, and never none.
pub(crate) fn zeros(stream: &Stream, bytes: usize) -> Result<Span> {
    let span = Span::whole(Allocation::on_stream(stream, bytes.max(8))?);
    stream.fill(&span, 0)?;
    Ok(span)
}

/// A copy of some bytes in device memory.
pub(crate) fn copy_of(stream: &Stream, bytes: &[u8]) -> Result<Span> {
    let span = zeros(stream, bytes.len())?;
    if let Some(own) = span.part(0, bytes.len()).filter(|_| !bytes.is_empty()) {
        stream.upload(bytes, &own)?;
    }
    Ok(span)
}

/// Blocks that walk elements with a stride: as many as the GPU holds, or as there is work for.
pub(crate) fn grid(stream: &Stream, elements: usize) -> Grid {
    let facts = stream.gpu().facts();
    let most = facts.sms * (facts.threads_per_sm / THREADS).max(1);
    let blocks = u32::try_from(elements.div_ceil(THREADS as usize)).unwrap_or(u32::MAX);
    Grid { blocks: blocks.clamp(1, most), threads: THREADS, shared_bytes: 0 }
}

/// The grid of a first stage over so many threads' work. The second stage sums as many parts as it has blocks.
pub(crate) fn parts_grid(threads: usize) -> Grid {
    let blocks = u32::try_from(threads.div_ceil(THREADS as usize)).unwrap_or(u32::MAX);
    Grid { blocks: blocks.clamp(1, PARTS), threads: THREADS, shared_bytes: 0 }
}

/// Numbers that kernels sum, as all texts of this crate know them.
pub(crate) fn defines() -> Defines {
    Defines::new().with("THREADS", THREADS).with("PARTS", PARTS).with("PARTS_BYTES", PARTS_BYTES)
}
