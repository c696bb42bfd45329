// One step of all parameters at once: a flat array, its gradient, and what the rule remembers of each element.
//
// Two launches whatever the number of parameters: `squares` reads the gradient (4 bytes an element) for the norm,
// `step` reads it again beside values and state and writes both (12 bytes an element for plain descent, 20 with
// momentum, 28 for Adam). The norm's second stage is done by every block of `step` for itself: PARTS sums from cache
// are cheaper than a launch between the two. Memory bounds both; Adam takes about 15 operations an element.
//
// Products and sums are rounded one by one, as the CPU rounds them, so elements are equal to the bit.
//
// Defines: RULE (one of the RULE_ numbers), HAS_FIRST, HAS_SECOND (arrays of state); THREADS, PARTS (see sum.cuh).

#define RULE_PLAIN 0
#define RULE_MOMENTUM 1
#define RULE_NESTEROV 2
#define RULE_ADAM 3
#define RULE_ADAMW 4

// Numbers that are the same in every step; see adam.rs and sgd.rs.
struct Constants {
    float momentum;
    float fresh_mean;
    float beta2;
    float fresh_square;
    float epsilon;
};

// Numbers that change: the rate, the rate over the correction of the mean, the root of the correction of the squares.
struct Now {
    double rate;
    double mean_rate;
    double root;
};

// What the elements of a segment have in common.
struct Segment {
    float decay;
    float keep;
};

__device__ inline float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ inline float add(float a, float b) { return __fadd_rn(a, b); }
__device__ inline float sub(float a, float b) { return __fsub_rn(a, b); }

extern "C" __global__ void tell(double rate, double mean_rate, double root, Now* now) {
    if (threadIdx.x == 0) *now = Now{rate, mean_rate, root};
}

extern "C" __global__ void __launch_bounds__(THREADS)
    squares(const float* __restrict__ gradient, u64 count, double* parts) {
    double sum = 0.0;
#pragma unroll 4
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < count; i += (u64)PARTS * THREADS) {
        const double x = gradient[i];
        sum += x * x;
    }
    hw_store_part(sum, parts);
}

// The last segment that begins at or before `i`; the first begins at 0.
__device__ inline u32 segment_of(const u64* __restrict__ starts, u32 segments, u64 i) {
    u32 low = 0, high = segments;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (starts[middle] <= i) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

__device__ inline Segment segment(double decay, double rate) {
#if RULE == RULE_ADAMW
    return Segment{0.0f, (float)hw_mul_then_add(-rate, decay, 1.0)};
#else
    return Segment{(float)decay, 1.0f};
#endif
}

__device__ inline void element(float& value, float slope, float* first, float* second, Segment of, Constants with,
                               const Now& now) {
#if RULE == RULE_PLAIN
    value = sub(value, mul((float)now.rate, add(slope, mul(of.decay, value))));
#elif RULE == RULE_MOMENTUM || RULE == RULE_NESTEROV
    slope = add(slope, mul(of.decay, value));
    const float direction = add(mul(with.momentum, *first), slope);
    *first = direction;
    const float way = RULE == RULE_NESTEROV ? add(slope, mul(with.momentum, direction)) : direction;
    value = sub(value, mul((float)now.rate, way));
#else
    const float kept = mul(of.keep, value);
    slope = add(slope, mul(of.decay, kept));
    const float mean = add(*first, mul(with.fresh_mean, sub(slope, *first)));
    const float square = add(mul(with.beta2, *second), mul(mul(with.fresh_square, slope), slope));
    *first = mean;
    *second = square;
    const float size = add(__fdiv_rn(__fsqrt_rn(square), (float)now.root), with.epsilon);
    value = sub(kept, mul((float)now.mean_rate, __fdiv_rn(mean, size)));
#endif
}

// Gradients longer than `most` together are shortened together, as clip.rs does. Without a finite norm nothing is
// changed.
extern "C" __global__ void __launch_bounds__(THREADS)
    step(float* __restrict__ values, const float* __restrict__ gradient, float* __restrict__ first,
         float* __restrict__ second, u64 count, const u64* __restrict__ starts, const double* __restrict__ decays,
         u32 segments, Constants with, const Now* numbers, const double* parts, u32 blocks, double most,
         double* norm_out) {
    const double norm = sqrt(hw_sum_of_parts(parts, blocks));
    if (blockIdx.x == 0 && threadIdx.x == 0) *norm_out = norm;
    if (!(norm - norm == 0.0) || segments == 0) return;
    // The guard against a norm of 0 is torch's.
    const double asked = most / (norm + 1e-6);
    const float scale = asked < 1.0 ? (float)asked : 1.0f;
    const Now now = *numbers;
    // Neighbours lie in one segment mostly: it is looked up again where it ends.
    u64 end = 0;
    Segment of = {};
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < count; i += (u64)gridDim.x * THREADS) {
        if (i >= end) {
            const u32 at = segment_of(starts, segments, i);
            end = at + 1 < segments ? starts[at + 1] : count;
            of = segment(decays[at], now.rate);
        }
        float value = values[i];
        const float slope = mul(gradient[i], scale);
        element(value, slope, HAS_FIRST ? first + i : first, HAS_SECOND ? second + i : second, of, with, now);
        values[i] = value;
    }
}
