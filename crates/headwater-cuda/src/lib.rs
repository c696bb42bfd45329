//! How Headwater talks to the GPU.
//!
//! | on the CPU | here |
//! | --- | --- |
//! | is there a machine? | [`Gpu::open`], [`Report`] |
//! | `malloc`, `free` | [`Allocation`], freed in stream order once nobody uses it |
//! | a slice | [`Span`] |
//! | a thread | [`Stream`], with [`Event`]s as its marks |
//! | a function | [`Kernel`], declared beside its text, compiled at run time |
//! | `taskset` | [`SmShare`], [`GreenContext`] |
//! | a recorded macro | [`Graph`] |
//!
//! One binary serves machines with and without a GPU: libcuda, NVRTC, cuBLAS, NVML and cuFile are found at run time, and their
//! absence is an [`Error`] that says where they were looked for. This crate never panics because a library is missing,
//! and knows nothing of tiers, graphs or models.
//!
//! # Safety
//! Three promises carry everything unsafe here.
//! - *Handles* are private, made by the driver, and destroyed once, by their owner's `drop`.
//! - *Kernels* are declared once beside their text by an unsafe [`Kernel::declare`], which says how far the text may
//!   reach; launches check every buffer against that.
//! - *Lifetimes on the device*: each launch and copy notes its stream on what it touches, and memory is freed after those
//!   streams, so dropping a buffer early is always fine. What this crate does not do is order two streams that use one
//!   buffer: that is what events are for, and getting it wrong gives wrong numbers, not freed memory.
//!
//! ```
//! use headwater_cuda::Gpu;
//! match Gpu::open(0) {
//!     Ok(gpu) => assert!(gpu.facts().sms > 0),
//!     Err(why) => assert!(!why.to_string().is_empty()), // no GPU here, and the error says what was missing
//! }
//! ```
#![allow(unsafe_code, reason = "this crate is the boundary to the driver")]

mod allocation_calls;
mod bandwidth;
mod branches;
pub mod cache;
mod copy;
mod cublas;
mod cufile;
mod driver;
mod error;
mod gpu;
mod graph;
mod host_memory;
mod kernel;
mod library;
mod module;
mod nvml;
mod nvrtc;
mod passing;
mod recording;
mod registration;
mod report;
mod scratch;
mod share;
mod span;
mod stream;
#[cfg(test)]
mod tests;
mod trace;
mod types;

pub use allocation_calls::allocation_calls;
pub use bandwidth::{Bandwidths, SOURCES};
pub use branches::{Branches, Launched};
pub use cublas::{Gemm, GemmOperand, GemmType, cublas_available};
pub use cufile::{CuFile, DirectFile, DirectMemory};
pub use error::{Error, FAULT_ID_OUT_OF_RANGE, FAULT_TOO_MANY, LaunchProblem, Result};
pub use gpu::{Current, DeviceMemory, Facts, Gpu, PcieLink};
pub use graph::Graph;
pub use host_memory::HostMemory;
pub use kernel::{Element, Grid, Kernel, KernelStruct, Launch, Param, Scalar};
pub use library::Missing;
pub use module::{Defines, Source};
pub use nvml::{Reading, Sensors};
pub use passing::PassingStream;
pub use registration::{Registration, is_pinned};
pub use report::{Found, GpuReport, Report};
pub use scratch::{Scratch, SpareStream};
pub use share::{GreenContext, SmShare};
pub use span::{Allocation, IpcHandle, RegisteredParts, Span};
pub use stream::{Event, Stream};
pub use trace::TracedLaunch;
