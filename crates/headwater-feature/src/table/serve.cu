// Rows out of several memories: out[place] = row, converted to the element type asked for.
//
// Rows are ordered by number (order.cu of the row gather), so those in GPU memory come first and those in host memory come
// last, in address order. A few blocks read host memory, claiming tiles one after the other, so that one narrow window of
// addresses moves through it; all other blocks have a stretch of the rows in GPU memory each. So the link and the GPU's
// memory are busy at the same time. They are not free of each other: rows in GPU memory push the page tables of host memory
// out of the second-level cache. How few blocks are best for the link depends on how many rows come over it, which is known
// only here.
//
// Per row: 8 bytes of row and place, the row's lines, and its elements out. int8 rows read four bytes more, of the scale.
//
// Without an order (LIST 0) all blocks have a stretch of the ids each: for tables that are all in GPU memory. Rows that came
// from a file are row i for the i-th place (LIST 2).
//
// Rows from host_end on are not in these memories and are left out. What each kind of memory gave and how long that took is
// added to `served`: two atomics a block, and a few of the last one.
//
// Defines: ROW (type of an ordered row or of an id), ROW_BYTES; LIST; LANES, DEPTH, PIECE_BYTES (see lines.cuh); STORED and
// OUT (0: f32, 1: f16, 2: bf16, 3: int8, 4: bytes as they are), OUT_BYTES; MEMBERS; BLOCKS (members hold stretches of rows
// and not every MEMBERS-th); COUNTED (reads of every row are counted); THREADS, BUCKETS, TIERS.

// The same struct stands in cuda.rs.
#define MOST_MEMBERS 8
struct Tiers {
    u64 rows, replicated_end, interleaved_end, host_end;
    u64 width, stride, elements;
    u64 count, out_rows, chunks;
    u64 cold_bucket, link_blocks, window;
    u64 scale_rows, read_rows;
    u64 member_rows[MOST_MEMBERS];
};

#define LIST_IDS 0
#define LIST_ORDERED 1
#define LIST_STAGED 2

// A launch's own words, all zero at first.
#define CLAIMED 0
#define ARRIVED 1
#define BEGUN 2
#define ENDED 3 // of GPU memory; then of host memory

__device__ __forceinline__ float stored_element(uint4 word, int at) {
    const u32 parts[4] = {word.x, word.y, word.z, word.w};
#if STORED == 0
    return hw_float(parts[at]);
#elif STORED == 1
    return hw_f16_to_f32((u16)(parts[at / 2] >> (16 * (at % 2))));
#elif STORED == 2
    return hw_bf16_to_f32((u16)(parts[at / 2] >> (16 * (at % 2))));
#else
    return (float)(i8)(u8)(parts[at / 4] >> (8 * (at % 4)));
#endif
}

__device__ __forceinline__ void put_element(u8* to, float x) {
#if OUT == 0
    *(float*)to = x;
#elif OUT == 1
    *(u16*)to = hw_f32_to_f16(x);
#else
    *(u16*)to = hw_f32_to_bf16(x);
#endif
}

// Elements at and at + 1 as they come out, in one register; with 32-bit elements, element at.
__device__ __forceinline__ u32 out_bits(const float* x, int at) {
#if OUT == 0
    return hw_bits(x[at]);
#elif OUT == 1
    return (u32)hw_f32_to_f16(x[at]) | (u32)hw_f32_to_f16(x[at + 1]) << 16;
#else
    return (u32)hw_f32_to_bf16(x[at]) | (u32)hw_f32_to_bf16(x[at + 1]) << 16;
#endif
}

#if STORED == 3
#define STORED_BYTES 1
#elif STORED == 0
#define STORED_BYTES 4
#elif STORED == 4
#define STORED_BYTES 1
#else
#define STORED_BYTES 2
#endif

// The member that has a row of the group's, and which of its rows that is.
__device__ __forceinline__ u64 member_of(const Tiers& t, u64 inside, u64* at) {
#if BLOCKS
    u64 member = 0;
    while (member + 1 < MEMBERS && inside >= t.member_rows[member]) inside -= t.member_rows[member++];
    *at = inside;
    return member;
#else
    *at = inside / MEMBERS;
    return inside % MEMBERS;
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS)
    serve(Tiers t, const u8* __restrict__ replicated, const u8* m0, const u8* m1, const u8* m2, const u8* m3, const u8* m4,
          const u8* m5, const u8* m6, const u8* m7, const u8* __restrict__ host, const float* __restrict__ scales,
          const ROW* __restrict__ rows, const u32* __restrict__ places, const u32* __restrict__ bucket_ends,
          u8* __restrict__ out, u64* turn, u64* served, u32* reads, Fault* fault) {
    __shared__ const u8* members[MOST_MEMBERS];
    __shared__ u32 counts[TIERS];
    if (threadIdx.x == 0) {
        const u8* all[MOST_MEMBERS] = {m0, m1, m2, m3, m4, m5, m6, m7};
        for (int m = 0; m < MOST_MEMBERS; m++) members[m] = all[m];
        for (int tier = 0; tier < TIERS; tier++) counts[tier] = 0;
        // The earliest of all blocks is the largest of these.
        atomicMax(turn + BEGUN, ~hw_now_ns());
    }
    __syncthreads();
    const auto find = [&](u64 i, bool is_first) {
#if LIST == LIST_STAGED
        const u64 row = i;
#else
        const u64 row = (u64)(i64)rows[i];
#endif
#if LIST == LIST_IDS
        const u64 place = i;
#else
        const u64 place = places[i];
#endif
        HwRow at = {0, 0, 0, place, place < t.out_rows, 0};
        u32 tier = 2;
        if (row < t.replicated_end) {
            at.first = replicated;
            at.end = replicated + t.replicated_end * t.stride;
            at.start = replicated + row * t.stride;
            tier = 0;
        } else if (row < t.interleaved_end) {
            u64 inside;
            const u64 member = member_of(t, row - t.replicated_end, &inside);
            if (inside < t.member_rows[member]) {
                at.first = members[member];
                at.end = at.first + t.member_rows[member] * t.stride;
                at.start = at.first + inside * t.stride;
            }
            tier = 1;
        } else if (row < t.host_end) {
            at.first = host;
            at.end = host + (t.host_end - t.interleaved_end) * t.stride;
            at.start = host + (row - t.interleaved_end) * t.stride;
        } else if (row < t.rows) {
            at.is_wanted = false;
        }
        if (!at.start && at.is_wanted) hw_fault(fault, FAULT_ID_OUT_OF_RANGE, place, row, t.rows);
        if (is_first && at.start) atomicAdd(counts + tier, 1u);
#if COUNTED
        if (is_first && row < t.read_rows) atomicAdd(reads + row, 1u);
#endif
#if STORED == 3
        if (row < t.scale_rows) at.note = hw_bits(scales[row]);
#endif
        return at;
    };
    const auto put = [&](u64 place, i64 inside, uint4 word, u32 note) {
#if STORED == OUT
        store_word(out + place * t.width, inside, (i64)t.width, word);
#else
        const int count = 16 / STORED_BYTES, per_word = 4 / OUT_BYTES;
        float x[count];
#pragma unroll
        for (int k = 0; k < count; k++) {
            x[k] = stored_element(word, k);
#if STORED == 3
            x[k] *= hw_float(note);
#endif
        }
        const i64 first = inside / STORED_BYTES;
        u8* to = out + ((i64)(place * t.elements) + first) * OUT_BYTES;
        const bool is_whole = inside >= 0 && inside % STORED_BYTES == 0 && first + count <= (i64)t.elements;
        // As few stores as there can be, where a word's elements are all there and their place is aligned.
        if (count * OUT_BYTES >= 16 && is_whole && (u64)to % 16 == 0) {
#pragma unroll
            for (int k = 0; k < count; k += 4 * per_word)
                hw_store((uint4*)(to + k * OUT_BYTES),
                         make_uint4(out_bits(x, k), out_bits(x, k + per_word), out_bits(x, k + 2 * per_word),
                                    out_bits(x, k + 3 * per_word)));
            return;
        }
#pragma unroll
        for (int k = 0; k < count; k++)
            if (inside + k * STORED_BYTES >= 0 && first + k < (i64)t.elements) put_element(to + k * OUT_BYTES, x[k]);
#endif
    };
#if LIST == LIST_STAGED
    const u64 warm = 0;
#elif LIST == LIST_ORDERED
    const u64 end = t.cold_bucket ? bucket_ends[t.cold_bucket - 1] : 0, warm = end < t.count ? end : t.count;
#else
    const u64 warm = t.count;
#endif
    const u64 tile = hw_tile_items(), cold_rows = t.count - warm;
#if LIST == LIST_ORDERED
    // Converted rows leave as more bytes than they come, and need more threads.
    const u64 link_rows = cold_rows * (STORED == OUT ? 1 : 2);
    const u64 link_warps = hw_window_warps(t.window, link_rows, bucket_ends[BUCKETS], t.chunks, t.link_blocks);
#else
    const u64 link_warps = t.link_blocks * WARPS_OF_BLOCK;
#endif
    const u64 link_blocks = (link_warps + WARPS_OF_BLOCK - 1) / WARPS_OF_BLOCK;
    if (blockIdx.x < link_blocks) {
        const u64 items = cold_rows * t.chunks, tiles = (items + tile - 1) / tile;
        const auto cold = [&](u64 i, bool is_first) { return find(warm + i, is_first); };
        const bool leads = threadIdx.x % 32 == 0;
        const bool reads = (u64)blockIdx.x * WARPS_OF_BLOCK + threadIdx.x / 32 < link_warps;
        u64 at = reads ? __shfl_sync(0xffffffffu, leads ? atomicAdd(turn + CLAIMED, 1ull) : 0, 0) : tiles;
        while (at < tiles) {
            const u64 next = leads ? atomicAdd(turn + CLAIMED, 1ull) : 0;
            hw_copy_tile(at, items, t.chunks, t.width, cold, put);
            at = __shfl_sync(0xffffffffu, next, 0);
        }
    } else {
        const u64 items = warm * t.chunks, tiles = (items + tile - 1) / tile;
        const u64 blocks = gridDim.x - link_blocks, share = (tiles + blocks - 1) / blocks;
        const u64 begin = share * (blockIdx.x - link_blocks), stop = begin + share < tiles ? begin + share : tiles;
        for (u64 at = begin + threadIdx.x / 32; at < stop; at += THREADS / 32)
            hw_copy_tile(at, items, t.chunks, t.width, find, put);
    }
    __syncthreads();
    if (threadIdx.x < TIERS && counts[threadIdx.x]) atomicAdd(served + threadIdx.x, (u64)counts[threadIdx.x]);
    if (threadIdx.x == 0) {
        if (blockIdx.x < link_blocks || warm) atomicMax(turn + ENDED + (blockIdx.x < link_blocks), hw_now_ns());
        __threadfence();
        if (atomicAdd(turn + ARRIVED, 1ull) + 1 == gridDim.x) {
            const u64 begun = ~atomicMax(turn + BEGUN, 0ull);
            for (int side = 0; side < 2; side++) {
                const u64 ended = atomicMax(turn + ENDED + side, 0ull);
                if (ended > begun) atomicAdd(served + TIERS + side, ended - begun);
            }
        }
    }
}
