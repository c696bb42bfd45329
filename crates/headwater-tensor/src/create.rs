//! New tensors, on any device.
//!
//! Memory the CPU writes is filled by the CPU, GPU memory by the GPU; both give the same bits.

use crate::device::Device;
use crate::dtype::{DType, Element, Scalar};
use crate::error::{Error, Result};
use crate::exec::{Placed, output_bytes};
use crate::layout::Shape;
use crate::ops::copy::{self, Fill};
use crate::ops::random;
use crate::storage::Storage;
use crate::tensor::Tensor;

impl Tensor {
    /// A copy of `elements` in row-major order.
    pub fn from_slice<T: Element>(elements: &[T], shape: &[usize], device: Device) -> Result<Tensor> {
        let shape = Shape::new(shape)?;
        let expected = shape.count()?;
        if expected != elements.len() {
            return Err(Error::Length { what: "elements", expected, found: elements.len() });
        }
        Tensor::from_packed_bytes(bytemuck::cast_slice(elements), &shape, T::DTYPE, device)
    }

    /// Zeros.
    pub fn zeros(shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
        Tensor::full(shape, Scalar::Int(0), dtype, device)
    }

    /// Ones.
    pub fn ones(shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
        Tensor::full(shape, Scalar::Int(1), dtype, device)
    }

    /// One value everywhere, cast to `dtype`.
    pub fn full(shape: &[usize], value: Scalar, dtype: DType, device: Device) -> Result<Tensor> {
        copy::generate(Fill::Value(value), &Shape::new(shape)?, dtype, &Placed::for_new(device)?)
    }

    /// `start`, `start + step`, … below `end`. Integer types take integer bounds.
    pub fn arange(start: Scalar, end: Scalar, step: Scalar, dtype: DType, device: Device) -> Result<Tensor> {
        let real = |value: Scalar| f64::narrow(value);
        let count = copy::arange_count(real(start), real(end), real(step))?;
        copy::generate(Fill::Range { start, step }, &Shape::new(&[count])?, dtype, &Placed::for_new(device)?)
    }

    /// Uniform numbers in [0, 1): the same for a seed on every device and for any number of threads. See
    /// [`ops::random`](crate::ops::random) for which bits become which number.
    pub fn rand(shape: &[usize], seed: u64, dtype: DType, device: Device) -> Result<Tensor> {
        random::uniform(seed, &Shape::new(shape)?, dtype, &Placed::for_new(device)?)
    }

    /// A copy of packed elements.
    pub(crate) fn from_packed_bytes(bytes: &[u8], shape: &Shape, dtype: DType, device: Device) -> Result<Tensor> {
        let mut storage = Storage::new(device, output_bytes(dtype, shape)?)?;
        if let Some(to) = storage.host_mut()? {
            to.copy_from_slice(bytes);
        } else if let (Some(gpu), Some(to)) = (storage.home(), storage.span()) {
            gpu.stream()?.upload(bytes, to)?;
        }
        Tensor::packed(storage, shape, dtype, device)
    }
}
