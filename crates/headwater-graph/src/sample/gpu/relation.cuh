// A relation's arrays as kernels read them: in one piece, or spread over the memories of a group.
//
// Where they are spread, the address in `Relation` is that of a table with the addresses of the members' shares.
//
// Defines: MEMBERS (1: in one piece); BLOCK_LOG2 (see interleave.cuh).

#define FAULT_FALLING_OFFSETS 16u
#define FAULT_NEIGHBOUR 17u

// One relation, in the schema's order. directory.rs writes the same thirteen words.
struct Relation {
    const void* offsets; // u64
    const void* neighbours;
    const void* edge_ids; // none: edges are named by their positions
    const void* weights; // float
    const void* times; // i64
    u64 rows, columns, edges;
    u64 found_base; // what its neighbours' keys begin at
    u64 asking, found; // types
    u64 wide; // bit 0: neighbours are 64 bits wide; bit 1: edge ids are
    u64 row_base; // where its rows begin among those of all relations
};

template <class Number> __device__ __forceinline__ Number element(const void* array, u64 at) {
#if MEMBERS > 1
    const HwPlace place = hw_interleaved(at);
    return ((const Number* const*)array)[place.member][place.offset];
#else
    return ((const Number*)array)[at];
#endif
}

// An array from `first` on.
template <class Number> struct Array {
    const void* array;
    u64 first;

    __device__ __forceinline__ Number operator[](u64 at) const { return element<Number>(array, first + at); }
};

__device__ __forceinline__ u64 read_id(const void* ids, u64 is_wide, u64 at) {
    return is_wide ? element<u64>(ids, at) : (u64)element<u32>(ids, at);
}

// The last of `count` ascending numbers that is not above `at`; the first is not.
__device__ __forceinline__ u64 segment_of(const u64* firsts, u64 count, u64 at) {
    u64 low = 0, high = count;
    while (high - low > 1) {
        const u64 middle = (low + high) / 2;
        if (firsts[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}
