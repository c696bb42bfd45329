// Reads a buffer in order and keeps nothing, to time the link it lies behind.
//
// The sum goes to memory only under a condition that never holds but that the compiler cannot rule out.
//
// Defines: VECTOR_BYTES (16).

extern "C" __global__ void read_all(const uint4* __restrict__ data, u64 vectors, u32* sink) {
    u32 sum = 0;
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += step) {
        const uint4 v = data[i];
        sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0x5bd1e995u && vectors == ~0ull) *sink = sum;
}

// Follows a ring through memory from a word on, `steps` loads each of which waits for the one before. One thread.
extern "C" __global__ void chase(const u32* __restrict__ next, u64 words, u64 first, u64 steps, u32* sink) {
    u32 at = (u32)first;
    for (u64 i = 0; i < steps; i++) at = next[at];
    if (at >= words) *sink = at;
}
