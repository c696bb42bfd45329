// The twin of random.rs: the same draws from the same keys, to the bit. A key is its 64 bits.
//
// Per draw: no bytes, three 64-bit multiplications (about 20 integer instructions); a bounded draw one more.

#define HW_RANDOM_STEP 0x9e3779b97f4a7c15ull

__device__ __forceinline__ u64 hw_mix(u64 value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
    return value ^ (value >> 31);
}

// The key of a part of what `key` is for.
__device__ __forceinline__ u64 hw_key_of(u64 key, u64 part) {
    return hw_mix((key + HW_RANDOM_STEP) ^ hw_mix(part + HW_RANDOM_STEP));
}

__device__ __forceinline__ u64 hw_draw(u64 key, u64 counter) { return hw_mix(key + (counter + 1) * HW_RANDOM_STEP); }

// Uniform below `limit`, which is not 0. Products that some results have one more of than others are drawn again.
__device__ __forceinline__ u64 hw_below(u64 key, u64 counter, u64 limit) {
    u64 bits = hw_draw(key, counter);
    if (bits * limit < limit) {
        const u64 uneven = (0 - limit) % limit;
        u64 again = hw_key_of(key, counter);
        while (bits * limit < uneven) bits = again = hw_key_of(again, 0);
    }
    return __umul64hi(bits, limit);
}

// Uniform in [0, 1) in steps of 2^-53; both operations are exact.
__device__ __forceinline__ double hw_unit(u64 key, u64 counter) {
    return (double)(hw_draw(key, counter) >> 11) * (1.0 / 9007199254740992.0);
}
