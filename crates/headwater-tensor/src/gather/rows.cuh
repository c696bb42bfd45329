// Which row an id means, and whether there is one. A bad id is reported through the fault cell, and nothing is read for it.
//
// Defines: ID (type of an id).

// A signed id that is negative becomes larger than any table.
__device__ __forceinline__ u64 as_row(ID id) { return (u64)(i64)id; }

__device__ __forceinline__ bool is_row(u64 row, u64 rows, u64 position, Fault* fault) {
    if (row < rows) return true;
    hw_fault(fault, FAULT_ID_OUT_OF_RANGE, position, row, rows);
    return false;
}
