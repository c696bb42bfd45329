// How wrong outputs are and which way is less wrong, in one reading.
//
// Classes: a warp a row, so a row of outputs is read in whole lines whatever its width, and its maximum and its sum are
// shuffles. 4 bytes an output are read for the maximum; the exponentials are kept in the gradient, which the same lanes
// scale while it is in cache. Values: a thread an output, 8 bytes read and 4 written. An exponential an output, about
// 10 operations beside it. Sums go in two stages (sum.cuh); the second is one block.
//
// Rows and the number of targets that count are read from device memory. A class that is none is reported and does not
// count.
//
// Defines: IS_LOG (classes: outputs are logarithms of shares already), IS_BINARY (values: yes or no), IS_WEIGHTED;
// THREADS, PARTS (see sum.cuh).

#define ALL_LANES 0xffffffffu
#define INFINITE hw_float(0x7f800000u)

// The weight of one target in the mean.
__device__ inline float share_of(const u32* counted) { return (float)(1.0 / (double)(*counted > 0 ? *counted : 1)); }

// Rows that there are, of those that there is room for. More are reported.
__device__ inline u64 rows_within(const u32* rows, u64 room, Fault* fault) {
    if (*rows <= room) return *rows;
    if (blockIdx.x == 0 && threadIdx.x == 0) hw_fault(fault, FAULT_TOO_MANY, room, *rows, room);
    return room;
}

__device__ inline double cross_entropy(const float* outputs, u32 columns, u32 label, float* slope, float share) {
    const u32 lane = threadIdx.x % 32;
    float most = -INFINITE;
    for (u32 k = lane; k < columns; k += 32) most = fmaxf(most, outputs[k]);
    for (int apart = 16; apart > 0; apart /= 2) most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, apart));
    float sum = 0.0f;
    for (u32 k = lane; k < columns; k += 32) sum += slope[k] = expf(outputs[k] - most);
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, apart);
    const float scale = share / sum;
    for (u32 k = lane; k < columns; k += 32) slope[k] = slope[k] * scale - (k == label ? share : 0.0f);
    // The difference is taken in f64: large outputs that are close together keep their digits.
    return lane == 0 ? log((double)sum) + ((double)most - (double)outputs[label]) : 0.0;
}

__device__ inline double log_share(const float* outputs, u32 columns, u32 label, float* slope, float share) {
    const u32 lane = threadIdx.x % 32;
    for (u32 k = lane; k < columns; k += 32) slope[k] = k == label ? -share : 0.0f;
    return lane == 0 ? -(double)outputs[label] : 0.0;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    loss_of_classes(const float* __restrict__ outputs, const u32* __restrict__ labels, u64 room, u32 columns,
                    const u32* rows, const u32* counted, float* gradient, double* parts, Fault* fault) {
    const u64 there = rows_within(rows, room, fault);
    const float share = share_of(counted);
    double sum = 0.0;
    const u64 first = ((u64)blockIdx.x * THREADS + threadIdx.x) / 32;
    for (u64 row = first; row < there; row += (u64)PARTS * (THREADS / 32)) {
        const u32 label = labels[row], lane = threadIdx.x % 32;
        const float* own = outputs + row * columns;
        float* slope = gradient + row * columns;
        if (label < columns) {
            sum += IS_LOG ? log_share(own, columns, label, slope, share)
                          : cross_entropy(own, columns, label, slope, share);
            continue;
        }
        // -1 is a row without a label.
        const u64 sign_extended = (u64)(i64)(i32)label;
        if (label != 0xffffffffu && lane == 0) hw_fault(fault, FAULT_ID_OUT_OF_RANGE, row, sign_extended, columns);
        for (u32 k = lane; k < columns; k += 32) slope[k] = 0.0f;
    }
    hw_store_part(sum, parts);
}

// Loss and slope of one output, in the form that neither overflows nor cancels; see binary.rs.
__device__ inline double binary(float x, float target, float yes_weight, float& slope) {
    const float weight = 1.0f + (yes_weight - 1.0f) * target, small = expf(-fabsf(x));
    const double softplus = (double)log1pf(small) + (double)(x < 0.0f ? -x : 0.0f);
    const float wrong = (x >= 0.0f ? small : 1.0f) / (1.0f + small);
    slope = (1.0f - target) - weight * wrong;
    return (double)(1.0f - target) * (double)x + (double)weight * softplus;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    loss_of_values(const float* __restrict__ outputs, const float* __restrict__ targets, const float* yes_weights,
                   u64 room, u32 columns, const u32* rows, const u32* counted, float* __restrict__ gradient,
                   double* parts, Fault* fault) {
    const u64 there = rows_within(rows, room, fault) * columns;
    const float share = share_of(counted);
    double sum = 0.0;
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < there; i += (u64)PARTS * THREADS) {
        const float x = outputs[i], target = targets[i];
        float slope = 0.0f;
        // One that is not a number is none.
        if (target == target) {
            if (IS_BINARY) {
                sum += binary(x, target, IS_WEIGHTED ? yes_weights[i % columns] : 1.0f, slope);
                slope *= share;
            } else {
                const double difference = (double)x - (double)target;
                sum += difference * difference;
                slope = 2.0f * share * (x - target);
            }
        }
        gradient[i] = slope;
    }
    hw_store_part(sum, parts);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    mean_loss(const double* parts, u32 blocks, const u32* counted, double* mean) {
    const double sum = hw_sum_of_parts(parts, blocks);
    if (threadIdx.x == 0) *mean = *counted > 0 ? sum / (double)*counted : 0.0;
}
