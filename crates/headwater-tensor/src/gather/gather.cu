// Row gather: out[place(i)] = table[ids[i]], rows of any width in bytes, out of host or device memory.
//
// Host memory is read over PCIe in requests of one 128-byte line, and the GPU can have only so many of them under way. So
// what counts is the number of requests (whole lines, each asked for once) and the number of lines in flight; arithmetic
// is free. Three kernels:
//
// - `gather_naive` maps consecutive threads to consecutive elements of the output, as a general indexing kernel does.
// - `gather_shift` does the same and rotates each row so that a warp starts where a line starts: the papers' version.
// - `gather_lines`, the one that is used, gives each row a group of lanes that starts on the row's first line. A lane
//   keeps DEPTH loads in flight before its first store. Every block works through one contiguous stretch of the rows:
//   when they are in address order this keeps the addresses in flight in few, narrow windows, which is what the
//   translation caches between GPU and host want.
//
// Ids are checked here. A bad one is reported through the fault cell and its output row is zeroed; nothing outside the
// table is read.
//
// Defines: ID (type of an id), ID_BYTES; UNIT (element of the naive kernels: u32, u16, u8), UNIT_BYTES; LANES (lanes a
// row: 8, 16, 32), WORD_BYTES (16, or 4 when rows are not aligned to 16), DEPTH (loads in flight a lane), BYTEWISE (1
// when rows are not aligned to 4), IN_ORDER (1 when row i is wanted i-th and `ids` is not read), PLACE_BYTES (4 when `places` is given, 0 when output rows follow input order).

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

#if WORD_BYTES == 16
typedef uint4 Word;
#else
typedef u32 Word;
#endif

#if BYTEWISE
// A word at an edge of the table may hang over it; its bytes are then read one by one.
__device__ __forceinline__ Word load_word(const u8* at, const u8* first, const u8* end) {
    if (at >= first && at + 4 <= end) return hw_load((const Word*)at);
    Word word = 0;
    for (int k = 0; k < 4; k++)
        if (at + k >= first && at + k < end) word |= (Word)at[k] << (8 * k);
    return word;
}
#endif

extern "C" __global__ void gather_lines(const u8* __restrict__ table, u64 rows, u64 width, const ID* __restrict__ ids,
                                        const u32* __restrict__ places, u64 count, u64 chunks, u8* __restrict__ out,
                                        u64 out_rows, Fault* fault) {
    const u32 lane = threadIdx.x % LANES, group = threadIdx.x / LANES, groups = blockDim.x / LANES;
    // An item is one chunk (LANES words) of one row. Each block takes a contiguous stretch of tiles.
    const u64 items = count * chunks, tile = (u64)groups * DEPTH, tiles = (items + tile - 1) / tile;
    const u64 share = (tiles + gridDim.x - 1) / gridDim.x;
    const u64 begin = share * blockIdx.x, end = begin + share < tiles ? begin + share : tiles;
    const u8* table_end = table + rows * width;
    for (u64 t = begin; t < end; t++) {
        Word words[DEPTH];
        u8* to[DEPTH];
        // Bytes from the row's first byte to this lane's word. Without BYTEWISE words are aligned as rows are, so a word
        // lies in its row or outside it.
        i64 inside[DEPTH];
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            const u64 item = t * tile + (u64)d * groups + group;
            inside[d] = -WORD_BYTES;
            if (item >= items) {
                hw_load_nothing();
                continue;
            }
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
            if (place >= out_rows) {
                hw_load_nothing();
                continue;
            }
            const bool good = is_row(row, rows, place, fault);
            const u8* start = table + (good ? row : 0) * width;
            const u64 before = (u64)start % LINE_BYTES;
            inside[d] = (i64)(chunk * LANES * WORD_BYTES + lane * WORD_BYTES) - (i64)before;
            to[d] = out + place * width + inside[d];
            if (!good || inside[d] <= -(i64)WORD_BYTES || inside[d] >= (i64)width) {
                hw_load_nothing();
                words[d] = Word{};
                continue;
            }
#if BYTEWISE
            words[d] = load_word(start + inside[d], table, table_end);
#else
            words[d] = hw_load((const Word*)(start + inside[d]));
#endif
        }
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            if (inside[d] <= -(i64)WORD_BYTES || inside[d] >= (i64)width) continue;
#if BYTEWISE
            for (int k = 0; k < 4; k++)
                if (inside[d] + k >= 0 && inside[d] + k < (i64)width) to[d][k] = (u8)(words[d] >> (8 * k));
#else
            *(Word*)to[d] = words[d];
#endif
        }
    }
}

#endif
