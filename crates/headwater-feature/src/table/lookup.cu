// Rows of ids: rows[i] = map[ids[i]]. An id that the map does not reach, or that has no row in it, is reported by its own
// name, and its row becomes the largest number, which no table has.
//
// Per id: its bytes, one scattered read of 4 or 8, and 4 or 8 written.
//
// Defines: ID (type of an id), ID_BYTES; ROW (type of a row), ROW_BYTES; THREADS.

extern "C" __global__ void __launch_bounds__(THREADS)
    lookup(const ID* __restrict__ ids, u64 count, const ROW* __restrict__ map, u64 known, ROW* __restrict__ rows,
           Fault* fault) {
    const ROW none = (ROW)~0ull;
    for (u64 i = blockIdx.x * (u64)THREADS + threadIdx.x; i < count; i += (u64)gridDim.x * THREADS) {
        const u64 id = (u64)(i64)ids[i];
        const ROW row = id < known ? map[id] : none;
        if (row == none) hw_fault(fault, FAULT_ID_OUT_OF_RANGE, i, id, known);
        rows[i] = row;
    }
}
