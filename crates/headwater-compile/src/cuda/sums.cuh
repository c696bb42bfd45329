// Sums over the rows of a type, or over all rows, in two launches: thread blocks add up chunks of the rows, then the chunks
// of a type are added in their order.
//
// Bytes: every row once, and every chunk's sum twice; chunks are as many as keep a GPU busy, or few where rows are few, and
// a type with most of the rows has most of the chunks. Flops: one or a few an element, so loads bound it: threads of a block
// lie along the row first, so that a warp reads whole lines. No sum depends on how many blocks run, so it is the same every
// time.

#define HW_SUM 0
#define HW_MEAN 1
#define HW_MAX 2

// What a sum begins with, and one more number.
template <int HOW> __device__ inline float hw_sum_of_none() { return HOW == HW_MAX ? -HW_INFINITY : 0.0f; }
template <int HOW> __device__ inline float hw_add(float a, float b) { return HOW == HW_MAX ? hw_max(a, b) : a + b; }

// How many parts some rows are split into: parts of fewer rows than this are not worth a block.
#define HW_ROWS_A_PART 128
__device__ inline u32 hw_parts(u32 rows, u32 most) {
    const u32 parts = (u32)(((u64)rows + HW_ROWS_A_PART - 1) / HW_ROWS_A_PART);
    return parts < most ? parts : most;
}

// Where part `part` of some rows begins.
__device__ inline u32 hw_part(u32 rows, u32 part, u32 parts) { return (u32)((u64)rows * part / parts); }

// Chunks: the pieces that sums are made of, whose number follows from the rows alone, whatever there is room for.
__device__ inline u32 hw_chunks(const HwTiles &tiles, u32 rows) {
    if (tiles.kind == HW_MAP_LISTED) return (u32)tiles.count;
    return tiles.kind == HW_MAP_SAME ? rows : hw_parts(rows, (u32)tiles.count);
}
__device__ inline HwTile hw_chunk(const HwTiles &tiles, u32 rows, u32 at) {
    if (tiles.kind == HW_MAP_LISTED) return hw_listed_tile(tiles, at);
    if (tiles.kind == HW_MAP_SAME) return HwTile{at, at, 1};
    const u32 parts = hw_parts(rows, (u32)tiles.count), first = hw_part(rows, at, parts);
    return HwTile{0, first, hw_part(rows, at + 1, parts) - first};
}
// Shares of the rows that take as long as each other, whatever types they are of.
__device__ inline u32 hw_shares(const HwTiles &tiles, u32 rows) {
    return tiles.kind == HW_MAP_LISTED ? tiles.all[3 * tiles.count] : hw_chunks(tiles, rows);
}
// The chunks of a share.
__device__ inline HwRange hw_share(const HwTiles &tiles, u32 at) {
    const u32 *first = tiles.all + 3 * tiles.count + 1 + at;
    return tiles.kind == HW_MAP_LISTED ? HwRange{first[0], first[1]} : HwRange{at, at + 1};
}
// The first chunk of a type; that of the type behind the last is the end.
__device__ inline u32 hw_first_chunk(const HwTiles &tiles, u32 rows, u32 type) {
    if (tiles.kind == HW_MAP_LISTED) return tiles.starts[type];
    return tiles.kind == HW_MAP_SAME || type == 0 ? type : hw_chunks(tiles, rows);
}

// The sum over the threads that have the same place modulo SIDE, in order, in all of them. All THREADS call this.
template <int HOW, u32 SIDE, u32 THREADS = 256, class T> __device__ inline T hw_block_sum(T x) {
    __shared__ T all[THREADS];
    __syncthreads();
    all[threadIdx.x] = x;
    __syncthreads();
    T sum = all[threadIdx.x % SIDE];
    for (u32 at = threadIdx.x % SIDE + SIDE; at < THREADS; at += SIDE) {
        if constexpr (HOW == HW_MAX) {
            sum = hw_add<HOW>(sum, all[at]);
        } else {
            sum = sum + all[at];
        }
    }
    return sum;
}

// The totals of LEN columns over the chunks of every type, which lie STRIDE apart: SIDE columns a thread block at a time, so
// that 256 / SIDE groups of threads take every so many-th chunk.
template <int HOW, u32 STRIDE, u32 LEN, u32 SIDE>
__device__ inline void hw_total_by(const float *partial, const HwTiles &tiles, u32 types, u32 rows, float *out) {
    const u32 across = (LEN + SIDE - 1) / SIDE;
    for (u32 at = blockIdx.x; at < types * across; at += gridDim.x) {
        const u32 type = at / across, column = at % across * SIDE + threadIdx.x % SIDE;
        const u32 first = hw_first_chunk(tiles, rows, type), end = hw_first_chunk(tiles, rows, type + 1);
        float sum = hw_sum_of_none<HOW>();
        if (column < LEN) {
#pragma unroll 8
            for (u32 chunk = first + threadIdx.x / SIDE; chunk < end; chunk += 256 / SIDE) {
                sum = hw_add<HOW>(sum, partial[(u64)chunk * STRIDE + column]);
            }
        }
        if (SIDE < 256) sum = hw_block_sum<HOW, SIDE>(sum);
        if (HOW == HW_MEAN) {
            u32 count = 0;
            for (u32 chunk = first; chunk < end; chunk++) count += hw_chunk(tiles, rows, chunk).count;
            sum *= 1.0f / (count ? count : 1);
        }
        if (HOW == HW_MAX && first == end) sum = 0.0f;
        if (threadIdx.x < SIDE && column < LEN) out[(u64)type * LEN + column] = sum;
    }
}

// The same. Few columns have many chunks; of matrices there are many types with a few each, or few with many.
#define HW_FEW_CHUNKS 16
template <int HOW, u32 STRIDE, u32 LEN>
__device__ inline void hw_total(const float *partial, const HwTiles &tiles, u32 types, u32 rows, float *out) {
    if constexpr (LEN < 256) {
        const u32 SIDE = LEN == 1 ? 1 : LEN == 2 ? 2 : LEN < 5 ? 4 : 8;
        hw_total_by<HOW, STRIDE, LEN, SIDE>(partial, tiles, types, rows, out);
    } else {
        if (hw_chunks(tiles, rows) <= HW_FEW_CHUNKS * types) {
            hw_total_by<HOW, STRIDE, LEN, 256>(partial, tiles, types, rows, out);
        } else {
            hw_total_by<HOW, STRIDE, LEN, 32>(partial, tiles, types, rows, out);
        }
    }
}
