// Draws the neighbours of a hop and brings them to the table: the second launch of a hop.
//
// A group of lanes takes an item (choose.cuh). Its row's neighbours are read by one instruction, so those that share a
// line are one request: with the graph in host memory, requests are what a hop costs, and a row of degree 16 is one or
// two of them whatever the fan-out. Then every lane claims the slot of its neighbour's key (unique.cuh) with its
// position in the hop, which the next launch turns into numbers.
//
// Per item: 20 bytes of its row's place, one to fan-out requests of neighbours. Per edge: one or two 32-byte sectors of
// the table, 12 + KEY_BYTES bytes out (4 + KEY_BYTES without edge ids).
//
// Edges that must not be seen are drawn and then left without a place, so that what else is drawn does not depend on
// them; number.cu's `keep` leaves them out.
//
// Defines: KEY, KEY_BYTES (see unique.cuh), WEIGHTED (0 or 1); THREADS, ITEMS (see scan.cuh); MEMBERS, BLOCK_LOG2 (see
// relation.cuh).

// One item: whose row it is, and where its edges go.
struct Item {
    u64 start, degree, key_base, asking;
    u64 relation, row;
    u64 edge_first; // in the hop
};

// Whether an edge is in the set, at most half full, of those that must not be seen.
__device__ __forceinline__ bool is_excluded(const Pair* pairs, u64 slots, u64 relation, u64 row, u64 neighbour) {
    u64 at = hw_mix(hw_mix(hw_mix(relation) ^ row) ^ neighbour) & (slots - 1);
    for (u64 probes = 0; probes < slots && pairs[at].relation_plus_1; probes++, at = (at + 1) & (slots - 1))
        if (pairs[at].relation_plus_1 == relation + 1 && pairs[at].row == row && pairs[at].neighbour == neighbour)
            return true;
    return false;
}

struct Edges {
    KEY* keys;
    u32* places;
    u32* cols;
    u64* ids;
    Slot* slots;
    const Pair* pairs;
};

// Takes the neighbour at `position` of the item's row as its j-th edge.
__device__ __forceinline__ void take_edge(const Batch& b, const Relation& r, const Item& item, const Edges& out,
                                          u64 edge_base, u64 j, u64 position, Fault* fault) {
    const u64 i = item.edge_first + j, at = item.start + position;
    if (i >= b.edge_room || edge_base + i >= b.edge_total || at >= r.edges) return;
    const u64 id = read_id(r.neighbours, r.wide & 1, at);
    const KEY key = (KEY)(item.key_base + id);
    u32 place = NOWHERE;
    if (id >= r.columns) {
        hw_fault(fault, FAULT_NEIGHBOUR, at, id, r.columns);
    } else if (!b.pair_slots || !is_excluded(out.pairs, b.pair_slots, item.relation, item.row, id)) {
        place = hw_claim(out.slots, b.slot_count, key);
        if (place == NOWHERE)
            hw_fault(fault, FAULT_TOO_MANY, i, b.key_room, b.slot_count);
        else
            hw_lower(out.slots + place, POSITION | (KEY)i);
    }
    out.keys[i] = key;
    out.places[i] = place;
    out.cols[edge_base + i] = (u32)item.asking;
    // Positions for now: a long list of draws looks here for what it took.
    if (b.id_room) out.ids[edge_base + i] = position;
}

template <class Take, class Taken>
__device__ __forceinline__ void choose(const Batch& b, const Group& g, const Relation& r, const Item& item, u64 key,
                                       u64 fanout, Take take, Taken taken) {
    const u64 wanted = fanout == ALL_NEIGHBOURS ? item.degree : fanout;
    const bool is_drawn_again = b.choice == CHOOSE_WITH_REPLACEMENT && fanout != ALL_NEIGHBOURS;
#if WEIGHTED
    const Array<float> weights = {r.weights, item.start};
    if (is_drawn_again)
        choose_weighted_again(g, key, weights, item.degree, wanted, take);
    else
        choose_weighted(g, key, weights, item.degree, wanted, take);
#else
    if (is_drawn_again)
        choose_with_replacement(g, key, item.degree, wanted, take);
    else if (item.degree <= wanted)
        choose_run(g, 0, item.degree, take);
    else if (b.choice == CHOOSE_LAST)
        choose_run(g, item.degree - wanted, wanted, take);
    else
        choose_by_floyd(g, key, item.degree, wanted, take, taken);
#endif
}

// Also zeroes the words of the scan that numbers this hop and of the one that counts the next.
extern "C" __global__ void __launch_bounds__(THREADS)
    draw(Batch b, const Relation* __restrict__ relations, const u64* __restrict__ fanouts, const u64* ledger,
         const u64* __restrict__ nodes, const u32* __restrict__ trees, const u64* __restrict__ row_starts,
         const u64* __restrict__ degrees, const u32* __restrict__ edge_firsts, const u32* __restrict__ order,
         Slot* slots, KEY* keys, u32* places, u32* cols, u64* ids, const Pair* __restrict__ pairs, u64* count_words,
         u64* number_words, u64* keep_words, Fault* fault) {
    const u64 thread = (u64)blockIdx.x * THREADS + threadIdx.x, threads = (u64)gridDim.x * THREADS;
    for (u64 t = thread; t < b.count_tiles; t += threads) count_words[t] = 0;
    for (u64 t = thread; t < b.number_tiles; t += threads) number_words[t] = 0;
    for (u64 t = thread; b.pair_slots && t < b.number_tiles; t += threads) keep_words[t] = 0;
    if (ledger[OVERFLOWN]) return;
    const Group g = group_of((u32)b.lanes);
    const u64* items = ledger + b.items + b.hop * (b.relations + 1);
    const u64 n = hw_count(items + b.relations, b.item_room, fault);
    // Edges that may have gaps are drawn into memory of their own.
    const u64 edge_base = b.pair_slots ? 0 : ledger[b.edges + b.hop];
    const Edges out = {keys, places, cols, ids, slots, pairs};
    for (u64 p = thread / g.lanes; p < n; p += threads / g.lanes) {
        const u64 i = p < b.order_room ? order[p] : p;
        if (i >= n) continue;
        const Asking asking = asking_of(b, relations, ledger, nodes, i);
        const u64 at = asking.relation, node = asking.node, id = asking.row;
        const Relation& r = relations[at];
        if (id >= r.rows) continue;
        const u64 tree = b.tree_nodes && node < b.tree_room ? trees[node] : 0;
        const u64 key_base = tree * b.tree_nodes + r.found_base;
        const Item item = {row_starts[i], degrees[i], key_base, asking.local, at, id, edge_firsts[i]};
        if (item.degree == 0) continue;
        const u64 key = hw_key_of(hw_key_of(b.hop_key, at), tree * r.rows + id);
        const u64 edges_here = edge_base + item.edge_first;
        choose(
            b, g, r, item, key, fanouts[b.hop * b.relations + at],
            [&](u64 j, u64 position) { take_edge(b, r, item, out, edge_base, j, position, fault); },
            [&](u64 j) { return edges_here + j < b.id_room ? ids[edges_here + j] : ALL_NEIGHBOURS; });
        if (b.id_room == 0) continue;
        // Names instead of positions, once nobody looks for positions any more.
        __syncwarp(g.mask);
        const u64 end = i + 1 < n ? edge_firsts[i + 1] : ledger[b.starts + b.hop * (b.relations + 1) + b.relations];
        for (u64 e = item.edge_first + g.lane; e < end && edge_base + e < b.id_room; e += g.lanes) {
            const u64 position = item.start + ids[edge_base + e];
            if (position >= r.edges) continue;
            ids[edge_base + e] = r.edge_ids ? read_id(r.edge_ids, r.wide >> 1, position) : position;
        }
    }
}
