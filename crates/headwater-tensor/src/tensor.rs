//! What users hold: a view of shared memory, with a type and a place.
//!
//! A tensor is cheap to clone and is never changed through: operators make new ones. Views (slices, transposes, shapes)
//! share the storage. The affinity of a unified tensor belongs to the handle, so switching it moves nothing and concerns
//! nobody else.

use std::sync::Arc;

use crate::device::{Affinity, Device};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::{Layout, Shape, Slice};
use crate::placement::Operand;
use crate::storage::Storage;

/// An array of elements of one type in one place.
///
/// ```
/// use headwater_tensor::{Device, Tensor};
/// let table = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0], &[2, 2], "unified:host".parse()?)?;
/// let ids = Tensor::from_slice(&[1i64, 0, 1], &[3], Device::Cpu)?;
/// assert_eq!(table.index(&ids)?.to_vec::<f32>()?, [3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
/// assert_eq!(table.mul(&table)?.sum(0)?.to_vec::<f32>()?, [10.0, 20.0]);
/// # Ok::<(), headwater_tensor::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    storage: Arc<Storage>,
    layout: Layout,
    dtype: DType,
    device: Device,
}

impl Tensor {
    /// A packed tensor over a storage that has been filled.
    pub(crate) fn packed(storage: Storage, shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
        let layout = Layout::contiguous(shape)?;
        layout.check_within(storage.bytes() / dtype.size_bytes())?;
        Ok(Tensor { storage: Arc::new(storage), layout, dtype, device })
    }

    fn with_layout(&self, layout: Layout) -> Tensor {
        Tensor { layout, ..self.clone() }
    }

    /// Sizes of the dimensions.
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// Elements between neighbours along each dimension.
    pub fn strides(&self) -> &[usize] {
        self.layout.strides()
    }

    /// How the elements lie in the storage.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Where it lies.
    pub fn device(&self) -> Device {
        self.device
    }

    /// How many elements it has.
    pub fn count(&self) -> usize {
        self.layout.count()
    }

    /// Whether its elements lie one after the other.
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// Whether both sides read it in place.
    pub fn is_unified(&self) -> bool {
        self.device.is_unified()
    }

    /// The side operators on this unified tensor prefer.
    pub fn affinity(&self) -> Result<Affinity> {
        match self.device {
            Device::Unified { affinity } => Ok(affinity),
            device => Err(Error::NotUnified { op: "affinity", device }),
        }
    }

    /// Changes the side operators on this handle prefer. Moves, copies and allocates nothing.
    pub fn set_affinity(&mut self, affinity: Affinity) -> Result<()> {
        match &mut self.device {
            Device::Unified { affinity: own } => *own = affinity,
            &mut device => return Err(Error::NotUnified { op: "set_affinity", device }),
        }
        Ok(())
    }

    /// Positions of an axis, without a copy.
    pub fn slice(&self, axis: usize, slice: Slice) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.slice(axis, slice)?))
    }

    /// Two axes exchanged, without a copy.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.transpose(a, b)?))
    }

    /// The axes in another order, without a copy.
    pub fn permute(&self, axes: &[usize]) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.permute(axes)?))
    }

    /// Stretched to a larger shape, without a copy.
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.broadcast_to(&Shape::new(shape)?)?))
    }

    /// The same elements under another shape; copied only when no strides describe it.
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor> {
        match self.layout.reshape(shape)? {
            Some(layout) => Ok(self.with_layout(layout)),
            None => self.contiguous()?.reshape(shape),
        }
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    pub(crate) fn with_device(&self, device: Device) -> Tensor {
        Tensor { device, ..self.clone() }
    }

    /// What placement needs to know.
    pub(crate) fn operand(&self) -> Operand {
        match self.device {
            Device::Cpu if self.shape().is_empty() => Operand::CpuScalar,
            Device::Cpu => Operand::Cpu,
            Device::Cuda(ordinal) => Operand::Cuda(ordinal),
            Device::Unified { affinity } => Operand::Unified(affinity),
        }
    }

    /// Bytes of `count` elements of this type.
    pub(crate) fn bytes_of(&self, count: usize) -> usize {
        count * self.dtype.size_bytes()
    }

    /// Where the elements begin in the storage, and how many bytes they reach over.
    pub(crate) fn reach(&self) -> (usize, usize) {
        let start = if self.count() == 0 { 0 } else { self.layout.offset() };
        (self.bytes_of(start), self.bytes_of(self.layout.end() - start))
    }
}
