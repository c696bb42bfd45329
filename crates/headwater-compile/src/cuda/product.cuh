// Rows, gathered and scaled, times the matrix of their type; what is done with the products follows at once.
//
// Bytes: each row once a tile of columns (the second time out of a cache), each matrix once a tile of rows, results once. Flops:
// 2 * heads * FROM * TO a row, three times that where float accuracy is made of TF32. A thread block makes a tile of 128 rows
// by 64 or 128 columns with tensor cores (mma.cuh): 8 warps, 32 rows each, two warps beside each other. Operands come into
// shared memory by asynchronous copies, a step or two ahead and on into the next tile, 16 bytes at a time where widths allow; rows
// are padded there so that the lanes of a warp meet 32 banks. Rows of a tile are of one type, so a block reads one matrix; tiles of several types
// are listed once a graph. HW_F32 is plain arithmetic, 64 by 64 a block and 4 by 4 a thread.
//
// Products run along the vector in order and may fuse, so results agree with the CPU's within rounding, not to the bit.

#define HW_THREADS 256

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

// `X` gives `row(i)`, where the vector of row i lies, and `scale(i)`. `Out` takes one or two neighbouring products of a row.
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
                x_tile[deep][row] = in_x ? x.row(tile.first + row)[head * FROM + start + deep] : 0.0f;
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
        for (u32 i = 0; i < 4; i++) {
            const u32 row = tile.first + top + i;
            for (u32 j = 0; j < 4; j++) {
                const u32 column = first_column + left + j;
                if (top + i < tile.count && column < TO) out.one(row, head * TO + column, sums[i][j] * x.scale(row));
            }
        }
    }
}

// A tile of rows, HW_DEPTH elements of each, into shared memory; zeros from row `count` on. A pointer is never null: compilers
// take an offset from null for something that cannot be, and drop the test for it.
#define HW_X_PITCH (HW_DEPTH + 4)
template <u32 FROM> __device__ inline void hw_load_rows(float *to, const float *const (&from)[2], u32 count, u32 start) {
    const u32 FLOATS = FROM % 4 == 0 ? 4 : 1;
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        const u32 row = half * 64 + threadIdx.x / 4, deep = threadIdx.x % 4 * 4;
#pragma unroll
        for (u32 i = 0; i < 4; i += FLOATS) {
            const bool is_in = start + deep + i < FROM;
            // Nothing is read where there is nothing; the address has to be one all the same.
            const float *own = from[half] + (is_in ? start + deep + i : 0);
            hw_copy<FLOATS>(to + row * HW_X_PITCH + deep + i, own, is_in && row < count);
        }
    }
}

// DOWN rows of ACROSS elements each of a matrix whose rows are WIDTH long, from (row, column) on.
template <u32 DOWN, u32 ACROSS, u32 PITCH, u32 HEIGHT, u32 WIDTH>
__device__ inline void hw_load_matrix(float *to, const float *matrix, u32 row, u32 column) {
    const u32 FLOATS = WIDTH % 4 == 0 ? 4 : 1;
#pragma unroll
    for (u32 i = threadIdx.x; i < DOWN * ACROSS / FLOATS; i += HW_THREADS) {
        const u32 down = i / (ACROSS / FLOATS), across = i % (ACROSS / FLOATS) * FLOATS;
        const bool is_there = row + down < HEIGHT && column + across < WIDTH;
        const float *from = is_there ? matrix + (row + down) * WIDTH + column + across : matrix;
        hw_copy<FLOATS>(to + down * PITCH + across, from, is_there);
    }
}

// Gives a warp's products of a tile away, two at a time where rows have an even length.
template <u32 WIDE, u32 TO, class X, class Out>
__device__ inline void hw_give(const X &x, const HwTile &tile, u32 top, u32 head, u32 left, const float (&sums)[2][WIDE][4],
                               const Out &out) {
    const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (u32 m = 0; m < 4; m++) {
        const u32 place = top + m * 8 + g, row = tile.first + place;
        if (place >= tile.count) continue;
        const float scale = x.scale(row);
#pragma unroll
        for (u32 n = 0; n < WIDE; n++) {
            const u32 column = left + n * 8 + 2 * t, e = head * TO + column;
            const float first = sums[m / 2][n][m % 2 * 2] * scale, second = sums[m / 2][n][m % 2 * 2 + 1] * scale;
            if (TO % 2 == 0) {
                if (column < TO) out.two(row, e, first, second);
            } else {
                if (column < TO) out.one(row, e, first);
                if (column + 1 < TO) out.one(row, e + 1, second);
            }
        }
    }
}

// A tile and where this thread's rows of it lie. Rows are looked up a tile ahead, so that copies do not wait for lists.
template <u32 TILE, u32 HEADS, u32 ACROSS, u32 FROM, class X> struct HwAhead {
    const X &x;
    const HwTiles &tiles;
    const u32 rows;
    u32 at;
    bool is_there;
    HwTile tile;
    const float *from[2];

    __device__ HwAhead(const X &x, const HwTiles &tiles, u32 rows) : x(x), tiles(tiles), rows(rows), at(blockIdx.x) { look(); }
    __device__ void next() {
        at += gridDim.x;
        look();
    }
    __device__ u32 head() const { return at / ACROSS % HEADS; }
    __device__ void look() {
        is_there = hw_tile<TILE>(tiles, rows, at / (ACROSS * HEADS), tile);
        if (!is_there) return;
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            const u32 row = half * 64 + threadIdx.x / 4;
            from[half] = x.row(tile.first + (row < tile.count ? row : 0)) + head() * FROM;
        }
    }
};

template <int MODE, u32 HEADS, u32 FROM, u32 TO, bool TRANSPOSED, class X, class Out>
__device__ inline void hw_product_mma(const X &x, const float *w, const HwTiles &tiles, u32 rows, const Out &out) {
    const u32 TILE = 128, WIDTH = TO > 64 ? 128 : 64, WIDE = WIDTH / 16, STAGES = WIDTH == 64 ? 3 : 2;
    const u32 W_PITCH = TRANSPOSED ? HW_DEPTH + 4 : WIDTH + 8, W_ROWS = TRANSPOSED ? WIDTH : HW_DEPTH;
    const u32 W_DOWN = TRANSPOSED ? 1 : W_PITCH, W_ACROSS = TRANSPOSED ? W_PITCH : 1;
    __shared__ __align__(16) float x_tiles[STAGES][TILE * HW_X_PITCH];
    __shared__ __align__(16) float w_tiles[STAGES][W_ROWS * W_PITCH];
    const u32 ACROSS = (TO + WIDTH - 1) / WIDTH, STEPS = (FROM + HW_DEPTH - 1) / HW_DEPTH;
    const u32 top = threadIdx.x / 32 / 2 * 32, left = threadIdx.x / 32 % 2 * (WIDTH / 2);
    // Copies go on from one tile to the next: `ahead` is the tile whose copies are begun, `own` the one that is multiplied.
    HwAhead<TILE, HEADS, ACROSS, FROM, X> ahead(x, tiles, rows);
    u32 ahead_step = 0, place = 0;
    HwTile own = ahead.tile;
    u32 own_at = ahead.at;
    const auto load = [&](u32 stage) {
        if (ahead.is_there) {
            const u32 start = ahead_step * HW_DEPTH, first_column = ahead.at % ACROSS * WIDTH;
            const float *matrix = w + ((u64)ahead.tile.type * HEADS + ahead.head()) * FROM * TO;
            hw_load_rows<FROM>(x_tiles[stage], ahead.from, ahead.tile.count, start);
            if (TRANSPOSED) {
                hw_load_matrix<WIDTH, HW_DEPTH, W_PITCH, TO, FROM>(w_tiles[stage], matrix, first_column, start);
            } else {
                hw_load_matrix<HW_DEPTH, WIDTH, W_PITCH, FROM, TO>(w_tiles[stage], matrix, start, first_column);
            }
            if (++ahead_step == STEPS) {
                ahead_step = 0;
                ahead.next();
            }
        }
        hw_copies_end();
    };
    if (!ahead.is_there) return;
#pragma unroll
    for (u32 step = 0; step + 1 < STAGES; step++) load(step);
    for (;;) {
        const u32 head = own_at / ACROSS % HEADS, first_column = own_at % ACROSS * WIDTH;
        const u32 live_m = top < own.count ? own.count - top : 0;
        const u32 live_n = TO % WIDTH == 0 ? WIDTH : first_column + left < TO ? TO - first_column - left : 0;
        float sums[2][WIDE][4] = {};
        for (u32 step = 0; step < STEPS; step++) {
            hw_copies_wait<STAGES - 2>();
            __syncthreads();
            load((place + STAGES - 1) % STAGES);
            const float *a = x_tiles[place] + top * HW_X_PITCH;
            const float *b = w_tiles[place] + left * W_ACROSS;
            if (live_m) hw_multiply<MODE, WIDE, HW_X_PITCH, 1, W_DOWN, W_ACROSS>(a, b, sums, live_m, live_n);
            place = place + 1 == STAGES ? 0 : place + 1;
        }
        hw_give<WIDE, TO>(x, own, top, head, first_column + left, sums, out);
        own_at += gridDim.x;
        if (!hw_tile<TILE>(tiles, rows, own_at / (ACROSS * HEADS), own)) break;
    }
    hw_copies_wait<0>();
}

template <int MODE, u32 HEADS, u32 FROM, u32 TO, bool TRANSPOSED, class X, class Out>
__device__ inline void hw_product(const X &x, const float *w, const HwTiles &tiles, u32 rows, const Out &out) {
    if constexpr (MODE == HW_F32) {
        hw_product_f32<HEADS, FROM, TO, TRANSPOSED>(x, w, tiles, rows, out);
    } else {
        hw_product_mma<MODE, HEADS, FROM, TO, TRANSPOSED>(x, w, tiles, rows, out);
    }
}
