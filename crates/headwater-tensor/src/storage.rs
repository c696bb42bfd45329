//! The memory under a tensor: which kind it is, and who can reach it.
//!
//! A storage is filled while one tensor owns it and never written again, so tensors share it freely. Unified memory is
//! pinned and mapped where that works. Where it does not (no GPU, or nothing left to pin) it is ordinary host memory and
//! operators step down: slower, never wrong, and said once in the log.

use std::sync::Once;

use headwater_cuda::{Gpu, Span};
use headwater_memory::{Buffer, Foreign, Host, Managed, Pinned, SharedHost};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::runtime::{self, current_gpu, unified_pool};

/// Bytes somewhere.
#[derive(Debug)]
pub(crate) enum Storage {
    /// Ordinary host memory.
    Host(Buffer<u8, Host>),
    /// Pinned and mapped host memory, leased from the GPU's pool.
    Pinned(Buffer<u8, Pinned>),
    /// Memory the driver moves.
    Managed(Buffer<u8, Managed>),
    /// A GPU's memory.
    Device(Buffer<u8, headwater_memory::Device>),
    /// Somebody else's bytes, and how the GPU reaches them when they could be registered.
    Foreign(Foreign, Option<Span>),
    /// Bytes other processes may write, so no reference to them is ever handed out.
    Shared(SharedHost, Option<Span>),
}

impl Storage {
    /// Memory for a tensor on `device`. What is in it is unspecified.
    pub(crate) fn new(device: Device, bytes: usize) -> Result<Storage> {
        // More than this is no length a slice can have.
        if isize::try_from(bytes).is_err() {
            return Err(Error::TooLarge { dims: vec![bytes] });
        }
        match device {
            Device::Cpu => Storage::host(bytes),
            Device::Cuda(ordinal) => {
                let gpu = runtime::gpu(ordinal)?;
                Ok(Storage::Device(Buffer::on_stream(gpu.stream()?, bytes)?))
            }
            Device::Unified { .. } => Storage::unified(bytes),
        }
    }

    /// Managed memory of the current GPU.
    pub(crate) fn managed(bytes: usize) -> Result<Storage> {
        Ok(Storage::Managed(Buffer::<u8, Managed>::new(&runtime::gpu(current_gpu())?, bytes)?))
    }

    fn host(bytes: usize) -> Result<Storage> {
        Ok(Storage::Host(Buffer::<u8, Host>::new(bytes)?))
    }

    fn unified(bytes: usize) -> Result<Storage> {
        let Some(gpu) = unified_gpu()? else { return Storage::host(bytes) };
        match unified_pool(&gpu)?.lease(bytes) {
            Ok(lease) => Ok(Storage::Pinned(Buffer::from_lease(lease)?)),
            Err(why) if why.is_out_of_memory() => {
                warn_unpinned(&why);
                Storage::host(bytes)
            }
            Err(why) => Err(why.into()),
        }
    }

    /// Registers an owner's bytes with the current GPU, without a copy.
    pub(crate) fn foreign(foreign: Foreign) -> Result<Storage> {
        let empty = foreign.as_slice().is_empty();
        let span = if empty { None } else { registered(|gpu| foreign.map_into(gpu))? };
        Ok(Storage::Foreign(foreign, span))
    }

    /// Registers memory shared with other processes with the current GPU, without a copy.
    pub(crate) fn shared(host: SharedHost) -> Result<Storage> {
        let span = if host.bytes() == 0 { None } else { registered(|gpu| host.map_into(gpu))? };
        Ok(Storage::Shared(host, span))
    }

    /// Length.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Storage::Host(buffer) => buffer.len(),
            Storage::Pinned(buffer) => buffer.len(),
            Storage::Managed(buffer) => buffer.len(),
            Storage::Device(buffer) => buffer.len(),
            Storage::Foreign(foreign, _) => foreign.as_slice().len(),
            Storage::Shared(host, _) => host.bytes(),
        }
    }

    /// All of it as kernels reach it; nothing when they cannot.
    pub(crate) fn span(&self) -> Option<&Span> {
        match self {
            Storage::Host(_) => None,
            Storage::Pinned(buffer) => Some(buffer.whole()),
            Storage::Managed(buffer) => Some(buffer.whole()),
            Storage::Device(buffer) => Some(buffer.whole()),
            Storage::Foreign(_, span) | Storage::Shared(_, span) => span.as_ref(),
        }
    }

    /// The GPU whose own memory this is.
    pub(crate) fn home(&self) -> Option<&Gpu> {
        match self {
            Storage::Device(buffer) => Some(buffer.whole().allocation().gpu()),
            _ => None,
        }
    }

    /// The bytes as the CPU reads them, once the GPU is done with them; nothing when the CPU must copy them out.
    #[expect(unsafe_code, reason = "kernels reach pinned and managed memory too")]
    pub(crate) fn host_slice(&self) -> Result<Option<&[u8]>> {
        Ok(match self {
            Storage::Host(buffer) => Some(buffer.as_slice()),
            // SAFETY: the span stays within this crate, whose operators write a storage only while one tensor owns it alone and
            // its result has not been returned. After that it is read.
            Storage::Pinned(buffer) => Some(unsafe { buffer.as_slice() }?),
            // SAFETY: as above.
            Storage::Managed(buffer) => Some(unsafe { buffer.as_slice() }?),
            Storage::Foreign(foreign, _) => Some(foreign.as_slice()),
            Storage::Device(_) | Storage::Shared(..) => None,
        })
    }

    /// The bytes to be filled by the CPU; nothing when it cannot write them.
    #[expect(unsafe_code, reason = "kernels reach pinned and managed memory too")]
    pub(crate) fn host_mut(&mut self) -> Result<Option<&mut [u8]>> {
        Ok(match self {
            Storage::Host(buffer) => Some(buffer.as_mut_slice()),
            // SAFETY: who fills a storage owns it alone, and queues work on it neither before nor meanwhile.
            Storage::Pinned(buffer) => Some(unsafe { buffer.as_mut_slice() }?),
            // SAFETY: as above.
            Storage::Managed(buffer) => Some(unsafe { buffer.as_mut_slice() }?),
            Storage::Device(_) | Storage::Foreign(..) | Storage::Shared(..) => None,
        })
    }

    /// Copies `range` of the bytes into ordinary memory.
    pub(crate) fn read(&self, at: usize, to: &mut [u8]) -> Result<()> {
        let misfit = || Error::OutOfStorage { end: at.saturating_add(to.len()), storage: self.bytes() };
        let end = at.checked_add(to.len()).filter(|end| *end <= self.bytes()).ok_or_else(misfit)?;
        if let Some(bytes) = self.host_slice()? {
            to.copy_from_slice(&bytes[at..end]);
        } else if let Storage::Shared(host, _) = self {
            host.read(at, to)?;
        } else if let (Some(gpu), Some(part)) = (self.home(), self.span().and_then(|span| span.part(at, to.len()))) {
            gpu.stream()?.download(&part, to)?;
        }
        Ok(())
    }
}

/// The GPU unified memory is made for, or nothing on a machine without one.
pub(crate) fn unified_gpu() -> Result<Option<Gpu>> {
    static SAID: Once = Once::new();
    match Gpu::open(current_gpu()) {
        Ok(gpu) => Ok(Some(gpu)),
        // A wrong ordinal is a mistake; no GPU at all is a kind of machine.
        Err(why) if Gpu::count().unwrap_or(0) > 0 => Err(why.into()),
        Err(why) => {
            SAID.call_once(|| log::warn!("no GPU here: unified tensors lie in ordinary memory ({why})"));
            Ok(None)
        }
    }
}

fn registered(map: impl FnOnce(&Gpu) -> headwater_memory::Result<Span>) -> Result<Option<Span>> {
    let Some(gpu) = unified_gpu()? else { return Ok(None) };
    match map(&gpu) {
        Ok(span) => Ok(Some(span)),
        Err(why) if why.is_out_of_memory() => {
            warn_unpinned(&why);
            Ok(None)
        }
        Err(why) => Err(why.into()),
    }
}

fn warn_unpinned(why: &headwater_memory::Error) {
    static SAID: Once = Once::new();
    SAID.call_once(|| log::warn!("a unified tensor could not be pinned and is read through staged copies: {why}"));
}
