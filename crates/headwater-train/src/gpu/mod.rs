//! Training on a GPU.
//!
//! | the question | the room |
//! | --- | --- |
//! | Can this run be on a GPU, and on which? | [`choose`] |
//! | What is learnt, in GPU memory | `flat.rs` |
//! | Layers as kernels, and memory between them | `layers.rs`, `passes.rs` |
//! | A step: forward, loss, backward, new parameters | `site.rs`, `finish.rs`, `letter.rs` |
//! | Where buffers of a step lie, and which of them leave | `step_memory.rs`, `mover.rs` |
//! | The whole graph at once | `full/`: `shape.rs`, `plan.rs`, `timing.rs` |
//! | Batches, overlapped | `sampled.rs`, `slots.rs`, `capacity.rs`, `pace.rs` |
//! | Where batches come from | `source.rs`, `provide.rs`, `draw.rs`, `features.rs`, `by_copy.rs` |
//! | ... when that is another process | [`beside`] |
//! | Batches of several types | `apart.rs` |
//! | What goes into GPU memory | [`plan`] |
//! | When did what run? | [`timeline`] |
//! | What slows steps down? | [`company`] |
//! | How fast is the loader alone? | `load.rs` |
//!
//! Samples, shuffles and dropouts are drawn as on the CPU, and no sum depends on who comes first: a run repeats to the bit, and
//! differs from the CPU's by rounding alone.

mod apart;
pub mod beside;
mod by_copy;
mod capacity;
pub mod choose;
pub mod company;
mod draw;
mod engine;
mod features;
mod finish;
mod flat;
mod full;
mod layers;
mod letter;
mod load;
pub(crate) mod mover;
mod pace;
mod passes;
pub mod plan;
mod provide;
mod sampled;
mod site;
mod slots;
mod source;
mod step_memory;
pub mod timeline;
mod wait;

pub use features::BroughtRows;
pub use full::{LayerActivations, StepOffload};

pub(crate) use engine::{Engine, Kind, Parts};
pub(crate) use sampled::{Epoch, Step};
pub(crate) use site::Found;
