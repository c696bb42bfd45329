// Row gather: out[place(i)] = table[ids[i]], rows of any width in bytes, out of host or device memory.
//
// What counts is the number of requests (whole lines, each asked for once; lines.cuh) and the number of lines in flight;
// arithmetic is free. When rows are in address order, warps claim them a tile at a time, so that the whole grid reads one
// narrow window of addresses that moves through the table, which is what the translation caches between GPU and host want;
// otherwise every block has a stretch of the rows to itself. The output row of a bad id is zeroed.
//
// Defines: ID (type of an id), ID_BYTES; LANES, DEPTH, PIECE_BYTES (see lines.cuh); IN_ORDER (1 when row i is wanted i-th
// and `ids` is not read), END_WORDS (length of `ends`, which ends with what the rows touch; 0 when that is not known),
// PLACE_BYTES (4 when `places` is given, 0 when output rows follow input order), CLAIMS (1 when
// warps claim their tiles from `claimed`), THREADS (threads a block).

extern "C" __global__ void __launch_bounds__(THREADS)
    gather_lines(const u8* __restrict__ table, u64 rows, u64 width, const ID* __restrict__ ids,
                 const u32* __restrict__ places, const u32* __restrict__ ends, u64 count, u64 chunks, u8* __restrict__ out, u64 out_rows, u64* claimed,
                 Fault* fault) {
    const u64 items = count * chunks, tiles = (items + hw_tile_items() - 1) / hw_tile_items();
    const u8* table_end = table + rows * width;
    const auto find = [&](u64 i, bool) {
#if IN_ORDER
        const u64 row = i;
#else
        const u64 row = as_row(ids[i]);
#endif
#if PLACE_BYTES
        const u64 place = places[i];
#else
        const u64 place = i;
#endif
        const bool is_wanted = place < out_rows, good = is_wanted && is_row(row, rows, place, fault);
        return HwRow{good ? table + row * width : 0, table, table_end, place, is_wanted, 0};
    };
    const auto put = [&](u64 place, i64 inside, uint4 word, u32) {
        store_word(out + place * width, inside, (i64)width, word);
    };
#if END_WORDS && CLAIMS
    const u64 warp = (u64)blockIdx.x * WARPS_OF_BLOCK + threadIdx.x / 32;
    if (warp >= hw_window_warps(WINDOW_PIECES, count, ends[END_WORDS - 1], chunks, gridDim.x)) return;
#endif
#if CLAIMS
    const bool leads = threadIdx.x % 32 == 0;
    u64 t = __shfl_sync(0xffffffffu, leads ? atomicAdd(claimed, 1ull) : 0, 0);
    while (t < tiles) {
        // Asked for early, so that the answer is there when it is needed.
        const u64 next = leads ? atomicAdd(claimed, 1ull) : 0;
        hw_copy_tile(t, items, chunks, width, find, put);
        t = __shfl_sync(0xffffffffu, next, 0);
    }
#else
    const u64 share = (tiles + gridDim.x - 1) / gridDim.x, begin = share * blockIdx.x;
    const u64 end = begin + share < tiles ? begin + share : tiles;
    for (u64 t = begin + threadIdx.x / 32; t < end; t += THREADS / 32) hw_copy_tile(t, items, chunks, width, find, put);
#endif
}
