// The kernels of the self-test. Each does one thing that the emulator has to get right, or gets one wrong.
#include "prelude.cuh"

extern "C" __global__ void add_one(float* data, unsigned count) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) data[i] += 1.0f;
}

// A name of the C library, and bounds that are macros.
extern "C" __global__ void
__launch_bounds__(BLOCK /* threads */, 2)
index(unsigned* out) {
    out[(blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x * blockDim.y + threadIdx.y * blockDim.x + threadIdx.x] =
        blockIdx.x + 10 * blockIdx.y + 100 * threadIdx.x + 1000 * threadIdx.y;
}

template <class T, int N>
__device__ __forceinline__ T block_sum(T value) {
    __shared__ T partial[N];
    partial[threadIdx.x] = value;
    __syncthreads();
    for (int half = N / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    return partial[0];
}

extern "C" __global__ void sum_blocks(const float* __restrict__ in, float* out, struct_of_two scale) {
    const float sum = block_sum<float, 256>(in[blockIdx.x * 256 + threadIdx.x]);
    const double again = block_sum<double, 256>(in[blockIdx.x * 256 + threadIdx.x]);
    if (threadIdx.x == 0) out[blockIdx.x] = sum == (float)again ? sum * scale.a + scale.b : -1.0f;
}

extern "C" __global__ void sum_warps(const int* in, int* out) {
    int value = in[threadIdx.x];
    for (int delta = 16; delta > 0; delta /= 2) value += __shfl_down_sync(0xffffffffu, value, delta);
    if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = value;
    double wide = __shfl_xor_sync(0xffffffffu, (double)threadIdx.x, 1);
    if ((unsigned)wide != (threadIdx.x ^ 1)) out[threadIdx.x / 32] = -1;
    unsigned segment = __shfl_sync(0xffu << (threadIdx.x % 32 / 8 * 8), threadIdx.x, 3, 8);
    if (segment != threadIdx.x / 8 * 8 + 3) out[threadIdx.x / 32] = -2;
    if (__shfl_up_sync(0xffffffffu, threadIdx.x, 1) != (threadIdx.x % 32 ? threadIdx.x - 1 : threadIdx.x)) out[threadIdx.x / 32] = -3;
}

extern "C" __global__ void atomics(unsigned* n, unsigned long long* wide, float* f, double* d, int* low) {
    atomicAdd(n, 1u);
    atomicAdd(wide, 1ull << 32);
    atomicAdd(f, 0.5f);
    atomicAdd_system(d, 0.25);
    atomicMin(low, -(int)threadIdx.x);
    unsigned seen = n[1], before;
    do before = seen; while ((seen = atomicCAS(&n[1], before, before + 2)) != before);
}

// Threads of one block take turns by a lock.
extern "C" __global__ void spin_lock(int* lock, int* count) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    const int seen = *count;
    __nanosleep(10);
    *count = seen + 1;
    __threadfence();
    atomicExch(lock, 0);
}

extern "C" __global__ void votes(unsigned* out) {
    const unsigned lane = threadIdx.x % 32;
    out[threadIdx.x * 4] = __ballot_sync(0xffffffffu, lane % 3 == 0);
    out[threadIdx.x * 4 + 1] = __match_any_sync(0xffffffffu, lane % 4);
    out[threadIdx.x * 4 + 2] = __any_sync(0xffffffffu, lane == 7) + 2 * __all_sync(0xffffffffu, lane < 31);
    out[threadIdx.x * 4 + 3] = __syncthreads_count(threadIdx.x < 5) + 100 * __syncthreads_or(threadIdx.x == 3) +
                               1000 * __syncthreads_and(threadIdx.x < 3);
}

extern "C" __global__ void intrinsics(unsigned long long* out) {
    out[0] = __popc(0xf0f0u) + __clz(1) + __ffs(8);
    out[1] = __brev(1u) + (unsigned long long)__umulhi(0x80000000u, 6);
    out[2] = __umul64hi(1ull << 63, 10);
    out[3] = __float_as_uint(1.0f) + __double_as_longlong(0.0);
    out[4] = (unsigned long long)(rsqrtf(0.25f) + __expf(0.0f) + fmaf(2.0f, 3.0f, 4.0f) + max(3, 2) + min(7u, 9u));
    out[5] = (unsigned long long)__float2int_rn(2.5f) + (__float2int_rz(3e9f) == 2147483647);
    const uint4 v = make_uint4(1, 2, 3, 4);
    out[6] = v.w + sizeof(ulonglong2) + alignof(float4);
    out[7] = __clzll(1ll << 40) + __byte_perm(0x33221100u, 0x77665544u, 0x7531) % 256;
}

extern "C" __global__ void dynamic_shared(unsigned* out, unsigned count) {
    extern __shared__ __align__(16) unsigned char raw[];
    unsigned* words = reinterpret_cast<unsigned*>(raw);
    if (blockIdx.x == 0 && threadIdx.x == 0) out[count] = words[0];
    words[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = words[count - 1 - threadIdx.x];
}

extern "C" __global__ void uninitialised_shared(unsigned* out) {
    __shared__ unsigned value;
    out[blockIdx.x] = value;
    value = 7;
}

extern "C" __global__ void divergent_exit() {
    if (threadIdx.x == 5) return;
    __syncthreads();
}

extern "C" __global__ void divergent_place(int* out) {
    if (threadIdx.x < 8)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}

extern "C" __global__ void missing_lane(int* out) {
    if (threadIdx.x != 9) out[threadIdx.x] = __shfl_sync(0xffffffffu, threadIdx.x, 0);
}

extern "C" __global__ void failing_assert(int limit) { assert((int)threadIdx.x < limit); }

extern "C" __global__ void write_at(float* data, long long at) { data[at] = 1.0f; }

// Not inlined, so that only red zones can tell that the store is out of bounds.
__device__ __noinline__ void store(int* to, int at, int value) { to[at] = value; }

extern "C" __global__ void shared_overflow(int* out, int at) {
    __shared__ int first[8];
    __shared__ int second[8];
    first[threadIdx.x % 8] = second[threadIdx.x % 8] = 1;
    store(first, at, 2);
    out[0] = first[0] + second[0];
}

extern "C" __global__ void misaligned_load(const unsigned char* data, uint4* out) {
    out[0] = *reinterpret_cast<const uint4*>(data + 4);
}

extern "C" __global__ void misaligned_store(unsigned char* data) { *reinterpret_cast<uint2*>(data + 4) = make_uint2(1, 2); }

// An array of a thread, read where it ends.
extern "C" __global__ void own_overflow(const unsigned* at, unsigned* out) {
    unsigned own[4] = {1, 2, 3, 4};
    out[0] = own[at[0]];
}

// One row a block, one element a thread.
extern "C" __global__ void read_rows(const float* table, const unsigned* rows, unsigned width, float* out) {
    const float* from = table + (unsigned long long)rows[blockIdx.x] * width + threadIdx.x;
    hw_count_load(from, 4);
    out[blockIdx.x * width + threadIdx.x] = *from;
}

// The example of PyTorch-Direct, figures 4 and 5: only the loads of the second row are counted.
extern "C" __global__ void toy_gather(const float* table, const unsigned* rows, int shifted, float* out) {
    const unsigned width = 11, thread = threadIdx.x, row = thread / width;
    const unsigned long long begin = (unsigned long long)rows[row] * width;
    unsigned column = thread % width;
    // Warps of 4 threads, lines of 4 elements: shift so that a warp's first thread reads a line's first element.
    if (shifted) column = (column + (unsigned)((row * width - begin) % 4)) % width;
    if (row == 1) hw_count_load(table + begin + column, 4);
    out[row * width + column] = table[begin + column];
}

#if 0
extern "C" __global__ void not_there(undeclared x) {}
#endif

extern "C" __global__ void increment(int* numbers) { numbers[threadIdx.x] += 1; }

extern "C" __global__ void count_threads(unsigned* number) { atomicAdd(number, 1u); }
