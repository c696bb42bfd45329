//! Unified tensors over memory that somebody else owns: registered, not copied.
//!
//! The tensor holds the owner, reads its bytes where they are, and never writes them. On a machine without a GPU, or where
//! the memory cannot be registered, it is a plain view of the same bytes.

use std::marker::PhantomData;
use std::sync::Arc;

use headwater_memory::{Foreign, Owner, SharedHost};

use crate::device::{Affinity, Device};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::layout::Shape;
use crate::storage::Storage;
use crate::tensor::Tensor;

impl Tensor {
    /// A unified tensor over the elements of a `Vec`, a boxed slice or any other owner of elements.
    pub fn lay_over<T: Element>(
        owner: impl AsRef<[T]> + Send + Sync + 'static,
        shape: &[usize],
        affinity: Affinity,
    ) -> Result<Tensor> {
        Tensor::lay_over_bytes(Arc::new(Elements(owner, PhantomData::<T>)), T::DTYPE, shape, affinity)
    }

    /// A unified tensor over the bytes of an owner, for example a mapped file. The bytes may be more than the shape needs.
    pub fn lay_over_bytes(owner: Owner, dtype: DType, shape: &[usize], affinity: Affinity) -> Result<Tensor> {
        let foreign = Foreign::new(owner);
        let bytes = foreign.as_slice();
        check_length(bytes.len(), dtype, shape)?;
        let address = bytes.as_ptr().addr();
        if !bytes.is_empty() && !address.is_multiple_of(dtype.size_bytes()) {
            return Err(Error::Misaligned { dtype, address });
        }
        Tensor::packed(Storage::foreign(foreign)?, shape, dtype, Device::Unified { affinity })
    }

    /// A unified tensor over memory shared between processes. The CPU reads a copy of what it asks for, because another
    /// process may be writing.
    pub fn lay_over_shared(host: SharedHost, dtype: DType, shape: &[usize], affinity: Affinity) -> Result<Tensor> {
        check_length(host.bytes(), dtype, shape)?;
        Tensor::packed(Storage::shared(host)?, shape, dtype, Device::Unified { affinity })
    }
}

/// An owner of elements seen as an owner of bytes.
struct Elements<T, O>(O, PhantomData<T>);

impl<T: Element, O: AsRef<[T]>> AsRef<[u8]> for Elements<T, O> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(self.0.as_ref())
    }
}

fn check_length(found: usize, dtype: DType, shape: &[usize]) -> Result<()> {
    let bytes = Shape::new(shape)?.count()?.checked_mul(dtype.size_bytes());
    let expected = bytes.ok_or_else(|| Error::TooLarge { dims: shape.to_vec() })?;
    if expected <= found { Ok(()) } else { Err(Error::Length { what: "bytes under a tensor", expected, found }) }
}
