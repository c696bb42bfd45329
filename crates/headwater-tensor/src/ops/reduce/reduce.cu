// Reductions along one axis. The text is prelude.cuh, loops.cuh, this.
//
// Why this version: the order of summation is part of the contract in mod.rs, so that CPU and GPU give the same bits. A
// lane of that rule is a lane of a warp when the axis is packed (reduce_axis), and one of 32 registers of a thread when
// neighbouring outputs are packed instead (reduce_axis_columns), which keeps both kinds of reads coalesced. Sums are kept
// in double even for 16-bit floats: the loads take longer than the additions, also where doubles are slow.
//
// Defines: HW_MAX_DIMS   as in layout.rs
//          HW_T          element type: float double hw_f16 hw_bf16 i8 i32 i64 u8 hw_bool
//          HW_OP         sum, mean, max or argmax
//          HW_BLOCK      elements of the axis in a block, as in mod.rs; a multiple of 32
//          HW_THREADS    threads in a thread block, a multiple of 32
// Result type: sum: HW_T for floats, i64 otherwise; mean (floats only) and max: HW_T; argmax: i64.
// A state is 8 bytes for sum and mean (double or i64), 16 for max and argmax (value at 0, index at 8).
//
// Order of launches, with `rows` blocks of the axis and `outputs` outputs:
//   1. reduce_axis or reduce_axis_columns: states[row * outputs + output] for rows = ceil(length / HW_BLOCK), at least 1
//   2. while rows > 1: reduce_states from rows to ceil(rows / HW_BLOCK)
//   3. reduce_finish
// An empty axis gives one row of empty states; max and argmax of it are refused before any launch.

#define HW_OP_sum 1
#define HW_OP_mean 2
#define HW_OP_max 3
#define HW_OP_argmax 4
#define HW_IS(OP) (HW_JOIN(HW_OP_, HW_OP) == HW_OP_##OP)

#define HW_NOTHING 0xffffffffffffffffull

typedef HwType<HW_T> Type;

#if HW_IS(sum) || HW_IS(mean)

typedef Type::Total State;
__device__ inline State empty() { return (State)0; }
__device__ inline void take(State &state, HW_T value, u64) { state = hw_plus(state, (State)Type::wide(value)); }
__device__ inline void join(State &state, State other) { state = hw_plus(state, other); }

// Sums of floats are rounded to their type, sums of anything else stay as they are.
template <class Total, class Element> struct SumOf {
    typedef Element Result;
    __device__ static Result of(Total total) { return HwType<Element>::narrow(total); }
};
template <class Element> struct SumOf<i64, Element> {
    typedef i64 Result;
    __device__ static Result of(i64 total) { return total; }
};
typedef SumOf<State, HW_T>::Result Result;
__device__ inline Result finish(State state, u64 length) {
#if HW_IS(mean)
    return SumOf<State, HW_T>::of(state / (State)length);
#else
    (void)length;
    return SumOf<State, HW_T>::of(state);
#endif
}

#else

// The index is HW_NOTHING while there is no element.
struct alignas(8) State {
    HW_T value;
    alignas(8) u64 index;
};
__device__ inline State empty() {
    State state;
    state.value = Type::narrow((i64)0);
    state.index = HW_NOTHING;
    return state;
}
// NaN is larger than everything and equal to itself; of equals the first counts.
__device__ inline void join(State &state, State other) {
    Type::Compute mine = Type::up(state.value), its = Type::up(other.value);
    bool mine_nan = mine != mine, its_nan = its != its;
    bool larger = its > mine || (its_nan && !mine_nan);
    bool level = its == mine || (its_nan && mine_nan);
    if (other.index != HW_NOTHING && (state.index == HW_NOTHING || larger || (level && other.index < state.index))) {
        state = other;
    }
}
__device__ inline void take(State &state, HW_T value, u64 index) {
    State other;
    other.value = value;
    other.index = index;
    join(state, other);
}
#if HW_IS(max)
typedef HW_T Result;
__device__ inline Result finish(State state, u64) { return state.value; }
#else
typedef i64 Result;
__device__ inline Result finish(State state, u64) { return (i64)state.index; }
#endif

#endif

// Joins the states of a warp's lanes in halves; the result is in lane 0. Through shared memory, because a state is not
// always something a shuffle can carry.
__device__ inline void halve(State &state, State *shared) {
    u32 lane = threadIdx.x & 31u;
    for (u32 half = 16; half > 0; half /= 2) {
        shared[threadIdx.x] = state;
        __syncwarp();
        if (lane < half) {
            join(state, shared[threadIdx.x + half]);
        }
        __syncwarp();
    }
}

// The same fields in the same order as ReduceArg in mod.rs, all 64 bits wide: where each output's axis begins, how long the
// axis is and how far apart its elements are, and the rows of states to write.
struct HwReduce {
    HwLoops<1> outputs;
    u64 length, stride, rows;
};

// One warp for each block of each output. Neighbouring warps take neighbouring outputs.
extern "C" __global__ void reduce_axis(HwReduce reduce, const HW_T *in, State *states) {
    const HwLoops<1> &outputs = reduce.outputs;
    u64 length = reduce.length, stride = reduce.stride, rows = reduce.rows;
    __shared__ State shared[HW_THREADS];
    u64 lane = threadIdx.x & 31u;
    for (u64 item = hw_first() / 32; item < rows * outputs.count; item += hw_step() / 32) {
        u64 start = item / outputs.count * HW_BLOCK;
        u64 end = start + HW_BLOCK < length ? start + HW_BLOCK : length;
        u64 at[1];
        hw_locate(outputs, item % outputs.count, at);
        State state = empty();
        for (u64 i = start + lane; i < end; i += 32) {
            take(state, in[at[0] + i * stride], i);
        }
        halve(state, shared);
        if (lane == 0) {
            states[item] = state;
        }
    }
}

// One thread for each block of each output, with the 32 lanes of the rule in registers.
extern "C" __global__ void reduce_axis_columns(HwReduce reduce, const HW_T *in, State *states) {
    const HwLoops<1> &outputs = reduce.outputs;
    u64 length = reduce.length, stride = reduce.stride, rows = reduce.rows;
    for (u64 item = hw_first(); item < rows * outputs.count; item += hw_step()) {
        u64 start = item / outputs.count * HW_BLOCK;
        u64 end = start + HW_BLOCK < length ? start + HW_BLOCK : length;
        u64 at[1];
        hw_locate(outputs, item % outputs.count, at);
        State lanes[32];
#pragma unroll
        for (int lane = 0; lane < 32; lane++) {
            lanes[lane] = empty();
        }
        for (u64 i = start; i < end; i += 32) {
#pragma unroll
            for (int lane = 0; lane < 32; lane++) {
                if (i + lane < end) {
                    take(lanes[lane], in[at[0] + (i + lane) * stride], i + lane);
                }
            }
        }
#pragma unroll
        for (int half = 16; half > 0; half /= 2) {
#pragma unroll
            for (int lane = 0; lane < half; lane++) {
                join(lanes[lane], lanes[lane + half]);
            }
        }
        states[item] = lanes[0];
    }
}

// Joins rows of states, HW_BLOCK rows into one, by the same rule. One warp for each result. `rows_left` is the rounded-up
// quotient.
extern "C" __global__ void reduce_states(u64 rows, u64 rows_left, u64 outputs, const State *in, State *states) {
    __shared__ State shared[HW_THREADS];
    u64 lane = threadIdx.x & 31u;
    for (u64 item = hw_first() / 32; item < rows_left * outputs; item += hw_step() / 32) {
        u64 start = item / outputs * HW_BLOCK;
        u64 end = start + HW_BLOCK < rows ? start + HW_BLOCK : rows;
        State state = empty();
        for (u64 row = start + lane; row < end; row += 32) {
            join(state, in[row * outputs + item % outputs]);
        }
        halve(state, shared);
        if (lane == 0) {
            states[item] = state;
        }
    }
}

// Turns one row of states into results.
extern "C" __global__ void reduce_finish(u64 outputs, u64 length, const State *states, Result *out) {
    for (u64 i = hw_first(); i < outputs; i += hw_step()) {
        out[i] = finish(states[i], length);
    }
}
