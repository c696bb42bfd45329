//! Large arrays from ordinary host memory to the GPU at the speed of the link.
//!
//! The driver copies ordinary memory through a small staging buffer with one thread. Here two pinned buffers take turns,
//! each on a stream of its own: all cores fill one while the copy engine empties the other. Where nothing can be pinned
//! the driver's way is taken.

use headwater_cuda::{Gpu, Span, SpareStream};
use headwater_memory::{Buffer, Pinned};
use rayon::prelude::*;

use crate::error::{Error, Result};

/// Long enough to hide the hand-over, short enough for the last-level cache of a server.
const STAGE_BYTES: usize = 16 << 20;
/// What one core copies at a time.
const COPY_BYTES: usize = 512 << 10;

/// Copies host memory to one GPU, array after array.
pub(crate) struct Uploader {
    stages: Vec<Stage>,
    plain: SpareStream,
    next: usize,
}

struct Stage {
    buffer: Buffer<u8, Pinned>,
    stream: SpareStream,
}

impl Uploader {
    /// Two stages of at most `largest_bytes`.
    pub fn new(gpu: &Gpu, largest_bytes: usize) -> Result<Self> {
        let stage = || -> Result<Stage> {
            let buffer = Buffer::<u8, Pinned>::new(gpu, largest_bytes.clamp(1, STAGE_BYTES))?;
            Ok(Stage { buffer, stream: gpu.spare_stream()? })
        };
        let stages = match stage().and_then(|first| Ok(vec![first, stage()?])) {
            Ok(stages) => stages,
            Err(Error::Memory(why)) if why.is_out_of_memory() => Vec::new(),
            Err(why) => return Err(why),
        };
        Ok(Self { stages, plain: gpu.spare_stream()?, next: 0 })
    }

    /// Copies `from` to `to`, which is as long; done only after [`Uploader::finish`].
    pub fn copy(&mut self, from: &[u8], to: &Span) -> Result<()> {
        let Some(stage_bytes) = self.stages.first().map(|stage| stage.buffer.len()) else {
            return Ok(self.plain.upload(from, to)?);
        };
        for (at, piece) in from.chunks(stage_bytes).enumerate() {
            let stage = &mut self.stages[self.next];
            // Waits until this stage's last copy is done; the other one's goes on.
            let staged = &mut stage.buffer.as_mut_slice()?[..piece.len()];
            let parts = staged.par_chunks_mut(COPY_BYTES).zip(piece.par_chunks(COPY_BYTES));
            parts.for_each(|(to, from)| to.copy_from_slice(from));
            let there = to.part(at * stage_bytes, piece.len());
            let here = stage.buffer.part(0..piece.len());
            if let Some((here, there)) = here.zip(there) {
                stage.stream.copy(&here, &there)?;
            }
            self.next = 1 - self.next;
        }
        Ok(())
    }

    /// Waits for all copies.
    pub fn finish(self) -> Result<()> {
        self.stages.iter().try_for_each(|stage| stage.stream.synchronize())?;
        Ok(self.plain.synchronize()?)
    }
}
