//! How pieces get between slots and files: through the system's I/O ([`EngineTransfer`]), or straight from the memory of a GPU
//! ([`crate::direct::DirectTransfer`]).

use std::sync::Arc;

use headwater_memory::io::{Engine, EngineConfig, IoBuffer, IoFile, Op, Queue, Request, checksum};

use super::{DEPTH, DiskConfig};
use crate::error::{Error, Result};

/// What should happen to a piece.
#[derive(Debug, Clone, Copy)]
pub struct PieceRequest {
    /// Comes back with the answer.
    pub tag: u64,
    /// Whether the piece is written or read.
    pub op: Op,
    /// Which of the files, by the order in which they were given.
    pub file: usize,
    /// Where in it.
    pub offset: u64,
    /// Bytes, from the beginning of the slot on.
    pub bytes: usize,
}

/// A piece that a disk is done with.
pub struct PieceAnswer<S> {
    /// The request's.
    pub tag: u64,
    /// Its memory.
    pub slot: S,
    /// Whether all of it was moved.
    pub result: Result<()>,
}

impl<S> PieceAnswer<S> {
    /// The same for memory of another type.
    pub(crate) fn over<T>(self, slot: impl FnOnce(S) -> T) -> PieceAnswer<T> {
        PieceAnswer { tag: self.tag, slot: slot(self.slot), result: self.result }
    }
}

/// Moves pieces for the one thread that has it.
pub trait Transfer<S>: Send {
    /// Takes a piece, or gives it back and says why not.
    fn submit(&mut self, request: PieceRequest, slot: S) -> Result<(), (S, Error)>;
    /// Pieces that were taken and have not come back.
    fn held(&self) -> usize;
    /// Waits for a piece to come back. An error means that none of them will.
    fn next(&mut self) -> Result<Option<PieceAnswer<S>>>;
    /// The checksum of the first bytes of a slot that no disk has.
    fn checksum(&mut self, slot: &mut S, bytes: usize) -> Result<u32>;
    /// What it is, for reports.
    fn name(&self) -> String;
}

/// The I/O engine, for slots that the host reaches.
pub(crate) struct EngineTransfer<S: IoBuffer> {
    queue: Queue<S>,
    files: Vec<Arc<IoFile>>,
    /// Dropped behind the queue.
    engine: Engine,
}

impl<S: IoBuffer> EngineTransfer<S> {
    pub fn new(files: &[Arc<IoFile>], config: &DiskConfig) -> Result<Self> {
        let engine = EngineConfig {
            choice: config.engine.clone(),
            depth: DEPTH,
            timeout: config.timeout,
            ..EngineConfig::default()
        };
        let engine = Engine::new(engine)?;
        Ok(Self { queue: engine.queue(DEPTH)?, files: files.to_vec(), engine })
    }
}

impl<S: IoBuffer> Transfer<S> for EngineTransfer<S> {
    fn submit(&mut self, request: PieceRequest, slot: S) -> Result<(), (S, Error)> {
        let PieceRequest { tag, op, file, offset, bytes } = request;
        let Some(file) = self.files.get(file) else {
            return Err((
                slot,
                Error::Setting { field: "file", value: file as u64, must_be: "one of those that were opened" },
            ));
        };
        let request = match op {
            Op::Write => Request::write(file, offset, slot),
            Op::Read => Request::read(file, offset, slot),
        };
        let taken = self.queue.try_submit(request.span(0..bytes).tag(tag));
        taken.map(drop).map_err(|rejected| (rejected.request.buffer, rejected.error.into()))
    }

    fn held(&self) -> usize {
        self.queue.held()
    }

    fn next(&mut self) -> Result<Option<PieceAnswer<S>>> {
        let completion = self.queue.next()?;
        Ok(completion.map(|completion| PieceAnswer {
            tag: completion.tag,
            slot: completion.buffer,
            result: completion.result.map(drop).map_err(Error::from),
        }))
    }

    fn checksum(&mut self, slot: &mut S, bytes: usize) -> Result<u32> {
        let outside = Error::Setting { field: "bytes", value: bytes as u64, must_be: "no more than the slot has" };
        checksum(slot, 0..bytes).ok_or(outside)
    }

    fn name(&self) -> String {
        match self.engine.fallback_reason() {
            Some(why) => format!("{} ({why})", self.engine.kind()),
            None => self.engine.kind().to_string(),
        }
    }
}
