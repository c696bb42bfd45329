//! The thread that keeps disks busy.
//!
//! Pieces of several jobs are under way at once, so that a disk has requests while checksums of the next are computed. Pieces that
//! could not be read, or whose checksum is wrong, are read once more: what failed on the way may not fail twice.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use headwater_memory::io::{IoFile, Op};

use super::transfer::{PieceAnswer, PieceRequest, Transfer};
use super::{DEPTH, Done, Job, Piece, Shared};
use crate::error::{Error, Result};
use crate::meter::RateMeter;

pub(super) struct Worker<S> {
    shared: Arc<Shared<S>>,
    transfer: Box<dyn Transfer<S>>,
    files: Vec<Arc<IoFile>>,
    pace: Vec<FilePace>,
    unit_bytes: usize,
    open: BTreeMap<u32, Open<S>>,
    serial: u32,
}

/// A job with pieces under way.
struct Open<S> {
    job: Job<S>,
    begun: Instant,
    /// Pieces before this were submitted.
    next: usize,
    flying: usize,
    again: Vec<usize>,
    /// Pieces that were read twice.
    repeated: Vec<usize>,
    fault: Option<Error>,
}

impl<S> Worker<S> {
    pub fn new(
        shared: Arc<Shared<S>>,
        transfer: Box<dyn Transfer<S>>,
        files: Vec<Arc<IoFile>>,
        unit_bytes: usize,
    ) -> Self {
        let pace = files.iter().map(|_| FilePace::default()).collect();
        Self { shared, transfer, files, pace, unit_bytes, open: BTreeMap::new(), serial: 0 }
    }

    /// Works until the disk is closed.
    pub fn run(mut self) {
        let _alive = Alive(Arc::clone(&self.shared));
        loop {
            while self.transfer.held() < DEPTH && self.submit_one() {}
            if self.transfer.held() > 0 {
                match self.transfer.next() {
                    Ok(Some(answer)) => self.settle(answer),
                    Ok(None) => {}
                    Err(why) => self.give_up(&why),
                }
            } else if !self.wait_for_work() {
                return;
            }
        }
    }

    /// False when the disk was closed.
    fn wait_for_work(&self) -> bool {
        let mut desk = self.shared.lock();
        loop {
            if desk.is_closed {
                return false;
            }
            if !desk.reads.is_empty() || !desk.writes.is_empty() {
                return true;
            }
            desk = self.shared.work.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Submits the next piece of somebody's; false when there is none.
    fn submit_one(&mut self) -> bool {
        let Some(serial) = self.next_job() else { return false };
        let Some(open) = self.open.get_mut(&serial) else { return false };
        let at = open.again.pop().unwrap_or_else(|| {
            open.next += 1;
            open.next - 1
        });
        match start(&mut *self.transfer, &self.files, self.unit_bytes, (serial, at), open) {
            Ok(()) => pace_of(&mut self.pace, open, at).into_iter().for_each(FilePace::begin),
            Err(why) => {
                open.fault.get_or_insert(why);
            }
        }
        self.finish_if_over(serial);
        true
    }

    /// An open job with pieces left, or one that is opened: reads first.
    fn next_job(&mut self) -> Option<u32> {
        let of = |open: &BTreeMap<u32, Open<S>>, op: Op| {
            open.iter().find(|(_, open)| open.job.op == op && open.has_more()).map(|(serial, _)| *serial)
        };
        let mut desk = self.shared.lock();
        if desk.is_closed {
            return None;
        }
        let job = match of(&self.open, Op::Read) {
            Some(serial) => return Some(serial),
            None => match desk.reads.pop_front() {
                Some(job) => job,
                None => match of(&self.open, Op::Write) {
                    Some(serial) => return Some(serial),
                    None => desk.writes.pop_front()?,
                },
            },
        };
        drop(desk);
        self.serial = self.serial.wrapping_add(1);
        let open = Open {
            job,
            begun: Instant::now(),
            next: 0,
            flying: 0,
            again: Vec::new(),
            repeated: Vec::new(),
            fault: None,
        };
        self.open.insert(self.serial, open);
        Some(self.serial)
    }

    fn settle(&mut self, answer: PieceAnswer<S>) {
        let (serial, at) = split(answer.tag);
        // A job that was given up has no use for what comes late.
        let Some(open) = self.open.get_mut(&serial) else { return };
        open.flying -= 1;
        let bytes = if answer.result.is_ok() { self.unit_bytes } else { 0 };
        pace_of(&mut self.pace, open, at).into_iter().for_each(|pace| pace.end(bytes));
        let block = open.job.block;
        let op = open.job.op;
        let of_block: usize = open.job.pieces.iter().map(|piece| piece.bytes).sum();
        let Some(piece) = open.job.pieces.get_mut(at) else { return };
        let mut slot = answer.slot;
        let result = match answer.result {
            Ok(()) if op == Op::Read => {
                let sum = self.transfer.checksum(&mut slot, piece.bytes);
                sum.and_then(|got| check(&self.files, self.unit_bytes, (block, at, of_block), piece, got))
            }
            Err(Error::Io(why)) if op == Op::Read => Err(Error::Unreadable { block, bytes: of_block, why }),
            other => other,
        };
        piece.slot = Some(slot);
        match result {
            Err(_) if op == Op::Read && !open.repeated.contains(&at) => {
                open.repeated.push(at);
                open.again.push(at);
            }
            Err(why) => {
                open.fault.get_or_insert(why);
            }
            Ok(()) => {}
        }
        self.finish_if_over(serial);
    }

    fn finish_if_over(&mut self, serial: u32) {
        let is_over = |open: &Open<S>| open.flying == 0 && !open.has_more();
        if self.open.get(&serial).is_some_and(is_over)
            && let Some(open) = self.open.remove(&serial)
        {
            self.tell(open);
        }
    }

    /// Nothing answers any more: whatever is under way is lost.
    fn give_up(&mut self, why: &Error) {
        for (_, mut open) in std::mem::take(&mut self.open) {
            open.fault = Some(Error::Lost { block: open.job.block, why: why.to_string() });
            self.tell(open);
        }
    }

    fn tell(&self, open: Open<S>) {
        let result = open.fault.map_or(Ok(()), Err);
        let took = Some((open.begun, Instant::now()));
        let mut desk = self.shared.lock();
        desk.rates = self.pace.iter().map(|pace| pace.meter.rate()).collect();
        desk.done.push(Done { job: open.job, result, took });
        drop(desk);
        self.shared.news.notify_all();
    }
}

/// How fast one file is written: bytes, and the time in which it had a request.
#[derive(Debug, Default)]
struct FilePace {
    meter: RateMeter,
    flying: usize,
    since: Option<Instant>,
}

impl FilePace {
    fn begin(&mut self) {
        self.flying += 1;
        self.since.get_or_insert_with(Instant::now);
    }

    fn end(&mut self, bytes: usize) {
        let now = Instant::now();
        if let Some(since) = self.since {
            self.meter.add(bytes, now.duration_since(since).as_secs_f64());
        }
        self.flying = self.flying.saturating_sub(1);
        self.since = (self.flying > 0).then_some(now);
    }
}

/// The pace of the file that a piece is written to.
fn pace_of<'a, S>(all: &'a mut [FilePace], open: &Open<S>, at: usize) -> Option<&'a mut FilePace> {
    let piece = open.job.pieces.get(at).filter(|_| open.job.op == Op::Write)?;
    all.get_mut(piece.unit.file)
}

impl<S> Open<S> {
    /// Whether pieces wait. After a fault, those that were not begun never are.
    fn has_more(&self) -> bool {
        self.fault.is_none() && (self.next < self.job.pieces.len() || !self.again.is_empty())
    }
}

fn start<S>(
    transfer: &mut dyn Transfer<S>,
    files: &[Arc<IoFile>],
    unit_bytes: usize,
    (serial, at): (u32, usize),
    open: &mut Open<S>,
) -> Result<()> {
    let (block, op) = (open.job.block, open.job.op);
    let lost = || Error::Lost { block, why: "a piece has no memory".to_owned() };
    let piece = open.job.pieces.get_mut(at).ok_or_else(lost)?;
    let granule = files.get(piece.unit.file).ok_or_else(lost)?.alignment().offset_bytes;
    let mut slot = piece.slot.take().ok_or_else(lost)?;
    if op == Op::Write {
        match transfer.checksum(&mut slot, piece.bytes) {
            Ok(sum) => piece.sum = sum,
            Err(why) => {
                piece.slot = Some(slot);
                return Err(why);
            }
        }
    }
    let request = PieceRequest {
        tag: join(serial, at),
        op,
        file: piece.unit.file,
        offset: piece.unit.at * unit_bytes as u64,
        bytes: piece.bytes.next_multiple_of(granule).min(unit_bytes),
    };
    match transfer.submit(request, slot) {
        Ok(()) => open.flying += 1,
        Err((slot, why)) => {
            piece.slot = Some(slot);
            return Err(why);
        }
    }
    Ok(())
}

fn check<S>(
    files: &[Arc<IoFile>],
    unit_bytes: usize,
    (block, at, bytes): (u64, usize, usize),
    piece: &Piece<S>,
    got: u32,
) -> Result<()> {
    let wanted = piece.sum;
    if got == wanted {
        return Ok(());
    }
    let path = files.get(piece.unit.file).map_or_else(Default::default, |file| file.path().to_owned());
    let (from, offset) = (at * unit_bytes, piece.unit.at * unit_bytes as u64);
    Err(Error::Damaged { block, bytes, from, to: from + piece.bytes, path, offset, wanted, got })
}

fn join(serial: u32, at: usize) -> u64 {
    (u64::from(serial) << 32) | at as u64
}

fn split(tag: u64) -> (u32, usize) {
    ((tag >> 32) as u32, (tag & 0xffff_ffff) as usize)
}

/// Tells callers when the thread ends, a panic included.
struct Alive<S>(Arc<Shared<S>>);

impl<S> Drop for Alive<S> {
    fn drop(&mut self) {
        self.0.lock().is_alive = false;
        self.0.news.notify_all();
    }
}
