//! Streams that somebody else may destroy as soon as a call is over.
//!
//! Work is noted on the memory it touches, and memory waits for its streams when it goes: a handle that was kept for that would
//! be used long after its owner destroyed the stream. So work for such a stream goes to one of our own, which begins behind
//! what theirs has queued; when the call ends, theirs goes on behind it. Their handle is used in between and never again.

use std::ffi::c_void;
use std::fmt;
use std::ops::Deref;
use std::sync::Mutex;

use crate::error::Result;
use crate::gpu::{Gpu, lock};
use crate::stream::{Event, Stream};
use crate::types::CUstream;

/// A stream of our own in place of somebody else's, for as long as this lives.
pub struct PassingStream {
    own: Stream,
    theirs: CUstream,
}

// SAFETY: stream handles may be used from any thread; the driver locks internally.
unsafe impl Send for PassingStream {}
// SAFETY: as above.
unsafe impl Sync for PassingStream {}

/// A stream of our own, for the GPU and the handle of theirs.
type Substitute = ((usize, usize), Stream);

/// Substitutes are kept: their scratch memory is worth something only when the next call finds it, and faults of kernels wait in
/// them for whoever synchronises. A handle that was destroyed and made again gets the same one, which does no harm.
static SUBSTITUTES: Mutex<Vec<Substitute>> = Mutex::new(Vec::new());
/// More streams than a program uses at a time.
const MOST: usize = 64;

impl PassingStream {
    /// Work from here on comes behind everything that was queued on `raw`.
    ///
    /// # Safety
    /// `raw` is a stream of `gpu`'s primary context and is not destroyed before the result is dropped.
    pub unsafe fn new(gpu: &Gpu, raw: *mut c_void) -> Result<Self> {
        let (own, theirs, event) = (substitute(gpu, raw.addr())?, raw.cast(), Event::new(gpu)?);
        let driver = gpu.bind()?;
        // SAFETY: both handles are live, by the caller's promise.
        driver.check("cuEventRecord", unsafe { (driver.cuEventRecord)(event.raw(), theirs) })?;
        own.wait(&event)?;
        Ok(Self { own, theirs })
    }

    /// Makes theirs wait for what was queued on ours.
    fn hand_over(&self) -> Result<()> {
        let (event, driver) = (self.own.record()?, self.own.gpu().bind()?);
        // SAFETY: theirs is live until this is dropped, by the promise made to `new`.
        driver.check("cuStreamWaitEvent", unsafe { (driver.cuStreamWaitEvent)(self.theirs, event.raw(), 0) })
    }
}

impl Deref for PassingStream {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.own
    }
}

impl Drop for PassingStream {
    fn drop(&mut self) {
        if self.hand_over().is_err() {
            // What cannot be ordered is waited for. A fault stays in its cell for whoever synchronises.
            let _ = self.own.record().and_then(|event| event.synchronize());
        }
    }
}

impl fmt::Debug for PassingStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PassingStream({:?}, {:?})", self.own.gpu(), self.theirs)
    }
}

fn substitute(gpu: &Gpu, handle: usize) -> Result<Stream> {
    let mut known = lock(&SUBSTITUTES);
    let key = (gpu.ordinal(), handle);
    // The one that was asked for last stands at the end; the first is the one to go.
    let stream = match known.iter().position(|(known, _)| *known == key) {
        Some(at) => known.remove(at).1,
        None => Stream::new(gpu)?,
    };
    known.push((key, stream.clone()));
    let gone = (known.len() > MOST).then(|| known.remove(0));
    drop(known);
    // Outside of the lock: it is waited for.
    drop(gone);
    Ok(stream)
}
