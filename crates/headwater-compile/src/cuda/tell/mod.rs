//! A few words that only the host knows, written into GPU memory.
//!
//! In: words of 64 bits, which travel inside the launch. Out: the same words where kernels read them. A copy out of a slice
//! would have to wait until it was made; this waits for nothing, and can be recorded.

#[cfg(test)]
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

pub use cuda::kernel_builds;
pub(crate) use cuda::tell;
