// Sums in two stages, in f64 and always in the same order: lanes of a warp in halves, warps one after the other, and at
// most PARTS sums of blocks by one block. No atomics, so a sum is the same every time; blocks walk with a stride of
// PARTS blocks, however few there are, so it depends neither on the GPU nor on the room there is. A number costs a
// conversion and an addition in f64; the memory it comes from bounds it.
//
// Defines: THREADS (a multiple of 32), PARTS.

// The sum over a block, in every thread. All threads call this together.
__device__ inline double hw_block_sum(double x) {
    __shared__ double of_warps[THREADS / 32];
    __shared__ double whole;
    x = hw_warp_sum(x);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0.0;
        for (u32 k = 0; k < THREADS / 32; k++) sum += of_warps[k];
        whole = sum;
    }
    __syncthreads();
    return whole;
}

// The first stage's last step: what this block found.
__device__ inline void hw_store_part(double x, double* parts) {
    const double sum = hw_block_sum(x);
    if (threadIdx.x == 0 && blockIdx.x < PARTS) parts[blockIdx.x] = sum;
}

// The second stage: the sum of what `blocks` blocks found, in every thread of a block.
__device__ inline double hw_sum_of_parts(const double* parts, u32 blocks) {
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < blocks && i < PARTS; i += THREADS) sum += parts[i];
    return hw_block_sum(sum);
}
