// Products of rows, added up by the nodes that rows belong to, with no row of products in memory.
//
// Bytes: each row once a slab of 64 columns, what is made of the sums once; out of caches, the matrix of every tile of rows of one type
// that belong to the nodes of a thread block, once a warp that has rows of it. Flops as in product.cuh, for runs that are rounded up to 16 rows a warp.
//
// A thread block has the sums of NODES neighbouring nodes in shared memory. Its four warps take a tile of rows of one type: a warp makes
// 32 columns of up to 32 rows with tensor cores (mma.cuh). Rows, and the warp's columns of their matrix, come straight into the registers
// that take part, and on into the next tile while this one is multiplied. No two rows of one type belong to the same node, so warps add
// products of such rows beside each other; they wait for each other where the type changes. So the products of a node are added term by
// term and type by type, in the same order for every grid and for every NODES.

// The rows of a tile that a warp of a block has which makes COLUMNS columns: an equal share of them, in sixteens.
template <u32 COLUMNS> struct HwRowsOfGroup {
    __device__ static HwRange of(const HwTile &tile) {
        const u32 GROUPS = HW_TENSOR_WARPS * 32 / COLUMNS, group = threadIdx.x / COLUMNS;
        const u32 each = ((tile.count + GROUPS - 1) / GROUPS + 15) / 16 * 16, first = group * each;
        return HwRange{first, hw_least(first + each, tile.count)};
    }
    __device__ static u32 place(const HwTile &tile, u32 i) { return of(tile).first + threadIdx.x % 32 / 4 + i * 8; }
    __device__ static u32 end(const HwTile &tile) { return of(tile).end; }
};

// Four neighbours of the depth, from `deep` on, of four neighbouring columns of a matrix: what a lane multiplies a step's four elements with.
template <u32 FROM, u32 TO, bool TRANSPOSED>
__device__ inline void hw_four_columns(float4 (&w)[4], const float *matrix, u32 deep, u32 column, bool is_there) {
    const float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const bool is_in = is_there && deep < FROM && column < TO;
    if (TRANSPOSED) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) w[j] = is_in ? __ldg((const float4 *)(matrix + (column + j) * FROM + deep)) : none;
    } else {
        float4 d[4];
#pragma unroll
        for (u32 j = 0; j < 4; j++) d[j] = is_in ? __ldg((const float4 *)(matrix + (deep + j) * TO + column)) : none;
        w[0] = make_float4(d[0].x, d[1].x, d[2].x, d[3].x), w[1] = make_float4(d[0].y, d[1].y, d[2].y, d[3].y);
        w[2] = make_float4(d[0].z, d[1].z, d[2].z, d[3].z), w[3] = make_float4(d[0].w, d[1].w, d[2].w, d[3].w);
    }
}

// Where four neighbouring sums of a node lie among those of a block. Of two neighbouring fours, the second comes first in every other row, so
// that lanes that have rows beside each other meet other banks.
template <u32 COLUMNS> __device__ inline u32 hw_place_of_four(u32 node, u32 four) {
    return node * (COLUMNS / 4) + (four ^ node % 2);
}

__device__ inline void hw_add_four(float4 &to, float a, float b, float c, float d, float scale) {
    float4 sum = to;
    sum.x += a * scale, sum.y += b * scale, sum.z += c * scale, sum.w += d * scale;
    to = sum;
}

// Adds the products of one term of the nodes from `first_node` on, whose tiles are those from `tiles.starts[place]` on. `X` is as in
// product.cuh, with `to(i)`, the node that row i belongs to.
template <int MODE, u32 HEADS, u32 FROM, u32 TO, bool TRANSPOSED, u32 COLUMNS, class X>
__device__ inline void hw_add_products(const X &x, const float *w, const HwTiles &tiles, u32 rows, u32 place, u32 first_node,
                                       u32 head, u32 first_column, float4 *sums) {
    const u32 STEPS = (FROM + 15) / 16, RING = STEPS < 4 ? STEPS : 4, ROUNDS = (STEPS + RING - 1) / RING;
    const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, own_column = threadIdx.x % COLUMNS / 32 * 32;
    const u32 begin = tiles.starts[place], end = tiles.starts[place + 1];
    if (begin == end) return;
    HwAhead<HW_SIDE, 1, 4, HwRowsOfGroup<COLUMNS>, X> ahead(x, tiles, rows, 0, begin, end);
    u32 round = 0;
    float4 ring[RING][4], matrix[RING][4];
    const auto load = [&](u32 r) {
        const bool has_rows = HwRowsOfGroup<COLUMNS>::of(ahead.tile).first < ahead.tile.count;
        const bool is_there = has_rows && round * RING + r < STEPS;
        const u32 deep = (round * RING + r) * 16 + t * 4;
#pragma unroll
        for (u32 i = 0; i < 4; i++) ring[r][i] = hw_four<FROM>(x.row(ahead.from[i]) + head * FROM, deep, is_there);
        const float *own = w + ((u64)ahead.tile.type * HEADS + head) * FROM * TO;
        hw_four_columns<FROM, TO, TRANSPOSED>(matrix[r], own, deep, first_column + own_column + g * 4, is_there);
    };
    const auto move = [&]() {
        if (++round < ROUNDS) return;
        round = 0;
        ahead.move();
    };
    HwTile own = ahead.tile;
#pragma unroll
    for (u32 r = 0; r < RING; r++) load(r);
    move();
    u32 last_type = own.type;
    for (u32 at = begin; at < end; at++) {
        const HwTile next = ahead.tile;
        const HwRange range = HwRowsOfGroup<COLUMNS>::of(own);
        u32 to[4];
        float scale[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            // A row behind the last reads what the last one does, so that loads wait for no branch.
            const u32 row = own.first + hw_least(range.first + g + i * 8, own.count - 1);
            to[i] = x.to(row) - first_node, scale[i] = x.scale(row);
        }
        const bool is_live = range.first < range.end, is_long = range.first + 16 < range.end;
        float products[2][4][4] = {};
        for (u32 start = 0; start < ROUNDS * RING * 16; start += RING * 16) {
#pragma unroll
            for (u32 r = 0; r < RING; r++) {
                const auto column = [&](u32 n) { return matrix[r][n]; };
                if (start + r * 16 < FROM && is_long) {
                    hw_multiply<MODE, 4, 2>(ring[r], column, products);
                } else if (start + r * 16 < FROM && is_live) {
                    hw_multiply<MODE, 4, 1>(ring[r], column, products);
                }
                load(r);
            }
            move();
        }
        if (own.type != last_type) __syncthreads();
        last_type = own.type;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (range.first + g + i * 8 >= range.end) continue;
            const float(&of)[4][4] = products[i / 2];
            const u32 four = own_column / 4 + t * 2, low = i % 2 * 2, high = low + 1;
            hw_add_four(sums[hw_place_of_four<COLUMNS>(to[i], four)], of[0][low], of[1][low], of[2][low], of[3][low], scale[i]);
            hw_add_four(sums[hw_place_of_four<COLUMNS>(to[i], four + 1)], of[0][high], of[1][high], of[2][high], of[3][high],
                        scale[i]);
        }
        own = ROUNDS == 1 ? next : ahead.tile;
    }
    __syncthreads();
}

// Sums begin as 0.
template <u32 NODES, u32 COLUMNS> __device__ inline void hw_clear_sums(float4 *sums) {
    for (u32 i = threadIdx.x; i < NODES * COLUMNS / 4; i += HW_TENSOR_THREADS) sums[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    __syncthreads();
}

// Gives the sums of `count` nodes away, and begins new ones.
template <u32 TO, u32 COLUMNS, class Out>
__device__ inline void hw_give_sums(float4 *sums, u32 first_node, u32 count, u32 head, u32 first_column, const Out &out) {
    float none[1];
    for (u32 i = threadIdx.x; i < count * (COLUMNS / 4); i += HW_TENSOR_THREADS) {
        const u32 node = i / (COLUMNS / 4), four = i % (COLUMNS / 4), column = first_column + four * 4;
        float4 &own = sums[hw_place_of_four<COLUMNS>(node, four)];
        const float4 sum = own;
        own = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (column < TO) out.four(true, first_node + node, 0, head * TO + column, sum.x, sum.y, sum.z, sum.w, none);
    }
    __syncthreads();
}
