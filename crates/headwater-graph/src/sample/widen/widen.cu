// Numbers of 32 bits as numbers of 64: to[i] = from[i].
//
// Four numbers a thread would save nothing: a warp's 32 reads are one line of 128 bytes and its writes two. Per number: 4
// bytes in, 8 out, no floating point.

extern "C" __global__ void widen(const u32* __restrict__ from, u64 count, u64* __restrict__ to) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) to[i] = from[i];
}
