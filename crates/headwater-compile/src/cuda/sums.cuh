// Sums over all rows in two launches: thread blocks add up parts of the rows, then the parts are added in their order.
//
// Bytes: every row once, and every part twice; parts are as many as keep a GPU busy, or few where
// rows are few. Flops: one
// or a few an element, so loads bound it: threads of a block lie along the row first, so that a warp reads whole lines. No
// sum depends on how many blocks run, so it is the same every time.

#define HW_SUM 0
#define HW_MEAN 1
#define HW_MAX 2

// What a sum begins with, and one more number.
template <int HOW> __device__ inline float hw_sum_of_none() { return HOW == HW_MAX ? -HW_INFINITY : 0.0f; }
template <int HOW> __device__ inline float hw_add(float a, float b) { return HOW == HW_MAX ? hw_max(a, b) : a + b; }

// How many parts some rows are split into: parts of fewer rows than this are not worth a block.
#define HW_ROWS_A_PART 32
__device__ inline u32 hw_parts(u32 rows, u32 most) {
    const u32 parts = (u32)(((u64)rows + HW_ROWS_A_PART - 1) / HW_ROWS_A_PART);
    return parts < most ? parts : most;
}

// Where part `part` of some rows begins.
__device__ inline u32 hw_part(u32 rows, u32 part, u32 parts) { return (u32)((u64)rows * part / parts); }

// The sum over the threads that have the same place modulo SIDE, in order, in the first SIDE threads. All 256 call this.
template <int HOW, u32 SIDE> __device__ inline float hw_block_sum(float x) {
    __shared__ float all[256];
    __syncthreads();
    all[threadIdx.x] = x;
    __syncthreads();
    float sum = all[threadIdx.x % SIDE];
    for (u32 at = threadIdx.x % SIDE + SIDE; at < 256; at += SIDE) sum = hw_add<HOW>(sum, all[at]);
    return sum;
}

// The totals of LEN columns over the parts of some rows, which lie STRIDE apart, for each of `matrices` matrices that have room
// for PARTS. 32 groups of threads take every 32nd part of 8 columns, so that no thread waits for more than a few loads.
template <int HOW, u32 PARTS, u32 STRIDE, u32 LEN>
__device__ inline void hw_total(const float *partial, u32 matrices, u32 rows, float *out) {
    const u32 across = (LEN + 7) / 8, parts = hw_parts(rows, PARTS);
    for (u32 at = blockIdx.x; at < matrices * across; at += gridDim.x) {
        const u32 matrix = at / across, column = at % across * 8 + threadIdx.x % 8;
        const float *from = partial + (u64)matrix * PARTS * STRIDE + column;
        float sum = hw_sum_of_none<HOW>();
        if (column < LEN) {
#pragma unroll 8
            for (u32 part = threadIdx.x / 8; part < parts; part += 32) sum = hw_add<HOW>(sum, from[(u64)part * STRIDE]);
        }
        sum = hw_block_sum<HOW, 8>(sum);
        if (HOW == HW_MEAN) sum *= 1.0f / (rows ? rows : 1);
        if (HOW == HW_MAX && rows == 0) sum = 0.0f;
        if (threadIdx.x < 8 && column < LEN) out[(u64)matrix * LEN + column] = sum;
    }
}
