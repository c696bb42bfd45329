// Puts row ids into address order, as far as that pays: a partition by the leading bits of the row.
//
// Random rows of a large host table are bound by address translation, about 64 KiB at a time. Visiting the table front to
// back makes every translation serve all rows behind it. The order inside a bucket does not matter as long as a bucket is
// no wider than the window of rows in flight, so one counting pass over a few thousand buckets does what a full sort
// would: count, prefix sum, scatter. Rows of one bucket land in any order; where each row is written is carried along, so
// the gathered result does not depend on it.
//
// Defines: ID, ID_BYTES; ROW (type of an ordered row: u32 or u64), ROW_BYTES; BUCKETS (a power of two, a multiple of
// THREADS), THREADS (threads a block).

__device__ __forceinline__ u32 bucket_of(u64 row, u64 rows, u32 shift) {
    // Bad ids go last; they must only not break the partition.
    const u64 bucket = row < rows ? row >> shift : BUCKETS;
    return bucket < BUCKETS ? (u32)bucket : BUCKETS - 1;
}

extern "C" __global__ void __launch_bounds__(THREADS) order_count(const ID* __restrict__ ids, u64 count, u64 rows, u32 shift, u32* counts) {
    __shared__ u32 mine[BUCKETS];
    for (u32 b = threadIdx.x; b < BUCKETS; b += THREADS) mine[b] = 0;
    __syncthreads();
    const u64 step = (u64)gridDim.x * THREADS;
#pragma unroll 4
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < count; i += step)
        atomicAdd(&mine[bucket_of((u64)(i64)ids[i], rows, shift)], 1u);
    __syncthreads();
    for (u32 b = threadIdx.x; b < BUCKETS; b += THREADS)
        if (mine[b]) atomicAdd(&counts[b], mine[b]);
}

// One block: counts become starting positions. Behind them goes how many of the table's pieces, each behind a translation of
// its own, the rows from `first_bucket` on are expected to touch: a bucket has `pieces` of them.
extern "C" __global__ void __launch_bounds__(THREADS) order_scan(u32* counts, u32 first_bucket, float pieces) {
    __shared__ u32 sums[THREADS];
    __shared__ float touched;
    if (threadIdx.x == 0) touched = 0;
    __syncthreads();
    const u32 each = BUCKETS / THREADS, first = threadIdx.x * each;
    u32 sum = 0;
    float mine = 0;
    for (u32 b = first; b < first + each; b++) {
        sum += counts[b];
        if (b >= first_bucket) mine += pieces * (1.0f - expf(-(float)counts[b] / pieces));
    }
    mine = hw_warp_sum(mine);
    if (threadIdx.x % 32 == 0 && mine > 0) atomicAdd(&touched, mine);
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (u32 reach = 1; reach < THREADS; reach *= 2) {
        const u32 left = threadIdx.x >= reach ? sums[threadIdx.x - reach] : 0;
        __syncthreads();
        sums[threadIdx.x] += left;
        __syncthreads();
    }
    u32 start = sums[threadIdx.x] - sum;
    for (u32 b = first; b < first + each; b++) {
        const u32 next = start + counts[b];
        counts[b] = start;
        start = next;
    }
    if (threadIdx.x == 0) counts[BUCKETS] = (u32)touched;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    order_scatter(const ID* __restrict__ ids, u64 count, u64 rows, u32 shift, u32* starts, ROW* __restrict__ ordered,
                  u32* __restrict__ places, Fault* fault) {
    __shared__ u32 mine[BUCKETS];
    for (u32 b = threadIdx.x; b < BUCKETS; b += THREADS) mine[b] = 0;
    __syncthreads();
    // Each block takes one stretch of the ids, so that it reserves its places only once.
    const u64 share = (count + gridDim.x - 1) / gridDim.x, begin = share * blockIdx.x;
    const u64 end = begin + share < count ? begin + share : count;
#pragma unroll 4
    for (u64 i = begin + threadIdx.x; i < end; i += THREADS) atomicAdd(&mine[bucket_of((u64)(i64)ids[i], rows, shift)], 1u);
    __syncthreads();
    for (u32 b = threadIdx.x; b < BUCKETS; b += THREADS)
        if (mine[b]) mine[b] = atomicAdd(&starts[b], mine[b]);
    __syncthreads();
#pragma unroll 4
    for (u64 i = begin + threadIdx.x; i < end; i += THREADS) {
        const u64 row = (u64)(i64)ids[i];
        const u32 at = atomicAdd(&mine[bucket_of(row, rows, shift)], 1u);
        // A bad id is named here, where it is still as it was written; the largest ROW keeps it bad.
        if (row >= rows) hw_fault(fault, FAULT_ID_OUT_OF_RANGE, i, row, rows);
        // Ids that somebody changes meanwhile must not lead out of the lists.
        if (at >= count) continue;
        ordered[at] = row < rows ? (ROW)row : (ROW)~0ull;
        places[at] = (u32)i;
    }
}
