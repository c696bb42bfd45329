//! The eager operators, one folder each.
//!
//! A folder holds the contract in words and the checks (`mod.rs`), the CPU path (`cpu.rs`), the CUDA text (`<op>.cu`)
//! and the tests. CPU kernels take slices seen through layouts and write packed row-major outputs that the caller has
//! made; nothing here allocates an array or knows a device.

pub mod copy;
pub mod elementwise;
mod map;
pub mod matmul;
pub mod reduce;
pub mod scatter_add;

#[cfg(test)]
pub(crate) mod testing;
