// Numbers the nodes that a hop found and writes its edges: the last two launches of a hop, and the seeds before the
// first.
//
// `number` gives each new key the next number of the batch, whatever its type (unique.cuh), and notes where each
// relation's new keys begin. The last block to finish turns those into local numbers a type, and into the items of the
// next hop: a launch for that alone would cost more than the work. `settle` then writes the nodes of each type and the
// neighbours' local numbers; a number tells its segment, and so its type, by a search in groups + hops * R numbers.
//
// Per edge: number 4 bytes and a sector of the table, settle 8 bytes and a sector. Per new node: number 2 * KEY_BYTES
// and a sector, settle KEY_BYTES in and 8 out (12 with trees).
//
// Defines: KEY, KEY_BYTES (see unique.cuh); THREADS, ITEMS (see scan.cuh); MEMBERS, BLOCK_LOG2 (see relation.cuh).

// Brings the seeds: each has its position as number, and one that stands twice is found by its first.
extern "C" __global__ void __launch_bounds__(THREADS)
    plant(Batch b, const u64* __restrict__ seed_keys, const u64* __restrict__ seed_ids,
          const u64* __restrict__ seed_nodes, Slot* slots, KEY* found, u64* nodes, u32* trees, u64* count_words,
          u32* buckets, Fault* fault) {
    const u64 thread = (u64)blockIdx.x * THREADS + threadIdx.x, threads = (u64)gridDim.x * THREADS;
    for (u64 t = thread; t < b.count_tiles; t += threads) count_words[t] = 0;
    for (u64 t = thread; t < b.buckets; t += threads) buckets[t] = 0;
    for (u64 i = thread; i < b.seeds; i += threads) {
        const u64 node = seed_nodes[i];
        const u32 place = hw_claim(slots, b.slot_count, (KEY)seed_keys[i]);
        if (place == NOWHERE || node >= b.node_room || i >= b.key_room) {
            hw_fault(fault, FAULT_TOO_MANY, i, b.seeds, b.slot_count);
            continue;
        }
        hw_lower(slots + place, (KEY)i);
        found[i] = (KEY)seed_keys[i];
        nodes[node] = seed_ids[i];
        if (node < b.tree_room) trees[node] = (u32)i;
    }
}

// How many new nodes relation `at` of this hop found.
__device__ __forceinline__ u64 new_of(const Batch& b, const volatile u64* ledger, u64 at) {
    const volatile u64* firsts = ledger + b.firsts + b.groups + b.hop * b.relations;
    return (at + 1 < b.relations ? firsts[at + 1] : ledger[b.discovered + b.hop + 1]) - firsts[at];
}

// One block, after all others: local numbers of the hop's segments, nodes a type, and the items of the next hop.
__device__ void close_hop(const Batch& b, const Relation* relations, const u64* fanouts, volatile u64* ledger) {
    const volatile u64* before = ledger + b.counts + b.hop * b.types;
    volatile u64* after = ledger + b.counts + (b.hop + 1) * b.types;
    for (u64 at = threadIdx.x; at < b.relations; at += THREADS) {
        const u64 type = relations[at].found;
        u64 local = before[type];
        for (u64 other = 0; other < at; other++)
            if (relations[other].found == type) local += new_of(b, ledger, other);
        ledger[b.locals + b.groups + b.hop * b.relations + at] = local;
    }
    for (u64 type = threadIdx.x; type < b.types; type += THREADS) {
        u64 count = before[type];
        for (u64 at = 0; at < b.relations; at++)
            if (relations[at].found == type) count += new_of(b, ledger, at);
        after[type] = count;
    }
    if (threadIdx.x == 0) {
        const u64 edges = ledger[b.starts + b.hop * (b.relations + 1) + b.relations];
        ledger[b.edges + b.hop + 1] = ledger[b.edges + b.hop] + edges;
    }
    __syncthreads();
    if (b.hop + 1 >= b.hops) return;
    volatile u64* items = ledger + b.items + (b.hop + 1) * (b.relations + 1);
    for (u64 at = threadIdx.x; at <= b.relations; at += THREADS) {
        u64 first = 0;
        for (u64 other = 0; other < at; other++) {
            const u64 type = relations[other].asking;
            const bool is_asked = fanouts[(b.hop + 1) * b.relations + other] && relations[other].edges;
            if (is_asked) first += after[type] - before[type];
        }
        items[at] = first;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    number(Batch b, const Relation* __restrict__ relations, const u64* __restrict__ fanouts, u64* ledger,
           const KEY* __restrict__ keys, const u32* __restrict__ places, Slot* slots, KEY* found, u64* words,
           Fault* fault) {
    __shared__ u64 finished_before;
    if (ledger[OVERFLOWN]) return;
    const u64* starts = ledger + b.starts + b.hop * (b.relations + 1);
    u64* firsts = ledger + b.firsts + b.groups + b.hop * b.relations;
    const u64 scanned = b.number_tiles * SCAN_TILE, room = b.edge_room < scanned ? b.edge_room : scanned;
    const u64 n = hw_count(starts + b.relations, room, fault), base = ledger[b.discovered + b.hop];
    hw_number(
        keys, n, slots, b.slot_count, places, found, b.key_room, base, ledger + b.tickets + 3 * b.hop + 1, words,
        b.number_tiles, [&](u64 i, u64 sum) { note_start(starts, b.relations, i, firsts, base + sum); },
        [&](u64 sum) {
            for (u64 s = b.relations; s > 0 && starts[s - 1] == n; s--) firsts[s - 1] = base + sum;
            ledger[b.discovered + b.hop + 1] = base + sum < b.key_room ? base + sum : b.key_room;
            if (base + sum > b.key_room) hw_fault(fault, FAULT_TOO_MANY, n, base + sum, b.key_room);
        });
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) finished_before = atomicAdd(ledger + b.done + b.hop, 1ull);
    __syncthreads();
    if (finished_before + 1 < gridDim.x) return;
    __threadfence();
    close_hop(b, relations, fanouts, ledger);
}

// The local number of the neighbour whose key is at `place`.
__device__ __forceinline__ u32 local_at(const Batch& b, const u64* ledger, const Slot* slots, u32 place) {
    if (place >= b.slot_count) return NOWHERE;
    const u64* firsts = ledger + b.firsts;
    const u64 number = slots[place].value, segment = segment_of(firsts, b.groups + (b.hop + 1) * b.relations, number);
    return (u32)(ledger[b.locals + segment] + (number - firsts[segment]));
}

// Where some edges must not be seen: writes the others, which have a place, one after the other.
extern "C" __global__ void __launch_bounds__(THREADS)
    keep(Batch b, u64* ledger, const u32* __restrict__ places, const Slot* __restrict__ slots,
         const u32* __restrict__ drawn_cols, const u64* __restrict__ drawn_ids, u32* __restrict__ rows,
         u32* __restrict__ cols, u64* __restrict__ ids, u64* words, Fault* fault) {
    if (ledger[OVERFLOWN]) return;
    const u64* starts = ledger + b.starts + b.hop * (b.relations + 1);
    u64* kept = ledger + b.kept + b.hop * (b.relations + 1);
    const u64 scanned = b.number_tiles * SCAN_TILE, room = b.edge_room < scanned ? b.edge_room : scanned;
    const u64 n = hw_count(starts + b.relations, room, fault), edge_base = ledger[b.edges + b.hop];
    hw_scan(
        n, ledger + b.tickets + 3 * b.hop + 2, words, b.number_tiles,
        [&](u64 i) -> u32 { return places[i] < b.slot_count; },
        [&](u64 i, u32 is_kept, u64 sum) {
            note_start(starts, b.relations, i, kept, sum);
            const u64 at = edge_base + sum;
            if (!is_kept || at >= b.edge_total) return;
            rows[at] = local_at(b, ledger, slots, places[i]);
            cols[at] = drawn_cols[i];
            if (b.id_room) ids[at] = drawn_ids[i];
        },
        [&](u64 sum) {
            for (u64 s = b.relations + 1; s > 0 && starts[s - 1] == n; s--) kept[s - 1] = sum;
            ledger[b.edges + b.hop + 1] = edge_base + sum;
        });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    settle(Batch b, const Relation* __restrict__ relations, const u64* __restrict__ ledger,
           const u32* __restrict__ places, const Slot* __restrict__ slots, const KEY* __restrict__ found, u64* nodes,
           u32* trees, u32* __restrict__ rows, Fault* fault) {
    if (ledger[OVERFLOWN]) return;
    const u64 thread = (u64)blockIdx.x * THREADS + threadIdx.x, threads = (u64)gridDim.x * THREADS;
    const u64 segments = b.groups + (b.hop + 1) * b.relations, edge_base = ledger[b.edges + b.hop];
    const u64 *firsts = ledger + b.firsts, *locals = ledger + b.locals;
    const u64 n = hw_count(ledger + b.starts + b.hop * (b.relations + 1) + b.relations, b.edge_room, fault);
    for (u64 i = thread; !b.pair_slots && i < n && edge_base + i < b.edge_total; i += threads)
        rows[edge_base + i] = local_at(b, ledger, slots, places[i]);
    const u64 end = hw_count(ledger + b.discovered + b.hop + 1, b.key_room, fault);
    for (u64 number = ledger[b.discovered + b.hop] + thread; number < end; number += threads) {
        const u64 segment = segment_of(firsts, segments, number);
        if (segment < b.groups) continue;
        const u64 type = relations[(segment - b.groups) % b.relations].found;
        const u64 node = ledger[b.node_base + type] + locals[segment] + (number - firsts[segment]);
        const u64 key = found[number], tree = b.tree_nodes ? key / b.tree_nodes : 0;
        if (node >= b.node_room) continue;
        nodes[node] = key - tree * b.tree_nodes - ledger[b.type_base + type];
        if (node < b.tree_room) trees[node] = (u32)tree;
    }
}
