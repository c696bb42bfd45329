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

extern "C" __global__ void scatter_add(u64 groups, u64 columns, const u64 *rows, const u64 *offsets, const u64 *order,
                                       u64 row_stride, u64 column_stride, const HW_T *source, HW_T *out) {
    typedef HwType<HW_T> Type;
    for (u64 item = hw_first(); item < groups * columns; item += hw_step()) {
        u64 group = item / columns;
        u64 column = item % columns;
        HW_T *target = out + rows[group] * columns + column;
        Type::Compute sum = Type::up(*target);
        for (u64 i = offsets[group]; i < offsets[group + 1]; i++) {
            sum = hw_plus(sum, Type::up(source[order[i] * row_stride + column * column_stride]));
        }
        *target = Type::down(sum);
    }
}
