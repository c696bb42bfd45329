// Puts the items of a hop into the order of their rows' addresses: two launches before the rows are read.
//
// Random rows of a large graph in host memory are bound by address translation, 64 KiB at a time. Rows and their lists
// lie in the order of ids, so visiting items by id makes every translation serve all rows behind it. As for the row
// gather, a partition into a few thousand buckets does what a full sort would: the rows of a bucket are in flight
// together. Which of them comes first depends on chance; nothing else does, because every item writes to places of its
// own.
//
// Per item: 8 bytes of its id, an atomic add in L2 and 4 bytes out; then 12 bytes in and 4 out.
//
// Defines: THREADS, ITEMS (see scan.cuh); MEMBERS, BLOCK_LOG2 (see relation.cuh).

__device__ __forceinline__ u64 bucket_of(const Batch& b, const Relation* relations, const u64* ledger,
                                         const u64* nodes, u64 i) {
    const Asking asking = asking_of(b, relations, ledger, nodes, i);
    const u64 bucket = (relations[asking.relation].row_base + asking.row) >> b.bucket_shift;
    return bucket < b.buckets ? bucket : b.buckets - 1;
}

// Items of the hop that have a place in the order.
__device__ __forceinline__ u64 ordered_items(const Batch& b, const u64* ledger) {
    const u64 asked = ledger[b.items + b.hop * (b.relations + 1) + b.relations];
    return asked < b.order_room ? asked : b.order_room;
}

// One block, after all others: how many rows a bucket has becomes where they begin.
__device__ void begin_buckets(const Batch& b, volatile u32* buckets) {
    __shared__ u64 sums[32];
    const u64 each = (b.buckets + THREADS - 1) / THREADS, first = threadIdx.x * each;
    const u64 end = first + each < b.buckets ? first + each : b.buckets;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 own = 0;
#pragma unroll 8
    for (u64 t = first; t < end; t++) own += buckets[t];
    const u64 up_to = hw_warp_scan(own, lane);
    if (lane == 31) sums[warp] = up_to;
    __syncthreads();
    u64 begin = up_to - own;
    for (u32 earlier = 0; earlier < warp; earlier++) begin += sums[earlier];
    for (u64 t = first; t < end; t++) {
        const u32 count = buckets[t];
        buckets[t] = (u32)begin;
        begin += count;
    }
}

// The how-manieth of its bucket each item is, and where buckets begin.
extern "C" __global__ void __launch_bounds__(THREADS)
    rank(Batch b, const Relation* __restrict__ relations, u64* ledger, const u64* __restrict__ nodes,
         u32* __restrict__ ranks, u32* buckets) {
    __shared__ u64 finished_before;
    if (ledger[OVERFLOWN]) return;
    const u64 thread = (u64)blockIdx.x * THREADS + threadIdx.x, threads = (u64)gridDim.x * THREADS;
    const u64 n = ordered_items(b, ledger);
    for (u64 i = thread; i < n; i += threads)
        ranks[i] = atomicAdd(buckets + bucket_of(b, relations, ledger, nodes, i), 1u);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) finished_before = atomicAdd(ledger + b.ranked + b.hop, 1ull);
    __syncthreads();
    if (finished_before + 1 < gridDim.x) return;
    __threadfence();
    begin_buckets(b, buckets);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    arrange(Batch b, const Relation* __restrict__ relations, const u64* __restrict__ ledger,
            const u64* __restrict__ nodes, const u32* __restrict__ ranks, const u32* __restrict__ buckets,
            u32* __restrict__ order) {
    if (ledger[OVERFLOWN]) return;
    const u64 thread = (u64)blockIdx.x * THREADS + threadIdx.x, threads = (u64)gridDim.x * THREADS;
    const u64 n = ordered_items(b, ledger);
    for (u64 i = thread; i < n; i += threads) {
        const u64 at = (u64)buckets[bucket_of(b, relations, ledger, nodes, i)] + ranks[i];
        if (at < b.order_room) order[at] = (u32)i;
    }
}
