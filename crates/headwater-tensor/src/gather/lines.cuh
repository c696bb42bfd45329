// Rows copied line by line: what the kernels that gather rows in whole lines share, whatever a row's address is found by.
//
// Host memory is read over PCIe in requests of one 128-byte line, and the GPU can have only so many of them under way. So
// a row gets a group of LANES lanes that starts on the row's first line, and a lane keeps DEPTH loads in flight before its
// first store. Loads are always 16 bytes wide and aligned; PIECE_BYTES says how finely they are taken apart when rows are
// not.
//
// An item is one chunk (LANES words) of one row; a tile is what a warp does at a time.
//
// Defines: LANES (lanes a row: 8, 16, 32), DEPTH (loads in flight a lane), PIECE_BYTES (16, 4 or 1: what divides the
// addresses of rows).

#define LINE_BYTES 128ull
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
    hw_store((uint4*)(row + inside), word);
#elif PIECE_BYTES == 4
    const u32 pieces[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (inside + 4 * k >= 0 && inside + 4 * k < width) hw_store((u32*)(row + inside + 4 * k), pieces[k]);
#else
    const u32 pieces[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
    for (int k = 0; k < 16; k++)
        if (inside + k >= 0 && inside + k < width) row[inside + k] = (u8)(pieces[k / 4] >> (8 * (k % 4)));
#endif
}

// Where a row is and where it goes.
struct HwRow {
    const u8* start;       // null: there is no such row, and zeros go where it would
    const u8 *first, *end; // of the memory it lies in
    u64 place;             // number of the output row
    bool is_wanted;
    u32 note;              // whatever the taker of its words wants to know
};

__device__ __forceinline__ u64 hw_tile_items() { return (u64)(32 / LANES) * DEPTH; }

// Warps that should read rows in address order, at most those of `most` blocks. Rows that lie far apart need a translation
// each, and `window` of them should be under way; rows that lie together share them, and then what counts is that enough rows
// are in flight. `touched` is how many translations `rows` rows need. Alone on a GPU a gather is fastest with WINDOW_PIECES;
// kernels beside it are slower the more are under way.
#define WINDOW_PIECES 256ull
#define WARPS_OF_BLOCK (THREADS / 32)
__device__ __forceinline__ u64 hw_window_warps(u64 window, u64 rows, u64 touched, u64 chunks, u64 most) {
    const u64 tile = hw_tile_items(), alone = (window + tile - 1) / tile;
    const u64 rows_of_warp = tile * (touched ? touched : 1);
    const u64 wanted = (window * rows * chunks + rows_of_warp - 1) / rows_of_warp;
    const u64 warps = wanted > alone ? wanted : alone;
    return warps < most * WARPS_OF_BLOCK ? warps : most * WARPS_OF_BLOCK;
}

// Copies tile `t` of `items`. find(i, is_first) -> HwRow is asked for the i-th row, by one thread as the first for it;
// put(place, inside, word, note) takes a word that begins `inside` bytes behind the row's first.
template <class Find, class Put>
__device__ __forceinline__ void hw_copy_tile(u64 t, u64 items, u64 chunks, u64 width, Find find, Put put) {
    const u32 lane = threadIdx.x % LANES, group = threadIdx.x % 32 / LANES, groups = 32 / LANES;
    HwRow rows[DEPTH];
    uint4 words[DEPTH];
    i64 inside[DEPTH];
    // All rows are found before the first is read: what finding reads is then under way together.
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        const u64 item = t * hw_tile_items() + (u64)d * groups + group;
        rows[d] = HwRow{0, 0, 0, 0, false, 0};
        inside[d] = -WORD_BYTES;
        if (item < items) rows[d] = find(item / chunks, item % chunks == 0 && lane == 0);
        if (rows[d].is_wanted)
            inside[d] = (i64)((item % chunks * LANES + lane) * WORD_BYTES) - (i64)((u64)rows[d].start % LINE_BYTES);
    }
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        words[d] = make_uint4(0, 0, 0, 0);
        if (rows[d].start && inside[d] > -WORD_BYTES && inside[d] < (i64)width)
            words[d] = load_word(rows[d].start + inside[d], rows[d].first, rows[d].end);
        else
            hw_load_nothing();
    }
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (inside[d] > -WORD_BYTES && inside[d] < (i64)width) put(rows[d].place, inside[d], words[d], rows[d].note);
}
