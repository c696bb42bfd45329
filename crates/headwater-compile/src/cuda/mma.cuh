// Products of small matrices by tensor cores, whose operands come from memory straight into registers.
//
// A warp multiplies 16 by 8 by 8 (TF32) or 16 by 8 by 16 (bf16) elements in one instruction: 2048 or 4096 flops, where 32
// lanes of plain arithmetic take 32 or 64 instructions. A TF32 number keeps 11 bits of a float's 24. Three products of a
// large and a small part each (large * large + large * small + small * large) give a float's accuracy back; what is left out
// is below 2^-20 of the product. Parts are taken by integer arithmetic, of which an SM does four times as much as of
// conversions.
//
// Lane 4 * g + t holds of the left matrix rows g and g + 8, of the right one column g, both at depths t and t + 4 (in bf16
// at four depths), of the sum rows g and g + 8 at columns 2 * t and 2 * t + 1. In which order depths, rows and columns are
// taken is free, as long as it is the same on both sides: so a lane takes four neighbours of memory, 16 bytes, as operands
// of two instructions.
//
// The emulator rounds as a GPU does; sums may differ in the last bits.

// Where a text is compiled for compute capability 9.0 alone, the four warps of a block multiply together (wgmma), 64 rows by 64 columns, a warp
// having 16 rows of the sums as it has them of the smaller instruction. The tensor cores read the right matrix from shared memory, so that no
// warp loads or splits it.

#define HW_F32 0
#define HW_TF32 1
#define HW_TF32X3 2
#define HW_BF16 3

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HW_HAS_WARPGROUPS true
#else
#define HW_HAS_WARPGROUPS false
#endif

#ifdef HEADWATER_EMULATED

__device__ inline u32 hw_tf32(float x) {
    const u32 bits = hw_bits(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}
__device__ inline u32 hw_two_bf16(float low, float high) {
    return (u32)hw_f32_to_bf16(low) | (u32)hw_f32_to_bf16(high) << 16;
}

__device__ inline void hw_mma_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { hwemu_mma(d, a, b, false); }
__device__ inline void hw_mma_bf16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { hwemu_mma(d, a, b, true); }

// Each warp's part of a product of a warpgroup.
template <int MODE> __device__ inline void hw_group_mma(float (&d)[8][4], const u32 (&a)[4], const u32 *right) {
    for (u32 n = 0; n < 8; n++) {
        const u32 *own = right + n * 64 + threadIdx.x % 32;
        const u32 b[2] = {own[0], own[32]};
        hwemu_mma(d[n], a, b, MODE == HW_BF16);
    }
}
__device__ inline void hw_group_begin() {}
__device__ inline void hw_group_end() {}
__device__ inline void hw_group_wait(float (&)[8][4]) {}
__device__ inline void hw_group_show() {}

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

#if HW_HAS_WARPGROUPS

// How tensor cores find the right side in shared memory: what it has of eight columns is two stretches of 128 bytes, the second further along the
// depth, in each of which a column has 16 bytes; that of the next eight columns follows.
__device__ inline u64 hw_group_side(const u32 *words) {
    const u64 at = (u64)__cvta_generic_to_shared(words) & 0x3ffff;
    return at >> 4 | (u64)(128 >> 4) << 16 | (u64)(256 >> 4) << 32;
}
#define HW_GROUP_SUMS(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define HW_GROUP_SUMS_OF_ALL                                                                                                              \
    HW_GROUP_SUMS(0), HW_GROUP_SUMS(1), HW_GROUP_SUMS(2), HW_GROUP_SUMS(3), HW_GROUP_SUMS(4), HW_GROUP_SUMS(5), HW_GROUP_SUMS(6),         \
        HW_GROUP_SUMS(7)
#define HW_GROUP_MMA(instruction, last)                                                                                                   \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned." instruction                                      \
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "  \
                 "%25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1" last ";\n}"                                      \
                 : HW_GROUP_SUMS_OF_ALL                                                                                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(hw_group_side(right)))
template <int MODE> __device__ inline void hw_group_mma(float (&d)[8][4], const u32 (&a)[4], const u32 *right) {
    if constexpr (MODE == HW_BF16) {
        HW_GROUP_MMA("m64n64k16.f32.bf16.bf16", ", 0");
    } else {
        HW_GROUP_MMA("m64n64k8.f32.tf32.tf32", "");
    }
}
// Before products whose registers other instructions have written, behind the last of some, and until they are all done: sums are read behind it.
__device__ inline void hw_group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void hw_group_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ inline void hw_group_wait(float (&d)[8][4]) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" : HW_GROUP_SUMS_OF_ALL::"memory");
}
// After shared memory was written that products of warpgroups read, before threads meet.
__device__ inline void hw_group_show() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#else

template <int MODE> __device__ inline void hw_group_mma(float (&)[8][4], const u32 (&)[4], const u32 *) {}
__device__ inline void hw_group_begin() {}
__device__ inline void hw_group_end() {}
__device__ inline void hw_group_wait(float (&)[8][4]) {}
__device__ inline void hw_group_show() {}

#endif
#endif

// Threads of a block that multiplies by tensor cores, and warps.
#define HW_TENSOR_THREADS 128
#define HW_TENSOR_WARPS 4
// Rows and columns that one warp makes at most: 64 sums a lane, or 128.
#define HW_SIDE 64

// COUNT floats of a matrix as a tensor core takes them: large parts, and what is left.
template <int MODE, u32 COUNT> struct HwPart {
    u32 large[COUNT], small[COUNT];
    __device__ inline void set(u32 i, float x) {
        if (MODE == HW_TF32X3) {
            // Nearest, halves away from zero; a NaN that is lost here is one in what is left.
            large[i] = (hw_bits(x) + 0x1000u) & 0xffffe000u;
            small[i] = hw_bits(x - hw_float(large[i])) & 0xffffe000u;
        } else {
            large[i] = hw_tf32(x);
        }
    }
};

// An operand of the left or the right: COUNT words for every instruction, which two (TF32) or four (bf16) depths lie in.
template <int MODE>
__device__ inline void hw_mma(float (&sums)[4], const HwPart<MODE, 4> &left, const HwPart<MODE, 2> &right) {
    if (MODE == HW_BF16) {
        hw_mma_bf16(sums, left.large, right.large);
    } else {
        if (MODE == HW_TF32X3) {
            hw_mma_tf32(sums, left.small, right.large);
            hw_mma_tf32(sums, left.large, right.small);
        }
        hw_mma_tf32(sums, left.large, right.large);
    }
}

// Four neighbours of a row from `column` on; zeros behind its end, and where it is not there. Where 4 divides WIDTH and
// `column`, rows begin on 16 bytes.
template <u32 WIDTH> __device__ inline float4 hw_four(const float *row, u32 column, bool is_there) {
    float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (WIDTH % 4 == 0) {
        if (is_there && column < WIDTH) x = __ldg((const float4 *)(row + column));
    } else if (is_there) {
        if (column < WIDTH) x.x = __ldg(row + column);
        if (column + 1 < WIDTH) x.y = __ldg(row + column + 1);
        if (column + 2 < WIDTH) x.z = __ldg(row + column + 2);
        if (column + 3 < WIDTH) x.w = __ldg(row + column + 3);
    }
    return x;
}
