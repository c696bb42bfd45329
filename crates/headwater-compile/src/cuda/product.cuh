// Rows, gathered and scaled, times the matrix of their type.
//
// Bytes: each row once a tile of columns, each matrix once a tile of rows. Flops: 2 * heads * FROM * TO a row. A thread block
// makes a tile of 64 rows by 64 columns, 4 by 4 results a thread; both operands' tiles lie in shared memory. Rows of a tile
// are of one type, so a block reads one matrix; where types do not lie together, a tile is one row.
//
// Products run along the vector in order and may fuse, so results agree with the CPU's within rounding, not to the bit.

#define HW_TILE 64
#define HW_DEPTH 16
#define HW_PRODUCT_THREADS 256

// Tiles of rows: `find` gives the type, the first row and how many rows tile `tile` has; false behind the last one.
struct HwTile {
    u32 type, first, count;
};
__device__ inline bool hw_tile(const HwMap &types, u32 rows, u32 tile, HwTile &found) {
    if (types.kind == HW_MAP_SAME || types.kind == HW_MAP_LISTED) {
        found = HwTile{tile < rows ? hw_map(types, tile) : 0, tile, 1};
        return tile < rows;
    }
    const u32 stretches = types.kind == HW_MAP_FIRST ? 1 : (u32)types.count;
    for (u32 at = 0; at < stretches; at++) {
        const u32 first = types.kind == HW_MAP_FIRST ? 0 : types.starts[at];
        const u32 end = types.kind == HW_MAP_FIRST ? rows : types.starts[at + 1];
        const u32 tiles = (end - first + HW_TILE - 1) / HW_TILE;
        if (tile < tiles) {
            const u32 start = first + tile * HW_TILE;
            found = HwTile{types.kind == HW_MAP_FIRST ? 0 : types.kind == HW_MAP_ENDS ? types.list[at] : at, start,
                           hw_least(HW_TILE, end - start)};
            return true;
        }
        tile -= tiles;
    }
    return false;
}

// `X` gives `row(i)`, where the vector of row i lies, and `scale(i)`.
template <u32 HEADS, u32 FROM, u32 TO, bool TRANSPOSED, class X>
__device__ inline void hw_product(const X &x, const float *w, const HwMap &types, u32 rows, float *out) {
    __shared__ float x_tile[HW_DEPTH][HW_TILE + 1];
    __shared__ float w_tile[HW_DEPTH][HW_TILE + 1];
    const u32 across = (TO + HW_TILE - 1) / HW_TILE;
    const u32 left = threadIdx.x % 16 * 4, top = threadIdx.x / 16 * 4;
    for (u32 at = blockIdx.x;; at += gridDim.x) {
        HwTile tile;
        if (!hw_tile(types, rows, at / (across * HEADS), tile)) break;
        const u32 head = at / across % HEADS, first_column = at % across * HW_TILE;
        const float *matrix = w + ((u64)tile.type * HEADS + head) * FROM * TO;
        float sums[4][4] = {};
        for (u32 start = 0; start < FROM; start += HW_DEPTH) {
            for (u32 i = threadIdx.x; i < HW_TILE * HW_DEPTH; i += HW_PRODUCT_THREADS) {
                const u32 row = i / HW_DEPTH, deep = i % HW_DEPTH;
                const bool in_x = row < tile.count && start + deep < FROM;
                x_tile[deep][row] = in_x ? x.row(tile.first + row)[head * FROM + start + deep] : 0.0f;
                const u32 column = TRANSPOSED ? i / HW_DEPTH : i % HW_TILE;
                const u32 below = TRANSPOSED ? i % HW_DEPTH : i / HW_TILE;
                const bool in_w = first_column + column < TO && start + below < FROM;
                const u32 place = TRANSPOSED ? (first_column + column) * FROM + start + below
                                             : (start + below) * TO + first_column + column;
                w_tile[below][column] = in_w ? matrix[place] : 0.0f;
            }
            __syncthreads();
            for (u32 deep = 0; deep < HW_DEPTH; deep++) {
                for (u32 i = 0; i < 4; i++) {
                    for (u32 j = 0; j < 4; j++) {
                        sums[i][j] += x_tile[deep][top + i] * w_tile[deep][left + j];
                    }
                }
            }
            __syncthreads();
        }
        for (u32 i = 0; i < 4; i++) {
            const u32 row = tile.first + top + i;
            for (u32 j = 0; j < 4; j++) {
                const u32 column = first_column + left + j;
                if (top + i < tile.count && column < TO) {
                    out[((u64)row * HEADS + head) * TO + column] = sums[i][j] * x.scale(row);
                }
            }
        }
    }
}
