//! CUDA graphs: a sequence of launches recorded once and replayed as one.

use std::mem::ManuallyDrop;

use crate::error::{Error, Result};
use crate::gpu::{Gpu, lock};
use crate::span::Span;
use crate::stream::{Stream, same_memory};
use crate::types::{CUgraph, CUgraphExec};

/// A recorded sequence, ready to run. It keeps every buffer its launches touch alive, but for those that were lent.
#[derive(Debug)]
pub struct Graph {
    gpu: Gpu,
    graph: CUgraph,
    executable: CUgraphExec,
    kept: Vec<Span>,
    /// Where memory lay that was lent: address and bytes.
    lent: Vec<(u64, usize)>,
    faults: Vec<Span>,
}

// SAFETY: graph handles are only passed to the driver. It does not lock launches of one executable against each other,
// so `launch` takes `&mut self`.
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `work` queues on `stream`, and on streams that wait for it, instead of running it. Waiting
    /// inside is an error, and so is the first use of a kernel: loading it would wait.
    pub fn capture<E: From<Error>>(stream: &Stream, work: impl FnOnce(&Stream) -> Result<(), E>) -> Result<Self, E> {
        Self::capture_over(stream, &[], work)
    }

    /// The same over memory that comes and goes. It is not kept: every launch gives memory at the same addresses again.
    pub fn capture_over<E: From<Error>>(
        stream: &Stream,
        lent: &[Span],
        work: impl FnOnce(&Stream) -> Result<(), E>,
    ) -> Result<Self, E> {
        /// Allocating is allowed: scratch memory that recorded work needs belongs to the graph.
        const RELAXED: i32 = 2;
        let (gpu, driver) = (stream.gpu().clone(), stream.gpu().bind()?);
        let Some(kept) = stream.begin_keeping() else {
            let why = "the stream is being captured already".into();
            return Err(Error::Unsupported { what: "a capture", why }.into());
        };
        // SAFETY: the handle is live.
        let code = unsafe { (driver.cuStreamBeginCapture_v2)(stream.raw(), RELAXED) };
        driver.check("cuStreamBeginCapture", code)?;
        let open = OpenCapture { stream };
        work(stream)?;
        let graph = open.end()?;
        let mut parts = std::mem::take(&mut *lock(&kept));
        parts.spans.retain(|span| !lent.iter().any(|own| same_memory(own, span)));
        let mut executable = std::ptr::null_mut();
        // SAFETY: writes one handle; the graph is live.
        let code = unsafe { (driver.cuGraphInstantiateWithFlags)(&raw mut executable, graph, 0) };
        let lent = lent.iter().map(place).collect();
        let made = Self { gpu, graph, executable, kept: parts.spans, lent, faults: parts.faults };
        driver.check("cuGraphInstantiateWithFlags", code)?;
        Ok(made)
    }

    /// Queues the whole sequence.
    pub fn launch(&mut self, stream: &Stream) -> Result<()> {
        self.launch_over(stream, &[])
    }

    /// The same over memory that is lent anew. It has to lie where it lay when the sequence was recorded.
    pub fn launch_over(&mut self, stream: &Stream, lent: &[Span]) -> Result<()> {
        if !lent.iter().map(place).eq(self.lent.iter().copied()) {
            let why = "memory that was lent to it does not lie where it lay when it was recorded".to_owned();
            return Err(Error::Unsupported { what: "a launch of a graph", why });
        }
        let driver = self.gpu.bind()?;
        stream.watch(&self.faults);
        // SAFETY: both handles are live; the buffers are kept by `self`, or lent by the caller, until their use
        // is noted.
        let code = unsafe { (driver.cuGraphLaunch)(self.executable, stream.raw()) };
        stream.note_use(self.kept.iter().chain(lent));
        driver.check("cuGraphLaunch", code)
    }
}

/// Address and bytes.
fn place(span: &Span) -> (u64, usize) {
    (span.pointer(), span.bytes())
}

/// A capture under way. It ends even when the work fails or panics, or the stream would stay unusable.
struct OpenCapture<'a> {
    stream: &'a Stream,
}

impl OpenCapture<'_> {
    fn end(self) -> Result<CUgraph> {
        ManuallyDrop::new(self).finish()
    }

    fn finish(&self) -> Result<CUgraph> {
        let driver = self.stream.gpu().bind()?;
        let mut graph = std::ptr::null_mut();
        // SAFETY: writes one handle; the stream is live.
        let code = unsafe { (driver.cuStreamEndCapture)(self.stream.raw(), &raw mut graph) };
        driver.check("cuStreamEndCapture", code)?;
        Ok(graph)
    }
}

impl Drop for OpenCapture<'_> {
    fn drop(&mut self) {
        if let Ok(graph) = self.finish() {
            // SAFETY: the graph was just made and nobody else has it.
            unsafe { (self.stream.gpu().driver().cuGraphDestroy)(graph) };
        }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(driver) = self.gpu.bind() {
            // SAFETY: ours; the driver keeps running launches alive by itself. A null executable is refused, not used.
            unsafe {
                if !self.executable.is_null() {
                    (driver.cuGraphExecDestroy)(self.executable);
                }
                (driver.cuGraphDestroy)(self.graph);
            }
        }
    }
}
