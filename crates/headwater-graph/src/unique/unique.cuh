// The table behind unique.cu, for kernels that number keys as part of something else.
//
// A slot keeps a key and either the smallest position it was brought at in this hop, which has its highest bit set, or the
// number it has, which has not. So keys numbered in earlier hops keep their number under the same atomicMin.
//
// Defines: KEY (u32 or u64), KEY_BYTES; THREADS, ITEMS (see scan.cuh).

struct Slot {
    KEY key;
    KEY value;
};

#define EMPTY ((KEY)~(KEY)0)
#define POSITION ((KEY)1 << (8 * KEY_BYTES - 1))
#define NOWHERE 0xffffffffu

// The slot of a key, claimed if it is new; NOWHERE when the table is full.
__device__ __forceinline__ u32 hw_claim(Slot* slots, u64 slot_count, KEY key) {
    if (slot_count == 0) return NOWHERE;
    const u32 mask = (u32)(slot_count - 1);
    u32 at = (u32)hw_mix(key) & mask;
    for (u32 probes = 0; probes <= mask; probes++, at = (at + 1) & mask) {
        // A key never leaves its slot, so what a plain load sees is either final or EMPTY.
        KEY seen = slots[at].key;
        if (seen == EMPTY) seen = atomicCAS(&slots[at].key, EMPTY, key);
        if (seen == EMPTY || seen == key) return at;
    }
    return NOWHERE;
}

// The slot of a key; NOWHERE when nobody brought it.
__device__ __forceinline__ u32 hw_find(const Slot* slots, u64 slot_count, KEY key) {
    const u32 mask = (u32)(slot_count - 1);
    u32 at = (u32)hw_mix(key) & mask;
    for (u64 probes = 0; probes < slot_count && slots[at].key != EMPTY; probes++, at = (at + 1) & mask)
        if (slots[at].key == key) return at;
    return NOWHERE;
}

// Leaves the smaller of `value` and what is there.
__device__ __forceinline__ void hw_lower(Slot* slot, KEY value) {
    // Values only fall here, so one that is seen to be smaller already needs no atomic: hubs come often.
    if (slot->value > value) atomicMin(&slot->value, value);
}

// Numbers the new ones among `n` keys from `base` on, in the order of positions, and writes them to `nodes`. Calls
// each(i, new keys before i) for every position and finish(new keys) once. See hw_scan for the rest.
template <class Each, class Finish>
__device__ inline void hw_number(const KEY* keys, u64 n, Slot* slots, u64 slot_count, const u32* places, KEY* nodes,
                                 u64 room, u64 base, u64* ticket, u64* words, u64 tiles, Each each, Finish finish) {
    hw_scan(
        n, ticket, words, tiles,
        // Another key's position may turn into its number meanwhile; neither is this key's position.
        [&](u64 i) -> u32 { return places[i] < slot_count && slots[places[i]].value == (POSITION | (KEY)i); },
        [&](u64 i, u32 is_first, u64 sum) {
            each(i, sum);
            if (!is_first || base + sum >= room) return;
            slots[places[i]].value = (KEY)(base + sum);
            nodes[base + sum] = keys[i];
        },
        finish);
}
