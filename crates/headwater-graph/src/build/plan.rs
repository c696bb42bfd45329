//! How an edge list will be sorted, and what that costs: numbers in, numbers out.
//!
//! Edges are first dealt into buckets of neighbouring rows and then sorted bucket by bucket, so that each step works in
//! the cache. The dealt edges need memory of their own. It is kept within half of input and output together by dealing
//! the edges in as few segments as fit.

use serde::Serialize;

/// What is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildSize {
    /// Rows of the result.
    pub rows: u64,
    /// Edges.
    pub edges: u64,
    /// Bytes of everything given.
    pub input_bytes: u64,
    /// Bytes of the result that belong to one edge: its neighbour, and its id, weight and time where they are kept.
    pub edge_bytes: u64,
    /// How many arrays those are.
    pub lanes: u64,
    /// Threads at work.
    pub threads: u64,
}

/// What a build takes, known beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BuildPlan {
    /// Bytes of everything given.
    pub input_bytes: u64,
    /// Bytes of the result.
    pub output_bytes: u64,
    /// The most bytes at any time, input and output included.
    pub peak_bytes: u64,
    /// Edges are dealt in so many segments.
    pub segments: u64,
    /// Edges of a segment.
    pub segment_edges: u64,
    /// A bucket has 2 to this many rows.
    pub bucket_rows_log2: u32,
    /// Buckets.
    pub buckets: u64,
    /// A segment is dealt by so many independent strips.
    pub strips: u64,
    /// Edges a strip deals at a time.
    pub block_edges: u64,
}

/// Offsets of more rows are in no memory. Sums of bytes stay far from overflow.
pub(super) const MOST_ROWS: u64 = 1 << 48;
/// A row within its bucket has 16 bits.
const MOST_BUCKET_ROWS_LOG2: u32 = 16;
/// More buckets than this only where rows within a bucket would not have numbers otherwise.
const WANTED_BUCKETS: u64 = 1024;
/// Fewer edges than this are not worth a bucket.
const LEAST_BUCKET_EDGES: u64 = 4096;
/// Strips are many more than cores, so that none waits long for the last, and as many for any number of cores.
const MOST_STRIPS: u64 = 64;
/// A block is sorted within a core's own cache.
const BLOCK_EDGES: u64 = 1 << 15;
/// Edges a bucket gets of a block, so that they are worth a copy.
const LEAST_RUN_EDGES: u64 = 16;
/// Even where memory is short, a segment is not smaller: dealing costs a fixed sum a segment.
const LEAST_SEGMENT_EDGES: u64 = 1 << 16;
const MOST_SEGMENTS: u64 = 64;

/// Decides how to sort. More rows than any memory holds count as the most there can be.
#[must_use]
pub fn build_plan(size: &BuildSize) -> BuildPlan {
    let size = &BuildSize { rows: size.rows.min(MOST_ROWS), ..*size };
    let output_bytes = 8 * (size.rows + 1) + size.edges * size.edge_bytes;
    let bucket_rows_log2 = bucket_rows_log2(size);
    let buckets = size.rows.div_ceil(1 << bucket_rows_log2).max(1);
    let block_edges = BLOCK_EDGES.max((buckets * LEAST_RUN_EDGES).next_power_of_two()).min(size.edges.max(1));
    let strips = size.edges.div_ceil(block_edges).clamp(1, MOST_STRIPS);
    let plan = BuildPlan {
        input_bytes: size.input_bytes,
        output_bytes,
        peak_bytes: 0,
        segments: 1,
        segment_edges: size.edges,
        bucket_rows_log2,
        buckets,
        strips,
        block_edges,
    };
    let fixed_bytes = plan.fixed_bytes(size);
    let dealt_bytes = 2 + size.edge_bytes;
    let allowed_bytes = ((size.input_bytes + output_bytes) / 2).saturating_sub(fixed_bytes);
    let least = LEAST_SEGMENT_EDGES.max(size.edges.div_ceil(MOST_SEGMENTS));
    let segments = size.edges.div_ceil((allowed_bytes / dealt_bytes).max(least)).max(1);
    let segment_edges = size.edges.div_ceil(segments);
    let peak_bytes = size.input_bytes + output_bytes + fixed_bytes + segment_edges * dealt_bytes;
    BuildPlan { segments, segment_edges, peak_bytes, ..plan }
}

fn bucket_rows_log2(size: &BuildSize) -> u32 {
    let wanted = (size.edges / LEAST_BUCKET_EDGES).clamp(1, WANTED_BUCKETS);
    let rows = size.rows.div_ceil(wanted).max(1);
    rows.next_power_of_two().trailing_zeros().min(MOST_BUCKET_ROWS_LOG2)
}

impl BuildPlan {
    /// Bytes that do not grow with the edges: each thread's block and cursors, each strip's view of every bucket.
    fn fixed_bytes(&self, size: &BuildSize) -> u64 {
        let block = self.block_edges * (4 + 2 + 2 * 8) + self.buckets * 8;
        let cursors = 8 << self.bucket_rows_log2;
        let cells = self.strips * self.buckets * (8 + 16 * (1 + size.lanes));
        let outputs = self.buckets * 16 * (2 + 2 * size.lanes);
        size.threads * (block + cursors) + cells + outputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_of(rows: u64, edges: u64, given_bytes: u64, edge_bytes: u64, threads: u64) -> BuildPlan {
        let input_bytes = edges * given_bytes;
        build_plan(&BuildSize { rows, edges, input_bytes, edge_bytes, lanes: edge_bytes / 4, threads })
    }

    #[test]
    fn memory_stays_within_half_again_of_input_and_output() {
        for (rows, edges) in [(1 << 20, 1 << 24), (111_059_956, 1_615_685_872), (1 << 33, 1 << 36), (10, 1 << 30)] {
            for (given, kept) in [(8, 4), (8, 8), (8, 16), (16, 4), (24, 24), (16, 8)] {
                let plan = plan_of(rows, edges, given, kept, 16);
                let allowed = (plan.input_bytes + plan.output_bytes) / 2 * 3 + (32 << 20);
                assert!(plan.peak_bytes <= allowed, "{rows} rows, {edges} edges, {given}, {kept}: {plan:?}");
                assert!(plan.segments * plan.segment_edges >= edges);
                assert!(plan.segments <= 8, "{plan:?}");
                assert!(plan.buckets << plan.bucket_rows_log2 >= rows);
            }
        }
    }

    #[test]
    fn one_segment_where_memory_allows_it() {
        assert_eq!(plan_of(1 << 24, 1 << 28, 8, 4, 2).segments, 1);
        assert_eq!(plan_of(1 << 24, 1 << 28, 8, 8, 2).segments, 2);
    }

    #[test]
    fn small_graphs_have_small_plans() {
        assert_eq!(plan_of(0, 0, 8, 4, 16).segments, 1);
        let tiny = plan_of(7262, 470, 8, 4, 2);
        assert_eq!((tiny.buckets, tiny.strips, tiny.segments), (1, 1, 1));
        assert!(tiny.peak_bytes < 512 << 10, "{tiny:?}");
    }
}
