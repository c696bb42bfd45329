//! What the launches of all operators share: defines, grids, and how far a kernel's structs may reach.

use headwater_cuda::{Defines, Grid, Stream};

use crate::dtype::DType;
use crate::layout::MAX_DIMS;

/// Threads of a block where each thread works alone.
pub(crate) const THREADS: u32 = 256;
/// Blocks an SM is given; more only wait.
const BLOCKS_PER_SM: u32 = 8;

/// The defines every text with `loops.cuh` needs.
pub(crate) fn loop_defines() -> Defines {
    Defines::new().with("HW_MAX_DIMS", MAX_DIMS)
}

/// The defines of a text with one element type. `HW_T_BYTES` is for length rules.
pub(crate) fn typed_defines(dtype: DType) -> Defines {
    loop_defines().with("HW_T", dtype.cuda_name()).with("HW_T_BYTES", dtype.size_bytes())
}

/// A grid of threads that walk `count` items with a stride.
pub(crate) fn grid_for(stream: &Stream, count: usize) -> Grid {
    let most = stream.gpu().facts().sms.saturating_mul(BLOCKS_PER_SM).max(1);
    let wanted = u32::try_from(count.div_ceil(THREADS as usize)).unwrap_or(u32::MAX);
    Grid { blocks: wanted.clamp(1, most), threads: THREADS, shared_bytes: 0 }
}
