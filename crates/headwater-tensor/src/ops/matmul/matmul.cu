// Matrix products where cuBLAS is absent. The text is prelude.cuh, loops.cuh, this.
//
// Why this version: it is the fallback, so it is the plainest kernel that reads each operand from global memory a tile at
// a time: a square tile of the result for a thread block, both operands' tiles in shared memory, four results a thread.
// Any strides, which also makes transposes free of charge and broadcast batches possible. 16-bit floats are multiplied and
// added in f32 and rounded once. Sums run along k in order and may fuse, so results agree with cpu.rs within the bound in
// mod.rs, not to the bit.
//
// Defines: HW_MAX_DIMS   as in layout.rs
//          HW_T          element type: float double hw_f16 hw_bf16
//          HW_TILE       side of a tile, 32; a thread block has HW_TILE * HW_TILE / 4 threads

// The same fields in the same order as MatmulArg in mod.rs, all 64 bits wide. Offsets and strides count elements.
struct HwMatmul {
    u64 batch, m, n, k;
    u64 left_offset, left_batch, left_row, left_column;
    u64 right_offset, right_batch, right_row, right_column;
};

#define HW_ROWS (HW_TILE / 4)

extern "C" __global__ void matmul(HwMatmul sizes, const HW_T *left, const HW_T *right, HW_T *out) {
    typedef HwType<HW_T> Type;
    typedef Type::Compute Compute;
    // One column more than needed, so that reads down a column fall into different banks.
    __shared__ Compute left_tile[HW_TILE][HW_TILE + 1];
    __shared__ Compute right_tile[HW_TILE][HW_TILE + 1];
    u64 tiles_across = (sizes.n + HW_TILE - 1) / HW_TILE;
    u64 tiles_down = (sizes.m + HW_TILE - 1) / HW_TILE;
    u32 x = threadIdx.x % HW_TILE;
    u32 y = threadIdx.x / HW_TILE;
    for (u64 tile = blockIdx.x; tile < sizes.batch * tiles_down * tiles_across; tile += gridDim.x) {
        u64 column = tile % tiles_across * HW_TILE + x;
        u64 first_row = tile / tiles_across % tiles_down * HW_TILE;
        u64 matrix = tile / tiles_across / tiles_down;
        const HW_T *a = left + sizes.left_offset + matrix * sizes.left_batch;
        const HW_T *b = right + sizes.right_offset + matrix * sizes.right_batch;
        Compute sums[4] = {0, 0, 0, 0};
        for (u64 start = 0; start < sizes.k; start += HW_TILE) {
            for (u32 part = 0; part < 4; part++) {
                u32 row = y + part * HW_ROWS;
                bool in_left = first_row + row < sizes.m && start + x < sizes.k;
                bool in_right = start + row < sizes.k && column < sizes.n;
                left_tile[row][x] =
                    in_left ? Type::up(a[(first_row + row) * sizes.left_row + (start + x) * sizes.left_column]) : 0;
                right_tile[row][x] =
                    in_right ? Type::up(b[(start + row) * sizes.right_row + column * sizes.right_column]) : 0;
            }
            __syncthreads();
            // No deeper than k goes: the padding after it adds nothing.
            u32 depth = sizes.k - start < HW_TILE ? (u32)(sizes.k - start) : HW_TILE;
            for (u32 l = 0; l < depth; l++) {
                for (u32 part = 0; part < 4; part++) {
                    sums[part] += left_tile[y + part * HW_ROWS][l] * right_tile[l][x];
                }
            }
            __syncthreads();
        }
        for (u32 part = 0; part < 4; part++) {
            u64 row = first_row + y + part * HW_ROWS;
            if (row < sizes.m && column < sizes.n) {
                out[(matrix * sizes.m + row) * sizes.n + column] = Type::down(sums[part]);
            }
        }
    }
}
