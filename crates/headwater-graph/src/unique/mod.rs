//! Local ids on the GPU: every key of a batch gets a small number, new keys in the order of their first occurrence.
//!
//! A batch grows hop by hop. Each hop brings keys (node ids, repeated and in any order); each key gets the number it has,
//! or, when nobody brought it before, the next one, counted in the order of positions. So the numbers are those a loop
//! over the keys would give, whatever the schedule of the GPU's threads, and seeds, brought first, come first.
//!
//! In: keys as u32 or u64; how many count, as a u64 in device memory. Out: the local id of every key, the list of nodes by
//! local id with the new ones appended, and the new number of nodes in device memory. Nothing waits for the host.
//!
//! The key whose bits are all ones cannot be numbered: it marks an empty place of the table. It, more keys than there is
//! room for, and more nodes than there is room for, are reported by the next synchronisation of the stream.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

pub use cpu::Unique;
pub(crate) use cuda::TABLE;
pub use cuda::{GpuUnique, Hop, kernel_builds};
