// Uniform numbers from Philox 4x32-10. The text is prelude.cuh, loops.cuh, this.
//
// Why this version: a counter needs no state, so every element is computed alone and the numbers are those of cpu.rs. Each
// thread computes the block its element is in; neighbours repeat that, which costs less than the store and keeps stores
// coalesced.
//
// Defines: HW_MAX_DIMS   as in layout.rs
//          HW_T          element type: float double hw_f16 hw_bf16

struct HwWords {
    u32 words[4];
};

__device__ inline HwWords philox(u64 seed, u64 block) {
    HwWords c = {{(u32)block, (u32)(block >> 32), 0u, 0u}};
    u32 key0 = (u32)seed, key1 = (u32)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        u64 product0 = (u64)0xD2511F53u * c.words[0];
        u64 product1 = (u64)0xCD9E8D57u * c.words[2];
        c = HwWords{{(u32)(product1 >> 32) ^ c.words[1] ^ key0, (u32)product1,
                     (u32)(product0 >> 32) ^ c.words[3] ^ key1, (u32)product0}};
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return c;
}

// A word for the types up to 32 bits.
__device__ inline void number(u32 word, float &to) { to = (float)(word >> 8) * (1.0f / 16777216.0f); }
__device__ inline void number(u32 word, hw_f16 &to) {
    to = HwType<hw_f16>::down((float)(word >> 21) * (1.0f / 2048.0f));
}
__device__ inline void number(u32 word, hw_bf16 &to) {
    to = HwType<hw_bf16>::down((float)(word >> 24) * (1.0f / 256.0f));
}
template <class Element> __device__ inline void element(u64 seed, u64 i, Element &to) {
    number(philox(seed, i / 4).words[i % 4], to);
}
__device__ inline void element(u64 seed, u64 i, double &to) {
    HwWords c = philox(seed, i / 2);
    u64 bits = (u64)c.words[2 * (i % 2) + 1] << 32 | c.words[2 * (i % 2)];
    to = (double)(bits >> 11) * (1.0 / 9007199254740992.0);
}

extern "C" __global__ void uniform(u64 count, u64 seed, HW_T *out) {
    for (u64 i = hw_first(); i < count; i += hw_step()) {
        element(seed, i, out[i]);
    }
}
