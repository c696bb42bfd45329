// out[rows[g], :] += source[order[offsets[g] .. offsets[g + 1]], :] for each group g. The text is prelude.cuh, loops.cuh,
// this.
//
// Why this version: atomic adds would be simpler and give another sum every time. Here the ids have been grouped beforehand
// (ScatterPlan), one thread owns one element of the result and adds its sources in ascending order, so the bits are those
// of cpu.rs. Threads of a warp take neighbouring columns: reads and writes of a row are coalesced. A row that very many
// ids name is slow, since nothing splits it.
//
// Defines: HW_MAX_DIMS   as in layout.rs
//          HW_T          element type: float double hw_f16 hw_bf16 i8 i32 i64 u8

// The same fields in the same order as ScatterArg in mod.rs, all 64 bits wide. Strides count elements.
struct HwScatter {
    u64 groups, columns, target_rows, count;
    u64 source_offset, row_stride, column_stride;
};

// What the plan's lists hold was made on the host. It is compared with the sizes all the same: next to the loads the
// comparisons cost nothing, and no list, however wrong, leads outside a buffer.
extern "C" __global__ void scatter_add(HwScatter sizes, const u64 *rows, const u64 *offsets, const u64 *order,
                                       const HW_T *source, HW_T *out) {
    typedef HwType<HW_T> Type;
    for (u64 item = hw_first(); item < sizes.groups * sizes.columns; item += hw_step()) {
        u64 group = item / sizes.columns;
        u64 column = item % sizes.columns;
        if (rows[group] >= sizes.target_rows) {
            continue;
        }
        HW_T *target = out + rows[group] * sizes.columns + column;
        Type::Compute sum = Type::up(*target);
        u64 end = offsets[group + 1] < sizes.count ? offsets[group + 1] : sizes.count;
        for (u64 i = offsets[group]; i < end; i++) {
            u64 position = order[i];
            if (position < sizes.count) {
                u64 at = sizes.source_offset + position * sizes.row_stride + column * sizes.column_stride;
                sum = hw_plus(sum, Type::up(source[at]));
            }
        }
        *target = Type::down(sum);
    }
}
