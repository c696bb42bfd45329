//! Streams order work on a GPU; events mark points in them.
//!
//! A stream also carries the place where its kernels report bad values: a kernel cannot return an error, so it writes
//! what it met into the stream's fault cell, and the next synchronisation of the stream returns it.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::gpu::{Gpu, lock};
use crate::recording::Unguarded;
use crate::span::{Allocation, Span, uses_so_far};
use crate::trace::Traced;
use crate::types::{CUevent, CUgreenCtx, CUstream};

const NON_BLOCKING: c_uint = 1;
const NOT_READY: c_int = 600;

/// A queue of GPU work, executed in order. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Stream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gpu: Gpu,
    raw: CUstream,
    origin: Origin,
    fault: Span,
    /// Fault cells of other streams that graphs replayed here report to.
    watched: Mutex<Vec<Span>>,
    /// The capture this stream is part of, alive while it lasts.
    capturing: Mutex<Weak<Kept>>,
    /// Device memory this stream's work used and may use again.
    scratch: Mutex<Vec<Arc<Allocation>>>,
    traced: Traced,
    /// Uses of memory with numbers below this are over.
    passed: AtomicU64,
    /// Where graphs for this stream are recorded.
    recorder: OnceLock<Stream>,
}

/// What a graph under capture must keep alive, whichever of the captured streams uses it.
pub(crate) type Kept = Mutex<KeptParts>;

#[derive(Debug, Default)]
pub(crate) struct KeptParts {
    /// Buffers that the recorded work touches.
    pub spans: Vec<Span>,
    /// Cells that the recorded kernels report to.
    pub faults: Vec<Span>,
}

/// Who made the stream and therefore who destroys it.
#[derive(Debug)]
enum Origin {
    Ours,
    Foreign,
    /// Kept so that the green context outlives the stream.
    Green(#[expect(dead_code, reason = "held for its drop")] Arc<GreenHandle>),
}

/// A green context, destroyed when its last stream is gone.
#[derive(Debug)]
pub(crate) struct GreenHandle {
    pub raw: CUgreenCtx,
    pub gpu: Gpu,
}

// SAFETY: stream handles may be used from any thread; the driver locks internally.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}
// SAFETY: a green context handle is only passed to the driver, which locks internally.
unsafe impl Send for GreenHandle {}
// SAFETY: as above.
unsafe impl Sync for GreenHandle {}

/// What a kernel writes when it meets a value it must not follow. The same struct stands in `prelude.cuh`.
#[repr(C)]
struct FaultCell {
    code: AtomicU32,
    padding: u32,
    position: AtomicU64,
    value: AtomicU64,
    limit: AtomicU64,
}

impl Stream {
    /// A new stream that does not wait for the legacy default stream.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        Self::with_priority(gpu, 0)
    }

    /// A stream whose kernels go before those of others when an SM is free.
    pub fn urgent(gpu: &Gpu) -> Result<Self> {
        /// The driver takes a number beyond its range for the end of the range.
        const FIRST: c_int = -100;
        Self::with_priority(gpu, FIRST)
    }

    fn with_priority(gpu: &Gpu, priority: c_int) -> Result<Self> {
        let (driver, fault) = (gpu.bind()?, new_fault_cell(gpu)?);
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the context is current.
        let code = unsafe { (driver.cuStreamCreateWithPriority)(&raw mut raw, NON_BLOCKING, priority) };
        driver.check("cuStreamCreateWithPriority", code)?;
        Ok(Self::from_parts(gpu, raw, Origin::Ours, fault))
    }

    /// Wraps a stream that somebody else made and never destroys, such as the default ones and those of torch's pool. One that may
    /// be destroyed is a [`PassingStream`](crate::PassingStream).
    ///
    /// # Safety
    /// `raw` is a stream of `gpu`'s primary context (null for the legacy default stream) and is never destroyed: memory that it
    /// was given waits for it when it goes.
    pub unsafe fn foreign(gpu: &Gpu, raw: *mut std::ffi::c_void) -> Result<Self> {
        /// Kept for good: kernels that hold the fault cell's address may run longer than any wrapper, and scratch memory
        /// is worth something only when the next wrapper of the same stream finds it.
        static KNOWN: OnceLock<Mutex<HashMap<(usize, usize), Stream>>> = OnceLock::new();
        let mut known = lock(KNOWN.get_or_init(Mutex::default));
        let key = (gpu.ordinal(), raw.addr());
        if let Some(stream) = known.get(&key) {
            return Ok(stream.clone());
        }
        let stream = Self::from_parts(gpu, raw.cast(), Origin::Foreign, new_fault_cell(gpu)?);
        known.insert(key, stream.clone());
        Ok(stream)
    }

    /// A stream of a green context; `make` creates its handle.
    pub(crate) fn of_green_context(green: Arc<GreenHandle>, make: impl FnOnce() -> Result<CUstream>) -> Result<Self> {
        let gpu = green.gpu.clone();
        let fault = new_fault_cell(&gpu)?;
        Ok(Self::from_parts(&gpu, make()?, Origin::Green(green), fault))
    }

    fn from_parts(gpu: &Gpu, raw: CUstream, origin: Origin, fault: Span) -> Self {
        let (watched, capturing, scratch) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (traced, passed, recorder) = (Traced::default(), AtomicU64::new(0), OnceLock::new());
        let gpu = gpu.clone();
        Self(Arc::new(Inner { gpu, raw, origin, fault, watched, capturing, scratch, traced, passed, recorder }))
    }

    /// The GPU this stream belongs to.
    #[must_use]
    pub fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    /// Waits until everything queued so far is done, and returns the first fault its kernels reported.
    pub fn synchronize(&self) -> Result<()> {
        let (driver, before) = (self.0.gpu.bind()?, uses_so_far());
        // SAFETY: the handle is live.
        driver.check("cuStreamSynchronize", unsafe { (driver.cuStreamSynchronize)(self.raw()) })?;
        self.0.passed.fetch_max(before, Ordering::AcqRel);
        self.take_fault()
    }

    /// Whether everything queued so far is done.
    pub fn is_idle(&self) -> Result<bool> {
        let driver = self.0.gpu.bind()?;
        // SAFETY: the handle is live.
        ready("cuStreamQuery", &driver, unsafe { (driver.cuStreamQuery)(self.raw()) })
    }

    /// Makes later work on this stream wait for `event`.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let driver = self.0.gpu.bind()?;
        // SAFETY: both handles are live.
        driver.check("cuStreamWaitEvent", unsafe { (driver.cuStreamWaitEvent)(self.raw(), event.raw, 0) })?;
        // Waiting for a captured event makes this stream part of the capture.
        let captured = lock(&event.mark).captured.clone();
        if captured.strong_count() > 0 {
            *lock(&self.0.capturing) = captured;
        }
        Ok(())
    }

    /// Marks this point of the stream.
    pub fn record(&self) -> Result<Event> {
        let event = Event::new(&self.0.gpu)?;
        event.record_on(self)?;
        Ok(event)
    }

    /// Makes this stream wait for everything queued on `other` so far.
    pub fn wait_for(&self, other: &Self) -> Result<()> {
        if self.same_as(other) { Ok(()) } else { self.wait(&other.record()?) }
    }

    /// Uses of memory with numbers below this are known to be over.
    pub(crate) fn passed(&self) -> u64 {
        self.0.passed.load(Ordering::Acquire)
    }

    /// Whether two handles name one queue.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        self.0.raw == other.0.raw && self.0.gpu.ordinal() == other.0.gpu.ordinal()
    }

    /// Returns and clears the first fault reported by a kernel that has finished.
    pub fn take_fault(&self) -> Result<()> {
        take_from(&self.0.fault)?;
        lock(&self.0.watched).iter().try_for_each(take_from)
    }

    /// Faults that land in these cells are this stream's to report too.
    pub(crate) fn watch(&self, cells: &[Span]) {
        let mut watched = lock(&self.0.watched);
        for cell in cells {
            let known = std::iter::once(&self.0.fault).chain(watched.iter()).any(|known| same_memory(known, cell));
            if !known {
                watched.push(cell.clone());
            }
        }
    }

    pub(crate) fn raw(&self) -> CUstream {
        self.0.raw
    }

    pub(crate) fn fault_pointer(&self) -> u64 {
        self.0.fault.pointer()
    }

    pub(crate) fn kept_recorder(&self) -> &OnceLock<Self> {
        &self.0.recorder
    }

    pub(crate) fn traced(&self) -> &Traced {
        &self.0.traced
    }

    pub(crate) fn kept_scratch(&self) -> &Mutex<Vec<Arc<Allocation>>> {
        &self.0.scratch
    }

    /// Starts collecting what launches touch, for as long as the result lives; `None` when a capture is under way.
    pub(crate) fn begin_keeping(&self) -> Option<Arc<Kept>> {
        let mut capturing = lock(&self.0.capturing);
        if capturing.strong_count() > 0 {
            return None;
        }
        let kept = Arc::new(Kept::default());
        *capturing = Arc::downgrade(&kept);
        Some(kept)
    }

    /// The capture this stream is part of now.
    pub(crate) fn capture(&self) -> Option<Arc<Kept>> {
        lock(&self.0.capturing).upgrade()
    }

    /// Tells the spans that this stream uses them, and hands them to the graph being captured, if any.
    pub(crate) fn note_use<'a>(&self, spans: impl Iterator<Item = &'a Span>) {
        let capture = self.capture();
        let mut kept = capture.as_deref().map(lock);
        for span in spans {
            span.note_use(self);
            if let Some(kept) = kept.as_mut() {
                add(&mut kept.spans, span);
            }
        }
        if let Some(kept) = kept.as_mut() {
            add(&mut kept.faults, &self.0.fault);
        }
    }
}

fn add(known: &mut Vec<Span>, span: &Span) {
    if !known.iter().any(|known| same_memory(known, span)) {
        known.push(span.clone());
    }
}

pub(crate) fn same_memory(one: &Span, other: &Span) -> bool {
    Arc::ptr_eq(one.allocation(), other.allocation())
}

fn new_fault_cell(gpu: &Gpu) -> Result<Span> {
    // The stream may be met for the first time while its owner records it.
    let _allowed = Unguarded::enter(gpu)?;
    let cell = Span::whole(Allocation::pinned(gpu, size_of::<FaultCell>())?);
    cell.host_fill(0);
    Ok(cell)
}

/// A kernel that is still running has begun a report; the same number stands in `prelude.cuh`.
const FAULT_BEING_WRITTEN: u32 = u32::MAX;

fn take_from(fault: &Span) -> Result<()> {
    let Some(start) = fault.host_pointer() else { return Ok(()) };
    // SAFETY: the allocation holds one FaultCell, all of whose fields are atomics, and lives as long as the span.
    let cell = unsafe { start.cast::<FaultCell>().as_ref() };
    let code = cell.code.load(Ordering::Acquire);
    if code == 0 || code == FAULT_BEING_WRITTEN {
        return Ok(());
    }
    let (position, value) = (cell.position.load(Ordering::Relaxed), cell.value.load(Ordering::Relaxed));
    let limit = cell.limit.load(Ordering::Relaxed);
    cell.code.store(0, Ordering::Release);
    Err(Error::Fault { code, position, value: value.cast_signed(), limit })
}

impl Drop for Inner {
    fn drop(&mut self) {
        if matches!(self.origin, Origin::Foreign) {
            return;
        }
        if let Ok(driver) = self.gpu.bind() {
            // The fault cell is about to be freed, so nothing may still be running.
            // SAFETY: the handle is ours and nobody can use it any more.
            unsafe {
                (driver.cuStreamSynchronize)(self.raw);
                (driver.cuStreamDestroy_v2)(self.raw);
            }
        }
    }
}

impl Drop for GreenHandle {
    fn drop(&mut self) {
        if let (Ok(_current), Some(destroy)) = (self.gpu.bind(), self.gpu.driver().cuGreenCtxDestroy) {
            // SAFETY: the handle is ours and its streams are gone.
            unsafe { destroy(self.raw) };
        }
    }
}

/// A point in a stream.
#[derive(Debug)]
pub struct Event {
    raw: CUevent,
    gpu: Gpu,
    mark: Mutex<Mark>,
}

/// Where an event stands.
#[derive(Debug, Clone, Default)]
struct Mark {
    /// The capture it was recorded in, if any.
    captured: Weak<Kept>,
    /// The stream, unless it was captured, and the number that uses of memory before the event are below.
    stream: Weak<Inner>,
    before: u64,
}

impl Mark {
    /// The work before it is over.
    fn pass(&self) {
        if let Some(stream) = self.stream.upgrade() {
            stream.passed.fetch_max(self.before, Ordering::AcqRel);
        }
    }
}

// SAFETY: event handles may be used from any thread; the driver locks internally.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event for ordering only, which is cheaper than one that can be timed.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        const DISABLE_TIMING: c_uint = 2;
        Self::with_flags(gpu, DISABLE_TIMING)
    }

    /// An event whose distance to another can be measured.
    pub fn timed(gpu: &Gpu) -> Result<Self> {
        Self::with_flags(gpu, 0)
    }

    fn with_flags(gpu: &Gpu, flags: c_uint) -> Result<Self> {
        /// Who waits for an event sleeps: a core that spins is a core that samples nothing.
        const BLOCKING_SYNC: c_uint = 1;
        let driver = gpu.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the context is current.
        driver.check("cuEventCreate", unsafe { (driver.cuEventCreate)(&raw mut raw, flags | BLOCKING_SYNC) })?;
        Ok(Self { raw, gpu: gpu.clone(), mark: Mutex::default() })
    }

    pub(crate) fn raw(&self) -> CUevent {
        self.raw
    }

    /// Moves the event to the present end of `stream`.
    pub fn record_on(&self, stream: &Stream) -> Result<()> {
        // Counted before the event is queued: what is noted by now was queued before that.
        let (driver, before) = (self.gpu.bind()?, uses_so_far());
        // SAFETY: both handles are live.
        driver.check("cuEventRecord", unsafe { (driver.cuEventRecord)(self.raw, stream.raw()) })?;
        let captured = lock(&stream.0.capturing).clone();
        let is_captured = captured.strong_count() > 0;
        let stream = if is_captured { Weak::new() } else { Arc::downgrade(&stream.0) };
        *lock(&self.mark) = Mark { captured, stream, before };
        Ok(())
    }

    /// Whether the work before the event is done.
    pub fn has_passed(&self) -> Result<bool> {
        // Read first: were the event moved meanwhile, it would be asked about a later place.
        let (driver, mark) = (self.gpu.bind()?, lock(&self.mark).clone());
        // Others may be recording meanwhile, and asking has nothing to do with them.
        let _allowed = Unguarded::enter(&self.gpu)?;
        // SAFETY: the handle is live.
        let has_passed = ready("cuEventQuery", &driver, unsafe { (driver.cuEventQuery)(self.raw) })?;
        if has_passed {
            mark.pass();
        }
        Ok(has_passed)
    }

    /// Waits until the work before the event is done.
    pub fn synchronize(&self) -> Result<()> {
        let (driver, mark) = (self.gpu.bind()?, lock(&self.mark).clone());
        let _allowed = Unguarded::enter(&self.gpu)?;
        // SAFETY: the handle is live.
        driver.check("cuEventSynchronize", unsafe { (driver.cuEventSynchronize)(self.raw) })?;
        mark.pass();
        Ok(())
    }

    /// Milliseconds from `earlier` to this event. Both must be timed and have passed.
    pub fn ms_since(&self, earlier: &Self) -> Result<f32> {
        let driver = self.gpu.bind()?;
        let mut ms = 0.0;
        // SAFETY: writes one float; both handles are live.
        let code = unsafe { (driver.cuEventElapsedTime)(&raw mut ms, earlier.raw, self.raw) };
        driver.check("cuEventElapsedTime", code)?;
        Ok(ms)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(driver) = self.gpu.bind() {
            // SAFETY: the handle is ours; the driver frees it once pending work no longer needs it.
            unsafe { (driver.cuEventDestroy_v2)(self.raw) };
        }
    }
}

fn ready(call: &'static str, driver: &Driver, code: c_int) -> Result<bool> {
    match code {
        NOT_READY => Ok(false),
        code => driver.check(call, code).map(|()| true),
    }
}
