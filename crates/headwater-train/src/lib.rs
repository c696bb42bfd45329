//! One epoch after the other: what a training run is made of.
//!
//! This crate wires the rooms together: samplers of `headwater-graph`, tables of `headwater-feature` and layers of
//! `headwater-compile`. It never prints: what happens is told through [`headwater_graph::Progress`] and written into the
//! run's folder.
//!
//! | the question | the room |
//! | --- | --- |
//! | What is a run? | [`run_config`] |
//! | What is learned, and how does it begin? | [`parameter`], [`init`] |
//! | What should it be? How wrong is it, and how good? | [`labels`], [`loss`], [`metric`] |
//! | How does it get better? | [`optimiser`], [`mod@clip`], [`schedule`] |
//! | Where are its features? | [`placement`] |
//! | How does it run on a GPU? | [`gpu`] |
//! | When is it good enough? | [`early_stop`] |
//! | How does a step run on a GPU? | [`device`], and a `device` below each part |
//! | What does it say of these nodes? | [`layerwise`], [`node_list`], [`predictions`] |
//! | Which graph was it trained on? | [`origin`] |
//! | What does a run leave behind? | [`checkpoint`], [`journal`], [`whole_file`] |
//! | How many threads? | [`threads`] |
//! | Who writes there? | [`run_folder`] |
//!
//! Everything here is f32, in parallel, and equal to the bit for any number of threads.

pub mod array;
pub mod blocks;
pub mod checkpoint;
pub mod clip;
pub mod device;
pub mod early_stop;
pub mod error;
mod features;
pub mod gpu;
pub mod gradient;
pub mod init;
pub mod journal;
pub mod labels;
pub mod layerwise;
pub mod loss;
pub mod metric;
pub mod network;
pub mod node_list;
pub mod optimiser;
pub mod origin;
pub mod parameter;
pub mod placement;
pub mod predictions;
pub mod run_config;
pub mod run_folder;
pub mod schedule;
pub mod task;
pub mod threads;
pub mod trainer;
pub mod whole_file;

pub use array::Array;
pub use checkpoint::{Checkpoint, Checkpoints, Fingerprint, Snapshot};
pub use early_stop::{EarlyStop, Patience};
pub use error::{Error, Result};
pub use gradient::{Gradient, RowGradient};
pub use init::Init;
pub use journal::Journal;
pub use labels::Labels;
pub use loss::{Loss, Rows, Targets};
pub use metric::{Meter, Metric};
pub use optimiser::Optimiser;
pub use origin::Origin;
pub use parameter::{Parameter, Parameters};
pub use run_config::{RunConfig, RunFile};
pub use run_folder::RunFolder;
pub use schedule::Schedule;
