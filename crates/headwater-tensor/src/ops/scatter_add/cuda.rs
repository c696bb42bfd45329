//! Scatter-add on the GPU, by the same plan as on the CPU.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Kernel, KernelStruct, Param, Source, Span, Stream};

use super::{ScatterArg, ScatterPlan};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::exec::{GpuOperand, scratch};
use crate::loops::LOOPS_CUH;
use crate::ops::launch::{grid_for, typed_defines};

static SOURCE: Source =
    Source { name: "scatter_add.cu", text: include_str!("scatter_add.cu"), headers: &[("loops.cuh", LOOPS_CUH)] };

// SAFETY: the text compares what it finds in the lists with the sizes before following it; see the extents below.
static SCATTER_ADD: Kernel = unsafe {
    Kernel::declare(
        &SOURCE,
        "scatter_add",
        &[
            Param::Struct("sizes", size_of::<ScatterArg>()),
            Param::Read("rows", Element::U64, &["sizes.0"]),
            Param::Read("offsets", Element::U64, &["sizes.1"]),
            Param::Read("order", Element::U64, &["sizes.2"]),
            Param::Read("source", Element::Bytes, &["sizes.3", "HW_T_BYTES"]),
            Param::Write("out", Element::Bytes, &["sizes.4", "HW_T_BYTES"]),
        ],
    )
};

// SAFETY: the fields are 64 bits wide, in the order of HwScatter in scatter_add.cu. Groups stay below `groups`, columns
// below `columns`, positions below `count` and rows below `target_rows`, whatever the lists hold.
unsafe impl KernelStruct for ScatterArg {
    fn extents(&self) -> Vec<u64> {
        let end = |size: u64, stride: u64| size.saturating_sub(1).saturating_mul(stride);
        let last = self.source_offset.saturating_add(end(self.count, self.row_stride));
        let reach = last.saturating_add(end(self.columns, self.column_stride)).saturating_add(1);
        let source = if self.count == 0 || self.columns == 0 { 0 } else { reach };
        let out = self.target_rows.saturating_mul(self.columns);
        vec![self.groups, self.groups.saturating_add(1), self.count, source, out]
    }
}

/// The text with every set of defines it is used with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let types = DType::ALL.into_iter().filter(|dtype| *dtype != DType::Bool);
    types.map(|dtype| (&SOURCE, typed_defines(dtype))).collect()
}

/// Adds the rows of `source` to the rows of `out` that the plan names.
pub(super) fn run(stream: &Stream, source: &GpuOperand, plan: &ScatterPlan, out: &Span) -> Result<()> {
    let (&[_, columns], &[row_stride, column_stride]) = (&source.layout.shape()[..], source.layout.strides()) else {
        return Err(Error::Shape {
            op: "scatter_add",
            expected: "two dimensions",
            found: source.layout.shape().to_vec(),
        });
    };
    if plan.rows().is_empty() || columns == 0 {
        return Ok(());
    }
    let arg = ScatterArg {
        groups: plan.rows().len() as u64,
        columns: columns as u64,
        target_rows: plan.target_rows() as u64,
        count: plan.order().len() as u64,
        source_offset: source.layout.offset() as u64,
        row_stride: row_stride as u64,
        column_stride: column_stride as u64,
    };
    let [rows, offsets, order] = [plan.rows(), plan.offsets(), plan.order()].map(|list| upload(stream, list));
    SCATTER_ADD
        .on(stream, &typed_defines(source.dtype), grid_for(stream, plan.rows().len().saturating_mul(columns)))
        .structure(&arg)
        .buffer(&rows?, Element::U64)
        .buffer(&offsets?, Element::U64)
        .buffer(&order?, Element::U64)
        .bytes(&source.span)
        .bytes(out)
        .go()?;
    Ok(())
}

fn upload(stream: &Stream, list: &[u64]) -> Result<Span> {
    let span = scratch(stream, size_of_val(list))?;
    stream.upload(bytemuck::cast_slice(list), &span)?;
    Ok(span)
}
