// Numbers keys in the order of their first occurrence: an open hash table that keeps each key's smallest position.
//
// Insertion order in a GPU's hash table is up to the schedule, so the number of a key must not depend on it. Three
// launches: `insert` finds or claims each key's slot and leaves the smallest position there; `number` lets exactly the
// key at that position count, in one running sum over positions (scan.cuh), and replaces the position by the number;
// `lookup` reads the numbers. The table is in unique.cuh.
//
// Sorting would read and write every key several times; the table, at most half full, is asked about 1.5 times a key and
// mostly stays in the second-level cache. Per key and launch: insert 4 + KEY_BYTES bytes and one or two 32-byte sectors
// of the table, number 4 bytes and a sector, lookup 8 bytes and a sector; a hash of about 10 integer operations.
//
// Defines: KEY (u32 or u64), KEY_BYTES, SLOT_BYTES (twice that); THREADS, ITEMS (see scan.cuh).

// Also zeroes what the scan in `number` needs zeroed.
extern "C" __global__ void __launch_bounds__(THREADS)
    insert(const KEY* __restrict__ keys, u64 capacity, const u64* count, Slot* slots, u64 slot_count, u32* places,
           u64* ticket, u64* words, u64 tiles, Fault* fault) {
    const u64 n = hw_count(count, capacity, fault), step = (u64)gridDim.x * THREADS;
    const u64 thread = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (thread == 0) *ticket = 0;
    for (u64 t = thread; t < tiles; t += step) words[t] = 0;
    for (u64 i = thread; i < n; i += step) {
        const KEY key = keys[i];
        const u32 at = key == EMPTY ? NOWHERE : hw_claim(slots, slot_count, key);
        places[i] = at;
        if (key == EMPTY)
            hw_fault(fault, FAULT_ID_OUT_OF_RANGE, i, key, EMPTY);
        else if (at == NOWHERE)
            hw_fault(fault, FAULT_TOO_MANY, i, n, slot_count);
        else
            hw_lower(slots + at, POSITION | (KEY)i);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    number(const KEY* __restrict__ keys, u64 capacity, const u64* count, Slot* slots, u64 slot_count,
           const u32* __restrict__ places, KEY* nodes, u64 room, const u64* before, u64* after, u64* ticket, u64* words,
           u64 tiles, Fault* fault) {
    const u64 n = hw_count(count, capacity < tiles * SCAN_TILE ? capacity : tiles * SCAN_TILE, fault), base = *before;
    hw_number(
        keys, n, slots, slot_count, places, nodes, room, base, ticket, words, tiles, [](u64, u64) {},
        [&](u64 sum) {
            *after = base + sum < room ? base + sum : room;
            if (base + sum > room) hw_fault(fault, FAULT_TOO_MANY, n, base + sum, room);
        });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    lookup(u64 capacity, const u64* count, const Slot* __restrict__ slots, u64 slot_count,
           const u32* __restrict__ places, u32* __restrict__ local, Fault* fault) {
    const u64 n = hw_count(count, capacity, fault), step = (u64)gridDim.x * THREADS;
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < n; i += step)
        local[i] = places[i] < slot_count ? (u32)slots[places[i]].value : NOWHERE;
}
