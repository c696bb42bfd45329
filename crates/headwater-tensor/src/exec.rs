//! From a placement to a computation: operands brought where it happens, and a place for the result.
//!
//! On the GPU an operand is read where it lies if a kernel can reach it, and copied to the GPU if not. Everything runs on
//! the GPU's default stream, so an operator follows the ones before it without anyone waiting.

use headwater_cuda::{Gpu, Span, Stream};
use headwater_memory::Buffer;

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::{Layout, Shape};
use crate::ops::elementwise;
use crate::placement::{Compute, Operand, place_on};
use crate::runtime::{self, current_gpu};
use crate::storage::{Storage, unified_gpu};
use crate::tensor::Tensor;

/// Who computes, opened and ready.
pub(crate) enum Side {
    Cpu,
    Gpu(Gpu),
}

/// Who computes, and where the result goes.
pub(crate) struct Placed {
    pub side: Side,
    pub output: Device,
}

impl Placed {
    /// Places an operator by its tensor operands.
    pub(crate) fn of(tensors: &[&Tensor]) -> Result<Placed> {
        let operands: Vec<Operand> = tensors.iter().map(|tensor| tensor.operand()).collect();
        Placed::for_operands(&operands)
    }

    /// Places an operator. Where the table names a GPU only because of unified operands and the machine has none, the CPU
    /// computes and the result lies in ordinary memory.
    pub(crate) fn for_operands(operands: &[Operand]) -> Result<Placed> {
        let placement = place_on(operands, current_gpu())?;
        let named = operands.iter().any(|operand| matches!(operand, Operand::Cuda(_)));
        let side = match placement.compute {
            Compute::Cpu => Side::Cpu,
            Compute::Cuda(ordinal) if named => Side::Gpu(runtime::gpu(ordinal)?),
            Compute::Cuda(_) => unified_gpu()?.map_or(Side::Cpu, Side::Gpu),
        };
        let output = match (&side, placement.output) {
            (Side::Cpu, Device::Cuda(_)) => Device::Cpu,
            (_, output) => output,
        };
        Ok(Placed { side, output })
    }

    /// Where a new tensor on `device` is made, and who fills it.
    pub(crate) fn for_new(device: Device) -> Result<Placed> {
        let side = match device {
            Device::Cuda(ordinal) => Side::Gpu(runtime::gpu(ordinal)?),
            Device::Cpu | Device::Unified { .. } => Side::Cpu,
        };
        Ok(Placed { side, output: device })
    }

    /// A result that the CPU fills.
    pub(crate) fn on_host(
        &self,
        dtype: DType,
        shape: &Shape,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Tensor> {
        let mut storage = Storage::new(self.output, output_bytes(dtype, shape)?)?;
        if let Some(bytes) = storage.host_mut()? {
            fill(bytes)?;
        }
        Tensor::packed(storage, shape, dtype, self.output)
    }

    /// A result that kernels on the GPU's default stream fill; straight into its memory where they can reach it.
    pub(crate) fn on_gpu(
        &self,
        gpu: &Gpu,
        dtype: DType,
        shape: &Shape,
        launch: impl FnOnce(&Stream, &Span) -> Result<()>,
    ) -> Result<Tensor> {
        let (stream, bytes) = (gpu.stream()?, output_bytes(dtype, shape)?);
        let mut storage = Storage::new(self.output, bytes)?;
        match storage.span() {
            Some(span) if bytes > 0 => launch(stream, span)?,
            Some(_) => {}
            None => {
                let scratch = scratch(stream, bytes)?;
                launch(stream, &scratch)?;
                if let Some(to) = storage.host_mut()? {
                    stream.download(&scratch, to)?;
                }
            }
        }
        Tensor::packed(storage, shape, dtype, self.output)
    }
}

/// An operand of a computation on the GPU: a storage, and where in it the elements lie.
pub(crate) struct GpuOperand {
    /// The whole storage.
    pub span: Span,
    /// Where the elements lie, in elements of `dtype`.
    pub layout: Layout,
    /// The type of the elements.
    pub dtype: DType,
}

impl GpuOperand {
    /// The elements of a packed operand, and nothing around them.
    pub(crate) fn packed(&self) -> Result<Option<Span>> {
        if !self.layout.is_contiguous() {
            return Ok(None);
        }
        let size = self.dtype.size_bytes();
        let start = if self.layout.count() == 0 { 0 } else { self.layout.offset() * size };
        part(&self.span, start, self.layout.count() * size).map(Some)
    }

    /// The operand stretched to a larger shape.
    pub(crate) fn broadcast_to(&self, shape: &Shape) -> Result<GpuOperand> {
        Ok(GpuOperand { span: self.span.clone(), layout: self.layout.broadcast_to(shape)?, dtype: self.dtype })
    }
}

impl Tensor {
    /// The elements as kernels on `stream` read them, brought to `dtype`.
    pub(crate) fn gpu_operand(&self, stream: &Stream, dtype: DType) -> Result<GpuOperand> {
        let own = match self.storage().span() {
            Some(span) => GpuOperand { span: span.clone(), layout: *self.layout(), dtype: self.dtype() },
            None => self.upload(stream)?,
        };
        if dtype == self.dtype() {
            return Ok(own);
        }
        let layout = Layout::contiguous(self.shape())?;
        let span = scratch(stream, output_bytes(dtype, self.shape())?)?;
        elementwise::cast_on_gpu(stream, &own, dtype, &span)?;
        Ok(GpuOperand { span, layout, dtype })
    }

    /// Like [`Tensor::gpu_operand`], packed.
    pub(crate) fn packed_gpu_operand(&self, stream: &Stream, dtype: DType) -> Result<GpuOperand> {
        let operand = self.gpu_operand(stream, dtype)?;
        if operand.layout.is_contiguous() {
            return Ok(operand);
        }
        let layout = Layout::contiguous(self.shape())?;
        let span = scratch(stream, output_bytes(dtype, self.shape())?)?;
        crate::ops::copy::pack_on_gpu(stream, &operand, &span)?;
        Ok(GpuOperand { span, layout, dtype })
    }

    /// A copy in the memory of the stream's GPU of what the layout reaches.
    fn upload(&self, stream: &Stream) -> Result<GpuOperand> {
        let host = self.contiguous()?;
        let operand = host.host_operand(self.dtype())?;
        let span = scratch(stream, host.bytes_of(host.count()))?;
        if let Some(bytes) = operand.packed_bytes()? {
            stream.upload(bytes, &span)?;
        }
        Ok(GpuOperand { span, layout: Layout::contiguous(self.shape())?, dtype: self.dtype() })
    }
}

/// GPU memory for the length of a computation; freed in the stream's order.
pub(crate) fn scratch(stream: &Stream, bytes: usize) -> Result<Span> {
    Ok(Buffer::<u8, headwater_memory::Device>::on_stream(stream, bytes)?.whole().clone())
}

/// Part of a span. Layouts are checked against their storage, so a part that does not fit is an error of this crate.
pub(crate) fn part(span: &Span, at: usize, bytes: usize) -> Result<Span> {
    let outside = Error::OutOfStorage { end: at.saturating_add(bytes), storage: span.bytes() };
    span.part(at, bytes).ok_or(outside)
}

/// Bytes of a packed array.
pub(crate) fn output_bytes(dtype: DType, shape: &Shape) -> Result<usize> {
    let bytes = shape.count()?.checked_mul(dtype.size_bytes());
    bytes.ok_or_else(|| Error::TooLarge { dims: shape.to_vec() })
}
