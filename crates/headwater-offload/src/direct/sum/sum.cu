// Adds up a piece of memory, so that bytes that come back from a disk can be told from others without leaving the GPU.
//
// Every word of 32 bits counts by an odd factor that its place alone decides, modulo 2^64: a word that changes changes the sum, and so
// does one that is found elsewhere. The order of additions does not matter, so the sum is the same in every run.
//
// Defines: THREADS (threads a block).

// An odd number for a place: SplitMix64.
__device__ inline u64 factor(u64 place) {
    u64 x = (place + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return (x ^ (x >> 31)) | 1;
}

extern "C" __global__ void sum_words(const u8* __restrict__ data, u64 bytes, u64* sum) {
    const uint4* vectors = (const uint4*)data;
    const u64 whole = bytes / 16;
    u64 own = 0;
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < whole; i += (u64)gridDim.x * THREADS) {
        const uint4 v = vectors[i];
        own += v.x * factor(4 * i) + v.y * factor(4 * i + 1) + v.z * factor(4 * i + 2) + v.w * factor(4 * i + 3);
    }
    // What is left, the last word filled up with zeros.
    const u64 word = whole * 4 + threadIdx.x;
    if (blockIdx.x == 0 && word * 4 < bytes) {
        u32 last = 0;
        for (u64 k = 0; k < 4 && word * 4 + k < bytes; k++) last |= (u32)data[word * 4 + k] << (8 * k);
        own += last * factor(word);
    }
    for (int half = 16; half > 0; half /= 2) own += __shfl_down_sync(0xffffffffu, own, half);
    if (threadIdx.x % 32 == 0 && own != 0) atomicAdd((unsigned long long*)sum, (unsigned long long)own);
}
