//! Who calls an offloader as the hooks of Python do: memory is torch's, of the stream that asked for it, and goes back to that stream
//! behind those that were noted for it.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use headwater_cuda::{Allocation, Event, Gpu, Span, Stream};
use headwater_memory::io::IoFile;
use headwater_memory::{Buffer, Device};

use super::program::{Deed, Program};
use super::*;
use crate::disk::transfer::Transfer;
use crate::lane::{GpuLane, GpuSlot, Lane};
use crate::offloader::{OffloadCounts, SaveOutcome};
use crate::step::DeviceUse;

/// A lane that several offloaders have, one after the other. The link is taken to be as fast as it ever is.
#[derive(Clone)]
pub(super) struct Shared(pub Arc<GpuLane>);

impl Lane for Shared {
    type Slot = GpuSlot;
    type Memory = Span;
    type Queue = Stream;
    type Mark = Arc<Event>;

    fn has_more(&self) -> bool {
        self.0.has_more()
    }

    fn slots(&self, count: usize, bytes: usize) -> Result<Vec<Self::Slot>> {
        self.0.slots(count, bytes)
    }

    fn transfer(&self, files: &[Arc<IoFile>], config: &DiskConfig) -> Result<Box<dyn Transfer<GpuSlot>>> {
        self.0.transfer(files, config)
    }

    fn bytes(memory: &Span) -> usize {
        GpuLane::bytes(memory)
    }

    fn mark(&self, queue: &Stream) -> Result<Arc<Event>> {
        self.0.mark(queue)
    }

    fn down(&self, after: &Arc<Event>, from: &Span, slots: &mut [Self::Slot]) -> Result<CopyMarks<Arc<Event>>> {
        self.0.down(after, from, slots)
    }

    fn up(&self, after: &[Arc<Event>], slots: &[Self::Slot], to: &Span) -> Result<CopyMarks<Arc<Event>>> {
        self.0.up(after, slots, to)
    }

    fn has_passed(&self, mark: &Arc<Event>) -> Result<bool> {
        self.0.has_passed(mark)
    }

    fn follow(&self, queue: &Stream, mark: &Arc<Event>) -> Result<()> {
        self.0.follow(queue, mark)
    }

    fn seconds(&self, from: &Arc<Event>, to: &Arc<Event>) -> Result<f64> {
        self.0.seconds(from, to)
    }

    fn rates(&self) -> Result<(f64, f64)> {
        Ok((1e10, 1e10))
    }
}

/// Memory of torch's. Work of compute streams is noted, that of an offloader is not: nobody but the caller knows of it.
type Tensor = Rc<Buffer<u8, Device>>;

/// A tensor that was saved.
struct Known {
    block: BlockId,
    /// The byte that its memory begins with, which others follow from, and where in it the block begins.
    mark: u8,
    from: usize,
    bytes: usize,
    /// Its memory, where it stays.
    stays: Option<Tensor>,
    leaves: bool,
    is_released: bool,
}

/// What a program moved, so that it is seen whether it moved anything.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub counts: OffloadCounts,
    pub planned_steps: u64,
    /// Blocks that were back before they were needed.
    pub early: u64,
}

impl Moved {
    /// Both together, as far as anybody looks at it.
    pub fn and(mut self, other: &Self) -> Self {
        self.counts.blocks += other.counts.blocks;
        self.counts.down += other.counts.down;
        self.counts.up += other.counts.up;
        self.counts.written += other.counts.written;
        self.counts.read += other.counts.read;
        self.counts.writes_cancelled += other.counts.writes_cancelled;
        self.counts.refused += other.counts.refused;
        self.planned_steps += other.planned_steps;
        self.early += other.early;
        self
    }
}

/// A model that runs, and everything that a caller of an offloader keeps.
pub(super) struct Caller<'a> {
    gpu: &'a Gpu,
    streams: &'a [Stream],
    current: usize,
    offloader: Offloader<Shared>,
    /// Memory that copies may still read.
    leaving: HashMap<BlockId, Tensor>,
    /// What was brought back, whether or not somebody has asked for it, and the end of its copy.
    back: HashMap<BlockId, (Tensor, Arc<Event>)>,
    early: HashMap<BlockId, usize>,
    came_early: u64,
    known: Vec<Known>,
    last: Option<(Tensor, u8)>,
    /// A byte that each stream writes.
    noted: [Buffer<u8, Device>; 3],
    own: Vec<Tensor>,
    marks: u8,
    /// What backward passes found, with the byte that it should begin with.
    found: Vec<(u8, usize, Tensor)>,
}

/// The byte at a place of memory that begins with `mark`.
fn byte(mark: u8, at: usize) -> u8 {
    mark.wrapping_add(u8::try_from(at / RUN % 200).unwrap())
}

/// Bytes that are alike.
const RUN: usize = 1500;

fn is_alive(block: &&Known) -> bool {
    !block.is_released
}

impl<'a> Caller<'a> {
    pub fn new(gpu: &'a Gpu, lane: &Shared, streams: &'a [Stream], program: &Program, folder: &Path) -> Self {
        let config = OffloaderConfig {
            host_bytes: program.host_slots * SLOT,
            slot_bytes: SLOT,
            disk: program.disk_units.map(|units| disk(folder, units * SLOT as u64, program.engine.clone())),
            policy: program.policy,
            window_bytes: program.window_bytes,
        };
        let offloader = Offloader::new(lane.clone(), &config).unwrap();
        Self {
            gpu,
            streams,
            current: 0,
            offloader,
            leaving: HashMap::new(),
            back: HashMap::new(),
            early: HashMap::new(),
            came_early: 0,
            known: Vec::new(),
            last: None,
            noted: std::array::from_fn(|at| Buffer::on_stream(&streams[at], 1).unwrap()),
            own: Vec::new(),
            marks: 0,
            found: Vec::new(),
        }
    }

    /// All steps of a program: what was moved, or what came back that should not have.
    pub fn run(mut self, program: &Program) -> std::result::Result<Moved, String> {
        for step in 0..program.steps {
            for deed in &program.deeds {
                self.act(*deed);
            }
            self.known.clear();
            self.own.clear();
            self.last = None;
            self.look(step)?;
        }
        self.end()?;
        let (counts, steps) = (self.offloader.counts().unwrap(), self.offloader.steps());
        Ok(Moved { counts, planned_steps: steps.planned_steps, early: self.came_early })
    }

    fn stream(&self) -> &'a Stream {
        &self.streams[self.current]
    }

    fn act(&mut self, deed: Deed) {
        match deed {
            Deed::Save { bytes, changes, is_kept } => {
                let tensor = self.computed(bytes, changes);
                self.save(&tensor, 0, bytes);
                self.last = Some((Rc::clone(&tensor), self.marks));
                self.own.extend(is_kept.then_some(tensor));
            }
            Deed::SavePart { from, bytes } => {
                let (tensor, _) = self.last.clone().unwrap();
                self.save(&tensor, from, bytes);
            }
            Deed::Pass { bytes } => drop(self.computed(bytes, 0)),
            Deed::Need { tensor, is_kept, is_forwarded } => self.need(tensor, is_kept, is_forwarded),
            Deed::Release { tensor } => self.release(tensor),
            Deed::Switch { stream } => {
                let before = self.stream();
                self.current = stream;
                self.stream().wait_for(before).unwrap();
            }
            Deed::Expect { first, last } => {
                let soon: Vec<BlockId> = (first..=last).rev().map(|tensor| self.known[tensor].block).collect();
                let now = self.offloader.expect(&soon, (&self.here(), self.early.values().sum())).unwrap();
                self.bring_early(&now);
            }
            Deed::Wait => self.stream().synchronize().unwrap(),
        }
    }

    /// Memory of the current stream that work of it has written.
    fn computed(&mut self, bytes: usize, changes: usize) -> Tensor {
        self.marks = self.marks.wrapping_add(17);
        let tensor = Rc::new(Buffer::<u8, Device>::on_stream(self.stream(), bytes).unwrap());
        for change in (0..=changes).rev() {
            let mark = self.marks.wrapping_sub(u8::try_from(change).unwrap());
            for at in (0..bytes).step_by(RUN) {
                let part = tensor.part(at..bytes.min(at + RUN)).unwrap();
                self.stream().fill(&part, byte(mark, at)).unwrap();
            }
        }
        tensor
    }

    /// As torch's memory looks to whoever has its address.
    fn lent(&self, tensor: &Tensor, from: usize, bytes: usize) -> Span {
        let address = tensor.part(from..from + bytes).unwrap().pointer();
        // SAFETY: the caller keeps the tensor until the offloader says that nobody reads or writes it.
        Span::whole(unsafe { Allocation::lent(self.gpu, address, bytes, Arc::new(())) })
    }

    fn used(&self) -> DeviceUse {
        let held = |all: &HashMap<BlockId, Tensor>| all.values().map(|tensor| tensor.len()).sum::<usize>();
        let kept: usize = self.known.iter().filter_map(|block| block.stays.as_ref()).map(|tensor| tensor.len()).sum();
        let blocks = (held(&self.leaving) + kept + self.early.values().sum::<usize>()) as u64;
        DeviceUse { allocated: 50 * SLOT as u64 + blocks, blocks, peak: 0 }
    }

    fn save(&mut self, tensor: &Tensor, from: usize, bytes: usize) {
        let memory = self.lent(tensor, from, bytes);
        let SaveOutcome { number, leaves, drained, followed } =
            self.offloader.save(memory, self.stream(), self.used()).unwrap();
        let leaves = leaves == Some(true);
        if leaves {
            self.leaving.insert(number, Rc::clone(tensor));
        }
        let stays = (!leaves).then(|| Rc::clone(tensor));
        let mark =
            self.last.as_ref().filter(|(last, _)| Rc::ptr_eq(last, tensor)).map_or(self.marks, |(_, mark)| *mark);
        self.known.push(Known { block: number, mark, from, bytes, stays, leaves, is_released: false });
        self.give_up(&drained);
        // What follows a copy on this stream may use its memory again.
        for block in followed {
            let tensor = self.leaving.remove(&block).expect("it is told of once");
            // Whoever frees it does so behind this stream, which was another one when it was made perhaps.
            self.stream().copy(&tensor.part(0..1).unwrap(), self.noted[self.current].whole()).unwrap();
            if Rc::strong_count(&tensor) == 1 {
                self.stream().fill(tensor.whole(), 0xee).unwrap();
            }
        }
    }

    fn give_up(&mut self, drained: &[BlockId]) {
        for block in drained {
            self.leaving.remove(block).expect("it is told of once");
        }
    }

    fn here(&self) -> Vec<BlockId> {
        self.leaving.keys().copied().collect()
    }

    fn need(&mut self, tensor: usize, is_kept: bool, is_forwarded: bool) {
        let Known { block, mark, from, bytes, ref stays, .. } = self.known[tensor];
        let here = stays.clone().or_else(|| self.leaving.get(&block).cloned());
        let (memory, from) = match here {
            Some(tensor) if is_forwarded || !self.offloader.is_near(block).unwrap() => (tensor, from),
            _ => (self.brought(block, bytes), 0),
        };
        let used = Rc::new(Buffer::<u8, Device>::on_stream(self.stream(), bytes).unwrap());
        self.stream().copy(&memory.part(from..from + bytes).unwrap(), used.whole()).unwrap();
        self.found.push((mark, self.known[tensor].from, used));
        if !is_kept {
            self.back.remove(&block);
        }
        let early = self.early.values().sum();
        let next = self.offloader.need(block, self.stream(), self.used(), (&self.here(), early)).unwrap();
        self.bring_early(&next);
        let drained = self.offloader.drained().unwrap();
        self.give_up(&drained);
    }

    /// A block's memory, filled behind the current stream.
    fn brought(&mut self, block: BlockId, bytes: usize) -> Tensor {
        if !self.back.contains_key(&block) {
            self.load(block, bytes);
        }
        self.came_early += u64::from(self.early.remove(&block).is_some());
        let (tensor, mark) = self.back[&block].clone();
        self.offloader.join(self.stream(), &mark).unwrap();
        tensor
    }

    fn load(&mut self, block: BlockId, bytes: usize) {
        let tensor = Rc::new(Buffer::<u8, Device>::on_stream(self.stream(), bytes).unwrap());
        // Somebody had it before.
        self.stream().fill(tensor.whole(), 0xdd).unwrap();
        let mark = self.offloader.load(block, &self.lent(&tensor, 0, bytes), self.stream()).unwrap();
        self.back.insert(block, (tensor, mark));
    }

    fn bring_early(&mut self, now: &[BlockId]) {
        for block in now {
            let known = self.known.iter().filter(is_alive).find(|known| known.block == *block && known.leaves);
            let Some(bytes) = known.map(|known| known.bytes) else { continue };
            if !self.leaving.contains_key(block) && !self.back.contains_key(block) {
                self.load(*block, bytes);
                self.early.insert(*block, bytes);
            }
        }
    }

    fn release(&mut self, tensor: usize) {
        let block = self.known[tensor].block;
        if let Some((memory, mark)) = self.back.remove(&block)
            && self.early.remove(&block).is_some()
        {
            // Nobody has waited for it: its memory goes behind a stream that does.
            self.offloader.join(self.stream(), &mark).unwrap();
            self.stream().fill(memory.whole(), 0xcc).unwrap();
        }
        self.known[tensor].is_released = true;
        self.known[tensor].stays = None;
        self.offloader.release(block).unwrap();
        let drained = self.offloader.drained().unwrap();
        self.give_up(&drained);
    }

    /// Compares what a step found with what it should have.
    fn look(&mut self, step: usize) -> std::result::Result<(), String> {
        for (at, (mark, from, used)) in self.found.drain(..).enumerate() {
            let bytes = used.to_vec(&self.streams[self.current]).unwrap();
            let wrong = bytes.iter().enumerate().find(|(at, found)| **found != byte(mark, from + at));
            if let Some((byte_at, found)) = wrong {
                let wanted = byte(mark, from + byte_at);
                return Err(format!("step {step}, need {at}: byte {byte_at} is {found:#x}, not {wanted:#x}"));
            }
        }
        Ok(())
    }

    /// Nothing is held when all is released and every copy is over.
    fn end(&mut self) -> std::result::Result<(), String> {
        for _ in 0..2000 {
            let drained = self.offloader.drained().unwrap();
            self.give_up(&drained);
            if self.leaving.is_empty() && self.offloader.held().unwrap() == (0, 0) {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        Err(format!("{} copies and {:?} are left", self.leaving.len(), self.offloader.held()))
    }
}
