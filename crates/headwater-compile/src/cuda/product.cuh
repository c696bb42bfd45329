// Rows, gathered and scaled, times the matrix of their type; what is done with the products follows at once.
//
// Bytes: each row once a slab of 64 columns (all but the first time out of a cache where all slabs of a matrix are kept),
// each matrix once a thread block and stretch of tiles of its type, results once. Flops: 2 * heads * FROM * TO a row, three
// times that where float accuracy is made of TF32.
//
// A warp makes 16 or 32 rows by 64 columns with tensor cores (mma.cuh). Elements of rows come straight into the registers that
// take part, 16 bytes a lane, four steps of 16 columns ahead and on into the next slab and tile: 4 or 8 KiB a warp are under way
// all the time, and warps never wait for each other but where the type changes, or where they multiply together. The matrix lies
// in shared memory in the order that lanes or tensor cores take it. Tiles have 64 or 128 rows of one type and are listed once a
// graph. HW_F32 is plain arithmetic, 64 by 64 a block and 4 by 4 a thread.
//
// Products run along the vector in an order that the text fixes, so they are the same bits every time, and agree with the
// CPU's within rounding.

#define HW_THREADS 256
// Elements of rows that a step of a plain product takes.
#define HW_DEPTH 16

// Tile `at` of the rows, of one type; false behind the last one.
template <u32 TILE> __device__ inline bool hw_tile(const HwTiles &tiles, u32 rows, u32 at, HwTile &found) {
    if (tiles.kind == HW_MAP_LISTED) {
        if (at >= tiles.count) return false;
        found = hw_listed_tile(tiles, at);
        return true;
    }
    const u32 most = tiles.kind == HW_MAP_SAME ? 1 : TILE;
    const u64 first = (u64)at * most;
    if (first >= rows) return false;
    found = HwTile{most == 1 ? at : 0, (u32)first, hw_least(most, rows - (u32)first)};
    return true;
}

// How many tiles there are.
template <u32 TILE> __device__ inline u32 hw_tiles(const HwTiles &tiles, u32 rows) {
    if (tiles.kind == HW_MAP_LISTED) return (u32)tiles.count;
    return tiles.kind == HW_MAP_SAME ? rows : (u32)(((u64)rows + TILE - 1) / TILE);
}

// `X` gives `at(i)`, the number of the vector of row i in its buffer, `row(at)`, where that lies, and `scale(i)`. `Out`
// takes one or four neighbouring products of a row and its type, and stores them if they are to be; what they are multiplied
// with is added to `dots`, which `whole` takes when a head of the row is done.
template <u32 HEADS, u32 FROM, u32 TO, bool TRANSPOSED, class X, class Out>
__device__ inline void hw_product_f32(const X &x, const float *w, const HwTiles &tiles, u32 rows, const Out &out) {
    const u32 TILE = 64;
    __shared__ float x_tile[HW_DEPTH][TILE + 1];
    __shared__ float w_tile[HW_DEPTH][TILE + 1];
    const u32 across = (TO + TILE - 1) / TILE;
    const u32 left = threadIdx.x % 16 * 4, top = threadIdx.x / 16 * 4;
    for (u32 at = blockIdx.x;; at += gridDim.x) {
        HwTile tile;
        if (!hw_tile<TILE>(tiles, rows, at / (across * HEADS), tile)) break;
        const u32 head = at / across % HEADS, first_column = at % across * TILE;
        const float *matrix = w + ((u64)tile.type * HEADS + head) * FROM * TO;
        float sums[4][4] = {};
        for (u32 start = 0; start < FROM; start += HW_DEPTH) {
            for (u32 i = threadIdx.x; i < TILE * HW_DEPTH; i += HW_THREADS) {
                const u32 row = i / HW_DEPTH, deep = i % HW_DEPTH;
                const bool in_x = row < tile.count && start + deep < FROM;
                x_tile[deep][row] = in_x ? x.row(x.at(tile.first + row))[head * FROM + start + deep] : 0.0f;
                const u32 column = TRANSPOSED ? i / HW_DEPTH : i % TILE;
                const u32 below = TRANSPOSED ? i % HW_DEPTH : i / TILE;
                const bool in_w = first_column + column < TO && start + below < FROM;
                const u32 place = TRANSPOSED ? (first_column + column) * FROM + start + below
                                             : (start + below) * TO + first_column + column;
                w_tile[below][column] = in_w ? matrix[place] : 0.0f;
            }
            __syncthreads();
            for (u32 deep = 0; deep < HW_DEPTH; deep++) {
                for (u32 i = 0; i < 4; i++) {
                    for (u32 j = 0; j < 4; j++) {
                        sums[i][j] += x_tile[deep][top + i] * w_tile[deep][left + j];
                    }
                }
            }
            __syncthreads();
        }
        float none[1];
        for (u32 i = 0; i < 4; i++) {
            const u32 row = tile.first + top + i;
            for (u32 j = 0; j < 4; j++) {
                const u32 column = first_column + left + j;
                const bool is_there = top + i < tile.count && column < TO;
                if (is_there) out.one(true, row, tile.type, head * TO + column, sums[i][j] * x.scale(row), none);
            }
        }
    }
}

// Where the rows of a lane stand in a tile, of which each warp has every fourth sixteen.
struct HwRowsOfWarp {
    __device__ static u32 place(const HwTile &, u32 i) {
        return i / 2 * 16 * HW_TENSOR_WARPS + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i % 2 * 8;
    }
    __device__ static u32 end(const HwTile &tile) { return tile.count; }
};

// The tiles of a thread block, which are neighbours, so that most are of one type. Numbers of rows are looked up a tile
// ahead and tiles two, so that loads of rows do not wait for lists. TIMES is how often all tiles are gone through, for one
// slab of columns each time. ROWS says which rows of a tile a warp has, of which a lane has COUNT.
template <u32 TILE, u32 TIMES, u32 COUNT, class ROWS, class X> struct HwAhead {
    const X &x;
    const HwTiles &tiles;
    const u32 rows, count, end;
    u32 at;
    HwTile tile, next, coming;
    // Of the rows of this lane: those of `tile`, and of `next`.
    u32 from[COUNT], next_from[COUNT];

    __device__ HwAhead(const X &x, const HwTiles &tiles, u32 rows, u32 count, u32 begin, u32 end)
        : x(x), tiles(tiles), rows(rows), count(count), end(end), at(begin) {
        tile = look(begin), next = tile;
        find();
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) from[i] = next_from[i];
        next = look(begin + 1);
        find();
        coming = look(begin + 2);
    }
    __device__ HwTile look(u32 at) const {
        HwTile found = {0, 0, 0};
        if (at < end) hw_tile<TILE>(tiles, rows, TIMES == 1 ? at : at % count, found);
        return found;
    }
    // Behind the last row of a tile stands its first: nothing is done with the products.
    __device__ void find() {
        const u32 end = ROWS::end(next);
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            const u32 place = ROWS::place(next, i);
            next_from[i] = next.count ? x.at(next.first + (place < end ? place : 0)) : 0;
        }
    }
    __device__ void move() {
        at++;
        tile = next, next = coming;
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) from[i] = next_from[i];
        find();
        coming = look(at + 2);
    }
};

// DEEP elements of COLUMNS columns of a matrix, from (start, first) on, in the order that lanes take them: sixteen elements
// of eight columns are 32 times four neighbours along the depth. Of two such stretches lanes hold four neighbouring columns
// of the sums.
template <u32 DEEP, u32 COLUMNS, u32 FROM, u32 TO, bool TRANSPOSED>
__device__ inline void hw_keep_matrix(float4 *to, const float *matrix, u32 start, u32 first) {
    const u32 COUNT = DEEP / 16 * COLUMNS / 8 * 32;
#pragma unroll 8
    for (u32 i = threadIdx.x; i < COUNT; i += HW_TENSOR_THREADS) {
        const u32 g = i % 32 / 4, n = i / 32 % (COLUMNS / 8);
        const u32 column = first + n / 2 * 16 + g / 2 * 4 + n % 2 * 2 + g % 2;
        const u32 deep = start + i / 32 / (COLUMNS / 8) * 16 + i % 4 * 4;
        const u32 AT = TRANSPOSED ? FROM : 1, ALONG = TRANSPOSED ? 1 : TO;
        const float *from = matrix + (column < TO ? column : 0) * AT;
        if (TRANSPOSED && FROM % 4 == 0) {
            to[i] = column < TO && deep < FROM ? __ldg((const float4 *)(from + deep)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        } else {
            float four[4];
#pragma unroll
            for (u32 j = 0; j < 4; j++) four[j] = column < TO && deep + j < FROM ? __ldg(from + (deep + j) * ALONG) : 0.0f;
            to[i] = make_float4(four[0], four[1], four[2], four[3]);
        }
    }
}

// Where tensor cores of a warpgroup look for the words of a matrix of 64 columns: those of a step of 16 elements of the depth are 1024 (TF32: four
// elements of one column, four apart, follow each other) or 512 (bf16: two and two).
__device__ inline u32 hw_group_word(u32 step, u32 stretch, u32 column, u32 stretches) {
    return ((step * (stretches / 2) + stretch / 2) * 8 + column / 8) * 64 + stretch % 2 * 32 + column % 8 * 4;
}

// The same matrix, DEEP elements of 64 columns from `first` on, for warpgroups: large parts, and behind them what is left where that is kept.
template <int MODE, u32 DEEP, u32 FROM, u32 TO, bool TRANSPOSED>
__device__ inline void hw_keep_for_group(u32 *to, const float *matrix, u32 first) {
    const u32 WORDS = MODE == HW_BF16 ? DEEP * 32 : DEEP * 64;
#pragma unroll 2
    for (u32 i = threadIdx.x; i < DEEP / 16 * HW_SIDE; i += HW_TENSOR_THREADS) {
        const u32 n = i % HW_SIDE, step = i / HW_SIDE, column = first + n / 16 * 16 + n % 8 / 2 * 4 + n / 8 % 2 * 2 + n % 2;
        const u32 AT = TRANSPOSED ? FROM : 1, ALONG = TRANSPOSED ? 1 : TO;
        const float *from = matrix + (column < TO ? column : 0) * AT;
        float own[16];
        if (TRANSPOSED && FROM % 4 == 0) {
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                const float4 four = hw_four<FROM>(from, step * 16 + j * 4, column < TO);
                own[j * 4] = four.x, own[j * 4 + 1] = four.y, own[j * 4 + 2] = four.z, own[j * 4 + 3] = four.w;
            }
        } else {
#pragma unroll
            for (u32 j = 0; j < 16; j++) {
                const u32 deep = step * 16 + j;
                own[j] = column < TO && deep < FROM ? __ldg(from + deep * ALONG) : 0.0f;
            }
        }
        if (MODE == HW_BF16) {
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                u32 words[4];
#pragma unroll
                for (u32 k = 0; k < 4; k++) words[k] = hw_two_bf16(own[k * 4 + j * 2], own[k * 4 + j * 2 + 1]);
                *(uint4 *)(to + hw_group_word(step, j, n, 2)) = make_uint4(words[0], words[1], words[2], words[3]);
            }
        } else {
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                HwPart<MODE, 4> part;
#pragma unroll
                for (u32 k = 0; k < 4; k++) part.set(k, own[k * 4 + j]);
                u32 *place = to + hw_group_word(step, j, n, 4);
                *(uint4 *)place = make_uint4(part.large[0], part.large[1], part.large[2], part.large[3]);
                if (MODE == HW_TF32X3) *(uint4 *)(place + WORDS) = make_uint4(part.small[0], part.small[1], part.small[2], part.small[3]);
            }
        }
    }
}

// Four elements of two rows as the left side of products: `x` and `y` are neighbours of rows g and g + 8.
template <int MODE> __device__ inline void hw_split(HwPart<MODE, 4> (&parts)[2], const float4 &x, const float4 &y) {
    if (MODE == HW_BF16) {
        parts[0].large[0] = hw_two_bf16(x.x, x.y), parts[0].large[1] = hw_two_bf16(y.x, y.y);
        parts[0].large[2] = hw_two_bf16(x.z, x.w), parts[0].large[3] = hw_two_bf16(y.z, y.w);
    } else {
        parts[0].set(0, x.x), parts[0].set(1, y.x), parts[0].set(2, x.y), parts[0].set(3, y.y);
        parts[1].set(0, x.z), parts[1].set(1, y.z), parts[1].set(2, x.w), parts[1].set(3, y.w);
    }
}

// Sixteen elements of 64 rows of the block, which is a warpgroup, times 64 columns: of each half of the elements, the product of large parts is
// added last. `w` has a step's large parts; what is left of them is WORDS behind.
template <int MODE, u32 WORDS>
__device__ inline void hw_group_multiply(const float4 (&x)[2], const u32 *w, float (&sums)[8][4]) {
    HwPart<MODE, 4> left[2];
    hw_split<MODE>(left, x[0], x[1]);
    hw_group_begin();
#pragma unroll
    for (u32 half = 0; half < (MODE == HW_BF16 ? 1 : 2); half++, w += 512) {
        if (MODE == HW_TF32X3) {
            hw_group_mma<MODE>(sums, left[half].small, w);
            hw_group_mma<MODE>(sums, left[half].large, w + WORDS);
        }
        hw_group_mma<MODE>(sums, left[half].large, w);
    }
    hw_group_end();
    hw_group_wait(sums);
}

// Sixteen elements of HIGH times sixteen rows times those of WIDE times eight columns. `x` has four neighbours of rows g, g + 8, g + 16 and so on;
// `w` gives this lane's of every eight columns.
template <int MODE, u32 WIDE, u32 HIGH, u32 COUNT, u32 SUMS, class W>
__device__ inline void hw_multiply(const float4 (&x)[COUNT], const W &w, float (&sums)[SUMS][WIDE][4]) {
    const u32 HALVES = MODE == HW_BF16 ? 1 : 2;
    HwPart<MODE, 4> left[HIGH][2];
#pragma unroll
    for (u32 m = 0; m < HIGH; m++) hw_split<MODE>(left[m], x[2 * m], x[2 * m + 1]);
#pragma unroll
    for (u32 n = 0; n < WIDE; n++) {
        const float4 b = w(n);
        HwPart<MODE, 2> right[HALVES];
        if (MODE == HW_BF16) {
            right[0].large[0] = hw_two_bf16(b.x, b.y), right[0].large[1] = hw_two_bf16(b.z, b.w);
        } else {
            right[0].set(0, b.x), right[0].set(1, b.y), right[HALVES - 1].set(0, b.z), right[HALVES - 1].set(1, b.w);
        }
#pragma unroll
        for (u32 half = 0; half < HALVES; half++) {
#pragma unroll
            for (u32 m = 0; m < HIGH; m++) hw_mma<MODE>(sums[m][n], left[m][half], right[half]);
        }
    }
}

// Gives the products of a warp's rows away, four at a time where 4 divides the length of rows.
template <u32 WIDE, u32 TO, u32 HIGH, class X, class Out>
__device__ inline void hw_give(const X &x, const HwTile &tile, u32 head, u32 first, const float (&sums)[HIGH][WIDE][4],
                               const Out &out) {
#pragma unroll
    for (u32 m = 0; m < 2 * HIGH; m++) {
        // A row behind the last reads what the last one does, so that loads wait for no branch, and stores nothing.
        const u32 place = HwRowsOfWarp::place(tile, m), row = tile.first + hw_least(place, tile.count - 1);
        const bool is_there = place < tile.count;
        const float scale = x.scale(row);
        float dots[Out::DOTS == 0 ? 1 : Out::DOTS] = {};
#pragma unroll
        for (u32 n = 0; n < WIDE; n += 2) {
            const u32 column = first + n * 8 + threadIdx.x % 4 * 4, e = head * TO + column;
            const float *low = sums[m / 2][n] + m % 2 * 2, *high = sums[m / 2][n + 1] + m % 2 * 2;
            const float four[4] = {low[0] * scale, low[1] * scale, high[0] * scale, high[1] * scale};
            if constexpr (TO % 4 == 0) {
                if (column < TO) out.four(is_there, row, tile.type, e, four[0], four[1], four[2], four[3], dots);
            } else {
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    if (column + i < TO) out.one(is_there, row, tile.type, e + i, four[i], dots);
                }
            }
        }
        if constexpr (Out::DOTS > 0) {
            // Four lanes have a row.
#pragma unroll
            for (u32 i = 0; i < Out::DOTS; i++) dots[i] = hw_part_sum<32, 4>(dots[i], 0xffffffffu);
            if (is_there && threadIdx.x % 4 == 0) out.whole(row, tile.type, head, dots);
        }
    }
}

// KEPT slabs of 64 columns, DEEP elements each, of all heads, lie in shared memory at once: all of a matrix, or one. GROUP: the block
// multiplies as a warpgroup where there are such; then there is room for both parts of each element, and tiles have half as many rows.
template <int MODE, u32 HEADS, u32 FROM, u32 TO, bool TRANSPOSED, u32 KEPT, u32 DEEP, bool GROUP, class X, class Out>
__device__ inline void hw_product_mma(const X &x, const float *w, const HwTiles &tiles, u32 rows, const Out &out) {
    constexpr bool IS_GROUP = HW_HAS_WARPGROUPS && GROUP;
    const u32 HIGH = IS_GROUP ? 1 : 2, TILE = 16 * HIGH * HW_TENSOR_WARPS, ACROSS = (TO + HW_SIDE - 1) / HW_SIDE, SLABS = HEADS * ACROSS, TIMES = SLABS / KEPT;
    const u32 COLUMNS = TO < HW_SIDE ? (TO + 15) / 16 * 16 : HW_SIDE, WIDE = COLUMNS / 8, FOURS = DEEP / 16 * WIDE * 32;
    // Steps of 16 elements, and how many of them are under way.
    const u32 STEPS = (FROM + 15) / 16, RING = STEPS < 4 ? STEPS : 4, ROUNDS = (STEPS + RING - 1) / RING;
    const u32 WORDS = MODE == HW_BF16 ? DEEP * 32 : DEEP * 64, PLACES = IS_GROUP ? (MODE == HW_TF32X3 ? 2 : 1) * WORDS / 4 : FOURS;
    extern __shared__ float4 kept[];
    const u32 count = hw_tiles<TILE>(tiles, rows), t = threadIdx.x % 4;
    const u64 all = (u64)count * TIMES;
    const u32 begin = (u32)(all * blockIdx.x / gridDim.x), end = (u32)(all * (blockIdx.x + 1) / gridDim.x);
    HwAhead<TILE, TIMES, 2 * HIGH, HwRowsOfWarp, X> ahead(x, tiles, rows, count, begin, end);
    hw_begin();
    if (begin == end) return;
    // What is loaded next: a round of steps of a slab of `ahead.tile`, for as long as there is one.
    u32 slab = TIMES == 1 ? 0 : begin / count, round = 0;
    float4 ring[RING][2 * HIGH];
    const auto load = [&](u32 r) {
        const bool is_there = ahead.tile.count != 0 && round * RING + r < STEPS;
        const u32 column = (round * RING + r) * 16 + t * 4;
#pragma unroll
        for (u32 i = 0; i < 2 * HIGH; i++) ring[r][i] = hw_four<FROM>(x.row(ahead.from[i]) + slab / ACROSS * FROM, column, is_there);
    };
    const auto move = [&]() {
        if (++round < ROUNDS) return;
        round = 0;
        if (TIMES == 1 && ++slab < KEPT) return;
        ahead.move();
        slab = TIMES == 1 ? 0 : ahead.at / count;
    };
    HwTile own = ahead.tile;
#pragma unroll
    for (u32 r = 0; r < RING; r++) load(r);
    move();
    u32 kept_type = 0, kept_slab = ~0u;
    for (u32 at = begin; at < end; at++) {
        // All of a tile may be under way, so that loads are at the next one.
        const HwTile next = ahead.tile;
        const u32 first_slab = TIMES == 1 ? 0 : at / count;
        const float *matrix = w + (u64)own.type * HEADS * FROM * TO;
        if (DEEP >= FROM && (kept_slab != first_slab || kept_type != own.type)) {
            __syncthreads();
            for (u32 i = 0; i < KEPT; i++) {
                const u32 head = (first_slab + i) / ACROSS, first = (first_slab + i) % ACROSS * HW_SIDE;
                const float *own = matrix + (u64)head * FROM * TO;
                if constexpr (IS_GROUP) {
                    hw_keep_for_group<MODE, DEEP, FROM, TO, TRANSPOSED>((u32 *)(kept + i * PLACES), own, first);
                } else {
                    hw_keep_matrix<DEEP, COLUMNS, FROM, TO, TRANSPOSED>(kept + i * PLACES, own, 0, first);
                }
            }
            if (IS_GROUP) hw_group_show();
            __syncthreads();
            kept_slab = first_slab, kept_type = own.type;
        }
        const bool is_live = threadIdx.x / 32 * 16 < own.count;
        for (u32 i = 0; i < KEPT; i++) {
            const u32 head = (first_slab + i) / ACROSS, first = (first_slab + i) % ACROSS * HW_SIDE;
            float sums[HIGH][WIDE][4] = {};
            for (u32 start = 0; start < ROUNDS * RING * 16; start += RING * 16) {
                if (DEEP < FROM && start % DEEP == 0) {
                    __syncthreads();
                    hw_keep_matrix<DEEP, COLUMNS, FROM, TO, TRANSPOSED>(kept, matrix + (u64)head * FROM * TO, start, first);
                    __syncthreads();
                }
#pragma unroll
                for (u32 r = 0; r < RING; r++) {
                    if constexpr (IS_GROUP) {
                        const u32 *own_w = (const u32 *)(kept + i * PLACES) + (start / 16 + r) * (MODE == HW_BF16 ? 512 : 1024);
                        if (start + r * 16 < FROM) hw_group_multiply<MODE, WORDS>(ring[r], own_w, sums[0]);
                    } else {
                        const float4 *own_w = kept + i * PLACES + (start % DEEP / 16 + r) * WIDE * 32 + threadIdx.x % 32;
                        const auto column = [&](u32 n) { return own_w[n * 32]; };
                        if (is_live && start + r * 16 < FROM) hw_multiply<MODE, WIDE, HIGH>(ring[r], column, sums);
                    }
                    load(r);
                }
                move();
            }
            if (is_live) hw_give<WIDE, TO>(x, own, head, first, sums, out);
        }
        own = ROUNDS * KEPT == 1 ? next : ahead.tile;
    }
}

template <int MODE, u32 HEADS, u32 FROM, u32 TO, bool TRANSPOSED, u32 KEPT, u32 DEEP, bool GROUP, class X, class Out>
__device__ inline void hw_product(const X &x, const float *w, const HwTiles &tiles, u32 rows, const Out &out) {
    if constexpr (MODE == HW_F32) {
        hw_begin();
        hw_product_f32<HEADS, FROM, TO, TRANSPOSED>(x, w, tiles, rows, out);
    } else {
        hw_product_mma<MODE, HEADS, FROM, TO, TRANSPOSED, KEPT, DEEP, GROUP>(x, w, tiles, rows, out);
    }
}
