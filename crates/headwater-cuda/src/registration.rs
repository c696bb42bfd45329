//! Host memory that the driver pins and maps where it lies.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::NonNull;

use crate::allocation_calls::{check_allocation, count_call};
use crate::error::Result;
use crate::gpu::Gpu;

/// Whether the driver has pinned all of `start..start + bytes` already, for whoever allocated it. It registers none of that again.
pub fn is_pinned(gpu: &Gpu, start: NonNull<u8>, bytes: usize) -> Result<bool> {
    const MEMORY_TYPE: c_int = 2;
    const IS_MANAGED: c_int = 8;
    const RANGE_START: c_int = 11;
    const RANGE_BYTES: c_int = 12;
    const HOST: u64 = 1;
    let driver = gpu.bind()?;
    let Some(ask) = driver.cuPointerGetAttribute else { return Ok(false) };
    let address = start.addr().get() as u64;
    let of = |attribute| {
        // Wide enough for each of them; the narrow ones fill its low bytes.
        let mut value = 0_u64;
        // SAFETY: writes eight bytes at most. The driver refuses addresses that it does not know.
        let code = unsafe { ask((&raw mut value).cast::<c_void>(), attribute, address) };
        (code == 0).then_some(value)
    };
    let (Some(HOST), Some(0)) = (of(MEMORY_TYPE), of(IS_MANAGED)) else { return Ok(false) };
    let (Some(first), Some(length)) = (of(RANGE_START), of(RANGE_BYTES)) else { return Ok(false) };
    Ok(first <= address && address.saturating_add(bytes as u64) <= first.saturating_add(length))
}

/// Host memory registered with the driver. Unregisters when dropped.
#[derive(Debug)]
pub struct Registration {
    gpu: Gpu,
    start: NonNull<u8>,
    bytes: usize,
    read_only: bool,
}

// SAFETY: only the address is kept; the driver locks internally.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Pins `start..start + bytes` and maps it into every GPU. Memory that the system does not let a device write, such
    /// as a mapped file, is mapped for reading.
    ///
    /// # Safety
    /// The range is mapped in this process and stays so until the registration is dropped.
    pub unsafe fn new(gpu: &Gpu, start: NonNull<u8>, bytes: usize) -> Result<Self> {
        const PORTABLE_AND_MAPPED: c_uint = 1 | 2;
        const READ_ONLY: c_uint = 8;
        const INVALID_VALUE: c_int = 1;
        let driver = gpu.bind()?;
        // SAFETY: the caller's promise.
        let register = |flags| unsafe { (driver.cuMemHostRegister_v2)(start.as_ptr().cast(), bytes, flags) };
        let code = register(PORTABLE_AND_MAPPED);
        let read_only = code == INVALID_VALUE && register(PORTABLE_AND_MAPPED | READ_ONLY) == 0;
        if !read_only {
            check_allocation(gpu, "registered host memory", "cuMemHostRegister", code, bytes)?;
        }
        Ok(Self { gpu: gpu.clone(), start, bytes, read_only })
    }

    /// Where it starts.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the GPU may only read it.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Ok(driver) = self.gpu.bind() {
            count_call();
            // SAFETY: registered by us, and still mapped by the promise made to `new`.
            unsafe { (driver.cuMemHostUnregister)(self.start.as_ptr().cast()) };
        }
    }
}
