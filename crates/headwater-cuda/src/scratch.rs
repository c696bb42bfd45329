//! Memory and streams that are needed for a moment, again and again.
//!
//! Scratch memory belongs to a stream and is handed out in stream order: whoever asks next on the same stream may have it
//! at once, because its work comes after. The driver's own pool does the same but may remap memory to serve a request,
//! which costs more than a small gather. Spare streams are kept because making one costs as much again.

use std::ops::Deref;
use std::sync::Arc;

use crate::error::Result;
use crate::gpu::{Gpu, lock};
use crate::span::{Allocation, Span};
use crate::stream::Stream;

/// Blocks a stream keeps. Freeing one waits for all work of the GPU, so a batch's worth of them has to fit.
const MOST_BLOCKS: usize = 64;
/// Bytes a stream keeps.
const MOST_BYTES: usize = 1 << 30;
/// Streams a GPU keeps.
const MOST_STREAMS: usize = 64;

/// Scratch memory of a stream, given back when dropped.
#[derive(Debug)]
pub struct Scratch {
    span: Option<Span>,
    block: Option<Arc<Allocation>>,
    stream: Stream,
}

impl Stream {
    /// `bytes` of uninitialised device memory for work on this stream.
    pub fn scratch(&self, bytes: usize) -> Result<Scratch> {
        // A graph may be replayed on any stream at any time, so its scratch memory is its own.
        let is_captured = self.capture().is_some();
        let kept = if is_captured { None } else { take_smallest(&mut lock(self.kept_scratch()), bytes) };
        let block = match kept {
            Some(block) => block,
            None => Allocation::shareable(self.gpu(), bytes.next_power_of_two())?,
        };
        let span = Span::whole(block.clone()).part(0, bytes);
        Ok(Scratch { span, block: Some(block), stream: self.clone() })
    }
}

fn take_smallest(kept: &mut Vec<Arc<Allocation>>, bytes: usize) -> Option<Arc<Allocation>> {
    let fits = |block: &Arc<Allocation>| block.bytes() >= bytes;
    let at = (0..kept.len()).filter(|i| fits(&kept[*i])).min_by_key(|i| kept[*i].bytes())?;
    Some(kept.remove(at))
}

impl Deref for Scratch {
    type Target = Span;

    fn deref(&self) -> &Span {
        self.span.as_ref().unwrap_or_else(|| unreachable!("the span is there until the scratch is given back"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.span = None;
        let Some(block) = self.block.take() else { return };
        // A span or a graph that still holds the block keeps it; it is then freed like any other memory.
        let is_shared = Arc::strong_count(&block) > 1 || self.stream.capture().is_some();
        if is_shared || block.bytes() > MOST_BYTES || block.settle_on(&self.stream).is_err() {
            return;
        }
        let mut kept = lock(self.stream.kept_scratch());
        kept.push(block);
        while kept.len() > MOST_BLOCKS || kept.iter().map(|block| block.bytes()).sum::<usize>() > MOST_BYTES {
            // The oldest goes, after the work that was given it.
            let oldest = Span::whole(kept.remove(0));
            oldest.note_use(&self.stream);
        }
    }
}

/// A stream on loan, given back when dropped. It may still have work queued.
#[derive(Debug)]
pub struct SpareStream(Option<Stream>);

impl Gpu {
    /// A stream of one's own for a while.
    pub fn spare_stream(&self) -> Result<SpareStream> {
        let kept = lock(self.spare_streams()).pop();
        let stream = kept.map_or_else(|| Stream::new(self), Ok)?;
        Ok(SpareStream(Some(stream)))
    }
}

impl Deref for SpareStream {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        self.0.as_ref().unwrap_or_else(|| unreachable!("the stream is there until it is given back"))
    }
}

impl Drop for SpareStream {
    fn drop(&mut self) {
        if let Some(stream) = self.0.take() {
            let gpu = stream.gpu().clone();
            let mut kept = lock(gpu.spare_streams());
            if kept.len() < MOST_STREAMS {
                kept.push(stream);
            }
        }
    }
}
