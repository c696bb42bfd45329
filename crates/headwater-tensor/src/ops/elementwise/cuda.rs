//! Elementwise operators on the GPU.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Kernel, Param, Scalar, Source, Span, Stream};

use super::{BinaryOp, CompareOp, Operation, UnaryOp};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::exec::GpuOperand;
use crate::layout::Layout;
use crate::loops::{LOOPS_CUH, Loops, LoopsArg};
use crate::ops::launch::{grid_for, typed_defines};

static SOURCE: Source =
    Source { name: "elementwise.cu", text: include_str!("elementwise.cu"), headers: &[("loops.cuh", LOOPS_CUH)] };

/// The packed entry point of a family: every operand and the output have `count` elements.
macro_rules! packed {
    ($entry:literal, [$(($operand:literal, $bytes:literal)),*], $out_bytes:literal) => {
        // SAFETY: reads and writes elements below `count`.
        unsafe {
            Kernel::declare(&SOURCE, $entry, &[
                Param::Value("count", Scalar::U64),
                $(Param::Read($operand, Element::Bytes, &["count", $bytes]),)*
                Param::Write("out", Element::Bytes, &["count", $out_bytes]),
            ])
        }
    };
}

/// The strided entry point of a family: operands are read where the loops lead, the output is packed.
macro_rules! strided {
    ($entry:literal, $count:literal, [$(($operand:literal, $extent:literal, $bytes:literal)),*], $out:literal, $out_bytes:literal) => {
        // SAFETY: see the extents of LoopsArg; the output is written below the count.
        unsafe {
            Kernel::declare(&SOURCE, $entry, &[
                Param::Struct("loops", size_of::<LoopsArg<$count>>()),
                $(Param::Read($operand, Element::Bytes, &[$extent, $bytes]),)*
                Param::Write("out", Element::Bytes, &[$out, $out_bytes]),
            ])
        }
    };
}

static UNARY_PACKED: Kernel = packed!("unary_packed", [("a", "HW_T_BYTES")], "HW_T_BYTES");
static UNARY: Kernel = strided!("unary_strided", 1, [("a", "loops.0", "HW_T_BYTES")], "loops.1", "HW_T_BYTES");
static BINARY_PACKED: Kernel = packed!("binary_packed", [("a", "HW_T_BYTES"), ("b", "HW_T_BYTES")], "HW_R_BYTES");
static BINARY: Kernel = strided!(
    "binary_strided",
    2,
    [("a", "loops.0", "HW_T_BYTES"), ("b", "loops.1", "HW_T_BYTES")],
    "loops.2",
    "HW_R_BYTES"
);
static WHERE_PACKED: Kernel =
    packed!("where_packed", [("condition", "HW_C_BYTES"), ("a", "HW_T_BYTES"), ("b", "HW_T_BYTES")], "HW_T_BYTES");
static WHERE: Kernel = strided!(
    "where_strided",
    3,
    [("condition", "loops.0", "HW_C_BYTES"), ("a", "loops.1", "HW_T_BYTES"), ("b", "loops.2", "HW_T_BYTES")],
    "loops.3",
    "HW_T_BYTES"
);
static CAST_PACKED: Kernel = packed!("cast_packed", [("a", "HW_S_BYTES")], "HW_T_BYTES");
static CAST: Kernel = strided!("cast_strided", 1, [("a", "loops.0", "HW_S_BYTES")], "loops.1", "HW_T_BYTES");

/// The text with every set of defines it is used with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let mut builds = Vec::new();
    let mut add = |operation, operand, result| builds.push((&SOURCE, defines(operation, operand, result)));
    for dtype in DType::ALL {
        for op in UnaryOp::ALL.into_iter().filter(|op| op.compute_dtype(dtype).ok() == Some(dtype)) {
            add(Operation::Unary(op), dtype, dtype);
        }
        for op in BinaryOp::ALL.into_iter().filter(|op| op.compute_dtype(dtype, dtype).ok() == Some(dtype)) {
            add(Operation::Binary(op), dtype, dtype);
        }
        CompareOp::ALL.into_iter().for_each(|op| add(Operation::Compare(op), dtype, DType::Bool));
        add(Operation::Where, dtype, dtype);
        DType::ALL.into_iter().filter(|from| *from != dtype).for_each(|from| add(Operation::Cast, from, dtype));
    }
    builds
}

/// The defines for operands of one type. Words that only length rules use are among them.
fn defines(operation: Operation, operand: DType, result: DType) -> Defines {
    let own = typed_defines(operand).with("HW_R_BYTES", result.size_bytes());
    match operation {
        Operation::Unary(op) => own.with("HW_FAMILY", "unary").with("HW_OP", op.name()),
        Operation::Binary(op) => own.with("HW_FAMILY", "binary").with("HW_OP", op.name()),
        Operation::Compare(op) => own.with("HW_FAMILY", "compare").with("HW_OP", op.name()),
        Operation::Where => own.with("HW_FAMILY", "where").with("HW_C_BYTES", DType::Bool.size_bytes()),
        Operation::Cast => typed_defines(result)
            .with("HW_FAMILY", "cast")
            .with("HW_S", operand.cuda_name())
            .with("HW_S_BYTES", operand.size_bytes()),
    }
}

/// Computes on operands that have been broadcast to one shape.
pub(super) fn run(
    stream: &Stream,
    operation: Operation,
    operands: &[GpuOperand],
    result: DType,
    out: &Span,
) -> Result<()> {
    let Some(last) = operands.last() else { return Ok(()) };
    if last.layout.count() == 0 {
        return Ok(());
    }
    let defines = defines(operation, last.dtype, result);
    let (packed, strided) = match operation {
        Operation::Unary(_) => (&UNARY_PACKED, &UNARY),
        Operation::Binary(_) | Operation::Compare(_) => (&BINARY_PACKED, &BINARY),
        Operation::Where => (&WHERE_PACKED, &WHERE),
        Operation::Cast => (&CAST_PACKED, &CAST),
    };
    let grid = grid_for(stream, last.layout.count());
    let spans = operands.iter().map(GpuOperand::packed).collect::<Result<Option<Vec<Span>>>>()?;
    if let Some(spans) = spans {
        let launch = packed.on(stream, &defines, grid).u64(last.layout.count() as u64);
        return Ok(spans.iter().fold(launch, |launch, span| launch.bytes(span)).bytes(out).go()?);
    }
    let launch = strided.on(stream, &defines, grid);
    let layouts: Vec<&Layout> = operands.iter().map(|operand| &operand.layout).collect();
    let launch = match layouts[..] {
        [a] => launch.structure(&LoopsArg::from(&Loops::new([a]))),
        [a, b] => launch.structure(&LoopsArg::from(&Loops::new([a, b]))),
        [a, b, c] => launch.structure(&LoopsArg::from(&Loops::new([a, b, c]))),
        _ => return Err(Error::Length { what: "operands", expected: 1, found: layouts.len() }),
    };
    Ok(operands.iter().fold(launch, |launch, operand| launch.bytes(&operand.span)).bytes(out).go()?)
}
