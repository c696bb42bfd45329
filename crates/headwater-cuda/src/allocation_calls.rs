//! Calls that ask the driver for memory: how many there were, and what one says that was refused.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::host_memory::HostMemory;

const OUT_OF_MEMORY: c_int = 2;

/// Since the process began. Pools show with it that they save such calls.
static ALLOCATION_CALLS: AtomicU64 = AtomicU64::new(0);

/// How often this process asked the driver to allocate, free, register or unregister memory.
#[must_use]
pub fn allocation_calls() -> u64 {
    ALLOCATION_CALLS.load(Ordering::Relaxed)
}

pub(crate) fn count_call() {
    ALLOCATION_CALLS.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn check_allocation(
    gpu: &Gpu,
    what: &'static str,
    call: &'static str,
    code: c_int,
    bytes: usize,
) -> Result<()> {
    count_call();
    if code != OUT_OF_MEMORY {
        return gpu.driver().check(call, code);
    }
    let host = what.contains("host").then(HostMemory::now).map(|host| (host.free_bytes, host.total_bytes));
    let of_gpu = || gpu.memory().map(|own| (own.free_bytes, own.total_bytes));
    let (free_bytes, total_bytes) = host.map_or_else(of_gpu, Ok)?;
    Err(Error::OutOfMemory { what, asked_bytes: bytes, free_bytes, total_bytes })
}
