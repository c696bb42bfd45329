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
    sent: [Vec<Event>; HALVES],
    turn: usize,
}

impl Courier {
    /// A courier whose loads are at most `bytes` long.
    pub fn new(gpu: &Gpu, bytes: usize) -> Result<Self> {
        let staging = Buffer::from_lease(staging_pool(gpu)?.lease(HALVES * bytes)?)?;
        Ok(Self { stream: gpu.spare_stream()?, staging, half_bytes: bytes, sent: Default::default(), turn: 0 })
    }

    /// Gathers `ids` out of `table` and queues the copy to `to`. `first` is the position of the first id.
    pub fn bring(&mut self, table: &[u8], width: usize, ids: IdSlice<'_>, first: usize, to: &Span) -> Result<()> {
        let sent = &mut self.sent[self.turn];
        sent.drain(..).try_for_each(|event| event.synchronize())?;
        let start = self.turn * self.half_bytes;
        let half = start..start + ids.len() * width;
        self.turn = (self.turn + 1) % HALVES;
        gather_block(table, width, ids, first, &mut self.staging.as_mut_slice()?[half.clone()], true)?;
        if let Some(from) = self.staging.part(half) {
            self.stream.copy(&from, to)?;
        }
        // The uses of the whole buffer become this half's events, which come after those of the other.
        *sent = self.staging.whole().allocation().pending()?;
        Ok(())
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        // The pool sees no more uses than the buffer's own, so the lease must not go back before the copies are done.
        for event in self.sent.iter_mut().flat_map(|sent| sent.drain(..)) {
            let _ = event.synchronize();
        }
    }
}
