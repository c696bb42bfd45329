//! One table over several memories: `gather(ids)` gives rows from wherever they lie.
//!
//! Rows are cut by number: the first in every GPU, the next with the members of a group in turn, the next in pinned host
//! memory. A gather puts its ids into the order of rows, which is the order of heat and of addresses alike, and then runs
//! one kernel: a few blocks read host memory in address order, as fast as the link goes, while all others read GPU memory.
//! It runs on the caller's stream and waits for nobody.

mod cpu;
mod cuda;
mod layout;
mod place;
#[cfg(test)]
mod tests;

pub use cpu::HostRows;
pub use cuda::kernel_builds;
pub use layout::{Layout, Spot};
pub use place::{Served, TieredTable};
