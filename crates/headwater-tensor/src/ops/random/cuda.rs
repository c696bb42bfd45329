//! Uniform numbers on the GPU.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Kernel, Param, Scalar, Source, Span, Stream};

use crate::dtype::DType;
use crate::error::Result;
use crate::loops::LOOPS_CUH;
use crate::ops::launch::{grid_for, typed_defines};

static SOURCE: Source =
    Source { name: "random.cu", text: include_str!("random.cu"), headers: &[("loops.cuh", LOOPS_CUH)] };
// SAFETY: writes elements below `count`.
static UNIFORM: Kernel = unsafe {
    Kernel::declare(
        &SOURCE,
        "uniform",
        &[
            Param::Value("count", Scalar::U64),
            Param::Value("seed", Scalar::U64),
            Param::Write("out", Element::Bytes, &["count", "HW_T_BYTES"]),
        ],
    )
};

/// The text with every set of defines it is used with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let floats = DType::ALL.into_iter().filter(|dtype| dtype.is_float());
    floats.map(|dtype| (&SOURCE, typed_defines(dtype))).collect()
}

/// Fills `out`.
pub(super) fn uniform(stream: &Stream, seed: u64, dtype: DType, out: &Span) -> Result<()> {
    let count = out.bytes() / dtype.size_bytes();
    let defines = typed_defines(dtype);
    UNIFORM.on(stream, &defines, grid_for(stream, count)).u64(count as u64).u64(seed).bytes(out).go()?;
    Ok(())
}
