//! Moving elements on the GPU. A copy only knows how wide its elements are, so types of one width share a text.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Kernel, KernelStruct, Param, Scalar as Number, Source, Span, Stream};

use super::{Fill, RowsArg};
use crate::dtype::{DType, Element as _, Scalar};
use crate::error::Result;
use crate::exec::GpuOperand;
use crate::layout::Shape;
use crate::loops::{LOOPS_CUH, Loops, LoopsArg};
use crate::ops::launch::{grid_for, loop_defines, typed_defines};

static SOURCE: Source = Source { name: "copy.cu", text: include_str!("copy.cu"), headers: &[("loops.cuh", LOOPS_CUH)] };

// SAFETY: `in` is read where the loops lead, `out` written below their count; see the extents of LoopsArg.
static STRIDED: Kernel = unsafe {
    Kernel::declare(
        &SOURCE,
        "copy_strided",
        &[
            Param::Struct("loops", size_of::<LoopsArg<1>>()),
            Param::Read("in", Element::Bytes, &["loops.0", "HW_T_BYTES"]),
            Param::Write("out", Element::Bytes, &["loops.1", "HW_T_BYTES"]),
        ],
    )
};
// SAFETY: `in` as above; `out` as the extents of RowsArg say.
static TO_ROWS: Kernel = unsafe {
    Kernel::declare(
        &SOURCE,
        "copy_to_rows",
        &[
            Param::Struct("rows", size_of::<RowsArg>()),
            Param::Read("in", Element::Bytes, &["rows.0", "HW_T_BYTES"]),
            Param::Write("out", Element::Bytes, &["rows.1", "HW_T_BYTES"]),
        ],
    )
};
// SAFETY: writes elements below `count`.
static FILL: Kernel = unsafe {
    Kernel::declare(
        &SOURCE,
        "fill",
        &[
            Param::Value("count", Number::U64),
            Param::Value("value", Number::U64),
            Param::Write("out", Element::Bytes, &["count", "HW_T_BYTES"]),
        ],
    )
};
// SAFETY: writes elements below `count`.
static ARANGE_INT: Kernel = unsafe {
    Kernel::declare(
        &SOURCE,
        "arange_int",
        &[
            Param::Value("count", Number::U64),
            Param::Value("start", Number::U64),
            Param::Value("step", Number::U64),
            Param::Write("out", Element::Bytes, &["count", "HW_T_BYTES"]),
        ],
    )
};
// SAFETY: writes elements below `count`.
static ARANGE_FLOAT: Kernel = unsafe {
    Kernel::declare(
        &SOURCE,
        "arange_float",
        &[
            Param::Value("count", Number::U64),
            Param::Value("start", Number::F64),
            Param::Value("step", Number::F64),
            Param::Write("out", Element::Bytes, &["count", "HW_T_BYTES"]),
        ],
    )
};

// SAFETY: the fields are 64 bits wide, in the order of HwRows in copy.cu. For a number i below the count the text writes
// at i / width * row + first + i % width, and i / width is at most (count - 1) / width.
unsafe impl KernelStruct for RowsArg {
    fn extents(&self) -> Vec<u64> {
        let last = self.loops.count.saturating_sub(1);
        let end = last
            .checked_div(self.width)
            .map_or(u64::MAX, |row| row.saturating_mul(self.row).saturating_add(self.first).saturating_add(self.width));
        vec![self.loops.reach(0), if self.loops.count == 0 { 0 } else { end }]
    }
}

/// The text with every set of defines it is used with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let widths = [DType::U8, DType::F16, DType::I32, DType::I64].map(|dtype| (&SOURCE, width_defines(dtype)));
    let ranges = DType::ALL.map(|dtype| (&SOURCE, arange_defines(dtype)));
    widths.into_iter().chain(ranges).collect()
}

fn width_defines(dtype: DType) -> Defines {
    let word = match dtype.size_bytes() {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        _ => "u64",
    };
    loop_defines().with("HW_T", word).with("HW_T_BYTES", dtype.size_bytes()).with("HW_ARANGE", 0)
}

fn arange_defines(dtype: DType) -> Defines {
    typed_defines(dtype).with("HW_ARANGE", 1)
}

/// Writes the elements of `from` one after the other.
pub(super) fn pack(stream: &Stream, from: &GpuOperand, out: &Span) -> Result<()> {
    if let Some(packed) = from.packed()? {
        return Ok(stream.copy(&packed, out)?);
    }
    let loops = LoopsArg::from(&Loops::new([&from.layout]));
    let grid = grid_for(stream, from.layout.count());
    STRIDED.on(stream, &width_defines(from.dtype), grid).structure(&loops).bytes(&from.span).bytes(out).go()?;
    Ok(())
}

/// Writes every operand to its place in the rows of `out`.
pub(super) fn concat(stream: &Stream, from: &[GpuOperand], axis: usize, shape: &Shape, out: &Span) -> Result<()> {
    let below: usize = shape[axis + 1..].iter().product();
    let mut first = 0;
    for operand in from {
        let width = operand.layout.size_of(axis)? * below;
        let count = operand.layout.count();
        let rows = RowsArg {
            loops: LoopsArg::from(&Loops::new([&operand.layout])),
            width: width as u64,
            row: (shape[axis] * below) as u64,
            first: first as u64,
        };
        if count > 0 {
            let defines = width_defines(operand.dtype);
            TO_ROWS
                .on(stream, &defines, grid_for(stream, count))
                .structure(&rows)
                .bytes(&operand.span)
                .bytes(out)
                .go()?;
        }
        first += width;
    }
    Ok(())
}

/// Fills a packed array of `dtype`.
pub(super) fn generate(stream: &Stream, fill: Fill, dtype: DType, out: &Span) -> Result<()> {
    let count = out.bytes() / dtype.size_bytes();
    let grid = grid_for(stream, count);
    match fill {
        Fill::Value(value) => match bits(dtype, value) {
            0 => stream.fill(out, 0)?,
            bits => FILL.on(stream, &width_defines(dtype), grid).u64(count as u64).u64(bits).bytes(out).go()?,
        },
        Fill::Range { start: Scalar::Int(start), step: Scalar::Int(step) } => ARANGE_INT
            .on(stream, &arange_defines(dtype), grid)
            .u64(count as u64)
            .u64(start.cast_unsigned())
            .u64(step.cast_unsigned())
            .bytes(out)
            .go()?,
        Fill::Range { start, step } => ARANGE_FLOAT
            .on(stream, &arange_defines(dtype), grid)
            .u64(count as u64)
            .f64(f64::narrow(start))
            .f64(f64::narrow(step))
            .bytes(out)
            .go()?,
    }
    Ok(())
}

/// The bits of a value of this type.
fn bits(dtype: DType, value: Scalar) -> u64 {
    let mut word = [0; 8];
    crate::dispatch!(dtype, T => word[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&T::narrow(value))));
    u64::from_le_bytes(word)
}
