// Rows with very many edges, each of which a thread block has: 512 threads share its edges, so the row with most of them takes
// about as long as 32 or 64 times fewer. Which rows these are is listed once a graph; of a sampled block, whose rows change, blocks
// look for them.
//
// Bytes: where rows are looked for, two bounds a row, by neighbouring threads.

#define HW_HUB_THREADS 512
// Edges that a group of lanes has alone at most.
#define HW_MOST_ALONE 512
// Edges of one of a hub's pairs that a group has alone at most, where a thread block has the hub.
#define HW_MOST_BELOW 64

// Rows of a domain with more edges than that. HW_MAP_LISTED: the first `count` of `list`; else those that `starts` says.
struct HwHubs {
    u64 kind;
    u64 count;
    const u32 *list;
    const u32 *starts;
};

__device__ inline bool hw_is_hub(const HwHubs &hubs, u32 row) {
    if (hubs.kind == HW_MAP_LISTED && hubs.count == 0) return false;
    return hubs.starts[row + 1] - hubs.starts[row] > HW_MOST_ALONE;
}

// Calls `body` with every hub that this block has. All threads call it together.
template <class Body> __device__ inline void hw_each_hub(const HwHubs &hubs, u32 rows, const Body &body) {
    if (hubs.kind == HW_MAP_LISTED) {
        for (u64 at = blockIdx.x; at < hubs.count; at += gridDim.x) body(hubs.list[at]);
        return;
    }
    __shared__ u32 found[HW_HUB_THREADS];
    for (u64 first = (u64)blockIdx.x * HW_HUB_THREADS; first < rows; first += (u64)gridDim.x * HW_HUB_THREADS) {
        const u64 row = first + threadIdx.x;
        const bool is_hub = row < rows && hw_is_hub(hubs, (u32)row);
        if (!__syncthreads_or(is_hub)) continue;
        found[threadIdx.x] = is_hub;
        __syncthreads();
        for (u32 at = 0; at < HW_HUB_THREADS; at++) {
            if (found[at]) body((u32)first + at);
        }
        __syncthreads();
    }
}
