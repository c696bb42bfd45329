//! Products on the GPU: by cuBLAS when the machine has it, by a kernel of our own when not.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{
    Defines, Element, Gemm, GemmOperand, GemmType, Grid, Kernel, KernelStruct, Param, Source, Span, Stream,
    cublas_available,
};

use super::{MatmulArg, MatmulSizes};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::exec::{GpuOperand, part};
use crate::loops::LOOPS_CUH;
use crate::ops::launch::{grid_for, typed_defines};

static SOURCE: Source =
    Source { name: "matmul.cu", text: include_str!("matmul.cu"), headers: &[("loops.cuh", LOOPS_CUH)] };

/// Side of a tile of the result.
const TILE: usize = 32;
const TILE_THREADS: u32 = 256;

// SAFETY: operands are read at matrices below `batch`, rows and columns below `m`, `n` and `k`, and the output is written
// at the same; see the extents below.
static MATMUL: Kernel = unsafe {
    Kernel::declare(
        &SOURCE,
        "matmul",
        &[
            Param::Struct("sizes", size_of::<MatmulArg>()),
            Param::Read("left", Element::Bytes, &["sizes.0", "HW_T_BYTES"]),
            Param::Read("right", Element::Bytes, &["sizes.1", "HW_T_BYTES"]),
            Param::Write("out", Element::Bytes, &["sizes.2", "HW_T_BYTES"]),
        ],
    )
};

// SAFETY: the fields are 64 bits wide, in the order of HwMatmul in matmul.cu. An index is the offset plus, for each of
// three axes, a position below its size times its stride.
unsafe impl KernelStruct for MatmulArg {
    fn extents(&self) -> Vec<u64> {
        let reach = |offset: u64, sizes: [u64; 3], strides: [u64; 3]| {
            if sizes.contains(&0) {
                return 0;
            }
            let ends = sizes.into_iter().zip(strides).map(|(size, stride)| (size - 1).saturating_mul(stride));
            ends.fold(offset, u64::saturating_add).saturating_add(1)
        };
        vec![
            reach(self.left_offset, [self.batch, self.m, self.k], self.left_strides),
            reach(self.right_offset, [self.batch, self.k, self.n], self.right_strides),
            self.batch.saturating_mul(self.m).saturating_mul(self.n),
        ]
    }
}

/// The text with every set of defines it is used with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let floats = DType::ALL.into_iter().filter(|dtype| dtype.is_float());
    floats.map(|dtype| (&SOURCE, defines(dtype))).collect()
}

fn defines(dtype: DType) -> Defines {
    typed_defines(dtype).with("HW_TILE", TILE)
}

/// `out = left x right`, of sizes that have been checked.
pub(super) fn matmul(
    stream: &Stream,
    sizes: MatmulSizes,
    left: &GpuOperand,
    right: &GpuOperand,
    out: &Span,
) -> Result<()> {
    if sizes.k == 0 {
        return Ok(stream.fill(out, 0)?);
    }
    match by_cublas(sizes, left, right, out)? {
        Some(gemm) if cublas_available().is_ok() => Ok(gemm.run(stream)?),
        _ => by_kernel(stream, sizes, left, right, out),
    }
}

fn by_kernel(stream: &Stream, sizes: MatmulSizes, left: &GpuOperand, right: &GpuOperand, out: &Span) -> Result<()> {
    let tiles = sizes.m.div_ceil(TILE).saturating_mul(sizes.n.div_ceil(TILE)).saturating_mul(sizes.batch);
    let grid = Grid { threads: TILE_THREADS, ..grid_for(stream, tiles.saturating_mul(TILE_THREADS as usize)) };
    let arg = MatmulArg::new(sizes, &left.layout, &right.layout);
    let defines = defines(left.dtype);
    MATMUL.on(stream, &defines, grid).structure(&arg).bytes(&left.span).bytes(&right.span).bytes(out).go()?;
    Ok(())
}

/// The product as cuBLAS takes it, or nothing when an operand has strides or sizes it does not know.
fn by_cublas(sizes: MatmulSizes, left: &GpuOperand, right: &GpuOperand, out: &Span) -> Result<Option<Gemm>> {
    let element = match left.dtype {
        DType::F32 => GemmType::F32,
        DType::F64 => GemmType::F64,
        DType::F16 => GemmType::F16,
        DType::BF16 => GemmType::BF16,
        dtype => return Err(Error::Unsupported { op: "matmul", dtype }),
    };
    let MatmulSizes { batch, m, n, k } = sizes;
    let (Some(a), Some(b)) = (operand(left, m, k)?, operand(right, k, n)?) else { return Ok(None) };
    let c = GemmOperand { span: out.clone(), row_stride: n, transposed: false, batch_stride: m * n };
    let known = [m, n, k, batch, a.row_stride, b.row_stride].iter().all(|size| i32::try_from(*size).is_ok());
    Ok(known.then_some(Gemm { element, rows: m, columns: n, inner: k, batch, a, b, c }))
}

/// A matrix, or a batch of them, whose rows or columns are packed.
fn operand(from: &GpuOperand, rows: usize, columns: usize) -> Result<Option<GemmOperand>> {
    let &[.., row, column] = from.layout.strides() else { return Ok(None) };
    let batch_stride = if from.layout.rank() == 3 { from.layout.strides()[0] } else { 0 };
    // A stride along an axis of size one leads nowhere and may be any number.
    let (row, column) = (if rows == 1 { columns } else { row }, if columns == 1 { 1 } else { column });
    let (row_stride, transposed) = match (row, column) {
        (row, 1) if row >= columns => (row, false),
        (1, column) if column >= rows => (column, true),
        _ => return Ok(None),
    };
    let size = from.dtype.size_bytes();
    let start = from.layout.offset() * size;
    let span = part(&from.span, start, from.layout.end() * size - start)?;
    Ok(Some(GemmOperand { span, row_stride, transposed, batch_stride }))
}
