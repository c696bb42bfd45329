//! Where bytes live and how they move.
//!
//! A machine has several memories: a GPU's own, host memory the GPU can reach, ordinary host memory, files. This crate
//! holds plain arrays in each of them and gives their bytes no meaning.
//!
//! | the question | the room |
//! | --- | --- |
//! | Which memories are there, and how much is left? | [`Tier`], [`Capacity`] |
//! | An array in one of them | [`Buffer`], with the place in its type |
//! | Short-lived arrays, again and again | [`Pool`], which hands out [`Lease`]s |
//! | A lot of pinned memory, fast | [`pinned_arena`], [`pinned_slots`] |
//! | One piece of memory for buffers whose lifetimes are known | [`place_by_lifetime`] |
//! | Memory somebody else owns | [`Foreign`], [`LentHost`], [`map_file`], [`lay_over`], [`Registered`] |
//! | Memory of another process | [`SharedHost`], [`send_device`], [`receive_device`] |
//! | Files | [`io`] |
//!
//! Who feeds it: `headwater-cuda` makes device memory and registers host memory. Who reads it: tensors, feature tables
//! and the offloader. Nothing here waits without a bound, and every pool says how much it holds.
//!
//! ```
//! use headwater_memory::{Buffer, Host};
//! let mut rows = Buffer::<f32, Host>::new(4)?;
//! rows.as_mut_slice()[1..3].copy_from_slice(&[2.0, 3.0]);
//! assert_eq!(rows.as_slice(), [0.0, 2.0, 3.0, 0.0]);
//! # Ok::<(), headwater_memory::Error>(())
//! ```
#![allow(unsafe_code, reason = "allocators, registration and I/O are this crate's work")]

mod arena;
mod buffer;
mod error;
mod foreign;
mod gathered;
mod huge;
pub mod io;
mod lent;
mod lifetimes;
mod map_file;
mod mapping;
mod nontemporal;
mod pin;
mod pinned_io;
mod pool;
mod registry;
mod share;
mod tier;
mod upload;

pub use arena::{pinned_arena, pinned_slots};
pub use buffer::{Buffer, Device, GpuVisible, Host, HostReadable, HostWritable, Managed, Pinned, WriteCombined};
pub use error::{Error, Result};
pub use foreign::{Foreign, Moved, Owner};
pub use gathered::add_gathered;
pub use huge::{filled, read_tail};
pub use lent::LentHost;
pub use lifetimes::{Lifetime, place_by_lifetime};
pub use map_file::{map_file, map_file_for_writers};
pub use mapping::Mapping;
pub use nontemporal::{prefetch_element, stream_copy, stream_fence};
pub use pin::pin;
pub use pool::{Lease, Pool, PoolConfig, PoolUse};
pub use registry::{Registered, RegistryUse, lay_over, registry_use};
pub use share::{SharedHost, receive_device, send_device};
pub use tier::{Capacity, Tier, host_bytes_available, lockable_bytes};
pub use upload::{Uploader, upload};
