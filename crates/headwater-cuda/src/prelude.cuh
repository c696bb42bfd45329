// What every kernel text begins with: fixed-width types, the element types' conversions, warp sums.
//
// Put before a source as text, because NVRTC is given no headers. The conversions of the 16-bit floats are integer
// arithmetic and not intrinsics, so that the same lines run on any GPU and, under g++, in the host emulator (which defines
// the CUDA keywords and HEADWATER_EMULATED), and give the same bits everywhere: round to nearest even, denormals kept,
// NaN stays NaN. Names begin with hw_ or Hw; the eight short integer names are the exception.

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

// Counts the memory requests of a load in the emulator, which brings its own; nothing on a GPU.
#ifndef HEADWATER_EMULATED
__device__ inline void hw_count_load(const void *, unsigned) {}
#endif

// A load of memory that is read once: it need not displace what the first-level cache holds.
#ifdef HEADWATER_EMULATED
template <class Word> __device__ inline Word hw_load(const Word *at) {
    hw_count_load(at, sizeof(Word));
    return *at;
}
#else
__device__ inline uint4 hw_load(const uint4 *at) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}
__device__ inline u32 hw_load(const u32 *at) {
    u32 v;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(at));
    return v;
}
__device__ inline u16 hw_load(const u16 *at) { return *at; }
__device__ inline u8 hw_load(const u8 *at) { return *at; }
#endif

// A store of memory that is not read again soon. Page tables of host memory live in the second-level cache too, and a
// stream of stores that stays there makes every translation behind it slower.
#ifdef HEADWATER_EMULATED
template <class Word> __device__ inline void hw_store(Word *at, Word word) { *at = word; }
#else
__device__ inline void hw_store(uint4 *at, uint4 v) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ inline void hw_store(u32 *at, u32 v) { asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory"); }
__device__ inline void hw_store(u16 *at, u16 v) { *at = v; }
__device__ inline void hw_store(u8 *at, u8 v) { *at = v; }
#endif

// A lane that loads nothing while its warp loads, so that the emulator's counts stay in step.
__device__ inline void hw_load_nothing() { hw_count_load(0, 0); }

// Nanoseconds of a clock that all blocks of a GPU share.
#ifdef HEADWATER_EMULATED
__device__ inline u64 hw_now_ns() { return __builtin_ia32_rdtsc(); }
#else
__device__ inline u64 hw_now_ns() {
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}
#endif

// Where a stream's kernels report a value they must not follow. The host reads it when it next waits for the stream.
struct Fault {
    u32 code;
    u32 padding;
    u64 position;
    u64 value;
    u64 limit;
};
#define FAULT_ID_OUT_OF_RANGE 1u
#define FAULT_TOO_MANY 2u

#define FAULT_BEING_WRITTEN 0xffffffffu

// The first report stands. The code comes last, so that who sees it sees all of it.
__device__ inline void hw_fault(Fault *fault, u32 code, u64 position, u64 value, u64 limit) {
    if (atomicCAS(&fault->code, 0u, FAULT_BEING_WRITTEN) == 0u) {
        fault->position = position;
        fault->value = value;
        fault->limit = limit;
        __threadfence_system();
        atomicExch(&fault->code, code);
    }
}

// The bits of a float, and back.
#ifdef HEADWATER_EMULATED
__device__ inline u32 hw_bits(float x) {
    u32 bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
}
__device__ inline float hw_float(u32 bits) {
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
}
#else
__device__ inline u32 hw_bits(float x) { return __float_as_uint(x); }
__device__ inline float hw_float(u32 bits) { return __uint_as_float(bits); }
#endif

// A product and a sum that the compiler may not fuse, where the CPU twin rounds twice.
#ifdef HEADWATER_EMULATED
__device__ inline double hw_mul_then_add(double a, double b, double c) {
    volatile double product = a * b;
    return product + c;
}
#else
__device__ inline double hw_mul_then_add(double a, double b, double c) { return __dadd_rn(__dmul_rn(a, b), c); }
#endif

// Element types that C++ does not have. Structs, so that overloads tell them from integers of the same width.
struct hw_f16 {
    u16 bits;
};
struct hw_bf16 {
    u16 bits;
};
struct hw_bool {
    u8 byte;
};

__device__ inline float hw_f16_to_f32(u16 half) {
    u32 sign = (u32)(half & 0x8000u) << 16;
    u32 exponent = (half >> 10) & 31u;
    u32 fraction = half & 0x3ffu;
    if (exponent == 31u) {
        // Infinity, or NaN made quiet as the hardware conversion does.
        return hw_float(sign | 0x7f800000u | (fraction << 13) | (fraction ? 0x400000u : 0u));
    }
    if (exponent == 0u) {
        // Zero and denormals are a whole number of 2^-24, which a float holds exactly.
        float size = (float)fraction * hw_float(0x33800000u);
        return hw_float(sign | hw_bits(size));
    }
    return hw_float(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

__device__ inline u16 hw_f32_to_f16(float x) {
    u32 bits = hw_bits(x);
    u32 sign = (bits >> 16) & 0x8000u;
    u32 size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) {
        return (u16)(sign | 0x7e00u | ((size >> 13) & 0x3ffu));
    }
    if (size >= 0x477ff000u) {
        // 65520 and above round to infinity.
        return (u16)(sign | 0x7c00u);
    }
    if (size < 0x38800000u) {
        if (size < 0x33000000u) {
            return (u16)sign;
        }
        // A denormal result: the fraction with its hidden bit, shifted down to units of 2^-24.
        u32 shift = 126u - (size >> 23);
        u32 fraction = (size & 0x7fffffu) | 0x800000u;
        u32 kept = fraction >> shift;
        u32 rest = fraction & ((1u << shift) - 1u);
        u32 half = 1u << (shift - 1u);
        return (u16)(sign | (kept + (rest > half || (rest == half && (kept & 1u)))));
    }
    // Adding just under half a unit, and one more when the kept part is odd, carries exactly when rounding up is right.
    u32 rounded = size + 0xfffu + ((size >> 13) & 1u);
    return (u16)(sign | ((rounded - 0x38000000u) >> 13));
}

__device__ inline float hw_bf16_to_f32(u16 brain) { return hw_float((u32)brain << 16); }

__device__ inline u16 hw_f32_to_bf16(float x) {
    u32 bits = hw_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (u16)((bits >> 16) | 0x40u);
    }
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// A float as an integer: toward zero, the nearest end when out of range, 0 for NaN.
template <class To> __device__ inline To hw_saturate(double x, To low, double low_value, To high, double high_value) {
    if (x != x) {
        return (To)0;
    }
    return x <= low_value ? low : x >= high_value ? high : (To)x;
}

// Element types in arithmetic: `Compute` is what they are computed in, `Wide` what they pass through in a cast, and
// `Total` what their sums are kept in. `narrow` is the cast's last step and takes each kind of Wide.
template <class Element> struct HwType;

#define HW_FLOAT_TYPE(ELEMENT, COMPUTE, UP, DOWN)                                                                      \
    template <> struct HwType<ELEMENT> {                                                                               \
        typedef COMPUTE Compute;                                                                                       \
        typedef COMPUTE Wide;                                                                                          \
        typedef double Total;                                                                                          \
        __device__ static Compute up(ELEMENT x) { return UP; }                                                         \
        __device__ static ELEMENT down(Compute x) { return DOWN; }                                                     \
        __device__ static Wide wide(ELEMENT x) { return up(x); }                                                       \
        template <class From> __device__ static ELEMENT narrow(From x) { return down((Compute)x); }                    \
    };
HW_FLOAT_TYPE(float, float, x, x)
HW_FLOAT_TYPE(double, double, x, x)
HW_FLOAT_TYPE(hw_f16, float, hw_f16_to_f32(x.bits), hw_f16{hw_f32_to_f16(x)})
HW_FLOAT_TYPE(hw_bf16, float, hw_bf16_to_f32(x.bits), hw_bf16{hw_f32_to_bf16(x)})

#define HW_INT_TYPE(ELEMENT, LOW, LOW_VALUE, HIGH, HIGH_VALUE)                                                         \
    template <> struct HwType<ELEMENT> {                                                                               \
        typedef ELEMENT Compute;                                                                                       \
        typedef i64 Wide;                                                                                              \
        typedef i64 Total;                                                                                             \
        __device__ static Compute up(ELEMENT x) { return x; }                                                          \
        __device__ static ELEMENT down(Compute x) { return x; }                                                        \
        __device__ static Wide wide(ELEMENT x) { return (Wide)x; }                                                     \
        __device__ static ELEMENT narrow(i64 x) { return (ELEMENT)x; }                                                 \
        __device__ static ELEMENT narrow(float x) { return narrow((double)x); }                                        \
        __device__ static ELEMENT narrow(double x) {                                                                   \
            return hw_saturate<ELEMENT>(x, LOW, LOW_VALUE, HIGH, HIGH_VALUE);                                          \
        }                                                                                                              \
    };
HW_INT_TYPE(i8, -128, -128.0, 127, 127.0)
HW_INT_TYPE(u8, 0, 0.0, 255, 255.0)
HW_INT_TYPE(i32, (-2147483647 - 1), -2147483648.0, 2147483647, 2147483647.0)
HW_INT_TYPE(i64, (-9223372036854775807LL - 1), -9223372036854775808.0, 9223372036854775807LL, 9223372036854775808.0)

template <> struct HwType<hw_bool> {
    typedef i32 Compute;
    typedef i64 Wide;
    typedef i64 Total;
    __device__ static Compute up(hw_bool x) { return x.byte != 0; }
    __device__ static hw_bool down(Compute x) { return hw_bool{(u8)(x != 0)}; }
    __device__ static Wide wide(hw_bool x) { return x.byte != 0; }
    template <class From> __device__ static hw_bool narrow(From x) { return hw_bool{(u8)(x != 0)}; }
};

// Sums that wrap: signed overflow is undefined, so integers are added as unsigned.
__device__ inline float hw_plus(float a, float b) { return a + b; }
__device__ inline double hw_plus(double a, double b) { return a + b; }
__device__ inline i8 hw_plus(i8 a, i8 b) { return (i8)(a + b); }
__device__ inline u8 hw_plus(u8 a, u8 b) { return (u8)(a + b); }
__device__ inline i32 hw_plus(i32 a, i32 b) { return (i32)((u32)a + (u32)b); }
__device__ inline i64 hw_plus(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }

// The sum over a warp, lanes added in halves; the result is in lane 0. All 32 lanes must be here.
template <class Number> __device__ inline Number hw_warp_sum(Number x) {
    for (int half = 16; half > 0; half /= 2) {
        x = hw_plus(x, __shfl_down_sync(0xffffffffu, x, half));
    }
    return x;
}

#define HW_JOIN_NAMES(A, B) A##B
#define HW_JOIN(A, B) HW_JOIN_NAMES(A, B)
