//! What the host tells the GPU of a batch, in one copy: keys, numbers of the step, targets.
//!
//! Kernels that were recorded once read it where it lies, so what changes from batch to batch changes nothing in them.

use headwater_cuda::{Allocation, Span, Stream};
use headwater_memory::{Buffer, Pinned};

use crate::error::{Error, Result};

/// Parts begin at multiples of this.
const ALIGN_BYTES: usize = 16;

/// Pinned memory, and as much on the GPU.
#[derive(Debug)]
pub(crate) struct Letter {
    host: Buffer<u8, Pinned>,
    device: Span,
    /// Where each part begins, and how long it is.
    parts: Vec<(usize, usize)>,
}

impl Letter {
    /// With parts of so many bytes.
    pub fn new(stream: &Stream, bytes: &[usize]) -> Result<Self> {
        let mut all = 0;
        let part = |bytes: &usize| {
            let begin = all;
            all = (begin + bytes).next_multiple_of(ALIGN_BYTES);
            (begin, *bytes)
        };
        let parts: Vec<(usize, usize)> = bytes.iter().map(part).collect();
        let all = all.max(ALIGN_BYTES);
        let host = Buffer::<u8, Pinned>::new(stream.gpu(), all)?;
        let device = Span::whole(Allocation::on_stream(stream, all)?);
        Ok(Self { host, device, parts })
    }

    /// A part as kernels read it.
    pub fn part(&self, part: usize) -> Result<Span> {
        let (begin, bytes) = self.place(part)?;
        self.device.part(begin, bytes).ok_or_else(|| too_short(begin + bytes, self.device.bytes()))
    }

    /// Writes the beginning of a part. Nobody may be reading it.
    pub fn write(&mut self, part: usize, values: &[u8]) -> Result<()> {
        let (begin, bytes) = self.place(part)?;
        if values.len() > bytes {
            return Err(too_short(values.len(), bytes));
        }
        Ok(self.host.write(begin, values)?)
    }

    /// Queues the copy.
    pub fn send(&self, stream: &Stream) -> Result<()> {
        Ok(stream.copy(self.host.whole(), &self.device)?)
    }

    fn place(&self, part: usize) -> Result<(usize, usize)> {
        self.parts.get(part).copied().ok_or_else(|| too_short(part, self.parts.len()))
    }
}

fn too_short(found: usize, expected: usize) -> Error {
    Error::Length { what: "the letter of a batch".to_owned(), found, expected }
}
