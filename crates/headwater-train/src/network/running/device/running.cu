// Running moments take in those of a batch: a thread a column, 16 bytes read and 8 written each.
//
// A layer has few columns, so this is one block and its launch is all it costs; it stands alone because the rows of a
// batch are known on the device only. In f64 and rounded as the CPU rounds, so moments are equal to the bit.
//
// Defines: THREADS.

__device__ inline float blend(float running, float batch, double momentum, double scale) {
    const double fresh = __dmul_rn(__dmul_rn(momentum, scale), (double)batch);
    return (float)hw_mul_then_add(__dsub_rn(1.0, momentum), (double)running, fresh);
}

// The variance over all rows becomes that of what they are drawn from; of one row nothing is learnt.
extern "C" __global__ void __launch_bounds__(THREADS)
    see(const float* __restrict__ batch_mean, const float* __restrict__ batch_variance, u32 width, const u32* rows,
        double momentum, float* __restrict__ mean, float* __restrict__ variance) {
    const u32 count = *rows;
    if (count < 2) return;
    const double unbiased = (double)count / (double)(count - 1);
    for (u32 i = blockIdx.x * THREADS + threadIdx.x; i < width; i += gridDim.x * THREADS) {
        mean[i] = blend(mean[i], batch_mean[i], momentum, 1.0);
        variance[i] = blend(variance[i], batch_variance[i], momentum, unbiased);
    }
}
