// Small kernels for the tests of the GPU layer: each does one thing whose result is easy to foresee.
//
// Defines: STEP, what add_step adds.

extern "C" __global__ void add_step(u32* data, u64 count) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) data[i] += STEP;
}

// Reads one buffer and writes another: out = in * factor + bias.
extern "C" __global__ void scale(const float* in, float* out, u64 count, float factor, double bias) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = in[i] * factor + (float)bias;
}

struct Pair {
    u32 first;
    u32 second;
};

extern "C" __global__ void store_pair(Pair pair, u32* out) {
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        out[0] = pair.first;
        out[1] = pair.second;
    }
}

// Reports the first id at or beyond `rows`, as a gather does.
extern "C" __global__ void check_ids(const i64* ids, u64 count, u64 rows, Fault* fault) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && (u64)ids[i] >= rows) hw_fault(fault, FAULT_ID_OUT_OF_RANGE, i, (u64)ids[i], rows);
}
