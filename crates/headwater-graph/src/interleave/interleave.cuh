// Where an element of an interleaved array lies; the twin of Interleave::at.
//
// The number of members is a define, so that the division is a multiplication. No bytes, about 6 integer operations.
//
// Defines: MEMBERS, BLOCK_LOG2.

#define MOST_MEMBERS 8

struct HwPlace {
    u32 member;
    u64 offset;
};

__device__ __forceinline__ HwPlace hw_interleaved(u64 position) {
    const u64 block = position >> BLOCK_LOG2, inside = position & ((1ull << BLOCK_LOG2) - 1);
    return {(u32)(block % MEMBERS), block / MEMBERS << BLOCK_LOG2 | inside};
}
