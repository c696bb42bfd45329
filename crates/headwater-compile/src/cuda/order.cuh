// In which order the rows of a nest are walked: those with most members first, each of the longest by a whole thread block, so that no
// row is still under way when all others are done, and lanes of a warp have rows that are about as long. The order is listed once a
// graph; rows of a sampled block change from batch to batch and go as they come.
//
// Bytes: 4 a row of the list. Of a sampled block, the bounds of rows once more, out of a cache.

// Threads of a block that walks rows.
#define HW_WALK_THREADS 256
// Edges of a row of a sampled block that a group of lanes has alone at most; of a listed graph, `graph.rs` chooses.
#define HW_MOST_ALONE 512
// Edges of one of a hub's pairs that a group has alone at most, where a thread block has the hub.
#define HW_MOST_BELOW 64

// HW_MAP_LISTED: all rows in `list`, the first `count` of which are hubs; else rows in order, and hubs those that `starts` says.
struct HwOrder {
    u64 kind;
    u64 count;
    const u32 *list;
    const u32 *starts;
};

// Thread blocks that have a hub each; those behind them have the other rows.
__device__ inline u32 hw_hub_blocks(const HwOrder &order) { return order.kind == HW_MAP_LISTED ? (u32)order.count : 0; }

__device__ inline u32 hw_ordered(const HwOrder &order, u32 at) { return order.kind == HW_MAP_LISTED ? order.list[at] : at; }

// Whether a group passes over a row because its thread block has it. A list has no hubs among the rows of groups.
__device__ inline bool hw_is_hub(const HwOrder &order, u32 row) {
    return order.kind != HW_MAP_LISTED && order.starts[row + 1] - order.starts[row] > HW_MOST_ALONE;
}

// Calls `body` with the hubs of this block: the listed one, or those that it finds in its part of the rows. All threads call it together.
template <class Body> __device__ inline void hw_each_hub(const HwOrder &order, u32 rows, const Body &body) {
    const bool is_listed = order.kind == HW_MAP_LISTED;
    u64 at = blockIdx.x, end = at < order.count ? at + 1 : at;
    if (!is_listed) {
        at = (u64)rows * blockIdx.x / gridDim.x, end = (u64)rows * (blockIdx.x + 1) / gridDim.x;
        bool is_any = false;
        for (u64 row = at + threadIdx.x; row < end; row += HW_WALK_THREADS) is_any = is_any || hw_is_hub(order, (u32)row);
        if (!__syncthreads_or(is_any)) return;
    }
    for (; at < end; at++) {
        if (is_listed || hw_is_hub(order, (u32)at)) body(hw_ordered(order, (u32)at));
    }
}
