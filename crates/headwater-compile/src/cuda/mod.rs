//! Programs as CUDA C++: one text a program, compiled when it is first run.
//!
//! Every kernel takes the same three pointers: the graph (rows of each domain, maps and lists of members, in the order the
//! text names them), the buffers, and the key of the step. Sizes are read from there and not from the launch, so a launch
//! that was recorded serves every graph that fits.
//!
//! | kernel | how |
//! | --- | --- |
//! | a nest | a group of lanes for every outermost row (`nest.rs`); a vector lies across the lanes (`row.rs`) |
//! | a product | tiles of rows of one type (`product.cuh`), then a nest for what is done with them |
//! | outer products | a tile of the matrix, over all rows of its type in order (`outer.cuh`) |
//!
//! No sum is made by atomics: results are the same every time.

pub mod block;
#[expect(clippy::module_inception, reason = "what runs there")]
mod cuda;
mod graph;
mod host;
mod lower;
mod nest;
mod nodes;
mod room;
mod row;
mod text;

#[cfg(test)]
mod tests;

pub use block::{DeviceBlock, Lists, Room, Wants};
pub use cuda::{Bound, DeviceRows, Executor, Give, kernel_builds};
pub use graph::DeviceGraph;
pub use text::{Emitted, Launch, Table, emit};
