//! Local numbers as other libraries index with: 64 bits instead of 32.
//!
//! In: numbers of 32 bits, in one piece or several. Out: the same numbers of 64 bits, piece behind piece. Samples keep 32
//! bits, which halves what their kernels write; torch indexes with 64.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

pub use cpu::widen as widen_on_cpu;
pub use cuda::kernel_builds;
pub(crate) use cuda::widen;
