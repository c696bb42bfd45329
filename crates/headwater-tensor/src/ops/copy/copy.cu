// Moving elements. The text is prelude.cuh, loops.cuh, this.
//
// Why this version: a copy does not look at what it copies, so HW_T may be any type of the right width and four compiled
// forms serve all element types. Writes are always coalesced; reads are as the view has them. A packed copy is a memcpy
// and has no kernel.
//
// Defines: HW_MAX_DIMS   as in layout.rs
//          HW_T          u8 u16 u32 u64 by width; for the arange entry points the element type itself
//          HW_ARANGE     1 to have the arange entry points, 0 to have the others

#if HW_ARANGE == 0

// Writes a view one element after the other.
extern "C" __global__ void copy_strided(HwLoops<1> loops, const HW_T *in, HW_T *out) {
    for (u64 i = hw_first(); i < loops.count; i += hw_step()) {
        u64 at[1];
        hw_locate(loops, i, at);
        out[i] = in[at[0]];
    }
}

// One operand of a concat: `width` elements at `first` of each row of `row` elements of the output. The same fields in the
// same order as RowsArg in mod.rs, all 64 bits wide.
struct HwRows {
    HwLoops<1> loops;
    u64 width, row, first;
};

// Writes one operand of a concat.
extern "C" __global__ void copy_to_rows(HwRows rows, const HW_T *in, HW_T *out) {
    for (u64 i = hw_first(); i < rows.loops.count; i += hw_step()) {
        u64 at[1];
        hw_locate(rows.loops, i, at);
        out[i / rows.width * rows.row + rows.first + i % rows.width] = in[at[0]];
    }
}

// Sets every element to the lower bytes of `value`.
extern "C" __global__ void fill(u64 count, u64 value, HW_T *out) {
    for (u64 i = hw_first(); i < count; i += hw_step()) {
        out[i] = (HW_T)value;
    }
}

#else

// start + i * step in wrapping integers; both are the bits of signed numbers.
extern "C" __global__ void arange_int(u64 count, u64 start, u64 step, HW_T *out) {
    for (u64 i = hw_first(); i < count; i += hw_step()) {
        out[i] = HwType<HW_T>::narrow((i64)(start + step * i));
    }
}

// start + i * step in double, rounded twice as on the CPU, then to the element type.
extern "C" __global__ void arange_float(u64 count, double start, double step, HW_T *out) {
    for (u64 i = hw_first(); i < count; i += hw_step()) {
        out[i] = HwType<HW_T>::narrow(hw_mul_then_add((double)i, step, start));
    }
}

#endif
