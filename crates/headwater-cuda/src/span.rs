//! Memory a GPU can reach, and who is still using it.
//!
//! An [`Allocation`] is one range with one way of being freed; a [`Span`] is a counted reference to a part of it. Every
//! launch and copy notes its stream on the allocations it touches, so that the last reference, when it goes, frees the
//! memory after that work and not under it. Nobody has to remember to keep a buffer alive.

use std::any::Any;
use std::ffi::{c_uint, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::allocation_calls::{check_allocation, count_call};
use crate::error::{Error, Result};
use crate::gpu::{Gpu, lock};
use crate::recording;
use crate::stream::{Event, Stream};
use crate::types::CUipcMemHandle;

/// A range of GPU-reachable memory.
#[derive(Debug)]
pub struct Allocation {
    gpu: Gpu,
    pointer: u64,
    host: Option<NonNull<u8>>,
    bytes: usize,
    backing: Backing,
    parts: RegisteredParts,
    pub(crate) uses: Mutex<Vec<Use>>,
}

/// How borrowed host memory is registered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegisteredParts {
    /// Offsets at which one registration ends and the next begins; copies must not cross them.
    pub seams: Vec<usize>,
    /// Whether the GPU may only read it.
    pub read_only: bool,
}

/// A stream that was given the memory. The number is new at every use, so that a waiter removes only what it waited for.
#[derive(Debug, Clone)]
pub(crate) struct Use {
    stream: Stream,
    pub(crate) number: u64,
}

static USES: AtomicU64 = AtomicU64::new(0);

/// Every use that was noted by now has a number below this.
pub(crate) fn uses_so_far() -> u64 {
    USES.load(Ordering::Acquire)
}

/// What the memory is and how it is given back.
enum Backing {
    /// Freed in the order of the stream it came from.
    StreamOrdered(Stream),
    /// Plain device memory, which other processes may map.
    Device,
    /// Page-locked host memory.
    Pinned,
    Managed,
    /// Another process's device memory.
    Imported,
    /// Host memory somebody else owns and keeps registered for as long as this is held.
    Borrowed(#[expect(dead_code, reason = "held for its drop")] Arc<dyn Any + Send + Sync>),
    /// Device memory of a library that orders its own uses of it.
    Lent(#[expect(dead_code, reason = "held for its drop")] Arc<dyn Any + Send + Sync>),
}

impl std::fmt::Debug for Backing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::StreamOrdered(_) => "StreamOrdered",
            Self::Device => "Device",
            Self::Pinned => "Pinned",
            Self::Managed => "Managed",
            Self::Imported => "Imported",
            Self::Borrowed(_) => "Borrowed",
            Self::Lent(_) => "Lent",
        })
    }
}

// SAFETY: the range is owned; access goes through the driver or through callers that keep Rust's aliasing rules.
unsafe impl Send for Allocation {}
// SAFETY: as above; the use list is locked.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Device memory that becomes valid and invalid in the order of `stream`.
    pub fn on_stream(stream: &Stream, bytes: usize) -> Result<Arc<Self>> {
        recording::free_now();
        let (gpu, driver) = (stream.gpu(), stream.gpu().bind()?);
        let mut pointer = 0;
        // SAFETY: writes one pointer. A length of zero is refused by the driver, so one byte is asked for instead.
        let code = unsafe { (driver.cuMemAllocAsync)(&raw mut pointer, bytes.max(1), stream.raw()) };
        check_allocation(gpu, "device memory", "cuMemAllocAsync", code, bytes)?;
        Ok(Self::new(gpu, pointer, None, bytes, Backing::StreamOrdered(stream.clone())))
    }

    /// Device memory that can be handed to another process.
    pub fn shareable(gpu: &Gpu, bytes: usize) -> Result<Arc<Self>> {
        let driver = gpu.bind()?;
        let mut pointer = 0;
        // SAFETY: writes one pointer.
        let code = unsafe { (driver.cuMemAlloc_v2)(&raw mut pointer, bytes.max(1)) };
        check_allocation(gpu, "device memory", "cuMemAlloc", code, bytes)?;
        Ok(Self::new(gpu, pointer, None, bytes, Backing::Device))
    }

    /// Page-locked host memory, cached by the CPU and mapped into the GPU.
    pub fn pinned(gpu: &Gpu, bytes: usize) -> Result<Arc<Self>> {
        Self::host_alloc(gpu, bytes, 0)
    }

    /// Page-locked host memory that the CPU only writes: its reads are uncached and slow.
    pub fn write_combined(gpu: &Gpu, bytes: usize) -> Result<Arc<Self>> {
        const WRITE_COMBINED: c_uint = 4;
        Self::host_alloc(gpu, bytes, WRITE_COMBINED)
    }

    fn host_alloc(gpu: &Gpu, bytes: usize, flags: c_uint) -> Result<Arc<Self>> {
        const PORTABLE_AND_MAPPED: c_uint = 1 | 2;
        let driver = gpu.bind()?;
        let mut start: *mut c_void = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        let code = unsafe { (driver.cuMemHostAlloc)(&raw mut start, bytes.max(1), flags | PORTABLE_AND_MAPPED) };
        check_allocation(gpu, "pinned host memory", "cuMemHostAlloc", code, bytes)?;
        let host = NonNull::new(start.cast());
        // Made before the last step that can fail, so that its drop frees the memory.
        let mut made = Self::unshared(gpu, 0, host, bytes, Backing::Pinned);
        made.pointer = device_pointer(gpu, start)?;
        Ok(Arc::new(made))
    }

    /// Managed memory, which the driver moves by itself. Kept small: it exists for `mem_advise` alone.
    pub fn managed(gpu: &Gpu, bytes: usize) -> Result<Arc<Self>> {
        const ATTACH_GLOBAL: c_uint = 1;
        let driver = gpu.bind()?;
        let mut pointer = 0;
        // SAFETY: writes one pointer.
        let code = unsafe { (driver.cuMemAllocManaged)(&raw mut pointer, bytes.max(1), ATTACH_GLOBAL) };
        check_allocation(gpu, "managed memory", "cuMemAllocManaged", code, bytes)?;
        let address = usize::try_from(pointer).unwrap_or(usize::MAX);
        let host = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(address));
        Ok(Self::new(gpu, pointer, host, bytes, Backing::Managed))
    }

    /// Device memory of another process, which must outlive this mapping.
    pub fn import(gpu: &Gpu, handle: &IpcHandle) -> Result<Arc<Self>> {
        const LAZY_PEER_ACCESS: c_uint = 1;
        let driver = gpu.bind()?;
        let mut pointer = 0;
        let raw = CUipcMemHandle { reserved: handle.bytes.map(u8::cast_signed) };
        // SAFETY: writes one pointer; the handle is passed by value.
        let code = unsafe { (driver.cuIpcOpenMemHandle_v2)(&raw mut pointer, raw, LAZY_PEER_ACCESS) };
        driver.check("cuIpcOpenMemHandle", code)?;
        let made = Self::new(gpu, pointer, None, handle.length_bytes, Backing::Imported);
        made.check_length()?;
        Ok(made)
    }

    /// The length came from another process, so the driver is asked about it where it can be.
    fn check_length(&self) -> Result<()> {
        let driver = self.gpu.bind()?;
        let (mut base, mut bytes) = (0, 0);
        let Some(ask) = driver.cuMemGetAddressRange_v2 else { return Ok(()) };
        // SAFETY: writes two integers.
        driver.check("cuMemGetAddressRange", unsafe { ask(&raw mut base, &raw mut bytes, self.pointer) })?;
        let room = base.saturating_add(bytes as u64).saturating_sub(self.pointer);
        if self.bytes as u64 <= room {
            return Ok(());
        }
        let why = format!("{} bytes were announced and {room} are there", self.bytes);
        Err(Error::Unsupported { what: "memory of another process", why })
    }

    /// Host memory that `keeper` keeps allocated and registered with the driver.
    ///
    /// # Safety
    /// `start..start + bytes` is registered with the driver and stays valid as long as `keeper` is held.
    pub unsafe fn borrowed(
        gpu: &Gpu,
        start: NonNull<u8>,
        bytes: usize,
        parts: RegisteredParts,
        keeper: Arc<dyn Any + Send + Sync>,
    ) -> Result<Arc<Self>> {
        let pointer = device_pointer(gpu, start.as_ptr().cast())?;
        for seam in &parts.seams {
            let beyond = device_pointer(gpu, start.as_ptr().wrapping_add(*seam).cast())?;
            if beyond != pointer + *seam as u64 {
                let why = "the GPU sees its parts at addresses that do not follow each other".into();
                return Err(Error::Unsupported { what: "memory registered in parts", why });
            }
        }
        let mut made = Self::unshared(gpu, pointer, Some(start), bytes, Backing::Borrowed(keeper));
        made.parts = parts;
        Ok(Arc::new(made))
    }

    /// Device memory of another library in this process, such as torch, which orders its own uses of it by streams. Nobody
    /// waits when this goes.
    ///
    /// # Safety
    /// `pointer..pointer + bytes` is memory that `gpu` reads and writes, and stays so while `keeper` is held. Whoever frees it
    /// afterwards does so behind the work of every stream that was given it.
    pub unsafe fn lent(gpu: &Gpu, pointer: u64, bytes: usize, keeper: Arc<dyn Any + Send + Sync>) -> Arc<Self> {
        Self::new(gpu, pointer, None, bytes, Backing::Lent(keeper))
    }

    fn new(gpu: &Gpu, pointer: u64, host: Option<NonNull<u8>>, bytes: usize, backing: Backing) -> Arc<Self> {
        Arc::new(Self::unshared(gpu, pointer, host, bytes, backing))
    }

    fn unshared(gpu: &Gpu, pointer: u64, host: Option<NonNull<u8>>, bytes: usize, backing: Backing) -> Self {
        Self {
            gpu: gpu.clone(),
            pointer,
            host,
            bytes,
            backing,
            parts: RegisteredParts::default(),
            uses: Mutex::default(),
        }
    }

    /// The GPU the memory was made for.
    #[must_use]
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether only the GPU it lies in, and that GPU's peers, can reach it.
    #[must_use]
    pub fn is_device_only(&self) -> bool {
        self.host.is_none()
    }

    /// Whether the GPU may only read it.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.parts.read_only
    }

    /// Waits until no GPU work that was given this memory is running. Where an event behind that work is known to have passed,
    /// nothing is waited for.
    ///
    /// A fault found on the way is returned here, and not again by the stream.
    pub fn wait_until_unused(&self) -> Result<()> {
        self.end_uses(|used| {
            let is_over = used.number < used.stream.passed();
            if is_over { used.stream.take_fault() } else { used.stream.synchronize() }
        })
    }

    /// Ends every use by `end`, and forgets those for which that went well; a fault that was found on the way is well too. All of
    /// them are tried, whatever the first one reports.
    fn end_uses(&self, end: impl Fn(&Use) -> Result<()>) -> Result<()> {
        // The list stays meanwhile: a second thread that asks has to wait as well.
        let seen = lock(&self.uses).clone();
        let mut outcome = Ok(());
        for used in &seen {
            let ended = end(used);
            if matches!(ended, Ok(()) | Err(Error::Fault { .. })) {
                lock(&self.uses).retain(|known| known.number != used.number);
            }
            outcome = outcome.and(ended);
        }
        outcome
    }

    /// Marks the present end of each stream that may still use the memory, and forgets the streams: the caller now
    /// answers for them. Streams under capture cannot be marked and stay noted. A use that an event is known to have passed is over,
    /// whatever else its stream has to do.
    pub fn pending(&self) -> Result<Vec<Event>> {
        let mut uses = lock(&self.uses);
        uses.retain(|used| used.number >= used.stream.passed());
        let (captured, free): (Vec<Use>, Vec<Use>) =
            uses.iter().cloned().partition(|used| used.stream.capture().is_some());
        let events = free.iter().map(|used| used.stream.record()).collect::<Result<Vec<Event>>>()?;
        *uses = captured;
        Ok(events)
    }

    /// Whether a stream is noted as a user.
    #[must_use]
    pub fn has_users(&self) -> bool {
        !lock(&self.uses).is_empty()
    }

    /// Makes `stream` wait for every other stream that uses the memory, after which only its order counts.
    pub fn settle_on(&self, stream: &Stream) -> Result<()> {
        self.end_uses(|used| stream.wait_for(&used.stream))
    }

    /// A handle another process can import. Only [`Allocation::shareable`] memory has one.
    pub fn ipc_handle(&self) -> Result<IpcHandle> {
        let driver = self.gpu.bind()?;
        let mut raw = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: writes one handle; the driver refuses memory of another kind.
        driver.check("cuIpcGetMemHandle", unsafe { (driver.cuIpcGetMemHandle)(&raw mut raw, self.pointer) })?;
        Ok(IpcHandle { bytes: raw.reserved.map(i8::cast_unsigned), length_bytes: self.bytes })
    }

    /// Passes a hint about how managed memory will be used. `device` is −1 for the CPU.
    pub fn advise(&self, advice: i32, device: i32) -> Result<()> {
        let driver = self.gpu.bind()?;
        // SAFETY: the range is this allocation.
        let code = unsafe { (driver.cuMemAdvise)(self.pointer, self.bytes, advice, device) };
        driver.check("cuMemAdvise", code)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let pending = std::mem::take(&mut *lock(&self.uses));
        if pending.is_empty() && matches!(self.backing, Backing::Borrowed(_) | Backing::Lent(_)) {
            return;
        }
        let home = if let Backing::StreamOrdered(home) = &self.backing { Some(home) } else { None };
        let streams = pending.iter().map(|used| &used.stream);
        if let Some(kept) = streams.chain(home).find_map(Stream::capture) {
            let again = self.again(pending);
            return lock(&kept).spans.push(again);
        }
        if pending.iter().map(|used| &used.stream).chain(home).any(Stream::is_recorded) {
            return recording::free_later(self.again(pending));
        }
        let Ok(driver) = self.gpu.bind() else { return };
        if let Backing::StreamOrdered(home) = &self.backing {
            for Use { stream, .. } in &pending {
                if home.wait_for(stream).is_err() {
                    // SAFETY: the handle is live. What cannot be ordered is waited for.
                    unsafe { (driver.cuStreamSynchronize)(stream.raw()) };
                }
            }
            count_call();
            // SAFETY: ours, and ordered after every noted use.
            unsafe { (driver.cuMemFreeAsync)(self.pointer, home.raw()) };
            return;
        }
        for Use { stream, .. } in &pending {
            // SAFETY: the handle is live. A fault found here belongs to whoever synchronises the stream, so it stays.
            unsafe { (driver.cuStreamSynchronize)(stream.raw()) };
        }
        // SAFETY: ours, and nothing uses it any more.
        unsafe {
            match &self.backing {
                Backing::Device | Backing::Managed => (driver.cuMemFree_v2)(self.pointer),
                Backing::Imported => (driver.cuIpcCloseMemHandle)(self.pointer),
                Backing::Pinned => self.host.map_or(0, |start| (driver.cuMemFreeHost)(start.as_ptr().cast())),
                Backing::StreamOrdered(_) | Backing::Borrowed(_) | Backing::Lent(_) => return,
            }
        };
        count_call();
    }
}

impl Allocation {
    /// What is being dropped, once more: one of its streams is part of a capture. Freeing would become part of the capture, or
    /// break it; the memory goes when the capture's graph does, or when somebody else's capture is over.
    fn again(&mut self, pending: Vec<Use>) -> Span {
        let backing = std::mem::replace(&mut self.backing, Backing::Borrowed(Arc::new(())));
        let mut again = Self::unshared(&self.gpu, self.pointer, self.host, self.bytes, backing);
        (again.parts, again.uses) = (std::mem::take(&mut self.parts), Mutex::new(pending));
        Span::whole(Arc::new(again))
    }
}

/// What another process needs to map device memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpcHandle {
    /// The driver's opaque handle.
    pub bytes: [u8; 64],
    /// Length of the allocation.
    pub length_bytes: usize,
}

/// A counted reference to part of an allocation: what launches and copies take.
#[derive(Debug, Clone)]
pub struct Span {
    allocation: Arc<Allocation>,
    offset: usize,
    bytes: usize,
}

impl Span {
    /// All of an allocation.
    #[must_use]
    pub fn whole(allocation: Arc<Allocation>) -> Self {
        let bytes = allocation.bytes;
        Self { allocation, offset: 0, bytes }
    }

    /// `bytes` from `offset` on, or `None` when that leaves the span.
    #[must_use]
    pub fn part(&self, offset: usize, bytes: usize) -> Option<Self> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then(|| Self { allocation: self.allocation.clone(), offset: self.offset + offset, bytes })
    }

    /// Length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The allocation this is part of.
    #[must_use]
    pub fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }

    /// The address kernels use.
    #[must_use]
    pub fn pointer(&self) -> u64 {
        self.allocation.pointer + self.offset as u64
    }

    /// The address the CPU uses, when it can reach the memory.
    #[must_use]
    pub fn host_pointer(&self) -> Option<NonNull<u8>> {
        // SAFETY: the offset is inside the allocation, checked when the span was made.
        self.allocation.host.map(|start| unsafe { start.add(self.offset) })
    }

    /// Where inside this span two registrations meet.
    pub(crate) fn seams(&self) -> impl Iterator<Item = usize> {
        let within = |seam: &usize| (self.offset + 1..self.offset + self.bytes).contains(seam);
        self.allocation.parts.seams.iter().filter(move |seam| within(seam)).map(|seam| seam - self.offset)
    }

    pub(crate) fn host_fill(&self, value: u8) {
        if let Some(start) = self.host_pointer() {
            // SAFETY: the span is inside its allocation.
            unsafe { start.write_bytes(value, self.bytes) };
        }
    }

    pub(crate) fn note_use(&self, stream: &Stream) {
        let is_ordered = match &self.allocation.backing {
            Backing::StreamOrdered(home) => home.same_as(stream),
            Backing::Lent(_) => true,
            _ => false,
        };
        if is_ordered {
            return;
        }
        // Numbered under the lock, or a number could be overwritten by a lower one and a use be taken for over that is not.
        let mut uses = lock(&self.allocation.uses);
        let number = USES.fetch_add(1, Ordering::AcqRel);
        match uses.iter_mut().find(|known| known.stream.same_as(stream)) {
            Some(known) => known.number = number,
            None => uses.push(Use { stream: stream.clone(), number }),
        }
    }
}

fn device_pointer(gpu: &Gpu, host: *mut c_void) -> Result<u64> {
    let driver = gpu.bind()?;
    let mut pointer = 0;
    // SAFETY: writes one pointer; the driver refuses memory that is not mapped.
    let code = unsafe { (driver.cuMemHostGetDevicePointer_v2)(&raw mut pointer, host, 0) };
    driver.check("cuMemHostGetDevicePointer", code)?;
    Ok(pointer)
}
