// Every edge among some nodes: the kernels around the numbering of unique.cu.
//
// `key_nodes` makes nodes of all types one list of keys, which unique.cu numbers; `settle` turns numbers into those of
// each type. `count` finds every row of every relation and sums up their lengths (scan.cuh). What the rows have is then
// one long list of candidates, and `look` gives each warp a stretch of it, whoever's rows that is: a hub is many
// stretches, and short rows share one. Lists are read once, because they may lie in host memory; `look` keeps 4 bytes a
// candidate, its neighbour's number or NOWHERE, and `keep` closes the gaps in order.
//
// Positions tell their type, their row and their relation by searches in sorted numbers, so the launches are as many for
// one relation as for hundreds.
//
// Per node: 40 bytes and three sectors of the table. Per row: one request of 16 bytes for both offsets, 16 bytes out.
// Per candidate: 4 or 8 bytes in coalesced requests, one or two sectors of the table, 4 bytes out and in again. Per edge:
// 16 bytes out, 4 or 8 in where edges have ids of their own, and a search in the rows.
//
// Defines: KEY, KEY_BYTES (see unique.cuh); STRETCH (candidates a warp takes at a time), RELATION_BYTES; THREADS, ITEMS
// (see scan.cuh).

// Sizes, and where in the ledger things stand. The same struct stands in cuda.rs.
struct Part {
    u64 types, relations;
    u64 wanted;     // nodes asked for, of all types
    u64 rows;       // rows of all relations: those of nodes that stand twice are empty
    u64 candidates; // what the rows have
    u64 edges;      // what of that stays
    u64 slot_count;
    u64 starts;     // where the nodes of each type begin, and where the last end
    u64 bases;      // where the keys of each type begin
    u64 row_starts; // where the rows of each relation begin
    u64 firsts;     // where the numbers of each type begin, and where the last end
    u64 found;      // how many candidates there are
    u64 kept;       // for each relation, how many stay
    u64 cells;
};

static_assert(sizeof(Relation) == RELATION_BYTES, "the table of relations has entries of another length");

extern "C" __global__ void __launch_bounds__(THREADS)
    key_nodes(Part p, const u64* __restrict__ ledger, const u64* __restrict__ wanted, KEY* __restrict__ keys) {
    const u64 thread = (u64)blockIdx.x * THREADS + threadIdx.x, threads = (u64)gridDim.x * THREADS;
    for (u64 i = thread; i < p.wanted; i += threads)
        keys[i] = (KEY)(ledger[p.bases + segment_of(ledger + p.starts, p.types, i)] + wanted[i]);
}

// The number of a type's first node. Types share no keys, so the first of a type is new wherever it stands.
__device__ __forceinline__ u64 first_of(const Part& p, const u64* ledger, const u32* numbers, u64 type) {
    const u64 start = ledger[p.starts + type];
    return start < p.wanted ? numbers[start] : ledger[p.firsts + p.types];
}

extern "C" __global__ void __launch_bounds__(THREADS)
    settle(Part p, u64* ledger, const u64* __restrict__ wanted, const u32* __restrict__ numbers,
           u64* __restrict__ nodes, u32* __restrict__ mapping) {
    const u64 thread = (u64)blockIdx.x * THREADS + threadIdx.x, threads = (u64)gridDim.x * THREADS;
    // The last was written by the numbering.
    for (u64 type = thread; type < p.types; type += threads)
        ledger[p.firsts + type] = first_of(p, ledger, numbers, type);
    for (u64 i = thread; i < p.wanted; i += threads) {
        const u64 number = numbers[i];
        mapping[i] = (u32)(number - first_of(p, ledger, numbers, segment_of(ledger + p.starts, p.types, i)));
        // All that share a number write the same.
        if (number < p.wanted) nodes[number] = wanted[i];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    count(Part p, const Relation* __restrict__ relations, u64* ledger, const u64* __restrict__ nodes,
          u64* __restrict__ list_starts, u64* __restrict__ candidate_firsts, u64* ticket, u64* words, u64 tiles,
          Fault* fault) {
    const u64 *row_starts = ledger + p.row_starts, *firsts = ledger + p.firsts;
    const u64 n = p.rows < tiles * SCAN_TILE ? p.rows : tiles * SCAN_TILE;
    hw_scan(
        n, ticket, words, tiles,
        [&](u64 i) -> u32 {
            const u64 at = segment_of(row_starts, p.relations, i);
            const Relation& r = relations[at];
            const u64 node = firsts[r.asking] + (i - row_starts[at]);
            list_starts[i] = 0;
            if (node >= firsts[r.asking + 1] || node >= p.wanted) return 0;
            const u64 id = nodes[node];
            if (id >= r.rows) return 0;
            const u64 start = element<u64>(r.offsets, id), end = element<u64>(r.offsets, id + 1);
            if (start > end || end > r.edges) {
                hw_fault(fault, FAULT_FALLING_OFFSETS, id, start, end);
                return 0;
            }
            list_starts[i] = start;
            if (end - start > 0xffffffffull) hw_fault(fault, FAULT_TOO_MANY, id, end - start, 0xffffffffull);
            return (u32)(end - start);
        },
        [&](u64 i, u32, u64 sum) { candidate_firsts[i] = sum; }, [&](u64 sum) { ledger[p.found] = sum; });
}

// A candidate: the position in its relation's lists, and whose it is.
struct Candidate {
    u64 position, relation, col;
};

// The candidate numbered `at`, whose row is one of `count` from `row` on.
__device__ __forceinline__ Candidate candidate_at(const Part& p, const u64* ledger, const u64* list_starts,
                                                  const u64* candidate_firsts, u64 row, u64 count, u64 at) {
    row += segment_of(candidate_firsts + row, count, at);
    const u64 relation = segment_of(ledger + p.row_starts, p.relations, row);
    const u64 position = list_starts[row] + (at - candidate_firsts[row]);
    return Candidate{position, relation, row - ledger[p.row_starts + relation]};
}

extern "C" __global__ void __launch_bounds__(THREADS)
    look(Part p, const Relation* __restrict__ relations, u64* ledger, const u64* __restrict__ list_starts,
         const u64* __restrict__ candidate_firsts, const Slot* __restrict__ slots, u32* __restrict__ rows) {
    const u64 warp = ((u64)blockIdx.x * THREADS + threadIdx.x) / 32, warps = (u64)gridDim.x * (THREADS / 32);
    u64 counted = 0, counted_of = 0;
    for (u64 first = warp * STRETCH; first < p.candidates; first += warps * STRETCH) {
        const u64 end = first + STRETCH < p.candidates ? first + STRETCH : p.candidates;
        const u64 from = segment_of(candidate_firsts, p.rows, first);
        const u64 among = segment_of(candidate_firsts + from, p.rows - from, end - 1) + 1;
        for (u64 at = first + threadIdx.x % 32; at < end; at += 32) {
            const Candidate c = candidate_at(p, ledger, list_starts, candidate_firsts, from, among, at);
            const Relation& r = relations[c.relation];
            const u64 id = c.position < r.edges ? read_id(r.neighbours, r.wide & 1, c.position) : r.columns;
            const u32 place = id < r.columns ? hw_find(slots, p.slot_count, (KEY)(r.found_base + id)) : NOWHERE;
            rows[at] = place == NOWHERE ? NOWHERE : (u32)(slots[place].value - ledger[p.firsts + r.found]);
            if (c.relation != counted_of && counted) {
                atomicAdd(ledger + p.kept + counted_of, counted);
                counted = 0;
            }
            counted_of = c.relation;
            counted += place != NOWHERE;
        }
    }
    if (counted) atomicAdd(ledger + p.kept + counted_of, counted);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    keep(Part p, const Relation* __restrict__ relations, const u64* __restrict__ ledger,
         const u64* __restrict__ list_starts, const u64* __restrict__ candidate_firsts, const u32* __restrict__ rows,
         u32* __restrict__ kept_rows, u32* __restrict__ kept_cols, u64* __restrict__ kept_ids, u64* ticket, u64* words,
         u64 tiles) {
    const u64 n = p.candidates < tiles * SCAN_TILE ? p.candidates : tiles * SCAN_TILE;
    hw_scan(
        n, ticket, words, tiles, [&](u64 at) -> u32 { return rows[at] != NOWHERE; },
        [&](u64 at, u32 stays, u64 sum) {
            if (!stays || sum >= p.edges) return;
            const Candidate c = candidate_at(p, ledger, list_starts, candidate_firsts, 0, p.rows, at);
            const Relation& r = relations[c.relation];
            kept_rows[sum] = rows[at];
            kept_cols[sum] = (u32)c.col;
            kept_ids[sum] = r.edge_ids && c.position < r.edges ? read_id(r.edge_ids, r.wide >> 1, c.position) : c.position;
        },
        [](u64) {});
}
