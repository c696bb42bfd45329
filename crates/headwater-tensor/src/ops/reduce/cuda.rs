//! Reductions on the GPU, in the order of summation that the CPU has.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Grid, Kernel, KernelStruct, Param, Scalar, Source, Span, Stream};

use super::{BLOCK, ReduceArg, ReduceOp};
use crate::dtype::DType;
use crate::error::Result;
use crate::exec::{GpuOperand, scratch};
use crate::loops::{LOOPS_CUH, Loops, LoopsArg};
use crate::ops::launch::{THREADS, grid_for, typed_defines};

static SOURCE: Source =
    Source { name: "reduce.cu", text: include_str!("reduce.cu"), headers: &[("loops.cuh", LOOPS_CUH)] };

const AXIS_PARAMS: &[Param] = &[
    Param::Struct("reduce", size_of::<ReduceArg>()),
    Param::Read("in", Element::Bytes, &["reduce.0", "HW_T_BYTES"]),
    Param::Write("states", Element::Bytes, &["reduce.1", "STATE_BYTES"]),
];
// SAFETY: both read positions of the axis below `length` at each output, and write states below rows times outputs; see
// the extents of ReduceArg.
static AXIS: Kernel = unsafe { Kernel::declare(&SOURCE, "reduce_axis", AXIS_PARAMS) };
// SAFETY: as above.
static COLUMNS: Kernel = unsafe { Kernel::declare(&SOURCE, "reduce_axis_columns", AXIS_PARAMS) };
// SAFETY: reads rows below `rows`, writes rows below `rows_left`, columns below `outputs`.
static STATES: Kernel = unsafe {
    Kernel::declare(
        &SOURCE,
        "reduce_states",
        &[
            Param::Value("rows", Scalar::U64),
            Param::Value("rows_left", Scalar::U64),
            Param::Value("outputs", Scalar::U64),
            Param::Read("in", Element::Bytes, &["rows", "outputs", "STATE_BYTES"]),
            Param::Write("states", Element::Bytes, &["rows_left", "outputs", "STATE_BYTES"]),
        ],
    )
};
// SAFETY: reads and writes below `outputs`.
static FINISH: Kernel = unsafe {
    Kernel::declare(
        &SOURCE,
        "reduce_finish",
        &[
            Param::Value("outputs", Scalar::U64),
            Param::Value("length", Scalar::U64),
            Param::Read("states", Element::Bytes, &["outputs", "STATE_BYTES"]),
            Param::Write("out", Element::Bytes, &["outputs", "HW_R_BYTES"]),
        ],
    )
};

// SAFETY: the fields are 64 bits wide, in the order of HwReduce in reduce.cu. An element is read at an index of the
// outputs' loops plus a position below `length` times the stride; a state is written below rows times outputs.
unsafe impl KernelStruct for ReduceArg {
    fn extents(&self) -> Vec<u64> {
        let begins = self.outputs.reach(0);
        let along = self.length.saturating_sub(1).saturating_mul(self.stride);
        let input = if begins == 0 || self.length == 0 { 0 } else { begins.saturating_add(along) };
        vec![input, self.rows.saturating_mul(self.outputs.count)]
    }
}

/// The text with every set of defines it is used with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let pairs = ReduceOp::ALL.into_iter().flat_map(|op| DType::ALL.map(|dtype| (op, dtype)));
    pairs.filter_map(|(op, dtype)| Some((&SOURCE, defines(op, dtype).ok()?))).collect()
}

fn defines(op: ReduceOp, dtype: DType) -> Result<Defines> {
    let result = op.result_dtype(dtype)?;
    Ok(typed_defines(dtype)
        .with("HW_OP", op.name())
        .with("HW_BLOCK", BLOCK)
        .with("HW_THREADS", THREADS)
        .with("HW_R_BYTES", result.size_bytes())
        .with("STATE_BYTES", state_bytes(op)))
}

/// A sum is one number; a maximum carries its position.
fn state_bytes(op: ReduceOp) -> usize {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => 8,
        ReduceOp::Max | ReduceOp::ArgMax => 16,
    }
}

/// Reduces an axis into a packed array of the operator's result type.
pub(super) fn run(stream: &Stream, op: ReduceOp, a: &GpuOperand, axis: usize, out: &Span) -> Result<()> {
    let defines = defines(op, a.dtype)?;
    let (length, stride) = (a.layout.size_of(axis)?, a.layout.strides()[axis]);
    let outputs_layout = a.layout.remove_axis(axis)?;
    let outputs = outputs_layout.count();
    let loops = Loops::new([&outputs_layout]);
    let mut rows = length.div_ceil(BLOCK).max(1);
    let arg =
        ReduceArg { outputs: LoopsArg::from(&loops), length: length as u64, stride: stride as u64, rows: rows as u64 };
    let table = |rows: usize| scratch(stream, rows.saturating_mul(outputs).saturating_mul(state_bytes(op)));
    let mut states = table(rows)?;
    // Reads are coalesced along the axis, or along the outputs, whichever is packed.
    let along_outputs = stride != 1 && loops.inner_strides() == [1];
    let (kernel, grid) = match along_outputs {
        true => (&COLUMNS, grid_for(stream, rows.saturating_mul(outputs))),
        false => (&AXIS, warps_for(stream, rows.saturating_mul(outputs))),
    };
    kernel.on(stream, &defines, grid).structure(&arg).bytes(&a.span).bytes(&states).go()?;
    while rows > 1 {
        let rows_left = rows.div_ceil(BLOCK);
        let next = table(rows_left)?;
        let launch = STATES.on(stream, &defines, warps_for(stream, rows_left.saturating_mul(outputs)));
        let launch = launch.u64(rows as u64).u64(rows_left as u64).u64(outputs as u64);
        launch.bytes(&states).bytes(&next).go()?;
        (states, rows) = (next, rows_left);
    }
    let launch = FINISH.on(stream, &defines, grid_for(stream, outputs));
    launch.u64(outputs as u64).u64(length as u64).bytes(&states).bytes(out).go()?;
    Ok(())
}

/// A grid with a warp for each item.
fn warps_for(stream: &Stream, items: usize) -> Grid {
    grid_for(stream, items.saturating_mul(super::LANES))
}
