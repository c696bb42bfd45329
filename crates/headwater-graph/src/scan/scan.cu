// Counts to offsets: offsets[i] = counts[0] + ... + counts[i - 1], and the total, in one pass over device memory.
//
// One pass moves 4 bytes in and OFFSET_BYTES out an element, which is the floor; reduce, scan and add again in three
// kernels would read the counts twice and launch three times. About 8 integer operations an element, of which the 5
// shuffles of a 64-bit running sum are the most expensive and still hide behind memory.
//
// Defines: OFFSET (u32 or u64), OFFSET_BYTES; THREADS, ITEMS (see scan.cuh).

extern "C" __global__ void __launch_bounds__(THREADS)
    scan(const u32* __restrict__ counts, u64 capacity, const u64* count, OFFSET* __restrict__ offsets, u64 slots,
         u64* total, u64* ticket, u64* words, u64 tiles, Fault* fault) {
    u64 room = capacity < slots ? capacity : slots;
    room = room < tiles * SCAN_TILE ? room : tiles * SCAN_TILE;
    const u64 n = hw_count(count, room, fault);
    hw_scan(
        n, ticket, words, tiles, [&](u64 i) { return counts[i]; },
        [&](u64 i, u32, u64 sum) { offsets[i] = (OFFSET)sum; },
        [&](u64 sum) {
            *total = sum;
            if (n < slots) offsets[n] = (OFFSET)sum;
            if ((OFFSET)sum != sum) hw_fault(fault, FAULT_TOO_MANY, n, sum, (OFFSET)~(OFFSET)0);
        });
}
