//! What leaves a GPU between forward and backward?
//!
//! Activations that the forward pass saves are needed much later, by the backward pass. In between, their bytes may lie in pinned
//! host memory or on disk. They leave while the GPU computes and are back before they are needed.
//!
//! | the question | the room |
//! | --- | --- |
//! | What may happen to a block, and when? | [`block`] |
//! | How do its bytes get to the host and back? | [`Lane`] |
//! | And from there to disk? | [`DiskConfig`], [`Transfer`] |
//! | Who keeps count of all blocks? | [`Offloader`] |
//! | Which blocks should leave, and what does that cost? | [`plan`] |
//! | How do steps become plans, and plans steps? | [`OffloadPolicy`] |
//! | What would a transformer need? | [`model`] |
//!
//! A block is the bytes of one storage as they were when it was saved. At every moment one whole copy of it is valid, and what is
//! read from a disk is compared with its checksum before anybody sees it. The crate knows nothing of layers or of autograd.

pub mod block;
mod direct;
mod disk;
mod entry;
pub mod error;
mod lane;
mod meter;
pub mod model;
mod offloader;
pub mod plan;
mod slots;
mod step;
mod table;
#[cfg(test)]
mod tests;

pub use direct::kernel_builds;
pub use disk::DiskConfig;
pub use disk::transfer::{PieceAnswer, PieceRequest, Transfer};
pub use error::{Error, Result};
pub use lane::{CopyMarks, GpuLane, GpuSlot, HostLane, Lane};
pub use offloader::{BlockId, OffloadCounts, Offloader, OffloaderConfig, SaveOutcome, StoreOutcome};
pub use step::{DeviceUse, Measuring, OffloadPolicy, StepReport};
