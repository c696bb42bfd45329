//! Typed arrays of plain elements, one owner each, in a place that is part of the type.
//!
//! The place decides what can be done: a [`Pinned`] buffer is read by the CPU, a [`WriteCombined`] one only written, a
//! [`Device`] one neither. Reading write-combined memory would work and be a hundred times slower, so it does not
//! compile.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;
use headwater_cuda::{Allocation, Gpu, Span, Stream};

use crate::arena::pinned_arena;
use crate::error::{Error, Result};
use crate::mapping::Mapping;
use crate::pool::Lease;
use crate::tier::Tier;

/// A GPU's own memory.
#[derive(Debug)]
pub enum Device {}
/// Host memory the GPU reads and the CPU caches.
#[derive(Debug)]
pub enum Pinned {}
/// Host memory the GPU reads and the CPU only writes.
#[derive(Debug)]
pub enum WriteCombined {}
/// Memory the driver moves by itself.
#[derive(Debug)]
pub enum Managed {}
/// Ordinary host memory.
#[derive(Debug)]
pub enum Host {}

/// Places kernels can reach.
pub trait GpuVisible {
    /// The same place as a value.
    const TIER: Tier;
}
impl GpuVisible for Device {
    const TIER: Tier = Tier::Device;
}
impl GpuVisible for Pinned {
    const TIER: Tier = Tier::Pinned;
}
impl GpuVisible for WriteCombined {
    const TIER: Tier = Tier::WriteCombined;
}
impl GpuVisible for Managed {
    const TIER: Tier = Tier::Managed;
}

/// Places that kernels reach and the CPU can write.
pub trait HostWritable: GpuVisible {}
impl HostWritable for Pinned {}
impl HostWritable for WriteCombined {}
impl HostWritable for Managed {}

/// Places that kernels reach and the CPU can read at full speed.
pub trait HostReadable: HostWritable {}
impl HostReadable for Pinned {}
impl HostReadable for Managed {}

/// `len` elements of `T` in place `P`.
#[derive(Debug)]
pub struct Buffer<T, P> {
    backing: Backing,
    len: usize,
    kind: PhantomData<(T, P)>,
}

#[derive(Debug)]
enum Backing {
    Span(Span),
    Lease(Lease),
    Mapping(Mapping),
}

impl<T: Pod> Buffer<T, Device> {
    /// Uninitialised device memory, in the order of `stream`.
    pub fn on_stream(stream: &Stream, len: usize) -> Result<Self> {
        Ok(Self::over(Span::whole(Allocation::on_stream(stream, bytes_of::<T>(len)?)?), len))
    }

    /// Device memory that other processes may map.
    pub fn shareable(gpu: &Gpu, len: usize) -> Result<Self> {
        Ok(Self::over(Span::whole(Allocation::shareable(gpu, bytes_of::<T>(len)?)?), len))
    }

    /// A copy of `elements`, in the order of `stream`.
    pub fn from_slice(stream: &Stream, elements: &[T]) -> Result<Self> {
        let buffer = Self::on_stream(stream, elements.len())?;
        stream.upload(bytemuck::cast_slice(elements), buffer.whole())?;
        Ok(buffer)
    }

    /// The elements, once `stream` has come this far.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        let mut elements = vec![T::zeroed(); self.len];
        stream.download(self.whole(), bytemuck::cast_slice_mut(&mut elements))?;
        Ok(elements)
    }
}

impl<T: Pod> Buffer<T, Pinned> {
    /// Zeroed pinned memory. A few pages come from the driver where none may be registered: nothing runs without them.
    pub fn new(gpu: &Gpu, len: usize) -> Result<Self> {
        const FEW_BYTES: usize = 64 << 10;
        let bytes = bytes_of::<T>(len)?;
        match pinned_arena(gpu, bytes) {
            Err(why) if bytes <= FEW_BYTES && why.is_out_of_memory() => {
                Ok(Self::zeroed(Allocation::pinned(gpu, bytes)?, len))
            }
            made => Ok(Self::over(made?, len)),
        }
    }

    /// Pinned memory that `fill` fills.
    pub fn filled<E: From<Error>>(
        gpu: &Gpu,
        len: usize,
        fill: impl FnOnce(&mut [T]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut buffer = Self::new(gpu, len)?;
        // SAFETY: nobody else knows the memory yet.
        fill(unsafe { buffer.elements_mut() })?;
        Ok(buffer)
    }
}

impl<T: Pod> Buffer<T, WriteCombined> {
    /// Zeroed write-combined memory.
    pub fn new(gpu: &Gpu, len: usize) -> Result<Self> {
        Ok(Self::zeroed(Allocation::write_combined(gpu, bytes_of::<T>(len)?)?, len))
    }
}

impl<T: Pod> Buffer<T, Managed> {
    /// Zeroed managed memory.
    pub fn new(gpu: &Gpu, len: usize) -> Result<Self> {
        Ok(Self::zeroed(Allocation::managed(gpu, bytes_of::<T>(len)?)?, len))
    }
}

impl<T: Pod> Buffer<T, Host> {
    /// Zeroed ordinary memory, in huge pages where the system has them.
    pub fn new(len: usize) -> Result<Self> {
        let mapping = Mapping::anonymous(bytes_of::<T>(len)?)?;
        Ok(Self { backing: Backing::Mapping(mapping), len, kind: PhantomData })
    }
}

impl<T: Pod, P> Buffer<T, P> {
    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn over(span: Span, len: usize) -> Self {
        Self { backing: Backing::Span(span), len, kind: PhantomData }
    }

    fn host_start(&self) -> Option<NonNull<T>> {
        match &self.backing {
            Backing::Span(span) => span.host_pointer(),
            Backing::Lease(lease) => lease.span().host_pointer(),
            Backing::Mapping(mapping) => Some(mapping.start()),
        }
        .map(NonNull::cast)
    }

    /// Where `len` elements from `at` on begin.
    fn room(&self, at: usize, len: usize) -> Result<NonNull<T>> {
        let fits = at.checked_add(len).is_some_and(|end| end <= self.len);
        match self.host_start().or(self.is_empty().then_some(NonNull::dangling())).filter(|_| fits) {
            // SAFETY: inside the buffer, or at the beginning of an empty one.
            Some(start) => Ok(unsafe { start.add(at) }),
            None => Err(Error::Misfit { bytes: len.saturating_mul(size_of::<T>()), element_bytes: size_of::<T>() }),
        }
    }

    /// # Safety
    /// No GPU writes the memory while the slice lives.
    unsafe fn elements(&self) -> &[T] {
        let start = self.host_start().unwrap_or(NonNull::dangling());
        // SAFETY: `len` elements of plain data in initialised memory that this buffer owns.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len) }
    }

    /// # Safety
    /// No GPU reads or writes the memory while the slice lives.
    unsafe fn elements_mut(&mut self) -> &mut [T] {
        let start = self.host_start().unwrap_or(NonNull::dangling());
        // SAFETY: as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.len) }
    }

    /// The CPU may touch the memory only when no queued GPU work does.
    fn wait_until_unused(&self) -> Result<()> {
        match &self.backing {
            Backing::Span(span) => span.allocation().wait_until_unused()?,
            Backing::Lease(lease) => lease.span().allocation().wait_until_unused()?,
            Backing::Mapping(_) => {}
        }
        Ok(())
    }
}

impl<T: Pod, P: GpuVisible> Buffer<T, P> {
    /// A buffer in a leased block, which holds whatever it held before. The pool must be of the place the type names.
    pub fn from_lease(lease: Lease) -> Result<Self> {
        if lease.tier() != P::TIER {
            return Err(Error::WrongTier { wanted: P::TIER, got: lease.tier() });
        }
        let (bytes, element_bytes) = (lease.span().bytes(), size_of::<T>().max(1));
        if bytes % element_bytes != 0 {
            return Err(Error::Misfit { bytes, element_bytes });
        }
        Ok(Self { backing: Backing::Lease(lease), len: bytes / element_bytes, kind: PhantomData })
    }

    /// All of it, for launches and copies.
    #[must_use]
    pub fn whole(&self) -> &Span {
        match &self.backing {
            Backing::Span(span) => span,
            Backing::Lease(lease) => lease.span(),
            Backing::Mapping(_) => unreachable!("only host buffers are mappings, and the host is not GPU visible"),
        }
    }

    /// Some elements, for launches and copies; `None` when the range leaves the buffer.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Option<Span> {
        let bytes = range.end.checked_sub(range.start)?.checked_mul(size_of::<T>())?;
        self.whole().part(range.start.checked_mul(size_of::<T>())?, bytes)
    }
}

impl<T: Pod> Buffer<T, Host> {
    /// The elements, where they lie.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: no GPU reaches ordinary memory, so the borrow of this buffer is the whole story.
        unsafe { self.elements() }
    }

    /// The elements, to change.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { self.elements_mut() }
    }
}

/// The CPU's side of memory that kernels reach. What was queued before is waited for. Streams are given clones of the buffer's
/// span, which no borrow of the buffer holds back, so copies are safe and references are not: a copy that meets GPU work
/// brings torn elements, as from memory shared with another process, and any bytes are elements.
impl<T: Pod, P: HostWritable> Buffer<T, P> {
    fn zeroed(made: Arc<Allocation>, len: usize) -> Self {
        let mut buffer = Self::over(Span::whole(made), len);
        // SAFETY: nobody else knows the memory yet.
        unsafe { buffer.elements_mut() }.fill(T::zeroed());
        buffer
    }

    /// Copies `elements` in, from `at` on.
    pub fn write(&mut self, at: usize, elements: &[T]) -> Result<()> {
        let start = self.room(at, elements.len())?;
        self.wait_until_unused()?;
        // SAFETY: inside the buffer, to which there is no reference.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(elements).cast(), elements.len()) };
        Ok(())
    }
}

impl<T: Pod, P: HostReadable> Buffer<T, P> {
    /// Copies elements out, from `at` on.
    pub fn read(&self, at: usize, elements: &mut [T]) -> Result<()> {
        let start = self.room(at, elements.len())?;
        self.wait_until_unused()?;
        // SAFETY: inside the buffer, whose references are shared ones at most.
        unsafe { start.copy_to_nonoverlapping(NonNull::from(&mut *elements).cast(), elements.len()) };
        Ok(())
    }

    /// The elements, where they lie, without a copy.
    ///
    /// # Safety
    /// While the slice lives nobody queues GPU work that writes the buffer.
    pub unsafe fn as_slice(&self) -> Result<&[T]> {
        self.wait_until_unused()?;
        // SAFETY: the GPU is done with it, and the caller keeps it so.
        Ok(unsafe { self.elements() })
    }

    /// The elements, to change.
    ///
    /// # Safety
    /// While the slice lives nobody queues GPU work on the buffer.
    pub unsafe fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        self.wait_until_unused()?;
        // SAFETY: as above.
        Ok(unsafe { self.elements_mut() })
    }

    /// Some elements, to change, without a wait.
    ///
    /// # Safety
    /// The GPU work that was queued on these elements is over, and while the slice lives nobody queues more.
    pub unsafe fn part_mut(&mut self, range: Range<usize>) -> Result<&mut [T]> {
        let start = self.room(range.start, range.len())?;
        // SAFETY: inside the buffer, borrowed alone; the caller keeps the GPU away.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), range.len()) })
    }
}

fn bytes_of<T>(elements: usize) -> Result<usize> {
    let element_bytes = size_of::<T>();
    elements.checked_mul(element_bytes).ok_or(Error::TooLarge { elements, element_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_buffers_hold_what_is_written() {
        let mut buffer = Buffer::<u32, Host>::new(5).unwrap();
        buffer.as_mut_slice()[1..3].copy_from_slice(&[7, 8]);
        assert_eq!(buffer.as_slice(), [0, 7, 8, 0, 0]);
    }

    #[test]
    fn empty_and_impossible_lengths() {
        assert!(Buffer::<u64, Host>::new(0).unwrap().as_slice().is_empty());
        assert!(matches!(Buffer::<u64, Host>::new(usize::MAX), Err(Error::TooLarge { .. })));
    }
}
