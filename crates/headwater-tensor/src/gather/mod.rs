//! Row gather: `out[i] = table[ids[i]]`, to the bit, for rows of any width and any alignment, from any memory.
//!
//! In: a table of `rows` rows of `width_bytes` bytes in GPU memory, in host memory the GPU can reach, or in ordinary host
//! memory; ids as u32, u64, i32 or i64, in any order, repeated or not. Out: as many rows. Tables may be larger than
//! 4 GiB and have more than 2^32 elements.
//!
//! A bad id is an error that names it. On the CPU it is returned at once. On the GPU nothing waits for the host: the row
//! comes out zeroed, nothing outside the table is read, and the error is returned by the next synchronisation of the
//! stream. The gather runs on the caller's stream.
//!
//! The result does not depend on the [`Variant`], which only says how it is done; [`plan`](plan::plan) chooses. The GPU
//! ways never wait for the host, except `cpu` and `hybrid`, which use CPU threads and return when those are done.

mod builds;
mod courier;
mod cpu;
mod cuda;
mod hybrid;
pub mod plan;
mod staged;
#[cfg(test)]
mod tests;

pub use builds::kernel_builds;
pub use cpu::gather as gather_on_cpu;
pub use cuda::{BUCKETS_LOG2, GpuGather, LINES_HEADER, Ordered, OrderedRows, SOURCES, order_rows};
pub use plan::{GatherOptions, Variant};
pub use staged::StagedGather;

pub use crate::ids::{IdSlice, IdType};
use headwater_cuda::Span;

/// What a gather refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GatherError {
    /// An id that is no row of the table.
    #[error("id {id} at position {position} is out of range for a table of {rows} rows")]
    IdOutOfRange {
        /// Where it stands among the ids.
        position: u64,
        /// The id as it was written.
        id: i128,
        /// Rows of the table.
        rows: u64,
    },
    /// Rows of no bytes.
    #[error("rows of zero bytes cannot be gathered")]
    ZeroWidth,
    /// A table whose bytes are not whole rows.
    #[error("a table of {table_bytes} bytes does not hold {rows} rows of {width_bytes} bytes")]
    TableSize {
        /// Bytes of the table.
        table_bytes: u64,
        /// Rows it should have.
        rows: u64,
        /// Bytes a row.
        width_bytes: u64,
    },
    /// An output of another size.
    #[error("the output has {out_bytes} bytes, {count} rows of {width_bytes} bytes are asked for")]
    OutputSize {
        /// Bytes of the output.
        out_bytes: u64,
        /// Ids.
        count: u64,
        /// Bytes a row.
        width_bytes: u64,
    },
    /// Ids whose address is no multiple of their size.
    #[error("ids of {id_bytes} bytes cannot start at address {address:#x}")]
    IdAlignment {
        /// Where they start.
        address: u64,
        /// Bytes of one.
        id_bytes: usize,
    },
    /// A way of gathering that needs the CPU to read the table, on a table it cannot read.
    #[error("the {variant} gather reads the table with the CPU, and this table lies in GPU memory")]
    TableNotOnHost {
        /// The variant's name.
        variant: &'static str,
    },
}

/// Checks sizes that every way of gathering relies on.
fn check_sizes(table_bytes: u64, rows: u64, width_bytes: u64, count: u64, out_bytes: u64) -> Result<(), GatherError> {
    if width_bytes == 0 {
        return Err(GatherError::ZeroWidth);
    }
    if rows.checked_mul(width_bytes).is_none_or(|need| need > table_bytes) {
        return Err(GatherError::TableSize { table_bytes, rows, width_bytes });
    }
    if count.checked_mul(width_bytes) != Some(out_bytes) {
        return Err(GatherError::OutputSize { out_bytes, count, width_bytes });
    }
    Ok(())
}

/// Gathers from a host table into a host output, checking sizes first.
pub fn gather_host(table: &[u8], width_bytes: usize, ids: IdSlice<'_>, out: &mut [u8]) -> Result<(), GatherError> {
    let rows = (table.len() / width_bytes.max(1)) as u64;
    check_sizes(table.len() as u64, rows, width_bytes as u64, ids.len() as u64, out.len() as u64)?;
    cpu::gather(table, width_bytes, ids, out)
}

/// The largest power of two, up to a line, that divides every address and the width.
fn alignment_bytes(spans: [&Span; 2], width_bytes: u64) -> u64 {
    let bits = spans.iter().fold(width_bytes, |bits, span| bits | span.pointer());
    1 << bits.trailing_zeros().min(7)
}
