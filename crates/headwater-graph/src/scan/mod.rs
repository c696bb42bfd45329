//! Counts to offsets on the GPU: `offsets[i] = counts[0] + ... + counts[i - 1]`, and the total.
//!
//! In: counts as u32; how many of them count, as a u64 in device memory, because an earlier kernel found it out. Out:
//! offsets as u32 or u64, the total as a u64 in device memory, and the total once more behind the last offset where the
//! offsets have room for it. Nothing waits for the host.
//!
//! A number of counts beyond the room there is, or a total that does not fit 32-bit offsets, is reported by the next
//! synchronisation of the stream; nothing is written outside the buffers.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

pub use cpu::scan as scan_on_cpu;
pub use cuda::{GpuScan, HEADER as CUDA_HEADER, kernel_builds};
pub(crate) use cuda::{HEADER, Tickets, persistent_grid};
