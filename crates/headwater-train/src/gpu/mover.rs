//! Activations leave GPU memory and come back at fixed places of a step. Copies run on streams of their own; the step goes on behind those
//! whose memory it uses.

use std::sync::Arc;

use headwater_cuda::{Event, Span, Stream};
use headwater_offload::plan::{BufferMove, Destination};
use headwater_offload::{BlockId, Error as OffloadError, GpuLane, Offloader, StoreOutcome};

use crate::error::Result;

/// One buffer that leaves.
#[derive(Debug)]
pub(crate) struct Moving {
    /// What happens to it, and when.
    pub plan: BufferMove,
    /// Where it lies in the forward pass.
    pub from: Span,
    /// Where it comes back to.
    pub to: Span,
    block: Option<BlockId>,
    loaded: Option<Arc<Event>>,
}

impl Moving {
    pub fn new(plan: BufferMove, from: Span, to: Span) -> Self {
        Self { plan, from, to, block: None, loaded: None }
    }
}

/// All buffers of a step that leave.
pub(crate) struct ActivationMover {
    offloader: Arc<Offloader<GpuLane>>,
    all: Vec<Moving>,
}

impl std::fmt::Debug for ActivationMover {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ActivationMover").field("all", &self.all).finish_non_exhaustive()
    }
}

impl ActivationMover {
    pub fn new(offloader: Arc<Offloader<GpuLane>>, all: Vec<Moving>) -> Self {
        Self { offloader, all }
    }

    /// What has to be done before an operation is queued.
    pub fn before(&mut self, stream: &Stream, place: usize) -> Result<()> {
        #[cfg(test)]
        testing::fail_if_told(place)?;
        for own in self.all.iter().filter(|own| own.plan.reused_from == place) {
            if let Some(block) = own.block {
                self.offloader.settle(block, stream)?;
            }
        }
        let reads = |own: &&Moving| own.plan.goes == Destination::Disk && own.plan.read_from == place;
        for own in self.all.iter().filter(reads) {
            if let Some(block) = own.block {
                self.offloader.prefetch(block)?;
            }
        }
        for own in self.all.iter_mut().filter(|own| own.plan.load_before == place) {
            if let Some(block) = own.block {
                own.loaded = Some(self.offloader.load(block, &own.to, stream)?);
            }
        }
        for own in self.all.iter_mut().filter(|own| own.plan.needed_by == place) {
            if let Some(loaded) = own.loaded.take() {
                self.offloader.join(stream, &loaded)?;
            }
        }
        Ok(())
    }

    /// What has to be done when an operation is queued.
    pub fn after(&mut self, stream: &Stream, place: usize) -> Result<()> {
        for own in self.all.iter_mut().filter(|own| own.plan.store_after == place) {
            match self.offloader.store(own.from.clone(), stream)? {
                StoreOutcome::Leaving(block) => own.block = Some(block),
                StoreOutcome::NoRoom => {
                    let disk = "it was promised to others".to_owned();
                    return Err(OffloadError::NoRoom { bytes: own.from.bytes(), disk }.into());
                }
            }
        }
        for own in self.all.iter_mut().filter(|own| own.plan.last == place) {
            if let Some(block) = own.block.take() {
                self.offloader.release(block)?;
            }
        }
        Ok(())
    }

    /// Who has the bytes meanwhile.
    pub fn offloader(&self) -> &Offloader<GpuLane> {
        &self.offloader
    }
}

/// A disk that fails in the middle of a step.
#[cfg(test)]
pub(crate) mod testing {
    use std::cell::Cell;

    use super::{OffloadError, Result};

    thread_local! {
        /// How many operations go well before one fails, where one should.
        pub static GOES_WELL: Cell<Option<usize>> = const { Cell::new(None) };
    }

    pub(super) fn fail_if_told(place: usize) -> Result<()> {
        match GOES_WELL.take() {
            Some(0) => {
                Err(OffloadError::Lost { block: place as u64, why: "a test took its disk away".to_owned() }.into())
            }
            left => {
                GOES_WELL.set(left.map(|left| left - 1));
                Ok(())
            }
        }
    }
}
