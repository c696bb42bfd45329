// Pairs that no edge connects: a thread a pair.
//
// `draw` leaves every pair where its number says, and counts those that hit an edge in every trial. They are rare on
// real graphs, and the host knows their number before it needs memory, so `close_gaps` runs only where there are any: one
// running sum (scan.cuh) that closes the gaps in order.
//
// Per trial of a strict draw: one request of 16 bytes for both offsets, and a lookup (lists.cuh). Per pair: draw 20 bytes
// out, close_gaps 4 to 20 in and 16 out.
//
// Defines: THREADS, ITEMS (see scan.cuh).

// The same struct stands in cuda.rs.
struct Draw {
    u64 key, sources, targets; // key, and how many of each there are
    u64 lookups;               // 0: nothing is looked up
    u64 rows_are_targets;
    u64 count;
    u64 given, pairs; // sources that are given, and how many pairs each has; 0 where they are drawn
};

extern "C" __global__ void __launch_bounds__(THREADS)
    draw(Lists lists, const u64* __restrict__ offsets, const void* __restrict__ neighbours, Draw d,
         const u64* __restrict__ given, u64* __restrict__ sources, u64* __restrict__ targets,
         u32* __restrict__ is_free, u64* unresolved) {
    const Graph graph = {lists, offsets, neighbours};
    const u64 thread = (u64)blockIdx.x * THREADS + threadIdx.x, threads = (u64)gridDim.x * THREADS;
    for (u64 at = thread; at < d.count; at += threads) {
        const u64 key = hw_key_of(d.key, at), owner = d.pairs ? at / d.pairs : d.given;
        u64 source, target, trial = 0;
        bool free;
        do {
            source = owner < d.given ? given[owner] : hw_below(key, 2 * trial, d.sources);
            target = hw_below(key, 2 * trial + 1, d.targets);
            free = !d.lookups || !(d.rows_are_targets ? has_edge(graph, target, source)
                                                      : has_edge(graph, source, target));
            trial++;
        } while (!free && trial < d.lookups);
        sources[at] = source;
        targets[at] = target;
        is_free[at] = free;
        if (!free) atomicAdd(unresolved, 1ull);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    close_gaps(u64 count, const u32* __restrict__ is_free, const u64* __restrict__ sources,
          const u64* __restrict__ targets, u64 room, u64* __restrict__ free_sources, u64* __restrict__ free_targets,
          u64* ticket, u64* words, u64 tiles) {
    const u64 n = count < tiles * SCAN_TILE ? count : tiles * SCAN_TILE;
    hw_scan(
        n, ticket, words, tiles, [&](u64 at) { return is_free[at]; },
        [&](u64 at, u32 free, u64 sum) {
            if (!free || sum >= room) return;
            free_sources[sum] = sources[at];
            free_targets[sum] = targets[at];
        },
        [](u64) {});
}
