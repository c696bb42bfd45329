// Row gather a thread an element: out[i] = table[ids[i]], rows of any width in bytes.
//
// - `gather_naive` maps consecutive threads to consecutive elements of the output, as a general indexing kernel does.
// - `gather_shift` does the same and rotates each row so that a warp starts where a line starts: the papers' version.
//
// Both are kept to compare with; gather.cu is the kernel that is used. The output row of a bad id is zeroed.
//
// Defines: ID (type of an id), ID_BYTES; UNIT (element: u32, u16, u8), UNIT_BYTES, LINE_UNITS.

extern "C" __global__ void gather_naive(const UNIT* __restrict__ table, u64 rows, u64 units, const ID* __restrict__ ids,
                                        u64 count, UNIT* __restrict__ out, Fault* fault) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 t = (u64)blockIdx.x * blockDim.x + threadIdx.x; t < count * units; t += step) {
        const u64 i = t / units, column = t % units, row = as_row(ids[i]);
        const bool good = is_row(row, rows, i, fault);
        out[t] = good ? hw_load(table + row * units + column) : (UNIT)0;
    }
}

extern "C" __global__ void gather_shift(const UNIT* __restrict__ table, u64 rows, u64 units, const ID* __restrict__ ids,
                                        u64 count, UNIT* __restrict__ out, Fault* fault) {
    const u64 line = LINE_UNITS;
    const u64 step = (u64)gridDim.x * blockDim.x;
    const u64 base = (u64)table / UNIT_BYTES;
    for (u64 t = (u64)blockIdx.x * blockDim.x + threadIdx.x; t < count * units; t += step) {
        const u64 i = t / units, row = as_row(ids[i]);
        u64 column = t % units;
        const bool good = is_row(row, rows, i, fault);
        // Rotating the row by this much makes thread t read a unit whose position in its line is t's in its warp.
        if (units > line && units % line) {
            const u64 first_thread = i * units, first_unit = base + (good ? row : 0) * units;
            column += (first_thread % line + line - first_unit % line) % line;
            if (column >= units) column -= units;
        }
        out[i * units + column] = good ? hw_load(table + row * units + column) : (UNIT)0;
    }
}
