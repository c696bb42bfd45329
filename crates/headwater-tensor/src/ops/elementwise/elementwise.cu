// Elementwise operators. The text is prelude.cuh, loops.cuh, this.
//
// Why this version: these kernels move bytes and compute next to nothing, so the one thing that matters is that the packed
// case has no index arithmetic; it has entry points of its own (_packed). The others locate each element by one division
// an axis, after the axes have been merged on the host. Bit-equal to cpu.rs but for exp, log, tanh and sigmoid.
//
// Defines: HW_MAX_DIMS   as in layout.rs
//          HW_T          element type: float double hw_f16 hw_bf16 i8 i32 i64 u8 hw_bool
//          HW_FAMILY     unary, binary, compare, where or cast: which entry points there are
//          HW_OP         for unary:   neg exp log sqrt relu sigmoid tanh   (exp to tanh but relu: float types only)
//                        for binary:  add sub mul div                     (div: float types only)
//                        for compare: eq ne lt le gt ge
//          HW_S          for cast: the type to cast from; HW_T is the type to cast to
// Pointers of the packed entry points are at the first element; those of the strided ones are at the storage, and the
// offsets are in the loops. Outputs are packed.

#define HW_FAMILY_unary 1
#define HW_FAMILY_binary 2
#define HW_FAMILY_compare 3
#define HW_FAMILY_where 4
#define HW_FAMILY_cast 5
#define HW_IS(FAMILY) (HW_JOIN(HW_FAMILY_, HW_FAMILY) == HW_FAMILY_##FAMILY)

typedef HwType<HW_T> Type;
typedef Type::Compute Compute;

#if HW_IS(unary)

__device__ inline float op_neg(float x) { return -x; }
__device__ inline double op_neg(double x) { return -x; }
__device__ inline i8 op_neg(i8 x) { return (i8)-x; }
__device__ inline u8 op_neg(u8 x) { return (u8)-x; }
__device__ inline i32 op_neg(i32 x) { return (i32)(0u - (u32)x); }
__device__ inline i64 op_neg(i64 x) { return (i64)(0ull - (u64)x); }
__device__ inline float op_exp(float x) { return expf(x); }
__device__ inline double op_exp(double x) { return exp(x); }
__device__ inline float op_log(float x) { return logf(x); }
__device__ inline double op_log(double x) { return log(x); }
__device__ inline float op_sqrt(float x) { return sqrtf(x); }
__device__ inline double op_sqrt(double x) { return sqrt(x); }
__device__ inline float op_tanh(float x) { return tanhf(x); }
__device__ inline double op_tanh(double x) { return tanh(x); }
__device__ inline float op_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline double op_sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
// This way round NaN passes.
template <class Number> __device__ inline Number op_relu(Number x) { return x <= (Number)0 ? (Number)0 : x; }

__device__ inline HW_T apply(HW_T x) { return Type::down(HW_JOIN(op_, HW_OP)(Type::up(x))); }

extern "C" __global__ void unary_packed(u64 count, const HW_T *a, HW_T *out) {
    for (u64 i = hw_first(); i < count; i += hw_step()) {
        out[i] = apply(a[i]);
    }
}

extern "C" __global__ void unary_strided(HwLoops<1> loops, const HW_T *a, HW_T *out) {
    for (u64 i = hw_first(); i < loops.count; i += hw_step()) {
        u64 at[1];
        hw_locate(loops, i, at);
        out[i] = apply(a[at[0]]);
    }
}

#elif HW_IS(binary) || HW_IS(compare)

#if HW_IS(binary)
typedef HW_T Result;
template <class Number> __device__ inline Number op_add(Number x, Number y) { return hw_plus(x, y); }
__device__ inline float op_sub(float x, float y) { return x - y; }
__device__ inline double op_sub(double x, double y) { return x - y; }
__device__ inline i8 op_sub(i8 x, i8 y) { return (i8)(x - y); }
__device__ inline u8 op_sub(u8 x, u8 y) { return (u8)(x - y); }
__device__ inline i32 op_sub(i32 x, i32 y) { return (i32)((u32)x - (u32)y); }
__device__ inline i64 op_sub(i64 x, i64 y) { return (i64)((u64)x - (u64)y); }
__device__ inline float op_mul(float x, float y) { return x * y; }
__device__ inline double op_mul(double x, double y) { return x * y; }
__device__ inline i8 op_mul(i8 x, i8 y) { return (i8)(x * y); }
__device__ inline u8 op_mul(u8 x, u8 y) { return (u8)(x * y); }
__device__ inline i32 op_mul(i32 x, i32 y) { return (i32)((u32)x * (u32)y); }
__device__ inline i64 op_mul(i64 x, i64 y) { return (i64)((u64)x * (u64)y); }
__device__ inline float op_div(float x, float y) { return x / y; }
__device__ inline double op_div(double x, double y) { return x / y; }
__device__ inline Result apply(HW_T x, HW_T y) { return Type::down(HW_JOIN(op_, HW_OP)(Type::up(x), Type::up(y))); }
#else
typedef hw_bool Result;
__device__ inline bool op_eq(Compute x, Compute y) { return x == y; }
__device__ inline bool op_ne(Compute x, Compute y) { return x != y; }
__device__ inline bool op_lt(Compute x, Compute y) { return x < y; }
__device__ inline bool op_le(Compute x, Compute y) { return x <= y; }
__device__ inline bool op_gt(Compute x, Compute y) { return x > y; }
__device__ inline bool op_ge(Compute x, Compute y) { return x >= y; }
__device__ inline Result apply(HW_T x, HW_T y) { return hw_bool{(u8)HW_JOIN(op_, HW_OP)(Type::up(x), Type::up(y))}; }
#endif

extern "C" __global__ void binary_packed(u64 count, const HW_T *a, const HW_T *b, Result *out) {
    for (u64 i = hw_first(); i < count; i += hw_step()) {
        out[i] = apply(a[i], b[i]);
    }
}

extern "C" __global__ void binary_strided(HwLoops<2> loops, const HW_T *a, const HW_T *b, Result *out) {
    for (u64 i = hw_first(); i < loops.count; i += hw_step()) {
        u64 at[2];
        hw_locate(loops, i, at);
        out[i] = apply(a[at[0]], b[at[1]]);
    }
}

#elif HW_IS(where)

extern "C" __global__ void where_packed(u64 count, const hw_bool *condition, const HW_T *a, const HW_T *b, HW_T *out) {
    for (u64 i = hw_first(); i < count; i += hw_step()) {
        out[i] = condition[i].byte ? a[i] : b[i];
    }
}

extern "C" __global__ void where_strided(HwLoops<3> loops, const hw_bool *condition, const HW_T *a, const HW_T *b,
                                         HW_T *out) {
    for (u64 i = hw_first(); i < loops.count; i += hw_step()) {
        u64 at[3];
        hw_locate(loops, i, at);
        out[i] = condition[at[0]].byte ? a[at[1]] : b[at[2]];
    }
}

#elif HW_IS(cast)

extern "C" __global__ void cast_packed(u64 count, const HW_S *a, HW_T *out) {
    for (u64 i = hw_first(); i < count; i += hw_step()) {
        out[i] = Type::narrow(HwType<HW_S>::wide(a[i]));
    }
}

extern "C" __global__ void cast_strided(HwLoops<1> loops, const HW_S *a, HW_T *out) {
    for (u64 i = hw_first(); i < loops.count; i += hw_step()) {
        u64 at[1];
        hw_locate(loops, i, at);
        out[i] = Type::narrow(HwType<HW_S>::wide(a[at[0]]));
    }
}

#endif
