//! The integration tests: one program, the same body on every device.
//!
//! Tests that need a GPU have `device` in their path and skip without one. What only the emulator can tell (what is alive,
//! a limit that is set) is skipped on a real GPU.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot go on should say where"
)]
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]
#![allow(unsafe_code, reason = "kernels are declared here, and memory that tests own is registered")]

mod child;
mod device_cache;
mod device_current;
mod device_graphs;
mod device_launch;
mod device_layer;
mod device_leaks;
mod device_memory;
mod device_placed;
mod device_pools;
mod device_probing;
mod device_random;
mod device_registry;
mod device_requests;
mod device_table;
mod device_two_processes;
mod emulator;
mod kernels;
mod nvrtc;
mod scripts;
mod socket;
mod tidy;
