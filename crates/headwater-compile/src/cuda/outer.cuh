// Sums of outer products, a matrix a type: the gradient of a weight.
//
// Bytes: both sides of every row once a tile of the matrix, and every part of the sums twice. Flops: 2 * heads * ROWS * COLS
// a row, three times that where float accuracy is made of TF32. A warp makes 64 by 64 of one matrix by tensor cores
// (mma.cuh), rows being the depth of the product: it takes 8 rows (bf16: 16) at a time straight into registers, 16 bytes a
// lane, and loads the next ones meanwhile. Four warps are a thread block over one chunk of rows of a type: they lie over 128
// by 128 of the matrix, or share the rows, and then their sums meet in shared memory. Plain arithmetic makes 32 by 32 a
// block. A block has a share of the rows, as large as that of any other: chunks of neighbouring types. `hw_total` adds
// chunks in their order, so a sum is the same every time.

// A block's place: which head and tile of the matrix, and which type, or share of the rows.
template <u32 HEADS, u32 DOWN, u32 ACROSS> struct HwPlace {
    u32 column, row, head, of;
    __device__ explicit HwPlace(u32 at)
        : column(at % ACROSS), row(at / ACROSS % DOWN), head(at / ACROSS / DOWN % HEADS), of(at / ACROSS / DOWN / HEADS) {}
    __device__ u64 matrix(u32 which) const { return (u64)which * HEADS + head; }
};

// Calls `body` with each chunk of this block's shares, its number and its place.
template <u32 HEADS, u32 DOWN, u32 ACROSS, class Body>
__device__ inline void hw_each_chunk(const HwTiles &tiles, u32 rows, const Body &body) {
    const u32 shares = hw_shares(tiles, rows);
    for (u32 at = blockIdx.x; at < shares * HEADS * DOWN * ACROSS; at += gridDim.x) {
        const HwPlace<HEADS, DOWN, ACROSS> place(at);
        const HwRange own = hw_share(tiles, place.of);
        for (u32 chunk = own.first; chunk < own.end; chunk++) body(place, chunk, hw_chunk(tiles, rows, chunk));
    }
}

template <u32 HEADS, u32 ROWS, u32 COLS, class X, class Y>
__device__ inline void hw_outer_f32(const X &x, const Y &y, const HwTiles &tiles, u32 rows, float *out) {
    const u32 SIDE = 32, DOWN = (ROWS + SIDE - 1) / SIDE, ACROSS = (COLS + SIDE - 1) / SIDE;
    __shared__ float x_tile[HW_DEPTH][SIDE + 1];
    __shared__ float y_tile[HW_DEPTH][SIDE + 1];
    const u32 column = threadIdx.x % SIDE, top = threadIdx.x / SIDE * 4;
    hw_each_chunk<HEADS, DOWN, ACROSS>(tiles, rows, [&](const HwPlace<HEADS, DOWN, ACROSS> &place, u32 number, const HwTile &chunk) {
        const u32 first_column = place.column * SIDE, first_row = place.row * SIDE;
        const u32 end = chunk.first + chunk.count;
        float sums[4] = {};
        for (u32 start = chunk.first; start < end; start += HW_DEPTH) {
            for (u32 i = threadIdx.x; i < HW_DEPTH * SIDE; i += HW_THREADS) {
                const u32 step = i / SIDE, along = i % SIDE, row = start + step;
                const bool in_x = row < end && first_row + along < ROWS, in_y = row < end && first_column + along < COLS;
                x_tile[step][along] = in_x ? x.row(x.at(row))[place.head * ROWS + first_row + along] : 0.0f;
                y_tile[step][along] = in_y ? y.row(y.at(row))[place.head * COLS + first_column + along] : 0.0f;
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
                out[(place.matrix(number) * ROWS + row) * COLS + first_column + column] = sums[i];
            }
        }
    });
}

// Both sides of the rows of one step: of LOADS rows that are four apart, four neighbours of each stretch of 32 columns.
template <u32 LOADS, u32 HALVES, u32 WIDTH, class X> struct HwSide {
    float4 data[LOADS][HALVES];
    u32 from[LOADS];

    // The numbers of the rows of a step that begins at `start`; those behind the end are not read.
    __device__ void find(const X &x, u32 start, u32 end) {
#pragma unroll
        for (u32 i = 0; i < LOADS; i++) {
            const u32 row = start + threadIdx.x % 4 + i * 4;
            from[i] = row < end ? x.at(row) : 0;
        }
    }
    __device__ void load(const X &x, u32 start, u32 end, u32 head, u32 first) {
        const u32 column = first + threadIdx.x % 32 / 4 * 4;
#pragma unroll
        for (u32 i = 0; i < LOADS; i++) {
            const bool is_there = start + threadIdx.x % 4 + i * 4 < end;
            const float *row = x.row(from[i]) + head * WIDTH;
#pragma unroll
            for (u32 half = 0; half < HALVES; half++) data[i][half] = hw_four<WIDTH>(row, column + half * 32, is_there);
        }
    }
};

// Element i of four.
__device__ inline float hw_of(const float4 &x, u32 i) { return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w; }

// One operand of a step: element `i` of the four neighbours of stretch `half`, along the rows.
template <int MODE, u32 COUNT, u32 LOADS, u32 HALVES>
__device__ inline void hw_along(HwPart<MODE, COUNT> &part, u32 place, const float4 (&data)[LOADS][HALVES], u32 half, u32 i) {
    // Words of one row of the matrix, or column, are half of an operand apart.
    const u32 APART = COUNT / 2;
    if (MODE == HW_BF16) {
        part.large[place] = hw_two_bf16(hw_of(data[0][half], i), hw_of(data[1][half], i));
        part.large[place + APART] = hw_two_bf16(hw_of(data[LOADS - 2][half], i), hw_of(data[LOADS - 1][half], i));
    } else {
        part.set(place, hw_of(data[0][half], i));
        part.set(place + APART, hw_of(data[1][half], i));
    }
}

template <int MODE, u32 HEADS, u32 ROWS, u32 COLS, class X, class Y>
__device__ inline void hw_outer_mma(const X &x, const Y &y, const HwTiles &tiles, u32 rows, float *out) {
    // Warps beside each other in the matrix, below each other, and for the same part of it.
    const u32 BESIDE = COLS > HW_SIDE ? 2 : 1, BELOW = ROWS > HW_SIDE ? 2 : 1;
    const u32 PARTS = BESIDE * BELOW, SHARES = HW_TENSOR_WARPS / PARTS, HEIGHT = HW_SIDE * BELOW, WIDTH = HW_SIDE * BESIDE;
    const u32 DOWN = (ROWS + HEIGHT - 1) / HEIGHT, ACROSS = (COLS + WIDTH - 1) / WIDTH;
    const u32 X_HALVES = ROWS > 32 ? 2 : 1, Y_HALVES = COLS > 32 ? 2 : 1, TALL = 2 * X_HALVES, WIDE = 4 * Y_HALVES;
    const u32 LOADS = MODE == HW_BF16 ? 4 : 2, STEP = 4 * LOADS;
    __shared__ float given[SHARES == 1 ? 1 : SHARES / 2 * PARTS][SHARES == 1 ? 1 : TALL * WIDE * 4][32];
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, share = warp / PARTS, g = lane / 4, t = lane % 4;
    hw_each_chunk<HEADS, DOWN, ACROSS>(tiles, rows, [&](const HwPlace<HEADS, DOWN, ACROSS> &place, u32 number, const HwTile &chunk) {
        const u32 first_column = place.column * WIDTH + warp % BESIDE * HW_SIDE;
        const u32 first_row = place.row * HEIGHT + warp / BESIDE % BELOW * HW_SIDE;
        const u32 end = chunk.first + chunk.count, begin = chunk.first + share * STEP;
        float sums[TALL][WIDE][4] = {};
        HwSide<LOADS, X_HALVES, ROWS, X> x_side;
        HwSide<LOADS, Y_HALVES, COLS, Y> y_side;
        const auto find = [&](u32 start) { x_side.find(x, start, end), y_side.find(y, start, end); };
        const auto load = [&](u32 start) {
            x_side.load(x, start, end, place.head, first_row), y_side.load(y, start, end, place.head, first_column);
        };
        find(begin);
        load(begin);
        find(begin + SHARES * STEP);
        for (u32 start = begin; start < end; start += SHARES * STEP) {
            HwPart<MODE, 2> right[WIDE];
#pragma unroll
            for (u32 n = 0; n < WIDE; n++) hw_along<MODE, 2>(right[n], 0, y_side.data, n / 4, n % 4);
            float4 own[LOADS][X_HALVES];
#pragma unroll
            for (u32 i = 0; i < LOADS * X_HALVES; i++) own[i / X_HALVES][i % X_HALVES] = x_side.data[i / X_HALVES][i % X_HALVES];
            load(start + SHARES * STEP);
            find(start + 2 * SHARES * STEP);
#pragma unroll
            for (u32 m = 0; m < TALL; m++) {
                HwPart<MODE, 4> left;
#pragma unroll
                for (u32 i = 0; i < 2; i++) hw_along<MODE, 4>(left, i, own, m / 2, m % 2 * 2 + i);
#pragma unroll
                for (u32 n = 0; n < WIDE; n++) hw_mma<MODE>(sums[m][n], left, right[n]);
            }
        }
        // Of warps that share rows, one half gives its sums to the other, until one has all.
#pragma unroll
        for (u32 left = SHARES / 2; left > 0; left /= 2) {
            __syncthreads();
#pragma unroll
            for (u32 i = 0; i < TALL * WIDE * 4; i++) {
                const bool gives = share >= left && share < 2 * left;
                if (gives) given[warp - left * PARTS][i][lane] = sums[i / 4 / WIDE][i / 4 % WIDE][i % 4];
            }
            __syncthreads();
#pragma unroll
            for (u32 i = 0; i < TALL * WIDE * 4; i++) {
                if (share < left) sums[i / 4 / WIDE][i / 4 % WIDE][i % 4] += given[warp][i][lane];
            }
        }
        if (share != 0) return;
#pragma unroll
        for (u32 i = 0; i < TALL * 2; i++) {
            const u32 m = i / 2, row = first_row + m / 2 * 32 + g * 4 + m % 2 * 2 + i % 2;
            float *to = out + (place.matrix(number) * ROWS + row) * COLS;
#pragma unroll
            for (u32 j = 0; j < Y_HALVES * 2; j++) {
                const u32 column = first_column + j / 2 * 32 + t * 8 + j % 2 * 4;
                const float(&own)[WIDE][4] = sums[m];
                const u32 from = i % 2 * 2 + j % 2, n = j / 2 * 4;
                if (row >= ROWS) continue;
                if (COLS % 4 == 0) {
                    const float4 four = make_float4(own[n][from], own[n + 1][from], own[n + 2][from], own[n + 3][from]);
                    if (column < COLS) *(float4 *)(to + column) = four;
                } else {
#pragma unroll
                    for (u32 k = 0; k < 4; k++) {
                        if (column + k < COLS) to[column + k] = own[n + k][from];
                    }
                }
            }
        }
    });
}

template <int MODE, u32 HEADS, u32 ROWS, u32 COLS, class X, class Y>
__device__ inline void hw_outer(const X &x, const Y &y, const HwTiles &tiles, u32 rows, float *out) {
    if constexpr (MODE == HW_F32) {
        hw_outer_f32<HEADS, ROWS, COLS>(x, y, tiles, rows, out);
    } else {
        hw_outer_mma<MODE, HEADS, ROWS, COLS>(x, y, tiles, rows, out);
    }
}

// Products of weights, a matrix a type and head: 32 by 32 a thread block. Bytes: both sides once a tile, out of a cache where several
// tiles of a matrix read them; flops: 2 * ROWS * INNER * COLS a matrix. Types are few, so what matters is how long one block takes: all
// loads of 64 elements of the depth are under way at once.
template <u32 HEADS, u32 ROWS, u32 INNER, u32 COLS, bool A_TURNED, bool B_TURNED, class A, class B>
__device__ inline void hw_weights(const A &a, const B &b, u32 types, float *out) {
    const u32 SIDE = 32, DEEP = 64, DOWN = (ROWS + SIDE - 1) / SIDE, ACROSS = (COLS + SIDE - 1) / SIDE;
    // Four rows of the left side are read at once.
    __shared__ __align__(16) float left[DEEP][SIDE + 4];
    __shared__ float right[DEEP][SIDE + 1];
    const u32 own_column = threadIdx.x % SIDE, top = threadIdx.x / SIDE * 4;
    for (u32 at = blockIdx.x; at < types * HEADS * DOWN * ACROSS; at += gridDim.x) {
        const HwPlace<HEADS, DOWN, ACROSS> place(at);
        const u32 first_row = place.row * SIDE, first_column = place.column * SIDE;
        const float *x = a.row(a.at(place.of)) + place.head * ROWS * INNER;
        const float *y = b.row(b.at(place.of)) + place.head * INNER * COLS;
        float sums[4] = {};
        for (u32 start = 0; start < INNER; start += DEEP) {
            __syncthreads();
#pragma unroll
            for (u32 i = threadIdx.x; i < DEEP * SIDE; i += HW_THREADS) {
                // Neighbouring threads read neighbours of memory.
                const u32 x_deep = A_TURNED ? i / SIDE : i % DEEP, row = A_TURNED ? i % SIDE : i / DEEP;
                const u32 y_deep = B_TURNED ? i % DEEP : i / SIDE, column = B_TURNED ? i / DEEP : i % SIDE;
                const u32 x_down = start + x_deep, y_down = start + y_deep, x_row = first_row + row, y_column = first_column + column;
                const u32 x_place = A_TURNED ? x_down * ROWS + x_row : x_row * INNER + x_down;
                const u32 y_place = B_TURNED ? y_column * INNER + y_down : y_down * COLS + y_column;
                left[x_deep][row] = x_down < INNER && x_row < ROWS ? x[x_place] : 0.0f;
                right[y_deep][column] = y_down < INNER && y_column < COLS ? y[y_place] : 0.0f;
            }
            __syncthreads();
#pragma unroll 16
            for (u32 deep = 0; deep < DEEP; deep++) {
                const float4 four = *(const float4 *)&left[deep][top];
                const float own = right[deep][own_column];
                sums[0] += four.x * own, sums[1] += four.y * own, sums[2] += four.z * own, sums[3] += four.w * own;
            }
        }
        for (u32 i = 0; i < 4; i++) {
            const u32 row = first_row + top + i, column = first_column + own_column;
            if (row < ROWS && column < COLS) out[(place.matrix(place.of) * ROWS + row) * COLS + column] = sums[i];
        }
    }
}
