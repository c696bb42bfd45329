//! A CPU thread that brings rows to the GPU: it gathers into one pinned buffer while the other is being copied.

use headwater_cuda::{Event, Gpu, Span, SpareStream};
use headwater_memory::{Buffer, Pinned};

use super::IdSlice;
use super::cpu::gather_block;
use crate::error::Result;
use crate::runtime::staging_pool;

/// One being filled, one on its way.
const SLOTS: usize = 2;

/// The thread's stream and buffers.
pub(super) struct Courier {
    pub stream: SpareStream,
    slots: Vec<Slot>,
    turn: usize,
}

struct Slot {
    staging: Buffer<u8, Pinned>,
    /// What must have passed before the buffer may be filled again.
    sent: Vec<Event>,
}

impl Courier {
    /// A courier whose loads are at most `bytes` long.
    pub fn new(gpu: &Gpu, bytes: usize) -> Result<Self> {
        let pool = staging_pool(gpu)?;
        let slot =
            || -> Result<Slot> { Ok(Slot { staging: Buffer::from_lease(pool.lease(bytes)?)?, sent: Vec::new() }) };
        let slots = (0..SLOTS).map(|_| slot()).collect::<Result<_>>()?;
        Ok(Self { stream: gpu.spare_stream()?, slots, turn: 0 })
    }

    /// Which of two landing places the next load may use.
    pub fn turn(&self) -> usize {
        self.turn
    }

    /// Gathers `ids` out of `table` and queues the copy to `to`. `first` is the position of the first id.
    pub fn bring(&mut self, table: &[u8], width: usize, ids: IdSlice<'_>, first: usize, to: &Span) -> Result<()> {
        let slot = &mut self.slots[self.turn];
        self.turn = (self.turn + 1) % SLOTS;
        for event in slot.sent.drain(..) {
            event.synchronize()?;
        }
        let bytes = ids.len() * width;
        gather_block(table, width, ids, first, &mut slot.staging.as_mut_slice()?[..bytes], true)?;
        if let Some(from) = slot.staging.part(0..bytes) {
            self.stream.copy(&from, to)?;
        }
        slot.sent = slot.staging.whole().allocation().pending()?;
        Ok(())
    }
}
