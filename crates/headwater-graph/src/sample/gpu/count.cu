// How many neighbours each item of a hop gives, and where its edges begin: the first launch of most hops.
//
// An item is a frontier node and a relation that leaves it. Counting is the load of a running sum (scan.cuh), so that
// one pass over the items gives edge offsets, and the row's place and length are kept: reading the offsets again would
// cost another request, which is what counts when the graph lies in host memory. Tiles are short and blocks many,
// because each load waits for the bus.
//
// Per item: 8 bytes of its id, one request of 16 bytes for both offsets, 20 bytes out; with times a binary search in
// the row; with weights the row's weights up to the fan-out.
//
// Where address translation binds, `visit` has read the rows before, in the order of their addresses (order.cu), and
// `count` only sums up.
//
// Defines: WEIGHTED (0 or 1); THREADS, ITEMS (see scan.cuh); MEMBERS, BLOCK_LOG2 (see relation.cuh).

// What a row gives: `degree` is what its tree may see of it.
__device__ __forceinline__ u64 given(const Relation& r, u64 start, u64 degree, u64 fanout, u64 choice) {
    const bool is_drawn_again = choice == CHOOSE_WITH_REPLACEMENT && fanout != ALL_NEIGHBOURS;
#if WEIGHTED
    const u64 enough = is_drawn_again ? 1 : fanout;
    u64 with_weight = 0;
    for (u64 at = 0; at < degree && with_weight < enough; at++) with_weight += element<float>(r.weights, start + at) > 0.0f;
    return is_drawn_again ? (with_weight ? fanout : 0) : with_weight;
#else
    if (is_drawn_again) return degree ? fanout : 0;
    return degree < fanout ? degree : fanout;
#endif
}

// How many of a row's edges are not later than `limit`; rows are in the order of time.
__device__ __forceinline__ u64 seen_by(Array<i64> times, u64 degree, i64 limit) {
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

// Reads the row of item i, keeps its place and length, and returns how many neighbours it gives.
__device__ __forceinline__ u32 read_row(const Batch& b, const Relation* relations, const u64* fanouts,
                                        const u64* ledger, const u64* nodes, const u32* trees, const i64* times,
                                        u64* row_starts, u64* degrees, u64 i, Fault* fault) {
    const Asking asking = asking_of(b, relations, ledger, nodes, i);
    const Relation& r = relations[asking.relation];
    if (asking.row >= r.rows) return 0;
    u64 start = element<u64>(r.offsets, asking.row), end = element<u64>(r.offsets, asking.row + 1);
    if (start > end || end > r.edges) {
        hw_fault(fault, FAULT_FALLING_OFFSETS, asking.row, start, end);
        start = end = 0;
    }
    u64 degree = end - start;
    if (b.time_room && r.times && asking.node < b.tree_room && trees[asking.node] < b.time_room)
        degree = seen_by(Array<i64>{r.times, start}, degree, times[trees[asking.node]]);
    row_starts[i] = start;
    degrees[i] = degree;
    const u64 count = given(r, start, degree, fanouts[b.hop * b.relations + asking.relation], b.choice);
    return count < 0xffffffffu ? (u32)count : 0xffffffffu;
}

// Reads the rows of a hop in the order of their addresses; what each gives stands in `edge_firsts` until `count` sums
// it up. Also zeroes the buckets for the next hop.
extern "C" __global__ void __launch_bounds__(THREADS)
    visit(Batch b, const Relation* __restrict__ relations, const u64* __restrict__ fanouts,
          const u64* __restrict__ ledger, const u64* __restrict__ nodes, const u32* __restrict__ trees,
          const i64* __restrict__ times, const u32* __restrict__ order, u64* __restrict__ row_starts,
          u64* __restrict__ degrees, u32* __restrict__ edge_firsts, u32* __restrict__ buckets, Fault* fault) {
    const u64 thread = (u64)blockIdx.x * THREADS + threadIdx.x, threads = (u64)gridDim.x * THREADS;
    for (u64 t = thread; t < b.buckets; t += threads) buckets[t] = 0;
    if (ledger[OVERFLOWN]) return;
    const u64 asked = ledger[b.items + b.hop * (b.relations + 1) + b.relations];
    const u64 n = asked < b.order_room ? asked : b.order_room;
    for (u64 p = thread; p < n; p += threads) {
        const u64 i = order[p];
        if (i < n)
            edge_firsts[i] = read_row(b, relations, fanouts, ledger, nodes, trees, times, row_starts, degrees, i, fault);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    count(Batch b, const Relation* __restrict__ relations, const u64* __restrict__ fanouts, u64* ledger,
          const u64* __restrict__ nodes, const u32* __restrict__ trees, const i64* __restrict__ times,
          u64* __restrict__ row_starts, u64* __restrict__ degrees, u32* __restrict__ edge_firsts, u64* words,
          Fault* fault) {
    // This hop's own overflow is written while other blocks begin; they must not part ways over it.
    if (ledger[OVERFLOWN] && ledger[OVERFLOWN] <= b.hop) return;
    const u64* items = ledger + b.items + b.hop * (b.relations + 1);
    u64* starts = ledger + b.starts + b.hop * (b.relations + 1);
    const u64 scanned = b.count_tiles * SCAN_TILE, room = b.item_room < scanned ? b.item_room : scanned;
    const u64 asked = items[b.relations], n = asked < room ? asked : room;
    hw_scan(
        n, ledger + b.tickets + 3 * b.hop, words, b.count_tiles,
        [&](u64 i) -> u32 {
            if (b.order_room) return edge_firsts[i];
            return read_row(b, relations, fanouts, ledger, nodes, trees, times, row_starts, degrees, i, fault);
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
