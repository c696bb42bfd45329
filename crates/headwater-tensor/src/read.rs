//! Reading elements back, from wherever they are.
//!
//! Reading waits for queued GPU work on the tensor, and returns what that work reported: a bad id in a gather shows here.

use headwater_memory::{Buffer, Host};

use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::ops::copy::cpu::copy;
use crate::ops::elementwise::{Operation, cpu};
use crate::tensor::Tensor;
use crate::view::View;

impl Tensor {
    /// The elements in row-major order.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.check_type("to_vec", T::DTYPE)?;
        let operand = self.host_operand(self.dtype())?;
        let mut elements = vec![T::default(); self.count()];
        copy(operand.view::<T>()?, &mut elements)?;
        Ok(elements)
    }

    /// The only element.
    pub fn item<T: Element>(&self) -> Result<T> {
        let elements = self.to_vec()?;
        match elements.as_slice() {
            [one] => Ok(*one),
            _ => Err(Error::Shape { op: "item", expected: "exactly one element", found: self.shape().to_vec() }),
        }
    }

    /// The elements in place, when they lie packed in memory the CPU reads.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.check_type("as_slice", T::DTYPE)?;
        let refused = || Error::NotASlice { shape: self.shape().to_vec(), device: self.device() };
        if !self.is_contiguous() {
            return Err(refused());
        }
        let bytes = self.storage().host_slice()?.ok_or_else(refused)?;
        let (start, length) = self.reach();
        typed(self.dtype(), &bytes[start..start + length])
    }

    fn check_type(&self, op: &'static str, expected: DType) -> Result<()> {
        let found = self.dtype();
        if expected == found { Ok(()) } else { Err(Error::WrongType { op, expected, found }) }
    }

    /// The elements as the CPU reads them, brought to `dtype`: in place where they can be, copied where they must.
    pub(crate) fn host_operand(&self, dtype: DType) -> Result<HostOperand<'_>> {
        let (start, length) = self.reach();
        let own = match self.storage().host_slice()? {
            Some(bytes) => {
                HostOperand { bytes: HostBytes::InPlace(bytes), layout: *self.layout(), dtype: self.dtype() }
            }
            None => {
                let mut copied = Buffer::<u8, Host>::new(length)?;
                self.storage().read(start, copied.as_mut_slice())?;
                let layout = Layout::new(self.shape(), self.strides(), 0)?;
                HostOperand { bytes: HostBytes::Copied(copied), layout, dtype: self.dtype() }
            }
        };
        if dtype == self.dtype() { Ok(own) } else { own.cast(dtype) }
    }
}

/// An operand of a computation on the CPU.
pub(crate) struct HostOperand<'a> {
    bytes: HostBytes<'a>,
    layout: Layout,
    dtype: DType,
}

enum HostBytes<'a> {
    InPlace(&'a [u8]),
    Copied(Buffer<u8, Host>),
}

impl HostOperand<'_> {
    /// The elements.
    pub(crate) fn view<T: Element>(&self) -> Result<View<'_, T>> {
        View::new(typed(self.dtype, self.storage()?)?, self.layout)
    }

    /// The type of the elements.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The bytes of a packed operand.
    pub(crate) fn packed_bytes(&self) -> Result<Option<&[u8]>> {
        let size = self.dtype.size_bytes();
        let bytes = self.storage()?;
        let start = if self.layout.count() == 0 { 0 } else { self.layout.offset() * size };
        Ok(self.layout.is_contiguous().then(|| &bytes[start..start + self.layout.count() * size]))
    }

    fn storage(&self) -> Result<&[u8]> {
        match &self.bytes {
            HostBytes::InPlace(bytes) => Ok(bytes),
            HostBytes::Copied(buffer) => Ok(buffer.as_slice()),
        }
    }

    fn cast(&self, to: DType) -> Result<HostOperand<'static>> {
        let count = self.layout.count();
        let mut out = Buffer::<u8, Host>::new(count * to.size_bytes())?;
        cpu::run(Operation::Cast, std::slice::from_ref(self), to, out.as_mut_slice())?;
        let layout = Layout::contiguous(self.layout.shape())?;
        Ok(HostOperand { bytes: HostBytes::Copied(out), layout, dtype: to })
    }
}

/// Bytes as elements. Bytes after the last whole element are left out.
pub(crate) fn typed<T: Element>(dtype: DType, bytes: &[u8]) -> Result<&[T]> {
    let whole = &bytes[..bytes.len() / size_of::<T>() * size_of::<T>()];
    // An empty slice may begin anywhere.
    if whole.is_empty() {
        return Ok(&[]);
    }
    bytemuck::try_cast_slice(whole).map_err(|_| Error::Misaligned { dtype, address: bytes.as_ptr().addr() })
}

/// Bytes as elements, to be filled.
pub(crate) fn typed_mut<T: Element>(bytes: &mut [u8]) -> Result<&mut [T]> {
    let address = bytes.as_ptr().addr();
    if bytes.is_empty() {
        return Ok(&mut []);
    }
    bytemuck::try_cast_slice_mut(bytes).map_err(|_| Error::Misaligned { dtype: T::DTYPE, address })
}
