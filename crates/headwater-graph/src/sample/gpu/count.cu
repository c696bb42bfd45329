// How many neighbours each item of a hop gives, and where its edges begin: the first launch of a hop.
//
// An item is a frontier node and a relation that leaves it. Counting is the load of a running sum (scan.cuh), so that
// one pass over the items gives edge offsets, and the row's place and length are kept: reading the offsets again would
// cost another request, which is what counts when the graph lies in host memory. Tiles are short and blocks many,
// because each load waits for the bus.
//
// Per item: 8 bytes of its id, one request of 16 bytes for both offsets, 20 bytes out; with times a binary search in
// the row; with weights the row's weights up to the fan-out.
//
// Defines: WEIGHTED (0 or 1); THREADS, ITEMS (see scan.cuh).

// What a row gives: `degree` is what its tree may see of it.
__device__ __forceinline__ u64 given(const Relation& r, u64 start, u64 degree, u64 fanout, u64 choice) {
    const bool is_drawn_again = choice == CHOOSE_WITH_REPLACEMENT && fanout != ALL_NEIGHBOURS;
#if WEIGHTED
    const u64 enough = is_drawn_again ? 1 : fanout;
    u64 with_weight = 0;
    for (u64 at = 0; at < degree && with_weight < enough; at++) with_weight += r.weights[start + at] > 0.0f;
    return is_drawn_again ? (with_weight ? fanout : 0) : with_weight;
#else
    if (is_drawn_again) return degree ? fanout : 0;
    return degree < fanout ? degree : fanout;
#endif
}

// How many of a row's edges are not later than `limit`; rows are in the order of time.
__device__ __forceinline__ u64 seen_by(const i64* times, u64 degree, i64 limit) {
    u64 low = 0, high = degree;
    while (low < high) {
        const u64 middle = (low + high) / 2;
        if (times[middle] <= limit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    count(Batch b, const Relation* __restrict__ relations, const u64* __restrict__ fanouts, u64* ledger,
          const u64* __restrict__ nodes, const u32* __restrict__ trees, const i64* __restrict__ times,
          u64* __restrict__ row_starts, u64* __restrict__ degrees, u32* __restrict__ edge_firsts, u64* words,
          Fault* fault) {
    // This hop's own overflow is written while other blocks begin; they must not part ways over it.
    if (ledger[OVERFLOWN] && ledger[OVERFLOWN] <= b.hop) return;
    const u64* items = ledger + b.items + b.hop * (b.relations + 1);
    const u64* first_of_type = ledger + b.counts + (b.hop ? b.hop - 1 : 0) * b.types;
    u64* starts = ledger + b.starts + b.hop * (b.relations + 1);
    const u64 scanned = b.count_tiles * SCAN_TILE, room = b.item_room < scanned ? b.item_room : scanned;
    const u64 asked = items[b.relations], n = asked < room ? asked : room;
    hw_scan(
        n, ledger + b.tickets + 3 * b.hop, words, b.count_tiles,
        [&](u64 i) -> u32 {
            const u64 at = segment_of(items, b.relations, i);
            const Relation& r = relations[at];
            const u64 first = b.hop ? first_of_type[r.asking] : 0;
            const u64 node = ledger[b.node_base + r.asking] + first + (i - items[at]);
            const u64 id = node < b.node_room ? nodes[node] : r.rows;
            if (id >= r.rows) return 0;
            u64 start = r.offsets[id], end = r.offsets[id + 1];
            if (start > end || end > r.edges) {
                hw_fault(fault, FAULT_FALLING_OFFSETS, id, start, end);
                start = end = 0;
            }
            u64 degree = end - start;
            if (b.time_room && r.times && node < b.tree_room && trees[node] < b.time_room)
                degree = seen_by(r.times + start, degree, times[trees[node]]);
            row_starts[i] = start;
            degrees[i] = degree;
            const u64 count = given(r, start, degree, fanouts[b.hop * b.relations + at], b.choice);
            return count < 0xffffffffu ? (u32)count : 0xffffffffu;
        },
        [&](u64 i, u32, u64 sum) {
            edge_firsts[i] = (u32)sum;
            note_start(items, b.relations, i, starts, sum);
        },
        [&](u64 sum) {
            for (u64 s = b.relations + 1; s > 0 && items[s - 1] == n; s--) starts[s - 1] = sum;
            if (sum > b.edge_room || asked > room) ledger[OVERFLOWN] = b.hop + 1;
        });
}
