// Reads elements of an interleaved array at any positions: out[i] = array[positions[i]].
//
// Shared memory holds the members' addresses: a pointer picked by a computed number would otherwise be picked from
// per-thread memory. Per element: 8 bytes of position, one sector of a member, ELEMENT_BYTES out; no floating point.
//
// Defines: ELEMENT (u32 or u64), ELEMENT_BYTES; MEMBERS, BLOCK_LOG2 (see interleave.cuh).

extern "C" __global__ void read_interleaved(const ELEMENT* m0, const ELEMENT* m1, const ELEMENT* m2, const ELEMENT* m3,
                                            const ELEMENT* m4, const ELEMENT* m5, const ELEMENT* m6, const ELEMENT* m7,
                                            u64 share, u64 count, const u64* __restrict__ positions, u64 wanted,
                                            ELEMENT* __restrict__ out, Fault* fault) {
    __shared__ const ELEMENT* members[MOST_MEMBERS];
    if (threadIdx.x == 0) {
        const ELEMENT* all[MOST_MEMBERS] = {m0, m1, m2, m3, m4, m5, m6, m7};
        for (int m = 0; m < MOST_MEMBERS; m++) members[m] = all[m];
    }
    __syncthreads();
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < wanted; i += step) {
        const u64 position = positions[i];
        const HwPlace place = hw_interleaved(position);
        const bool good = position < count && place.offset < share;
        if (!good) hw_fault(fault, FAULT_ID_OUT_OF_RANGE, i, position, count);
        out[i] = good ? members[place.member][place.offset] : (ELEMENT)0;
    }
}
