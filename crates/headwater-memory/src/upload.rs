//! Large arrays from ordinary host memory to the GPU, and back, at the speed of the link.
//!
//! The driver copies ordinary memory through a small staging buffer with one thread. Here two pinned buffers take turns,
//! each on a stream of its own: all cores fill or empty one while the copy engine is at the other. Where nothing can be
//! pinned the driver's way is taken.

use headwater_cuda::{Allocation, Gpu, Span, SpareStream};
use rayon::prelude::*;

use crate::buffer::{Buffer, Pinned};
use crate::error::Result;

/// Long enough to hide the hand-over, short enough for the last-level cache of a server.
const STAGE_BYTES: usize = 16 << 20;
/// What one core writes at a time.
const PART_BYTES: usize = 512 << 10;

/// Fills memory of one GPU from the host, array after array.
#[derive(Debug)]
pub struct Uploader {
    /// Two, or none where nothing can be pinned.
    stages: Vec<Stage>,
    next: usize,
    stage_bytes: usize,
    /// Takes what is not staged.
    plain: SpareStream,
}

#[derive(Debug)]
struct Stage {
    buffer: Buffer<u8, Pinned>,
    stream: SpareStream,
}

impl Uploader {
    /// For arrays of at most `largest_bytes`.
    pub fn new(gpu: &Gpu, largest_bytes: usize) -> Result<Self> {
        let stage_bytes = largest_bytes.clamp(1, STAGE_BYTES);
        let stage = || -> Result<Stage> {
            let buffer = Buffer::<u8, Pinned>::new(gpu, stage_bytes)?;
            Ok(Stage { buffer, stream: gpu.spare_stream()? })
        };
        let stages = match stage().and_then(|first| Ok(vec![first, stage()?])) {
            Ok(stages) => stages,
            Err(why) if why.is_out_of_memory() => Vec::new(),
            Err(why) => return Err(why),
        };
        Ok(Self { stages, next: 0, stage_bytes, plain: gpu.spare_stream()? })
    }

    /// Copies `from` to `to`, which is as long. Done only after [`Uploader::wait`], as all of this.
    pub fn copy(&mut self, from: &[u8], to: &Span) -> Result<()> {
        self.fill(to, |at, part| {
            if let Some(from) = from.get(at..at + part.len()) {
                part.copy_from_slice(from);
            }
        })
    }

    /// Fills `to` with what `write` puts into its parts. It is told where each begins, and called from many threads.
    pub fn fill(&mut self, to: &Span, write: impl Fn(usize, &mut [u8]) + Sync) -> Result<()> {
        let mut unpinned = Vec::new();
        for start in (0..to.bytes()).step_by(self.stage_bytes) {
            let bytes = self.stage_bytes.min(to.bytes() - start);
            let Some(there) = to.part(start, bytes) else { break };
            let write_all = |staged: &mut [u8]| {
                let parts = staged.par_chunks_mut(PART_BYTES).enumerate();
                parts.for_each(|(at, part)| write(start + at * PART_BYTES, part));
            };
            if let Some(Stage { buffer, stream }) = self.stages.get_mut(self.next) {
                // Waits until this stage's last copy is done; the other one's goes on.
                // SAFETY: only this uploader, borrowed alone, copies from and to its stages.
                write_all(&mut unsafe { buffer.as_mut_slice() }?[..bytes]);
                if let Some(here) = buffer.part(0..bytes) {
                    stream.copy(&here, &there)?;
                }
            } else {
                unpinned.resize(bytes, 0);
                write_all(&mut unpinned);
                self.plain.upload(&unpinned, &there)?;
            }
            self.next = 1 - self.next;
        }
        Ok(())
    }

    /// Copies `from`, whose last writer is done, to `to`, which is as long. Returns when it is there.
    pub fn bring_back(&mut self, from: &Span, to: &mut [u8]) -> Result<()> {
        if self.stages.is_empty() {
            return Ok(self.plain.download(from, to)?);
        }
        let mut on_its_way = None;
        for (at, part) in to.chunks_mut(self.stage_bytes).enumerate() {
            let Stage { buffer, stream } = &self.stages[at % 2];
            if let Some((there, here)) = from.part(at * self.stage_bytes, part.len()).zip(buffer.part(0..part.len())) {
                stream.copy(&there, &here)?;
            }
            if let Some((before, part)) = on_its_way.replace((at % 2, part)) {
                self.empty(before, part)?;
            }
        }
        on_its_way.map_or(Ok(()), |(last, part)| self.empty(last, part))
    }

    /// Waits for a stage's copy and takes what it brought.
    fn empty(&self, stage: usize, to: &mut [u8]) -> Result<()> {
        // SAFETY: only this uploader copies into its stages, and into this one not before the slice is gone.
        let from = unsafe { self.stages[stage].buffer.as_slice() }?;
        to.par_chunks_mut(PART_BYTES).zip(from.par_chunks(PART_BYTES)).for_each(|(to, from)| {
            to.copy_from_slice(&from[..to.len()]);
        });
        Ok(())
    }

    /// Waits for all copies.
    pub fn wait(&self) -> Result<()> {
        Ok(self.stages.iter().try_for_each(|stage| stage.stream.synchronize())?)
    }
}

/// A copy of `bytes` in memory of the GPU that other processes may map.
pub fn upload(gpu: &Gpu, bytes: &[u8]) -> Result<Span> {
    let span = Span::whole(Allocation::shareable(gpu, bytes.len())?);
    let mut uploader = Uploader::new(gpu, bytes.len())?;
    uploader.copy(bytes, &span)?;
    uploader.wait()?;
    Ok(span)
}
