// What the kernels of one batch share: the sizes, and the ledger they hand each other numbers in.
//
// Every number that a kernel finds and a later one needs stands in the ledger, in device memory, so that nothing waits
// for the host inside a batch. A hop's work is counted in items (a frontier node and a relation that leaves it) and in
// edges; both lie relation after relation, so that a position tells its relation by a search in R + 1 numbers.

// The sizes of a batch and of its hop. The same struct stands in cuda.rs.
struct Batch {
    u64 types, relations, hops, groups, hop, hop_key;
    // Where in the ledger things stand.
    u64 counts, discovered, edges, starts, kept, items, firsts, locals, node_base, type_base, done, ranked, tickets;
    // How long buffers are.
    u64 cells, item_room, edge_room, edge_total, key_room, node_room, slot_count, seeds, count_tiles, number_tiles;
    u64 tree_room, id_room, time_room, pair_slots;
    u64 order_room; // 0: items are visited as they come; else item_room
    u64 buckets;
    // What is asked for.
    u64 tree_nodes; // ids of one tree, when trees are disjoint; else 0
    u64 choice, lanes;
    u64 bucket_shift; // rows of a bucket, as a power of two
};

// An edge that must not be seen: a slot of the set of them. Empty slots have relation 0.
struct Pair {
    u64 relation_plus_1, row, neighbour;
};

#define OVERFLOWN 0 // the ledger's first cell: one more than the hop that had more edges than there is room for
#define ALL_NEIGHBOURS (~0ull)

#define CHOOSE_UNIFORM 0
#define CHOOSE_WITH_REPLACEMENT 1
#define CHOOSE_LAST 2

// Notes `value` for each segment that begins at `at`, of which the last may have elements and the others are empty.
__device__ __forceinline__ void note_start(const u64* firsts, u64 count, u64 at, u64* values, u64 value) {
    if (count == 0) return;
    for (u64 s = segment_of(firsts, count, at) + 1; s > 0 && firsts[s - 1] == at; s--) values[s - 1] = value;
}

// Which node an item asks for: its place in the list of nodes, and its row.
struct Asking {
    u64 relation, node, local, row;
};

// The item numbered i of the hop; a row that is none where the list of nodes has been cut.
__device__ __forceinline__ Asking asking_of(const Batch& b, const Relation* relations, const u64* ledger,
                                            const u64* nodes, u64 i) {
    const u64* items = ledger + b.items + b.hop * (b.relations + 1);
    const u64 at = segment_of(items, b.relations, i), type = relations[at].asking;
    const u64 local = (b.hop ? ledger[b.counts + (b.hop - 1) * b.types + type] : 0) + (i - items[at]);
    const u64 node = ledger[b.node_base + type] + local;
    return Asking{at, node, local, node < b.node_room ? nodes[node] : relations[at].rows};
}
