// Sums of outer products, a matrix a type: the gradient of a weight.
//
// Bytes: both sides of every row once a tile of the matrix, and every part of the sums twice. Flops: 2 * heads * ROWS * COLS a
// row. A thread block makes a tile of one matrix, 128 by 64 or 128 by tensor cores (mma.cuh) or 32 by 32 by plain arithmetic,
// over one part of the rows of the type; there are so many parts that one matrix keeps a GPU busy. `hw_total` adds them in
// their order, so a sum is the same every time. Rows come into shared memory by asynchronous copies, a step ahead.

// Which rows a block takes: part `part` of every stretch of rows that are of a type; where types are listed row by row, all
// rows, of which those of other types count as zeros.
struct HwShare {
    HwMap types;
    u32 rows, type, part, parts;
    __device__ bool is_apart() const { return types.kind == HW_MAP_SAME || types.kind == HW_MAP_LISTED; }
    __device__ bool is_whole() const { return types.kind == HW_MAP_FIRST || is_apart(); }
    __device__ u32 stretches() const { return is_whole() ? 1 : (u32)types.count; }
    __device__ bool has(u32 stretch) const {
        return is_whole() || (types.kind == HW_MAP_ENDS ? types.list[stretch] : stretch) == type;
    }
    __device__ u32 bound(u32 stretch, u32 of) const {
        const u32 first = is_whole() ? 0 : types.starts[stretch], end = is_whole() ? rows : types.starts[stretch + 1];
        return first + hw_part(end - first, of, parts);
    }
    __device__ u32 first(u32 stretch) const { return bound(stretch, part); }
    __device__ u32 end(u32 stretch) const { return bound(stretch, part + 1); }
    __device__ bool takes(u32 row) const { return !is_apart() || hw_map(types, row) == type; }
};

// A block's place: which matrix, head, part and tile.
template <u32 HEADS, u32 DOWN, u32 ACROSS, u32 PARTS> struct HwPlace {
    u32 column, row, head, part, type;
    __device__ HwPlace(u32 at, u32 parts)
        : column(at % ACROSS), row(at / ACROSS % DOWN), head(at / ACROSS / DOWN % HEADS),
          part(at / ACROSS / DOWN / HEADS % parts), type(at / ACROSS / DOWN / HEADS / parts) {}
    __device__ u64 matrix() const { return ((u64)type * PARTS + part) * HEADS + head; }
};

template <u32 HEADS, u32 ROWS, u32 COLS, u32 PARTS, class X, class Y>
__device__ inline void hw_outer_f32(const X &x, const Y &y, const HwMap &types, u32 rows, u32 matrices, float *out) {
    const u32 SIDE = 32, DOWN = (ROWS + SIDE - 1) / SIDE, ACROSS = (COLS + SIDE - 1) / SIDE;
    __shared__ float x_tile[HW_DEPTH][SIDE + 1];
    __shared__ float y_tile[HW_DEPTH][SIDE + 1];
    const u32 column = threadIdx.x % SIDE, top = threadIdx.x / SIDE * 4, parts = hw_parts(rows, PARTS);
    for (u32 at = blockIdx.x; at < matrices * HEADS * DOWN * ACROSS * parts; at += gridDim.x) {
        const HwPlace<HEADS, DOWN, ACROSS, PARTS> place(at, parts);
        const u32 first_column = place.column * SIDE, first_row = place.row * SIDE;
        const HwShare share = {types, rows, place.type, place.part, parts};
        float sums[4] = {};
        for (u32 stretch = 0; stretch < share.stretches(); stretch++) {
            if (!share.has(stretch)) continue;
            const u32 end = share.end(stretch);
            for (u32 start = share.first(stretch); start < end; start += HW_DEPTH) {
                for (u32 i = threadIdx.x; i < HW_DEPTH * SIDE; i += HW_THREADS) {
                    const u32 step = i / SIDE, along = i % SIDE, row = start + step;
                    const bool is_row = row < end && share.takes(row);
                    const bool in_x = is_row && first_row + along < ROWS, in_y = is_row && first_column + along < COLS;
                    x_tile[step][along] = in_x ? x.row(row)[place.head * ROWS + first_row + along] : 0.0f;
                    y_tile[step][along] = in_y ? y.row(row)[place.head * COLS + first_column + along] : 0.0f;
                }
                __syncthreads();
                for (u32 step = 0; step < HW_DEPTH; step++) {
                    for (u32 i = 0; i < 4; i++) sums[i] += x_tile[step][top + i] * y_tile[step][column];
                }
                __syncthreads();
            }
        }
        for (u32 i = 0; i < 4; i++) {
            const u32 row = first_row + top + i;
            if (row < ROWS && first_column + column < COLS) {
                out[(place.matrix() * ROWS + row) * COLS + first_column + column] = sums[i];
            }
        }
    }
}

// HW_DEPTH rows, ACROSS elements of each from `first` on, into shared memory.
template <u32 ACROSS, u32 PITCH, u32 WIDTH, class X>
__device__ inline void hw_load_share(float *to, const X &x, const HwShare &share, u32 start, u32 end, u32 head, u32 first,
                                     const float *nowhere) {
    const u32 FLOATS = WIDTH % 4 == 0 ? 4 : 1;
#pragma unroll
    for (u32 i = threadIdx.x; i < HW_DEPTH * ACROSS / FLOATS; i += HW_THREADS) {
        const u32 step = i / (ACROSS / FLOATS), along = i % (ACROSS / FLOATS) * FLOATS, row = start + step;
        const bool is_there = row < end && first + along < WIDTH && share.takes(row);
        hw_copy<FLOATS>(to + step * PITCH + along, is_there ? x.row(row) + head * WIDTH + first + along : nowhere, is_there);
    }
}

template <int MODE, u32 HEADS, u32 ROWS, u32 COLS, u32 PARTS, class X, class Y>
__device__ inline void hw_outer_mma(const X &x, const Y &y, const HwMap &types, u32 rows, u32 matrices, float *out) {
    const u32 HEIGHT = 128, WIDTH = COLS > 64 ? 128 : 64, WIDE = WIDTH / 16, STAGES = WIDTH == 64 ? 3 : 2;
    const u32 DOWN = (ROWS + HEIGHT - 1) / HEIGHT, ACROSS = (COLS + WIDTH - 1) / WIDTH;
    const u32 X_PITCH = HEIGHT + 8, Y_PITCH = WIDTH + 8, parts = hw_parts(rows, PARTS);
    __shared__ __align__(16) float x_tiles[STAGES][HW_DEPTH * X_PITCH];
    __shared__ __align__(16) float y_tiles[STAGES][HW_DEPTH * Y_PITCH];
    const u32 top = threadIdx.x / 32 / 2 * 32, left = threadIdx.x / 32 % 2 * (WIDTH / 2);
    const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (u32 at = blockIdx.x; at < matrices * HEADS * DOWN * ACROSS * parts; at += gridDim.x) {
        const HwPlace<HEADS, DOWN, ACROSS, PARTS> place(at, parts);
        const u32 first_column = place.column * WIDTH, first_row = place.row * HEIGHT;
        const HwShare share = {types, rows, place.type, place.part, parts};
        const u32 live_m = ROWS % HEIGHT == 0 ? HEIGHT : first_row + top < ROWS ? ROWS - first_row - top : 0;
        const u32 live_n = COLS % WIDTH == 0 ? WIDTH : first_column + left < COLS ? COLS - first_column - left : 0;
        float sums[2][WIDE][4] = {};
        for (u32 stretch = 0; stretch < share.stretches(); stretch++) {
            if (!share.has(stretch)) continue;
            const u32 first = share.first(stretch), end = share.end(stretch), steps = (end - first + HW_DEPTH - 1) / HW_DEPTH;
            const auto load = [&](u32 step) {
                if (step < steps) {
                    const u32 start = first + step * HW_DEPTH, slot = step % STAGES;
                    hw_load_share<HEIGHT, X_PITCH, ROWS>(x_tiles[slot], x, share, start, end, place.head, first_row, out);
                    hw_load_share<WIDTH, Y_PITCH, COLS>(y_tiles[slot], y, share, start, end, place.head, first_column, out);
                }
                hw_copies_end();
            };
#pragma unroll
            for (u32 step = 0; step + 1 < STAGES; step++) load(step);
            for (u32 step = 0; step < steps; step++) {
                hw_copies_wait<STAGES - 2>();
                __syncthreads();
                load(step + STAGES - 1);
                const float *a = x_tiles[step % STAGES] + top, *b = y_tiles[step % STAGES] + left;
                if (live_m) hw_multiply<MODE, WIDE, 1, X_PITCH, Y_PITCH, 1>(a, b, sums, live_m, live_n);
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
                if (row < ROWS && column < COLS) to[column] = sums[m / 2][i / 2][m % 2 * 2 + i % 2];
            }
        }
    }
}

template <int MODE, u32 HEADS, u32 ROWS, u32 COLS, u32 PARTS, class X, class Y>
__device__ inline void hw_outer(const X &x, const Y &y, const HwMap &types, u32 rows, u32 matrices, float *out) {
    if constexpr (MODE == HW_F32) {
        hw_outer_f32<HEADS, ROWS, COLS, PARTS>(x, y, types, rows, matrices, out);
    } else {
        hw_outer_mma<MODE, HEADS, ROWS, COLS, PARTS>(x, y, types, rows, matrices, out);
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
