// Sums of outer products, a matrix a type: the gradient of a weight.
//
// Bytes: both sides of every row once a tile of the matrix. Flops: 2 * heads * ROWS * COLS a row. A thread block makes a tile
// of 32 by 32 of one matrix and goes over all rows of the type in order, so a sum is the same every time.

#define HW_SIDE 32
#define HW_STEP 16

template <u32 HEADS, u32 ROWS, u32 COLS, class X, class Y>
__device__ inline void hw_outer(const X &x, const Y &y, const HwMap &types, u32 rows, u32 matrices, float *out) {
    __shared__ float x_tile[HW_STEP][HW_SIDE + 1];
    __shared__ float y_tile[HW_STEP][HW_SIDE + 1];
    const u32 down = (ROWS + HW_SIDE - 1) / HW_SIDE, across = (COLS + HW_SIDE - 1) / HW_SIDE;
    const bool is_apart = types.kind == HW_MAP_SAME || types.kind == HW_MAP_LISTED;
    const u32 stretches = types.kind == HW_MAP_FIRST || is_apart ? 1 : (u32)types.count;
    for (u32 at = blockIdx.x; at < matrices * HEADS * down * across; at += gridDim.x) {
        const u32 first_column = at % across * HW_SIDE, first_row = at / across % down * HW_SIDE;
        const u32 head = at / across / down % HEADS, type = at / across / down / HEADS;
        const u32 column = threadIdx.x % HW_SIDE, top = threadIdx.x / HW_SIDE * 4;
        float sums[4] = {};
        for (u32 stretch = 0; stretch < stretches; stretch++) {
            const bool is_whole = types.kind == HW_MAP_FIRST || is_apart;
            const u32 own = types.kind == HW_MAP_ENDS ? types.list[stretch] : is_whole ? type : stretch;
            if (own != type) continue;
            const u32 first = is_whole ? 0 : types.starts[stretch], end = is_whole ? rows : types.starts[stretch + 1];
            for (u32 start = first; start < end; start += HW_STEP) {
                for (u32 i = threadIdx.x; i < HW_STEP * HW_SIDE; i += 256) {
                    const u32 step = i / HW_SIDE, place = i % HW_SIDE, row = start + step;
                    const bool is_row = row < end && (!is_apart || hw_map(types, row) == type);
                    x_tile[step][place] = is_row && first_row + place < ROWS ? x.row(row)[head * ROWS + first_row + place] : 0.0f;
                    y_tile[step][place] =
                        is_row && first_column + place < COLS ? y.row(row)[head * COLS + first_column + place] : 0.0f;
                }
                __syncthreads();
                for (u32 step = 0; step < HW_STEP; step++) {
                    for (u32 i = 0; i < 4; i++) {
                        sums[i] += x_tile[step][top + i] * y_tile[step][column];
                    }
                }
                __syncthreads();
            }
        }
        for (u32 i = 0; i < 4; i++) {
            const u32 row = first_row + top + i;
            if (row < ROWS && first_column + column < COLS) {
                out[(((u64)type * HEADS + head) * ROWS + row) * COLS + first_column + column] = sums[i];
            }
        }
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
        for (u32 i = 0; i < INNER; i++) {
            const float left = a[matrix * ROWS * INNER + (A_TURNED ? i * ROWS + row : row * INNER + i)];
            const float right = b[matrix * INNER * COLS + (B_TURNED ? column * INNER + i : i * COLS + column)];
            sum += left * right;
        }
        out[at] = sum;
    }
}
