// Row gather: out[place(i)] = table[ids[i]], rows of any width in bytes, out of host or device memory.
//
// Host memory is read over PCIe in requests of one 128-byte line, and the GPU can have only so many of them under way. So
// what counts is the number of requests (whole lines, each asked for once) and the number of lines in flight; arithmetic
// is free. Three kernels:
//
// - `gather_naive` maps consecutive threads to consecutive elements of the output, as a general indexing kernel does.
// - `gather_shift` does the same and rotates each row so that a warp starts where a line starts: the papers' version.
// - `gather_lines`, the one that is used, gives each row a group of lanes that starts on the row's first line. A lane
//   keeps DEPTH loads in flight before its first store. When rows are in address order, warps claim them a tile at a
//   time, so that the whole grid reads one narrow window of addresses that moves through the table, which is what the
//   translation caches between GPU and host want; otherwise every block has a stretch of the rows to itself.
//
// Ids are checked here. A bad one is reported through the fault cell and its output row is zeroed; nothing outside the
// table is read.
//
// Loads are always 16 bytes wide and aligned; PIECE_BYTES says how finely they are taken apart when rows are not.
//
// Defines: ID (type of an id), ID_BYTES. Of the naive kernels: UNIT (element: u32, u16, u8), UNIT_BYTES, LINE_UNITS. Of
// `gather_lines`: LANES (lanes a row: 8, 16, 32), DEPTH (loads in flight a lane), PIECE_BYTES (16, 4 or 1: what divides
// the addresses of rows), IN_ORDER (1 when row i is wanted i-th and `ids` is not read), PLACE_BYTES (4 when `places` is
// given, 0 when output rows follow input order), CLAIMS (1 when warps claim their tiles from `claimed`), THREADS
// (threads a block).

#define LINE_BYTES 128ull

// A signed id that is negative becomes larger than any table.
__device__ __forceinline__ u64 as_row(ID id) { return (u64)(i64)id; }

__device__ __forceinline__ bool is_row(u64 row, u64 rows, u64 position, Fault* fault) {
    if (row < rows) return true;
    hw_fault(fault, FAULT_ID_OUT_OF_RANGE, position, row, rows);
    return false;
}

#ifdef UNIT

extern "C" __global__ void gather_naive(const UNIT* __restrict__ table, u64 rows, u64 units, const ID* __restrict__ ids,
                                        u64 count, UNIT* __restrict__ out, Fault* fault) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 t = (u64)blockIdx.x * blockDim.x + threadIdx.x; t < count * units; t += step) {
        const u64 i = t / units, column = t % units, row = as_row(ids[i]);
        const bool good = is_row(row, rows, i, fault);
        out[t] = good ? hw_load(table + row * units + column) : (UNIT)0;
    }
}

extern "C" __global__ void gather_shift(const UNIT* __restrict__ table, u64 rows, u64 units, const ID* __restrict__ ids,
                                        u64 count, UNIT* __restrict__ out, Fault* fault) {
    const u64 line = LINE_UNITS;
    const u64 step = (u64)gridDim.x * blockDim.x;
    const u64 base = (u64)table / UNIT_BYTES;
    for (u64 t = (u64)blockIdx.x * blockDim.x + threadIdx.x; t < count * units; t += step) {
        const u64 i = t / units, row = as_row(ids[i]);
        u64 column = t % units;
        const bool good = is_row(row, rows, i, fault);
        // Rotating the row by this much makes thread t read a unit whose position in its line is t's in its warp.
        if (units > line && units % line) {
            const u64 first_thread = i * units, first_unit = base + (good ? row : 0) * units;
            column += (first_thread % line + line - first_unit % line) % line;
            if (column >= units) column -= units;
        }
        out[i * units + column] = good ? hw_load(table + row * units + column) : (UNIT)0;
    }
}

#else

#define WORD_BYTES 16ll

// The aligned 16 bytes at `at`. Only words that reach into their row are asked for, so at most a table's first and last
// word hang over its edge; their bytes are then read one by one.
__device__ __forceinline__ uint4 load_word(const u8* at, const u8* first, const u8* end) {
#if PIECE_BYTES < 16
    if (at < first || at + WORD_BYTES > end) {
        u8 bytes[WORD_BYTES];
        for (int k = 0; k < WORD_BYTES; k++) bytes[k] = at + k >= first && at + k < end ? at[k] : 0;
        uint4 word;
        memcpy(&word, bytes, WORD_BYTES);
        return word;
    }
#endif
    return hw_load((const uint4*)at);
}

// Stores the part of a word that lies in its row. `inside` is where the word begins, counted from the row's first byte.
__device__ __forceinline__ void store_word(u8* row, i64 inside, i64 width, uint4 word) {
#if PIECE_BYTES == 16
    *(uint4*)(row + inside) = word;
#elif PIECE_BYTES == 4
    const u32 pieces[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (inside + 4 * k >= 0 && inside + 4 * k < width) *(u32*)(row + inside + 4 * k) = pieces[k];
#else
    const u32 pieces[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
    for (int k = 0; k < 16; k++)
        if (inside + k >= 0 && inside + k < width) row[inside + k] = (u8)(pieces[k / 4] >> (8 * (k % 4)));
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gather_lines(const u8* __restrict__ table, u64 rows, u64 width, const ID* __restrict__ ids,
                 const u32* __restrict__ places, u64 count, u64 chunks, u8* __restrict__ out, u64 out_rows, u64* claimed,
                 Fault* fault) {
    const u32 lane = threadIdx.x % LANES, group = threadIdx.x % 32 / LANES, groups = 32 / LANES;
    // An item is one chunk (LANES words) of one row; a tile is what a warp does at a time.
    const u64 items = count * chunks, tile = (u64)groups * DEPTH, tiles = (items + tile - 1) / tile;
    const u8* table_end = table + rows * width;
    const bool leads = threadIdx.x % 32 == 0;
#if CLAIMS
    const u64 end = tiles;
    u64 t = __shfl_sync(0xffffffffu, leads ? atomicAdd(claimed, 1ull) : 0, 0);
#else
    const u64 share = (tiles + gridDim.x - 1) / gridDim.x, begin = share * blockIdx.x;
    const u64 end = begin + share < tiles ? begin + share : tiles;
    u64 t = begin + threadIdx.x / 32;
#endif
    while (t < end) {
#if CLAIMS
        // Asked for early, so that the answer is there when it is needed.
        const u64 next = leads ? atomicAdd(claimed, 1ull) : 0;
#endif
        uint4 words[DEPTH];
        u8* to[DEPTH];
        i64 inside[DEPTH];  // bytes from the row's first byte to this lane's word
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            const u64 item = t * tile + (u64)d * groups + group;
            inside[d] = -WORD_BYTES;
            words[d] = make_uint4(0, 0, 0, 0);
            to[d] = out;
            bool reads = false;
            const u8* start = table;
            if (item < items) {
                const u64 i = item / chunks, chunk = item % chunks;
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
                if (place < out_rows) {
                    const bool good = is_row(row, rows, place, fault);
                    start += (good ? row : 0) * width;
                    to[d] += place * width;
                    inside[d] = (i64)((chunk * LANES + lane) * WORD_BYTES) - (i64)((u64)start % LINE_BYTES);
                    reads = good && inside[d] > -WORD_BYTES && inside[d] < (i64)width;
                }
            }
            if (reads)
                words[d] = load_word(start + inside[d], table, table_end);
            else
                hw_load_nothing();
        }
#pragma unroll
        for (int d = 0; d < DEPTH; d++)
            if (inside[d] > -WORD_BYTES && inside[d] < (i64)width) store_word(to[d], inside[d], (i64)width, words[d]);
#if CLAIMS
        t = __shfl_sync(0xffffffffu, next, 0);
#else
        t += THREADS / 32;
#endif
    }
}

#endif
