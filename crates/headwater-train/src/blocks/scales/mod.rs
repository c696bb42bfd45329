//! The scales of a graph convolution on the GPU: what [`scales`](super::scales()) makes, to the bit.
//!
//! Degrees of the whole graph lie in device memory, from [`degrees`](super::degrees); a block comes with the ids of its
//! nodes. An id that the graph does not have is reported by the next synchronisation of the stream.

mod cuda;
#[cfg(test)]
mod tests;

use headwater_compile::cuda::block::{DeviceBlock, Room};
use headwater_cuda::{Span, Stream};

pub use cuda::kernel_builds;

use crate::device::zeros;
use crate::error::Result;

/// Scales in device memory, f32, for blocks up to a size.
#[derive(Debug)]
pub struct DeviceScales {
    src: Span,
    dst: Span,
    own: Span,
}

impl DeviceScales {
    /// Memory for the scales of such blocks.
    pub fn new(stream: &Stream, room: Room) -> Result<Self> {
        let [src, dst, own] = [room.src, room.dst, room.dst].map(|rows| zeros(stream, 4 * rows));
        Ok(Self { src: src?, dst: dst?, own: own? })
    }

    /// Queues the scales of a block. `degrees` has an f32 for every node of the graph, `ids` a u64 for every node that
    /// the block reads, in its order.
    pub fn fill(&self, stream: &Stream, degrees: &Span, ids: &Span, block: &DeviceBlock) -> Result<()> {
        let from = cuda::Inputs { degrees, ids, counts: block.counts(), dst_starts: block.dst_starts() };
        cuda::queue(stream, self, &from)
    }

    /// Those that a layer knows by these names: `src_scale`, `dst_scale` and `self_scale`.
    #[must_use]
    pub fn named(&self) -> [(&'static str, &Span); 3] {
        [("src_scale", &self.src), ("dst_scale", &self.dst), ("self_scale", &self.own)]
    }
}
