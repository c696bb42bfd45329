// A running sum over any number of elements in one pass: decoupled look-back (Merrill and Garland, 2016).
//
// Blocks draw tiles in order from a ticket, so whoever waits for an earlier tile waits for a block that is running: no
// deadlock, however few blocks fit the GPU. A tile's block publishes the tile's own sum as soon as it has it, and the sum
// up to the tile's end once it knows what came before; until then later tiles add up the own sums they see. Sum and state
// share one 64-bit word, so a word says all there is to say, and no fence is needed: nothing else passes between blocks.
//
// Elements are loaded once and kept in registers. Warps own runs of 32 * ITEMS elements, which makes every load and store
// of a warp one stretch of memory. Sums are 64 bits wide, of which 62 are used.
//
// Defines: THREADS (threads a block, a multiple of 32), ITEMS (elements a thread).

#define SCAN_TILE ((u64)THREADS * ITEMS)
#define SCAN_OWN (1ull << 62)   // the word holds the sum of its tile
#define SCAN_UP_TO (2ull << 62) // the word holds the sum up to its tile's end
#define SCAN_VALUE (SCAN_OWN - 1)
#define SCAN_ALL_LANES 0xffffffffu

// What is in a device cell, at most `room`. More than that is reported: its writer promised that there is not.
__device__ inline u64 hw_count(const u64* count, u64 room, Fault* fault) {
    const u64 asked = *count;
    if (asked <= room) return asked;
    if (blockIdx.x == 0 && threadIdx.x == 0) hw_fault(fault, FAULT_TOO_MANY, room, asked, room);
    return room;
}

__device__ inline u64 hw_warp_scan(u64 x, u32 lane) {
    for (u32 reach = 1; reach < 32; reach *= 2) {
        const u64 left = __shfl_up_sync(SCAN_ALL_LANES, x, reach);
        if (lane >= reach) x += left;
    }
    return x;
}

// The sum of all tiles before `tile`, found by one warp that looks at 32 words at a time.
__device__ inline u64 hw_look_back(const volatile u64* words, u64 tile, u32 lane) {
    u64 sum = 0;
    for (i64 at = (i64)tile - 1 - (i64)lane;; at -= 32) {
        u64 word;
        do word = at >= 0 ? words[at] : SCAN_UP_TO;
        while (__any_sync(SCAN_ALL_LANES, word < SCAN_OWN));
        const u32 up_to = __ballot_sync(SCAN_ALL_LANES, word >= SCAN_UP_TO);
        // The nearest word that includes everything before it ends the search; what lies beyond it does not count.
        const u32 nearest = up_to ? (u32)__ffs((int)up_to) - 1 : 31;
        const u64 mine = hw_warp_scan(lane <= nearest ? word & SCAN_VALUE : 0, lane);
        sum += __shfl_sync(SCAN_ALL_LANES, mine, 31);
        if (up_to) return sum;
    }
}

// Calls load(i) -> u32 for each i below `count`, store(i, element, sum of the elements before it), and finish(sum of all)
// once. `ticket` and `words` (one a tile, `tiles` of them) are zero before; all threads of all blocks call this.
template <class Load, class Store, class Finish>
__device__ inline void hw_scan(u64 count, u64* ticket, u64* words, u64 tiles, Load load, Store store, Finish finish) {
    __shared__ u64 sums[32];
    __shared__ u64 drawn;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // A sequence of nothing has a sum too.
    const u64 wanted = count ? (count + SCAN_TILE - 1) / SCAN_TILE : 1, end = wanted < tiles ? wanted : tiles;
    for (;;) {
        if (threadIdx.x == 0) drawn = atomicAdd(ticket, 1ull);
        __syncthreads();
        const u64 tile = drawn, first = tile * SCAN_TILE + (u64)warp * 32 * ITEMS + lane;
        if (tile >= end) return;
        u32 elements[ITEMS];
        u64 before[ITEMS], warp_sum = 0;
#pragma unroll
        for (int k = 0; k < ITEMS; k++) elements[k] = first + 32 * k < count ? load(first + 32 * k) : 0;
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            const u64 up_to = hw_warp_scan(elements[k], lane);
            before[k] = warp_sum + up_to - elements[k];
            warp_sum += __shfl_sync(SCAN_ALL_LANES, up_to, 31);
        }
        if (lane == 0) sums[warp] = warp_sum;
        __syncthreads();
        if (warp == 0) {
            const u64 own = lane < THREADS / 32 ? sums[lane] : 0, up_to = hw_warp_scan(own, lane);
            const u64 tile_sum = __shfl_sync(SCAN_ALL_LANES, up_to, 31);
            volatile u64* word = words + tile;
            if (lane == 0 && tile > 0) *word = SCAN_OWN | tile_sum;
            const u64 earlier = hw_look_back(words, tile, lane);
            if (lane == 0) *word = SCAN_UP_TO | (earlier + tile_sum);
            if (lane == 0 && tile == end - 1) finish(earlier + tile_sum);
            sums[lane] = earlier + up_to - own;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < ITEMS; k++)
            if (first + 32 * k < count) store(first + 32 * k, elements[k], sums[warp] + before[k]);
    }
}
