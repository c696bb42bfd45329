//! A CPU thread that brings rows to the GPU: it gathers into one half of a pinned buffer while the other is being copied.

use headwater_cuda::{Event, Gpu, Span, SpareStream};
use headwater_memory::{Buffer, Pinned};

use super::IdSlice;
use super::cpu::gather_block;
use crate::error::Result;
use crate::runtime::staging_pool;

/// One half being filled, one on its way.
const HALVES: usize = 2;

/// The thread's stream and buffer.
pub(super) struct Courier {
    pub stream: SpareStream,
    /// Both halves in one lease: a thread that held one and waited for another could wait for a thread like itself.
    staging: Buffer<u8, Pinned>,
    half_bytes: usize,
    /// What must have passed before a half may be filled again.
    sent: [Option<Event>; HALVES],
    turn: usize,
}

impl Courier {
    /// A courier whose loads are at most `bytes` long.
    pub fn new(gpu: &Gpu, bytes: usize) -> Result<Self> {
        let staging = Buffer::from_lease(staging_pool(gpu)?.lease(HALVES * bytes)?)?;
        Ok(Self { stream: gpu.spare_stream()?, staging, half_bytes: bytes, sent: Default::default(), turn: 0 })
    }

    /// Gathers `ids` out of `table` and queues the copy to `to`. `first` is the position of the first id.
    #[expect(unsafe_code, reason = "one half is filled while a copy reads the other")]
    pub fn bring(&mut self, table: &[u8], width: usize, ids: IdSlice<'_>, first: usize, to: &Span) -> Result<()> {
        let sent = &mut self.sent[self.turn];
        if let Some(sent) = sent.take() {
            sent.synchronize()?;
        }
        let start = self.turn * self.half_bytes;
        let half = start..start + ids.len() * width;
        self.turn = (self.turn + 1) % HALVES;
        // SAFETY: only this function queues work on the staging buffer, and what it last queued on this half has passed.
        let rows = unsafe { self.staging.part_mut(half.clone()) }?;
        gather_block(table, width, ids, first, rows, true)?;
        if let Some(from) = self.staging.part(half) {
            let queued = self.stream.copy(&from, to);
            // Also after an error: a part of it may have been queued.
            *sent = Some(self.stream.record()?);
            queued?;
        }
        Ok(())
    }
}
