// The kernels' side of loops.rs: operands of one shape, merged into as few axes as possible, passed by value.
//
// Goes after prelude.cuh and before the kernel. Layout: every field is 64 bits wide, in the order of LoopsArg in loops.rs.
// HW_MAX_DIMS is given as a define, so that the number stands in one place.

template <int N> struct HwLoops {
    u64 rank;
    u64 count;
    u64 shape[HW_MAX_DIMS];
    u64 strides[N][HW_MAX_DIMS];
    u64 offsets[N];
};

// Where each operand has the element with this number, counted in row-major order.
template <int N> __device__ inline void hw_locate(const HwLoops<N> &loops, u64 number, u64 *where) {
    for (int n = 0; n < N; n++) {
        where[n] = loops.offsets[n];
    }
    for (int axis = (int)loops.rank - 1; axis >= 0; axis--) {
        // The outermost axis needs no division: what is left is its position.
        u64 position = axis > 0 ? number % loops.shape[axis] : number;
        number = axis > 0 ? number / loops.shape[axis] : 0;
        for (int n = 0; n < N; n++) {
            where[n] += position * loops.strides[n][axis];
        }
    }
}

// The first element number of this thread, and the step to its next one.
__device__ inline u64 hw_first() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline u64 hw_step() { return (u64)gridDim.x * blockDim.x; }
