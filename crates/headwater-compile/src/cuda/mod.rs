//! Programs as CUDA C++: one text a program, compiled when it is first run.
//!
//! Every kernel takes the same three pointers: the graph (rows of each domain, maps and lists of members, in the order the
//! text names them), the buffers, and the key of the step. Sizes are read from there and not from the launch, so a launch
//! that was recorded serves every graph that fits.
//!
//! | kernel | how |
//! | --- | --- |
//! | a nest | a group of lanes for every outermost row (`loops.rs`, `nest.rs`, `chunk.rs`); a vector lies across the lanes (`row.rs`), what is short in one of them (`lane.rs`) |
//! | rows of a nest with very many edges | a thread block of the same launch for each, before all others (`nest.rs`, `order.cuh`) |
//! | rows by themselves | a thread for every element, or for four (`element.rs`) |
//! | sums over all rows | parts of the rows, then their totals (`split.rs`, `sums.cuh`) |
//! | a product | tiles of rows of one type by tensor cores (`product.cuh`, `mma.cuh`), and what is done with them at once (`epilogue.rs`) |
//! | products that are added up by node | sums of neighbouring nodes in shared memory, tiles of rows of one type that belong to these (`product_sum.cuh`) |
//! | a product and nothing else, of a number of rows that is known | by cuBLAS, where it is there (`dense.rs`) |
//! | outer products | tiles of the matrix over parts of the rows of its type, then their totals (`outer.cuh`) |
//!
//! No sum is made by atomics: results are the same every time.

pub mod block;
mod chunk;
#[expect(clippy::module_inception, reason = "what runs there")]
mod cuda;
mod dense;
mod depend;
mod element;
mod epilogue;
mod graph;
mod host;
mod lane;
mod loops;
mod lower;
mod nest;
mod nodes;
mod phase;
mod product;
mod repeat;
mod row;
mod scalar;
mod split;
mod table;
mod tell;
mod text;
mod tune;

#[cfg(test)]
mod tests;

pub use block::{DeviceBlock, Lists, Room, Wants};
pub use cuda::{Bound, DeviceRows, Executor, Give, kernel_builds, layer_builds};
pub use dense::Dense;
pub use graph::DeviceGraph;
#[cfg(test)]
pub(crate) use repeat::MOST_PLACES;
pub(crate) use repeat::Repeats;
pub use repeat::{CallMemory, RepeatCounts, StepKey};
pub use table::Table;
pub use text::{Blocks, Emitted, Launch, emit};
pub use tune::{Chosen, Tuning, chosen, modelled, tuned};

/// The oldest compute capability that runs these kernels: products are made by tensor cores of TF32 and bf16, and copies into
/// shared memory go on by themselves.
pub const LEAST_CAPABILITY: (u32, u32) = (8, 0);

/// How exact products are. Everything else is single precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// Plain arithmetic in single precision.
    F32,
    /// Tensor cores that keep 11 bits of each number.
    Tf32,
    /// Tensor cores, three products for one: as exact as single precision.
    #[default]
    Tf32x3,
    /// Tensor cores that keep 8 bits of each number.
    Bf16,
}
