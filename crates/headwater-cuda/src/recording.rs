//! Streams that somebody else records: torch captures graphs of its own, and what we queue becomes a part of them.
//!
//! Such a graph runs long after the call that was recorded, so memory that the call touched has to stay until the graph is gone.
//! Only the driver knows when that is. It is given the memory as an object of the graph, and hands it back on a thread that may
//! not call the driver; so what it hands back is freed by the next who allocates.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::gpu::{Gpu, lock};
use crate::span::Span;
use crate::stream::{KeptParts, Stream};

impl Stream {
    /// Whether work on this stream is recorded now and not run, by whomever.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        const ACTIVE: c_int = 1;
        let Ok(driver) = self.gpu().bind() else { return false };
        let mut status = 0;
        // SAFETY: writes one number; the handle is live. What the driver refuses to say is said by the work that follows.
        let code = unsafe { (driver.cuStreamIsCapturing)(self.raw(), &raw mut status) };
        code == 0 && status == ACTIVE
    }

    /// Whether the handle names another stream in every thread.
    #[must_use]
    pub fn is_of_thread(&self) -> bool {
        const PER_THREAD: usize = 2;
        self.raw().addr() == PER_THREAD
    }

    /// A stream of our own that graphs for this one are recorded on: default streams cannot be recorded, and those of others are
    /// theirs. What runs of different streams must not share, such as the workspace of products, is told apart by it.
    pub fn recorder(&self) -> Result<&Self> {
        if let Some(known) = self.kept_recorder().get() {
            return Ok(known);
        }
        let made = Self::new(self.gpu())?;
        Ok(self.kept_recorder().get_or_init(|| made))
    }

    /// Queues work on a stream that somebody else records. What it touches is kept until their graph is gone. Memory may be
    /// allocated and kernels loaded inside, whatever their capture forbids.
    pub fn queue_recorded<E: From<Error>>(&self, work: impl FnOnce(&Self) -> Result<(), E>) -> Result<(), E> {
        let _allowed = Unguarded::enter(self.gpu())?;
        let Some(kept) = self.begin_keeping() else { return work(self) };
        let done = work(self);
        let parts = std::mem::take(&mut *lock(&kept));
        drop(kept);
        // Some of it may be recorded, whether all went well or not.
        let given = self.give_to_graph(parts);
        done?;
        Ok(given?)
    }

    /// Gives memory to the graph that this stream is recorded for.
    fn give_to_graph(&self, parts: KeptParts) -> Result<()> {
        const NO_DESTRUCTOR_SYNC: c_uint = 1;
        const MOVE: c_uint = 1;
        let driver = self.gpu().bind()?;
        let (Some(info), Some(create), Some(retain), Some(release)) = (
            driver.cuStreamGetCaptureInfo_v2,
            driver.cuUserObjectCreate,
            driver.cuGraphRetainUserObject,
            driver.cuUserObjectRelease,
        ) else {
            // Nobody says when the graph is gone, so it is kept for good.
            std::mem::forget(parts);
            return Ok(());
        };
        let (mut status, mut graph) = (0, std::ptr::null_mut());
        let (id, behind, count) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: writes a number and a handle; what is null is not written.
        let code = unsafe { info(self.raw(), &raw mut status, id, &raw mut graph, behind, count) };
        driver.check("cuStreamGetCaptureInfo", code)?;
        let (data, mut object) = (Box::into_raw(Box::new(parts)), std::ptr::null_mut());
        // SAFETY: writes one handle; the data is ours until its end is called, which takes it back.
        let code = unsafe { create(&raw mut object, data.cast(), take_back, 1, NO_DESTRUCTOR_SYNC) };
        if code != 0 {
            // SAFETY: the driver did not take it.
            drop(unsafe { Box::from_raw(data) });
            return driver.check("cuUserObjectCreate", code);
        }
        // SAFETY: both handles are live; the one reference moves to the graph.
        let code = unsafe { retain(graph, object, 1, MOVE) };
        if code != 0 {
            // SAFETY: the reference is still ours.
            unsafe { release(object, 1) };
        }
        driver.check("cuGraphRetainUserObject", code)
    }
}

/// Called by the driver when the last graph that has the data is gone.
unsafe extern "C" fn take_back(data: *mut c_void) {
    // SAFETY: made by `give_to_graph`, and called once.
    let KeptParts { spans, faults } = *unsafe { Box::from_raw(data.cast::<KeptParts>()) };
    spans.into_iter().chain(faults).for_each(free_later);
}

/// Memory that may be freed as soon as somebody may call the driver.
static LEFT: Mutex<Vec<Span>> = Mutex::new(Vec::new());
static IS_LEFT: AtomicBool = AtomicBool::new(false);

/// Leaves memory to the next who allocates.
pub(crate) fn free_later(span: Span) {
    lock(&LEFT).push(span);
    IS_LEFT.store(true, Ordering::Release);
}

/// Frees what was left. What still cannot be freed is left again.
pub(crate) fn free_now() {
    if IS_LEFT.swap(false, Ordering::AcqRel) {
        let left = std::mem::take(&mut *lock(&LEFT));
        drop(left);
    }
}

/// The thread may call what captures of others forbid, while this lives: memory of ours has nothing to do with them.
pub(crate) struct Unguarded<'a> {
    gpu: &'a Gpu,
    before: c_int,
}

impl<'a> Unguarded<'a> {
    pub fn enter(gpu: &'a Gpu) -> Result<Self> {
        const RELAXED: c_int = 2;
        Ok(Self { gpu, before: exchange(gpu, RELAXED)? })
    }
}

impl Drop for Unguarded<'_> {
    fn drop(&mut self) {
        // What was allowed a moment ago cannot fail.
        let _ = exchange(self.gpu, self.before);
    }
}

fn exchange(gpu: &Gpu, mut mode: c_int) -> Result<c_int> {
    let driver = gpu.driver();
    // SAFETY: reads and writes one number.
    driver.check("cuThreadExchangeStreamCaptureMode", unsafe {
        (driver.cuThreadExchangeStreamCaptureMode)(&raw mut mode)
    })?;
    Ok(mode)
}
