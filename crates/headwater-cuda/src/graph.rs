//! CUDA graphs: a sequence of launches recorded once and replayed as one.

use cudarc::driver::sys::{CUgraph, CUgraphExec};

use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::span::Span;
use crate::stream::Stream;

/// A recorded sequence, ready to run. It keeps every buffer its launches touch alive.
#[derive(Debug)]
pub struct Graph {
    gpu: Gpu,
    graph: CUgraph,
    executable: CUgraphExec,
    kept: Vec<Span>,
}

// SAFETY: graph handles are only passed to the driver. It does not lock launches of one executable against each other,
// so `launch` takes `&mut self`.
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `work` queues on `stream` instead of running it. Allocating or waiting inside is an error.
    pub fn capture(stream: &Stream, work: impl FnOnce(&Stream) -> Result<()>) -> Result<Self> {
        const THREAD_LOCAL: i32 = 1;
        let (gpu, driver) = (stream.gpu().clone(), stream.gpu().bind()?);
        if !stream.begin_keeping() {
            return Err(Error::Unsupported { what: "a capture", why: "the stream is being captured already".into() });
        }
        // SAFETY: the handle is live.
        let begun = driver
            .check("cuStreamBeginCapture", unsafe { (driver.cuStreamBeginCapture_v2)(stream.raw(), THREAD_LOCAL) });
        let outcome = begun.and_then(|()| {
            let worked = work(stream);
            // The capture must end even if the work failed, or the stream stays unusable.
            let mut graph = std::ptr::null_mut();
            // SAFETY: writes one handle.
            let code = unsafe { (driver.cuStreamEndCapture)(stream.raw(), &raw mut graph) };
            worked.and(driver.check("cuStreamEndCapture", code)).map(|()| graph)
        });
        let kept = stream.end_keeping();
        let graph = outcome?;
        let mut executable = std::ptr::null_mut();
        // SAFETY: writes one handle; the graph is live.
        let code = unsafe { (driver.cuGraphInstantiateWithFlags)(&raw mut executable, graph, 0) };
        let made = Self { gpu, graph, executable, kept };
        driver.check("cuGraphInstantiateWithFlags", code)?;
        Ok(made)
    }

    /// Queues the whole sequence.
    pub fn launch(&mut self, stream: &Stream) -> Result<()> {
        let driver = self.gpu.bind()?;
        stream.note_use(self.kept.iter());
        // SAFETY: both handles are live; the buffers are kept by `self` and their use is noted.
        driver.check("cuGraphLaunch", unsafe { (driver.cuGraphLaunch)(self.executable, stream.raw()) })
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
