//! How bytes get from a device to slots and back: of host memory, or of a GPU whose disks it reaches by itself.
//!
//! A GPU has two streams for that, one a direction, so that what leaves never waits for what comes back. Copies begin behind a mark
//! of the caller's stream, and the caller's stream goes on behind theirs: nobody waits on the host. Tensors in host memory are copied
//! at once; for them only the disk is another memory.

use std::sync::Arc;
use std::time::Instant;

use headwater_cuda::{Allocation, CuFile, DirectMemory, Event, Gpu, Span, Stream};
use headwater_memory::io::{AlignedBuffer, IoFile};
use headwater_memory::{Buffer, LentHost, Pinned, pinned_slots};

use crate::direct::{DirectTransfer, ring_slots};
use crate::disk::DiskConfig;
use crate::disk::transfer::{EngineTransfer, PieceAnswer, PieceRequest, Transfer};
use crate::error::{Error, Result};

/// A device, and its way to host memory. Two kinds ship; tests have a third, whose copies end when they say so.
pub trait Lane: Send + Sync + 'static {
    /// A piece of memory that copies go to and disks read.
    type Slot: Send + 'static;
    /// A block's bytes on the device. Valid until the copy that was asked for is over, or the block is released before it began.
    type Memory: Send;
    /// The caller's stream.
    type Queue;
    /// A point in the order of a stream, whose moment is known when it has passed.
    type Mark: Clone + Send + Sync;

    /// Whether there is more memory for slots than was planned, for whoever cannot wait. A device's own is what plans want to spare.
    fn has_more(&self) -> bool {
        true
    }
    /// Memory in pieces of `bytes`.
    fn slots(&self, count: usize, bytes: usize) -> Result<Vec<Self::Slot>>;
    /// Who moves slots to files and back.
    fn transfer(&self, files: &[Arc<IoFile>], config: &DiskConfig) -> Result<Box<dyn Transfer<Self::Slot>>>;
    /// Length of a block's memory.
    fn bytes(memory: &Self::Memory) -> usize;
    /// An event at the present end of `queue`.
    fn mark(&self, queue: &Self::Queue) -> Result<Self::Mark>;
    /// Copies `from` into slots, behind `after`.
    fn down(&self, after: &Self::Mark, from: &Self::Memory, slots: &mut [Self::Slot]) -> Result<CopyMarks<Self::Mark>>;
    /// Copies slots into `to`, behind all of `after`.
    fn up(&self, after: &[Self::Mark], slots: &[Self::Slot], to: &Self::Memory) -> Result<CopyMarks<Self::Mark>>;
    /// Whether the host may rely on what lies before a mark.
    fn has_passed(&self, mark: &Self::Mark) -> Result<bool>;
    /// Makes `queue` wait for a mark.
    fn follow(&self, queue: &Self::Queue, mark: &Self::Mark) -> Result<()>;
    /// Seconds between two marks that have passed.
    fn seconds(&self, from: &Self::Mark, to: &Self::Mark) -> Result<f64>;
    /// Bytes a second from the device to the host and back, measured now with nothing beside.
    fn rates(&self) -> Result<(f64, f64)>;
}

/// When a copy begins, and when it is over.
#[derive(Debug, Clone)]
pub struct CopyMarks<M> {
    /// Behind what it waits for.
    pub begun: M,
    /// Behind its last byte.
    pub ended: M,
}

/// Memory that rates are measured with, and what does where there is less.
const PROBE_BYTES: [usize; 3] = [32 << 20, 1 << 20, 64 << 10];

/// A GPU's memory.
#[derive(Debug)]
pub struct GpuLane {
    gpu: Gpu,
    down: Stream,
    up: Stream,
    /// Where slots lie in the GPU's own memory.
    cufile: Option<Arc<CuFile>>,
}

/// Memory that a GPU's blocks pass through, and lie in.
#[derive(Debug)]
pub enum GpuSlot {
    /// Of the host.
    Pinned(Buffer<u8, Pinned>),
    /// Of the GPU, which disks read and write.
    Near(DirectMemory),
}

impl GpuSlot {
    fn span(&self) -> &Span {
        match self {
            Self::Pinned(buffer) => buffer.whole(),
            Self::Near(memory) => memory.span(),
        }
    }
}

/// Disks of a GPU.
enum GpuTransfer {
    Engine(EngineTransfer<Buffer<u8, Pinned>>),
    Direct(DirectTransfer),
}

impl Transfer<GpuSlot> for GpuTransfer {
    fn submit(&mut self, request: PieceRequest, slot: GpuSlot) -> Result<(), (GpuSlot, Error)> {
        match (self, slot) {
            (Self::Engine(engine), GpuSlot::Pinned(slot)) => {
                engine.submit(request, slot).map_err(|(slot, why)| (GpuSlot::Pinned(slot), why))
            }
            (Self::Direct(direct), GpuSlot::Near(slot)) => {
                direct.submit(request, slot).map_err(|(slot, why)| (GpuSlot::Near(slot), why))
            }
            (_, slot) => Err((slot, elsewhere(request.bytes))),
        }
    }

    fn held(&self) -> usize {
        match self {
            Self::Engine(engine) => engine.held(),
            Self::Direct(direct) => direct.held(),
        }
    }

    fn next(&mut self) -> Result<Option<PieceAnswer<GpuSlot>>> {
        Ok(match self {
            Self::Engine(engine) => engine.next()?.map(|answer| answer.over(GpuSlot::Pinned)),
            Self::Direct(direct) => direct.next()?.map(|answer| answer.over(GpuSlot::Near)),
        })
    }

    fn checksum(&mut self, slot: &mut GpuSlot, bytes: usize) -> Result<u32> {
        match (self, slot) {
            (Self::Engine(engine), GpuSlot::Pinned(slot)) => engine.checksum(slot, bytes),
            (Self::Direct(direct), GpuSlot::Near(slot)) => direct.checksum(slot, bytes),
            _ => Err(elsewhere(bytes)),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Engine(engine) => engine.name(),
            Self::Direct(direct) => direct.name(),
        }
    }
}

/// A slot of another lane.
fn elsewhere(bytes: usize) -> Error {
    Error::Setting {
        field: "bytes of a slot",
        value: bytes as u64,
        must_be: "in the memory that disks of this lane read",
    }
}

impl GpuLane {
    /// Through pinned host memory, with two streams of their own.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        Ok(Self { gpu: gpu.clone(), down: Stream::new(gpu)?, up: Stream::new(gpu)?, cufile: None })
    }

    /// Past the host: slots lie in the GPU's own memory, and disks read and write them (GPUDirect Storage). An error says what the
    /// machine lacks.
    pub fn direct(gpu: &Gpu) -> Result<Self> {
        Ok(Self { cufile: Some(CuFile::open(gpu)?), ..Self::new(gpu)? })
    }
}

impl Lane for GpuLane {
    type Slot = GpuSlot;
    type Memory = Span;
    type Queue = Stream;
    type Mark = Arc<Event>;

    fn has_more(&self) -> bool {
        self.cufile.is_none()
    }

    fn slots(&self, count: usize, bytes: usize) -> Result<Vec<Self::Slot>> {
        Ok(match &self.cufile {
            None => pinned_slots(&self.gpu, count, bytes)?.into_iter().map(GpuSlot::Pinned).collect(),
            Some(cufile) => ring_slots(&self.gpu, cufile, count, bytes)?.into_iter().map(GpuSlot::Near).collect(),
        })
    }

    fn transfer(&self, files: &[Arc<IoFile>], config: &DiskConfig) -> Result<Box<dyn Transfer<GpuSlot>>> {
        Ok(Box::new(match &self.cufile {
            None => GpuTransfer::Engine(EngineTransfer::new(files, config)?),
            Some(cufile) => GpuTransfer::Direct(DirectTransfer::new(&self.gpu, cufile, files, config)?),
        }))
    }

    fn bytes(memory: &Span) -> usize {
        memory.bytes()
    }

    fn mark(&self, queue: &Stream) -> Result<Arc<Event>> {
        let event = Event::timed(&self.gpu)?;
        event.record_on(queue)?;
        Ok(Arc::new(event))
    }

    fn down(&self, after: &Arc<Event>, from: &Span, slots: &mut [Self::Slot]) -> Result<CopyMarks<Arc<Event>>> {
        self.down.wait(after)?;
        let begun = self.mark(&self.down)?;
        for (slot, part) in pairs(slots, from) {
            // Its last block may still be on its way up.
            slot.allocation().settle_on(&self.down)?;
            self.down.copy(&part, &slot)?;
        }
        Ok(CopyMarks { begun, ended: self.mark(&self.down)? })
    }

    fn up(&self, after: &[Arc<Event>], slots: &[Self::Slot], to: &Span) -> Result<CopyMarks<Arc<Event>>> {
        after.iter().try_for_each(|mark| self.up.wait(mark))?;
        let begun = self.mark(&self.up)?;
        for (slot, part) in pairs(slots, to) {
            self.up.copy(&slot, &part)?;
        }
        Ok(CopyMarks { begun, ended: self.mark(&self.up)? })
    }

    fn has_passed(&self, mark: &Arc<Event>) -> Result<bool> {
        Ok(mark.has_passed()?)
    }

    fn follow(&self, queue: &Stream, mark: &Arc<Event>) -> Result<()> {
        Ok(queue.wait(mark)?)
    }

    fn seconds(&self, from: &Arc<Event>, to: &Arc<Event>) -> Result<f64> {
        Ok(f64::from(to.ms_since(from)?) / 1e3)
    }

    fn rates(&self) -> Result<(f64, f64)> {
        let stream = Stream::new(&self.gpu)?;
        let both = |bytes: usize| -> Result<(Span, Span)> {
            let near = Span::whole(Allocation::on_stream(&stream, bytes)?);
            let slots = match &self.cufile {
                None => Allocation::pinned(&self.gpu, bytes)?,
                Some(_) => Allocation::on_stream(&stream, bytes)?,
            };
            Ok((near, Span::whole(slots)))
        };
        let [large, smaller, least] = PROBE_BYTES;
        let (near, host) = both(large).or_else(|_| both(smaller)).or_else(|_| both(least))?;
        let rate = |from: &Span, to: &Span| -> Result<f64> {
            let mut best = f64::INFINITY;
            for _ in 0..3 {
                let begun = self.mark(&stream)?;
                stream.copy(from, to)?;
                let ended = self.mark(&stream)?;
                ended.synchronize()?;
                best = best.min(self.seconds(&begun, &ended)?);
            }
            Ok(near.bytes() as f64 / best.max(1e-9))
        };
        Ok((rate(&near, &host)?, rate(&host, &near)?))
    }
}

/// Slots and parts of the memory that are as long.
fn pairs<'a>(slots: &'a [GpuSlot], memory: &'a Span) -> impl Iterator<Item = (Span, Span)> + 'a {
    let mut at = 0;
    slots.iter().filter_map(move |slot| {
        let bytes = slot.span().bytes().min(memory.bytes() - at);
        let pair = (slot.span().part(0, bytes)?, memory.part(at, bytes)?);
        at += bytes;
        Some(pair)
    })
}

/// Tensors in host memory.
#[derive(Debug, Default)]
pub struct HostLane;

impl Lane for HostLane {
    type Slot = AlignedBuffer;
    type Memory = LentHost;
    type Queue = ();
    type Mark = Instant;

    fn slots(&self, count: usize, bytes: usize) -> Result<Vec<AlignedBuffer>> {
        (0..count).map(|_| Ok(AlignedBuffer::new(bytes)?)).collect()
    }

    fn transfer(&self, files: &[Arc<IoFile>], config: &DiskConfig) -> Result<Box<dyn Transfer<AlignedBuffer>>> {
        Ok(Box::new(EngineTransfer::new(files, config)?))
    }

    fn bytes(memory: &LentHost) -> usize {
        memory.bytes()
    }

    fn mark(&self, (): &()) -> Result<Instant> {
        Ok(Instant::now())
    }

    fn down(&self, _: &Instant, from: &LentHost, slots: &mut [AlignedBuffer]) -> Result<CopyMarks<Instant>> {
        let (begun, mut at) = (Instant::now(), 0);
        for slot in slots {
            let bytes = slot.len().min(from.bytes() - at);
            if !from.copy_to(at, &mut slot[..bytes]) {
                return Err(misfit(from));
            }
            at += bytes;
        }
        Ok(CopyMarks { begun, ended: Instant::now() })
    }

    fn up(&self, _: &[Instant], slots: &[AlignedBuffer], to: &LentHost) -> Result<CopyMarks<Instant>> {
        let (begun, mut at) = (Instant::now(), 0);
        for slot in slots {
            let bytes = slot.len().min(to.bytes() - at);
            if !to.copy_from(at, &slot[..bytes]) {
                return Err(misfit(to));
            }
            at += bytes;
        }
        Ok(CopyMarks { begun, ended: Instant::now() })
    }

    fn has_passed(&self, _: &Instant) -> Result<bool> {
        Ok(true)
    }

    fn follow(&self, (): &(), _: &Instant) -> Result<()> {
        Ok(())
    }

    fn seconds(&self, from: &Instant, to: &Instant) -> Result<f64> {
        Ok(to.duration_since(*from).as_secs_f64())
    }

    fn rates(&self) -> Result<(f64, f64)> {
        const OF_MEMORY: f64 = 10e9;
        Ok((OF_MEMORY, OF_MEMORY))
    }
}

fn misfit(memory: &LentHost) -> Error {
    Error::Memory(headwater_memory::Error::Misfit { bytes: memory.bytes(), element_bytes: 1 })
}
