// The lists of one block: edges by target as a sampler hands them over, checked, and where each row's edges begin.
//
// `place` reads 8 bytes an edge and writes 8, or 12 where loops go: a running sum says how many edges stay before each, and
// every target before an edge may have one loop, so an edge knows its place without a second pass. Where all edges stay, that
// sum is the edge's number and the pass a checked copy. `starts` is one search a row: neighbours search the same places,
// so of its log2(edges) loads all but the last few come from cache. A thread an edge that writes all starts since the
// edge before would write a long stretch of empty rows alone. About 10 integer operations an edge; memory bounds both.
//
// A number outside, or a target that falls, is reported, and the block then has no edges: what follows stays inside.
//
// Defines: DROPS (edges of a target to itself go) and ADDS (and each target gets one), 0 or 1; FAULT_FALLING_TARGETS; THREADS, ITEMS (see scan.cuh).

// The first of `count` numbers in order that is not below `row`.
__device__ inline u32 hw_first_not_below(const u32* __restrict__ numbers, u32 count, u32 row) {
    u32 low = 0, high = count;
    while (low < high) {
        const u32 middle = low + (high - low) / 2;
        if (numbers[middle] < row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// Whether edge `i` may be followed; says so where not.
__device__ inline bool is_edge(const u32* sources, const u32* targets, u64 i, u32 src, u32 dst, Fault* fault) {
    const u32 source = sources[i], target = targets[i], before = i > 0 ? targets[i - 1] : 0;
    if (source < src && target < dst && before <= target) return true;
    if (source >= src) {
        hw_fault(fault, FAULT_ID_OUT_OF_RANGE, i, source, src);
    } else if (target >= dst) {
        hw_fault(fault, FAULT_ID_OUT_OF_RANGE, i, target, dst);
    } else {
        hw_fault(fault, FAULT_FALLING_TARGETS, i, target, before);
    }
    return false;
}

// Edges to their places. Where some go, `before[i]` is how many stay before edge i.
extern "C" __global__ void __launch_bounds__(THREADS)
    place(const u32* __restrict__ sources, const u32* __restrict__ targets, u32 edges, u32 src, u32 dst,
          u32* __restrict__ edge_src, u32* __restrict__ edge_dst, u32 room, u32* before, u32 slots, u64* ticket,
          u64* words, u64 tiles, u32* is_bad, Fault* fault) {
    hw_scan(
        edges, ticket, words, tiles,
        [&](u64 i) -> u32 {
            if (!is_edge(sources, targets, i, src, dst, fault)) {
                *is_bad = 1;
                return 0;
            }
            return !DROPS || sources[i] != targets[i];
        },
        [&](u64 i, u32 stays, u64 sum) {
            if (DROPS && i < slots) before[i] = (u32)sum;
            const u64 at = ADDS ? sum + targets[i] : sum;
            if (stays && at < room) {
                edge_src[at] = sources[i];
                edge_dst[at] = targets[i];
            }
        },
        [&](u64 sum) {
            if (DROPS && edges < slots) before[edges] = (u32)sum;
        });
}

// Where each target's edges begin, loops at their ends, and how many rows there are of everything.
extern "C" __global__ void __launch_bounds__(THREADS)
    starts(const u32* __restrict__ targets, u32 edges, u32 src, u32 dst, const u32* __restrict__ before, u32 slots,
           const u32* is_bad, u32* edge_src, u32* edge_dst, u32 room, u32* __restrict__ dst_starts, u32 dst_slots,
           u32* counts, u32* ranges) {
    const bool is_empty = *is_bad != 0;
    for (u64 row = (u64)blockIdx.x * THREADS + threadIdx.x; row < dst_slots; row += (u64)gridDim.x * THREADS) {
        u32 at = is_empty ? 0 : hw_first_not_below(targets, edges, (u32)row);
        if (DROPS && !is_empty) at = at < slots ? before[at] : 0;
        if (ADDS && !is_empty) {
            at += (u32)row;
            // The edge before this row's first is the loop of the row before.
            if (row > 0 && at - 1 < room) edge_src[at - 1] = edge_dst[at - 1] = (u32)row - 1;
        }
        dst_starts[row] = at;
        if (row == dst) {
            const u32 rows[8] = {1, 1, 1, src, dst, 0, 0, at};
            for (int k = 0; k < 8; k++) counts[k] = rows[k];
            ranges[0] = ranges[2] = ranges[4] = 0;
            ranges[1] = src;
            ranges[3] = dst;
            ranges[5] = at;
        }
    }
}

// Where each source's edges begin among edges sorted by source.
extern "C" __global__ void __launch_bounds__(THREADS)
    source_starts(const u32* __restrict__ sorted, u32 room, const u32* count, u32* __restrict__ src_starts,
                  u32 src_slots) {
    const u32 edges = *count < room ? *count : room;
    for (u64 row = (u64)blockIdx.x * THREADS + threadIdx.x; row < src_slots; row += (u64)gridDim.x * THREADS) {
        src_starts[row] = hw_first_not_below(sorted, edges, (u32)row);
    }
}
