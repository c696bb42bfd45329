//! Give me these rows, from wherever they are.
//!
//! A table of features may be larger than a GPU's memory, than a group's, than the host's. Its rows are put in the order
//! of how often they are read, and that order is cut into tiers: the hottest rows in every GPU, the next spread over a
//! group of GPUs, the next in pinned host memory, the rest on disk. To whoever asks for rows there is one table.
//!
//! | the question | the room |
//! | --- | --- |
//! | How many reads do the hottest rows get? | [`curve`] |
//! | Which GPUs share a table? | [`group`] |
//! | How many rows in which memory? | [`plan`] |
//! | And when several tables share it? | [`together`] |
//! | How is a row stored? | [`rows`] |
//! | Does it begin on a line? | [`padding`] |
//! | Where are these rows? | [`table`] |
//! | And those that stay in a file? | [`disk`] |
//! | The same, as GraphLearn's users know it | [`Feature`], [`UnifiedTensor`] |
//!
//! The crate knows nothing of edges: who is read how often comes as plain numbers.

pub mod curve;
pub mod disk;
pub mod error;
mod feature;
pub mod group;
pub mod padding;
pub mod plan;
pub mod rows;
pub mod table;
pub mod together;

pub use curve::Curve;
pub use disk::{DiskCounts, DiskOptions, DiskRows, PageSums, RowFile};
pub use error::{Error, Result};
pub use feature::{Feature, FeatureOptions};
pub use group::{DeviceGroup, device_groups};
pub use headwater_memory::host_bytes_available;
pub use padding::choose_padding;
pub use plan::{Budget, Demand, Forecast, Links, Room, Tier, TierPlan, working_set_bytes};
pub use rows::{RowFormat, Stored};
pub use table::{
    HostHome, HostServed, HostTable, HostTables, IdMap, Layout, Placement, Served, Source, TieredTable, UnifiedTensor,
    WINDOW,
};
pub use together::{SharedPlan, hit_rate};

/// Every kernel text of this crate with every set of defines it is used with, for tests that compile all of them.
#[must_use]
pub fn kernel_builds() -> Vec<(&'static headwater_cuda::Source, headwater_cuda::Defines)> {
    table::kernel_builds()
}
