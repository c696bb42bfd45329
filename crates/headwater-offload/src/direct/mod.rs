//! Disks that a GPU reads and writes by itself (GPUDirect Storage): pieces lie in GPU memory, and no byte passes through the host.
//!
//! cuFile's calls wait, so threads make them, each with a piece of its own. They are ordered with no stream: a piece is written when the
//! copy into it is known to be over, and read when the copies out of it are.

mod sum;

use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use headwater_cuda::{Allocation, CuFile, DirectFile, DirectMemory, Gpu, Span, Stream};
use headwater_memory::io::{Error as IoError, IoFile, Op, PAGE_BYTES, Place};

use crate::disk::transfer::{PieceAnswer, PieceRequest, Transfer};
use crate::disk::{DEPTH, DiskConfig};
use crate::error::{Error, Result};
use sum::DeviceSum;
pub use sum::kernel_builds;

const ENDED: &str = "all of them have ended";

/// cuFile by threads.
pub(crate) struct DirectTransfer {
    /// `None` once threads should end.
    work: Option<Sender<Work>>,
    /// Why nothing is taken any more, once a disk has not answered.
    lost: Option<String>,
    answers: Receiver<PieceAnswer<DirectMemory>>,
    threads: Vec<JoinHandle<()>>,
    files: Vec<OpenFile>,
    sum: DeviceSum,
    held: usize,
    timeout: Duration,
    route: String,
}

/// A file, as the system and as cuFile knows it.
#[derive(Clone)]
struct OpenFile {
    /// Goes first: until then the descriptor has to be open.
    direct: Arc<DirectFile>,
    file: Arc<IoFile>,
}

struct Work {
    request: PieceRequest,
    file: OpenFile,
    slot: DirectMemory,
}

/// Memory of a GPU in pieces that disks may read and write.
pub(crate) fn ring_slots(gpu: &Gpu, cufile: &Arc<CuFile>, count: usize, bytes: usize) -> Result<Vec<DirectMemory>> {
    let slot = |_| Ok(cufile.register_memory(Span::whole(Allocation::shareable(gpu, bytes)?))?);
    (0..count).map(slot).collect()
}

impl DirectTransfer {
    /// Makes files known, and tries each: what is written has to be what is read.
    pub fn new(gpu: &Gpu, cufile: &Arc<CuFile>, files: &[Arc<IoFile>], config: &DiskConfig) -> Result<Self> {
        let files = files.iter().map(|file| open(cufile, file)).collect::<Result<Vec<OpenFile>>>()?;
        files.iter().try_for_each(|file| probe(gpu, cufile, file))?;
        let (work, queue) = channel::<Work>();
        let (answer, answers) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let start = |_| {
            let (queue, answer) = (Arc::clone(&queue), answer.clone());
            let thread = Builder::new().name("offload-direct".to_owned()).spawn(move || serve(&queue, &answer));
            thread.map_err(|why| Error::Thread { why: why.to_string() })
        };
        Ok(Self {
            work: Some(work),
            lost: None,
            answers,
            threads: (0..DEPTH).map(start).collect::<Result<_>>()?,
            files,
            sum: DeviceSum::new(gpu)?,
            held: 0,
            timeout: config.timeout,
            route: cufile.route().to_owned(),
        })
    }
}

impl Transfer<DirectMemory> for DirectTransfer {
    fn submit(&mut self, request: PieceRequest, slot: DirectMemory) -> Result<(), (DirectMemory, Error)> {
        let Some(file) = self.files.get(request.file) else {
            let must_be = "one of those that were opened";
            return Err((slot, Error::Setting { field: "file", value: request.file as u64, must_be }));
        };
        let ended = || Error::Thread { why: self.lost.clone().unwrap_or_else(|| ENDED.to_owned()) };
        let Some(work) = &self.work else { return Err((slot, ended())) };
        let sent = work.send(Work { request, file: file.clone(), slot });
        sent.map_err(|unsent| (unsent.0.slot, ended()))?;
        self.held += 1;
        Ok(())
    }

    fn held(&self) -> usize {
        self.held
    }

    fn next(&mut self) -> Result<Option<PieceAnswer<DirectMemory>>> {
        match self.answers.recv_timeout(self.timeout) {
            Ok(answer) => {
                self.held -= 1;
                Ok(Some(answer))
            }
            Err(why) => {
                // Threads keep what they have: a disk that answers late writes to memory that is still there.
                (self.held, self.work) = (0, None);
                // What comes late goes at once: nobody listens.
                self.answers = channel().1;
                let why = match why {
                    RecvTimeoutError::Timeout => format!("no answer from cuFile in {:?}", self.timeout),
                    RecvTimeoutError::Disconnected => ENDED.to_owned(),
                };
                self.lost = Some(why.clone());
                Err(Error::Thread { why })
            }
        }
    }

    fn checksum(&mut self, slot: &mut DirectMemory, bytes: usize) -> Result<u32> {
        let outside = Error::Setting { field: "bytes", value: bytes as u64, must_be: "no more than the slot has" };
        settle(slot)?;
        self.sum.of(&slot.span().part(0, bytes).ok_or(outside)?)
    }

    fn name(&self) -> String {
        format!("cuFile ({})", self.route)
    }
}

impl Drop for DirectTransfer {
    fn drop(&mut self) {
        self.work = None;
        for thread in self.threads.drain(..).filter(|_| self.lost.is_none()) {
            // A panic there was told as an answer that never came.
            let _ = thread.join();
        }
    }
}

fn open(cufile: &Arc<CuFile>, file: &Arc<IoFile>) -> Result<OpenFile> {
    let refuse = |why: String| Error::Folder { path: file.path().to_owned(), why };
    if let Some(why) = file.buffered_reason() {
        return Err(refuse(format!("a GPU cannot read and write there by itself: {why}")));
    }
    let fd: BorrowedFd<'_> = file.descriptor().ok_or_else(|| refuse("it lies in host memory".to_owned()))?;
    let direct = cufile.register_file(fd).map_err(|why| refuse(why.to_string()))?;
    Ok(OpenFile { direct: Arc::new(direct), file: Arc::clone(file) })
}

/// Waits until what was copied into a piece and out of it is over.
fn settle(slot: &DirectMemory) -> Result<()> {
    slot.span().allocation().pending()?.iter().try_for_each(|event| Ok(event.synchronize()?))
}

/// Writes a page of a file from the GPU and reads it back, once more where that fails.
fn probe(gpu: &Gpu, cufile: &Arc<CuFile>, file: &OpenFile) -> Result<()> {
    let stream = Stream::new(gpu)?;
    let memory = cufile.register_memory(Span::whole(Allocation::shareable(gpu, PAGE_BYTES)?))?;
    try_file(&stream, &memory, file).or_else(|_| try_file(&stream, &memory, file))
}

fn try_file(stream: &Stream, memory: &DirectMemory, file: &OpenFile) -> Result<()> {
    let wanted: Vec<u8> = (0u8..=255).cycle().take(PAGE_BYTES).collect();
    let mut got = vec![0; PAGE_BYTES];
    let request = |op| PieceRequest { tag: 0, op, file: 0, offset: 0, bytes: PAGE_BYTES };
    stream.upload(&wanted, memory.span())?;
    stream.synchronize()?;
    moved(request(Op::Write), file, memory)?;
    stream.fill(memory.span(), 0)?;
    stream.synchronize()?;
    moved(request(Op::Read), file, memory)?;
    stream.download(memory.span(), &mut got)?;
    if got == wanted {
        return Ok(());
    }
    let why = "what the GPU reads there is not what it wrote".to_owned();
    Err(Error::Folder { path: file.file.path().to_owned(), why })
}

/// Works until nobody sends any more.
fn serve(queue: &Mutex<Receiver<Work>>, answers: &Sender<PieceAnswer<DirectMemory>>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Work { request, file, slot }) = next else { return };
        let result = moved(request, &file, &slot);
        if answers.send(PieceAnswer { tag: request.tag, slot, result }).is_err() {
            return;
        }
    }
}

/// Moves all of a piece, by as many calls as that takes.
fn moved(request: PieceRequest, file: &OpenFile, slot: &DirectMemory) -> Result<()> {
    let PieceRequest { op, offset, bytes, .. } = request;
    settle(slot)?;
    let mut done_bytes = 0;
    while done_bytes < bytes {
        let (from, left) = (offset + done_bytes as u64, bytes - done_bytes);
        let result = match op {
            Op::Write => file.direct.write(from, slot, done_bytes, left),
            Op::Read => file.direct.read(from, slot, done_bytes, left),
        };
        let at = || Place { op, path: file.file.path().to_owned(), offset, asked_bytes: bytes, done_bytes };
        match result {
            Ok(0) if op == Op::Read => return Err(IoError::EndOfFile { at: at() }.into()),
            Ok(0) => return Err(IoError::NoProgress { at: at() }.into()),
            Ok(more) => done_bytes += more,
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
            Err(why) => return Err(IoError::of_transfer(at(), why).into()),
        }
    }
    Ok(())
}
