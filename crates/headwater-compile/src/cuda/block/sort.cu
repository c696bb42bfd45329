// Edges by source, those of one source in their order: a radix sort from the lowest digit, 8 bits a pass.
//
// Each pass reads a key and an edge and writes both, once: 16 bytes an edge, 12 in the first pass. A tile learns where
// its digits begin from the tiles before it (decoupled look-back, as in scan.cuh, a thread a digit), so counts are
// neither written nor read again; the totals of all passes are counted in one reading before the first. Within a warp
// the lanes of one digit find each other by a match, which keeps their order and needs no atomics. About 25 integer
// operations an edge and pass.
//
// Defines: PASSES, DIGITS (256), THREADS (a thread a digit), ITEMS (edges a thread).

#define WARPS (THREADS / 32)
#define TILE (THREADS * ITEMS)
#define OWN (1u << 30)   // the word holds the count of its tile
#define UP_TO (2u << 30) // the word holds the count up to its tile's end
#define VALUE (OWN - 1)
#define ALL_LANES 0xffffffffu

__device__ inline u32 digit_of(u32 key, u32 pass) { return key >> (8 * pass) & (DIGITS - 1); }

// How often each digit is there, in every pass. `totals` is zero before.
extern "C" __global__ void __launch_bounds__(THREADS)
    count_digits(const u32* __restrict__ keys, u32 room, const u32* count, u32* totals) {
    __shared__ u32 own[PASSES * DIGITS];
    for (u32 i = threadIdx.x; i < PASSES * DIGITS; i += THREADS) own[i] = 0;
    __syncthreads();
    const u32 edges = *count < room ? *count : room;
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < edges; i += (u64)gridDim.x * THREADS) {
        const u32 key = keys[i];
#pragma unroll
        for (u32 pass = 0; pass < PASSES; pass++) atomicAdd(&own[pass * DIGITS + digit_of(key, pass)], 1u);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < PASSES * DIGITS; i += THREADS) {
        if (own[i]) atomicAdd(&totals[i], own[i]);
    }
}

// The sum of the numbers of the threads before this one.
__device__ inline u32 sum_before(u32 own, u32* warp_sums) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 up_to = own;
    for (u32 reach = 1; reach < 32; reach *= 2) {
        const u32 left = __shfl_up_sync(ALL_LANES, up_to, reach);
        if (lane >= reach) up_to += left;
    }
    if (lane == 31) warp_sums[warp] = up_to;
    __syncthreads();
    u32 earlier = 0;
    for (u32 k = 0; k < warp; k++) earlier += warp_sums[k];
    return earlier + up_to - own;
}

// How often this thread's digit is in the tiles before. Tiles are drawn in order, so those before are being worked on.
__device__ inline u32 look_back(const volatile u32* words, u32 tile) {
    u32 sum = 0;
    while (tile-- > 0) {
        u32 word;
        do word = words[tile * DIGITS + threadIdx.x];
        while (word < OWN);
        sum += word & VALUE;
        if (word >= UP_TO) break;
    }
    return sum;
}

// One pass. `ticket` and `words` (DIGITS a tile) are zero before. In the first pass the edges are 0, 1, 2 and so on.
extern "C" __global__ void __launch_bounds__(THREADS)
    sort_pass(const u32* __restrict__ keys, const u32* __restrict__ edges, u32 room, const u32* count, u32 pass,
              const u32* __restrict__ totals, u32* __restrict__ keys_out, u32* __restrict__ edges_out, u32* ticket,
              u32* words, u32 tiles) {
    __shared__ u32 counts[WARPS][DIGITS];
    __shared__ u32 begins[DIGITS];
    __shared__ u32 warp_sums[WARPS];
    __shared__ u32 drawn;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, mine = threadIdx.x;
    const u32 length = *count < room ? *count : room;
    pass = pass < PASSES ? pass : 0;
    const u32 digit_begins = sum_before(totals[pass * DIGITS + mine], warp_sums);
    for (;;) {
        if (threadIdx.x == 0) drawn = atomicAdd(ticket, 1u);
        for (u32 k = 0; k < WARPS; k++) counts[k][mine] = 0;
        __syncthreads();
        const u32 tile = drawn;
        if (tile >= tiles || (u64)tile * TILE >= length) return;
        const u64 first = (u64)tile * TILE + (u64)warp * 32 * ITEMS + lane;
        u32 own_keys[ITEMS], ranks[ITEMS];
#pragma unroll
        for (int k = 0; k < ITEMS; k++) own_keys[k] = first + 32 * k < length ? keys[first + 32 * k] : 0;
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            const bool is_there = first + 32 * k < length;
            const u32 digit = is_there ? digit_of(own_keys[k], pass) : DIGITS;
            const u32 same = __match_any_sync(ALL_LANES, digit), before = same & ((1u << lane) - 1);
            const u32 known = is_there ? counts[warp][digit] : 0;
            ranks[k] = known + __popc(before);
            __syncwarp();
            if (is_there && before == 0) counts[warp][digit] = known + __popc(same);
            __syncwarp();
        }
        __syncthreads();
        u32 in_tile = 0;
        for (u32 k = 0; k < WARPS; k++) {
            const u32 of_warp = counts[k][mine];
            counts[k][mine] = in_tile;
            in_tile += of_warp;
        }
        volatile u32* word = words + (u64)tile * DIGITS + mine;
        if (tile > 0) *word = OWN | in_tile;
        const u32 earlier = look_back(words, tile);
        *word = UP_TO | (earlier + in_tile);
        begins[mine] = digit_begins + earlier;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            const u64 i = first + 32 * k;
            if (i >= length) continue;
            const u32 digit = digit_of(own_keys[k], pass), at = begins[digit] + counts[warp][digit] + ranks[k];
            if (at >= room) continue;
            keys_out[at] = own_keys[k];
            edges_out[at] = pass == 0 ? (u32)i : edges[i];
        }
        __syncthreads();
    }
}
