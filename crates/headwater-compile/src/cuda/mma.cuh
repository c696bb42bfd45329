// Products of small matrices by tensor cores, and copies into shared memory that go on by themselves.
//
// A warp multiplies 16 by 8 by 8 (TF32) or 16 by 8 by 16 (bf16) elements in one instruction: 2048 or 4096 flops, where 32
// lanes of plain arithmetic take 32 or 64 instructions. A TF32 number keeps 11 bits of a float's 24. Three products of a large
// and a small part each (large * large + large * small + small * large) give a float's accuracy back; what is left out is
// below 2^-20 of the product. Parts are taken by integer arithmetic, of which an SM does four times as much as of conversions. Lane 4 * g + t holds of the left matrix rows g and g + 8, of the right one column g, of the sum
// rows g and g + 8 at columns 2 * t and 2 * t + 1.
//
// The emulator exchanges what lanes hold through shared memory and rounds as a GPU does; sums may differ in the last bits.

#define HW_F32 0
#define HW_TF32 1
#define HW_TF32X3 2
#define HW_BF16 3

#ifdef HEADWATER_EMULATED

__device__ inline u32 hw_tf32(float x) {
    const u32 bits = hw_bits(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}
__device__ inline u32 hw_two_bf16(float low, float high) {
    return (u32)hw_f32_to_bf16(low) | (u32)hw_f32_to_bf16(high) << 16;
}

// What all lanes hold: the left matrix in four words, the right one in two.
struct HwHeld {
    u32 words[32][6];
};
__device__ inline const HwHeld &hw_exchange(const u32 (&a)[4], const u32 (&b)[2]) {
    __shared__ HwHeld held[8];
    HwHeld &own = held[threadIdx.x / 32];
    __syncwarp();
    for (u32 i = 0; i < 6; i++) own.words[threadIdx.x % 32][i] = i < 4 ? a[i] : b[i - 4];
    __syncwarp();
    return own;
}
__device__ inline void hw_mma_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    const HwHeld &held = hw_exchange(a, b);
    const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (u32 i = 0; i < 4; i++) {
        for (u32 k = 0; k < 8; k++) {
            const u32 left = held.words[g * 4 + k % 4][i / 2 + k / 4 * 2];
            const u32 right = held.words[(2 * t + i % 2) * 4 + k % 4][4 + k / 4];
            d[i] += hw_float(left) * hw_float(right);
        }
    }
}
__device__ inline void hw_mma_bf16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    const HwHeld &held = hw_exchange(a, b);
    const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (u32 i = 0; i < 4; i++) {
        for (u32 k = 0; k < 16; k++) {
            const u32 left = held.words[g * 4 + k % 8 / 2][i / 2 + k / 8 * 2];
            const u32 right = held.words[(2 * t + i % 2) * 4 + k % 8 / 2][4 + k / 8];
            d[i] += hw_bf16_to_f32((u16)(left >> k % 2 * 16)) * hw_bf16_to_f32((u16)(right >> k % 2 * 16));
        }
    }
}

template <u32 FLOATS> __device__ inline void hw_copy(float *to, const float *from, bool is_there) {
    for (u32 i = 0; i < FLOATS; i++) to[i] = is_there ? from[i] : 0.0f;
}
__device__ inline void hw_copies_end() {}
template <int LEFT> __device__ inline void hw_copies_wait() {}

#else

// Nearest, halves away from zero.
__device__ inline u32 hw_tf32(float x) {
    u32 bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}
// Nearest, halves to even.
__device__ inline u32 hw_two_bf16(float low, float high) {
    u32 bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
__device__ inline void hw_mma_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void hw_mma_bf16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline u32 hw_shared_address(const void *at) {
    u32 address;
    asm("{ .reg .u64 whole; cvta.to.shared.u64 whole, %1; cvt.u32.u64 %0, whole; }" : "=r"(address) : "l"(at));
    return address;
}
// Copies one or four floats into shared memory, or zeros where there is nothing to copy. Four begin on 16 bytes.
template <u32 FLOATS> __device__ inline void hw_copy(float *to, const float *from, bool is_there) {
    const u32 address = hw_shared_address(to), bytes = is_there ? 4 * FLOATS : 0;
    if (FLOATS == 4) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
    }
}
// Copies since the last call are one batch; a wait leaves the last so many batches under way.
__device__ inline void hw_copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> __device__ inline void hw_copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

#endif

// A warp's part of a tile: 32 rows by 8 * WIDE columns of sums, along HW_DEPTH elements that lie in shared memory. Element
// (m, k) of the left matrix is a[m * AM + k * AK], element (k, n) of the right one b[k * BK + n * BN]. Rows and columns from
// `live_m` and `live_n` on are left out, 16 and 8 at a time.
#define HW_DEPTH 16

// Four elements of the left matrix or two of the right one as a tensor core takes them: large parts, and what is left.
template <u32 COUNT> struct HwPart {
    u32 large[COUNT], small[COUNT];
    __device__ inline void set(u32 i, float x, bool is_exact) {
        if (is_exact) {
            // Nearest, halves away from zero; a NaN that is lost here is one in what is left.
            large[i] = (hw_bits(x) + 0x1000u) & 0xffffe000u;
            small[i] = hw_bits(x - hw_float(large[i])) & 0xffffe000u;
        } else {
            large[i] = hw_tf32(x);
        }
    }
};

template <int MODE, u32 WIDE, u32 AM, u32 AK, u32 BK, u32 BN>
__device__ inline void hw_multiply_tf32(const float *a, const float *b, float (&sums)[2][WIDE][4], u32 live_m, u32 live_n) {
    const bool is_exact = MODE == HW_TF32X3;
    const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (u32 k = 0; k < HW_DEPTH; k += 8) {
        HwPart<4> left[2];
#pragma unroll
        for (u32 m = 0; m < 2; m++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                left[m].set(i, a[(m * 16 + g + i % 2 * 8) * AM + (k + t + i / 2 * 4) * AK], is_exact);
            }
        }
#pragma unroll
        for (u32 n = 0; n < WIDE; n++) {
            if (n * 8 >= live_n) continue;
            HwPart<2> right;
#pragma unroll
            for (u32 i = 0; i < 2; i++) right.set(i, b[(k + t + i * 4) * BK + (n * 8 + g) * BN], is_exact);
#pragma unroll
            for (u32 m = 0; m < 2; m++) {
                if (m * 16 >= live_m) continue;
                if (is_exact) {
                    hw_mma_tf32(sums[m][n], left[m].small, right.large);
                    hw_mma_tf32(sums[m][n], left[m].large, right.small);
                }
                hw_mma_tf32(sums[m][n], left[m].large, right.large);
            }
        }
    }
}

template <u32 WIDE, u32 AM, u32 AK, u32 BK, u32 BN>
__device__ inline void hw_multiply_bf16(const float *a, const float *b, float (&sums)[2][WIDE][4], u32 live_m, u32 live_n) {
    const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    u32 left[2][4];
#pragma unroll
    for (u32 m = 0; m < 2; m++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const float *from = a + (m * 16 + g + i % 2 * 8) * AM + (2 * t + i / 2 * 8) * AK;
            left[m][i] = hw_two_bf16(from[0], from[AK]);
        }
    }
#pragma unroll
    for (u32 n = 0; n < WIDE; n++) {
        if (n * 8 >= live_n) continue;
        u32 right[2];
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const float *from = b + (2 * t + i * 8) * BK + (n * 8 + g) * BN;
            right[i] = hw_two_bf16(from[0], from[BK]);
        }
#pragma unroll
        for (u32 m = 0; m < 2; m++) {
            if (m * 16 < live_m) hw_mma_bf16(sums[m][n], left[m], right);
        }
    }
}

template <int MODE, u32 WIDE, u32 AM, u32 AK, u32 BK, u32 BN>
__device__ inline void hw_multiply(const float *a, const float *b, float (&sums)[2][WIDE][4], u32 live_m, u32 live_n) {
    if (MODE == HW_BF16) {
        hw_multiply_bf16<WIDE, AM, AK, BK, BN>(a, b, sums, live_m, live_n);
    } else {
        hw_multiply_tf32<MODE, WIDE, AM, AK, BK, BN>(a, b, sums, live_m, live_n);
    }
}
