// Sums of outer products, a matrix a type: the gradient of a weight.
//
// Bytes: both sides of every row once a tile of the matrix, and every part of the sums twice. Flops: 2 * heads * ROWS * COLS a
// row. A thread block makes a tile of one matrix, 64 or 128 by 64 or 128 by tensor cores (mma.cuh) or 32 by 32 by plain arithmetic,
// over one chunk of rows of a type (in a tile of 64 by 64, one half of the warps has half of the rows); there are so many chunks that a GPU is busy, and a type with most rows has most of them.
// `hw_total` adds them in their order, so a sum is the same every time. Rows come into shared memory by asynchronous copies, a step ahead.

// A block's place: which chunk of rows, head and tile of the matrix.
template <u32 HEADS, u32 DOWN, u32 ACROSS> struct HwPlace {
    u32 column, row, head, chunk;
    __device__ explicit HwPlace(u32 at)
        : column(at % ACROSS), row(at / ACROSS % DOWN), head(at / ACROSS / DOWN % HEADS), chunk(at / ACROSS / DOWN / HEADS) {}
    __device__ u64 matrix() const { return (u64)chunk * HEADS + head; }
};

template <u32 HEADS, u32 ROWS, u32 COLS, class X, class Y>
__device__ inline void hw_outer_f32(const X &x, const Y &y, const HwTiles &tiles, u32 rows, float *out) {
    const u32 SIDE = 32, DOWN = (ROWS + SIDE - 1) / SIDE, ACROSS = (COLS + SIDE - 1) / SIDE;
    __shared__ float x_tile[HW_DEPTH][SIDE + 1];
    __shared__ float y_tile[HW_DEPTH][SIDE + 1];
    const u32 column = threadIdx.x % SIDE, top = threadIdx.x / SIDE * 4, chunks = hw_chunks(tiles, rows);
    for (u32 at = blockIdx.x; at < chunks * HEADS * DOWN * ACROSS; at += gridDim.x) {
        const HwPlace<HEADS, DOWN, ACROSS> place(at);
        const u32 first_column = place.column * SIDE, first_row = place.row * SIDE;
        const HwTile chunk = hw_chunk(tiles, rows, place.chunk);
        const u32 end = chunk.first + chunk.count;
        float sums[4] = {};
        for (u32 start = chunk.first; start < end; start += HW_DEPTH) {
            for (u32 i = threadIdx.x; i < HW_DEPTH * SIDE; i += HW_THREADS) {
                const u32 step = i / SIDE, along = i % SIDE, row = start + step;
                const bool in_x = row < end && first_row + along < ROWS, in_y = row < end && first_column + along < COLS;
                x_tile[step][along] = in_x ? x.row(row)[place.head * ROWS + first_row + along] : 0.0f;
                y_tile[step][along] = in_y ? y.row(row)[place.head * COLS + first_column + along] : 0.0f;
            }
            __syncthreads();
            for (u32 step = 0; step < HW_DEPTH; step++) {
                for (u32 i = 0; i < 4; i++) sums[i] += x_tile[step][top + i] * y_tile[step][column];
            }
            __syncthreads();
        }
        for (u32 i = 0; i < 4; i++) {
            const u32 row = first_row + top + i;
            if (row < ROWS && first_column + column < COLS) {
                out[(place.matrix() * ROWS + row) * COLS + first_column + column] = sums[i];
            }
        }
    }
}

// DEEP rows, ACROSS elements of each from `first` on, into shared memory.
template <u32 DEEP, u32 ACROSS, u32 PITCH, u32 WIDTH, class X>
__device__ inline void hw_load_chunk(float *to, const X &x, u32 start, u32 end, u32 head, u32 first, const float *nowhere) {
    const u32 FLOATS = WIDTH % 4 == 0 ? 4 : 1;
#pragma unroll
    for (u32 i = threadIdx.x; i < DEEP * ACROSS / FLOATS; i += HW_THREADS) {
        const u32 step = i / (ACROSS / FLOATS), along = i % (ACROSS / FLOATS) * FLOATS, row = start + step;
        const bool is_there = row < end && first + along < WIDTH;
        hw_copy<FLOATS>(to + step * PITCH + along, is_there ? x.row(row) + head * WIDTH + first + along : nowhere, is_there);
    }
}

template <int MODE, u32 HEADS, u32 ROWS, u32 COLS, class X, class Y>
__device__ inline void hw_outer_mma(const X &x, const Y &y, const HwTiles &tiles, u32 rows, float *out) {
    const u32 HEIGHT = ROWS > 64 || COLS > 64 ? 128 : 64, WIDTH = COLS > 64 ? 128 : 64, WIDE = WIDTH / 16;
    const u32 HALVES = 128 / HEIGHT, DEEP = HW_DEPTH * HALVES, STAGES = HEIGHT + WIDTH == 192 ? 3 : 2;
    const u32 DOWN = (ROWS + HEIGHT - 1) / HEIGHT, ACROSS = (COLS + WIDTH - 1) / WIDTH;
    const u32 X_PITCH = HEIGHT + 8, Y_PITCH = WIDTH + 8, chunks = hw_chunks(tiles, rows);
    __shared__ __align__(16) float x_tiles[STAGES][DEEP * X_PITCH];
    __shared__ __align__(16) float y_tiles[STAGES][DEEP * Y_PITCH];
    // Warps of a half have the same rows of the chunk; two warps lie beside each other in the tile.
    const u32 warp = threadIdx.x / 32, half = warp / (HEIGHT / 16);
    const u32 top = warp % (HEIGHT / 16) / 2 * 32, left = warp % 2 * (WIDTH / 2);
    const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (u32 at = blockIdx.x; at < chunks * HEADS * DOWN * ACROSS; at += gridDim.x) {
        const HwPlace<HEADS, DOWN, ACROSS> place(at);
        const u32 first_column = place.column * WIDTH, first_row = place.row * HEIGHT;
        const HwTile chunk = hw_chunk(tiles, rows, place.chunk);
        const u32 first = chunk.first, end = first + chunk.count, steps = (chunk.count + DEEP - 1) / DEEP;
        const u32 live_m = ROWS % HEIGHT == 0 ? HEIGHT : first_row + top < ROWS ? ROWS - first_row - top : 0;
        const u32 live_n = COLS % WIDTH == 0 ? WIDTH : first_column + left < COLS ? COLS - first_column - left : 0;
        float sums[2][WIDE][4] = {};
        const auto load = [&](u32 step) {
            if (step < steps) {
                const u32 start = first + step * DEEP, slot = step % STAGES;
                hw_load_chunk<DEEP, HEIGHT, X_PITCH, ROWS>(x_tiles[slot], x, start, end, place.head, first_row, out);
                hw_load_chunk<DEEP, WIDTH, Y_PITCH, COLS>(y_tiles[slot], y, start, end, place.head, first_column, out);
            }
            hw_copies_end();
        };
#pragma unroll
        for (u32 step = 0; step + 1 < STAGES; step++) load(step);
        for (u32 step = 0; step < steps; step++) {
            hw_copies_wait<STAGES - 2>();
            __syncthreads();
            load(step + STAGES - 1);
            const float *a = x_tiles[step % STAGES] + half * HW_DEPTH * X_PITCH + top;
            const float *b = y_tiles[step % STAGES] + half * HW_DEPTH * Y_PITCH + left;
            if (live_m) hw_multiply<MODE, WIDE, 1, X_PITCH, Y_PITCH, 1>(a, b, sums, live_m, live_n);
        }
        __syncthreads();
        if (HALVES == 2) {
            // The second half gives its sums to the first, in the order that threads have them.
            float *given = x_tiles[0] + threadIdx.x % 128;
            if (half == 1) {
#pragma unroll
                for (u32 i = 0; i < 8 * WIDE; i++) given[i * 128] = sums[i / 4 / WIDE][i / 4 % WIDE][i % 4];
            }
            __syncthreads();
            if (half == 0) {
#pragma unroll
                for (u32 i = 0; i < 8 * WIDE; i++) sums[i / 4 / WIDE][i / 4 % WIDE][i % 4] += given[i * 128];
            }
            __syncthreads();
        }
#pragma unroll
        for (u32 m = 0; m < 4; m++) {
            const u32 row = first_row + top + m * 8 + g;
            float *to = out + (place.matrix() * ROWS + row) * COLS;
#pragma unroll
            for (u32 i = 0; i < WIDE * 2; i++) {
                const u32 column = first_column + left + i / 2 * 8 + 2 * t + i % 2;
                if (half == 0 && row < ROWS && column < COLS) to[column] = sums[m / 2][i / 2][m % 2 * 2 + i % 2];
            }
        }
    }
}

template <int MODE, u32 HEADS, u32 ROWS, u32 COLS, class X, class Y>
__device__ inline void hw_outer(const X &x, const Y &y, const HwTiles &tiles, u32 rows, float *out) {
    if constexpr (MODE == HW_F32) {
        hw_outer_f32<HEADS, ROWS, COLS>(x, y, tiles, rows, out);
    } else {
        hw_outer_mma<MODE, HEADS, ROWS, COLS>(x, y, tiles, rows, out);
    }
}

// Products of weights, a matrix a type and head: small, so an element a thread.
template <u32 ROWS, u32 INNER, u32 COLS, bool A_TURNED, bool B_TURNED>
__device__ inline void hw_weights(const float *a, const float *b, u32 matrices, float *out) {
    const u32 count = matrices * ROWS * COLS;
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += gridDim.x * blockDim.x) {
        const u32 column = at % COLS, row = at / COLS % ROWS;
        const u64 matrix = at / COLS / ROWS;
        float sum = 0.0f;
#pragma unroll 8
        for (u32 i = 0; i < INNER; i++) {
            const float left = a[matrix * ROWS * INNER + (A_TURNED ? i * ROWS + row : row * INNER + i)];
            const float right = b[matrix * INNER * COLS + (B_TURNED ? column * INNER + i : i * COLS + column)];
            sum += left * right;
        }
        out[at] = sum;
    }
}
