//! Neighbours of the next batch, drawn by the GPU or by CPU threads: the same ones.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headwater_cuda::{Event, Span, Stream};
use headwater_graph::sample::{Begun, DeviceSample, GpuNeighbourSampler, Sample, Seeds};

use super::capacity::Sizes;
use crate::device::copy_of;
use crate::error::{Error, Result};
use crate::threads;
use crate::trainer::draw::Drawing;

/// Batches that CPU threads are ahead.
const AHEAD: usize = 2;
/// How often somebody who waits looks whether there is anyone to wait for.
const LOOK: Duration = Duration::from_millis(100);
/// No batch takes this long to draw.
const MOST: Duration = Duration::from_secs(600);

/// A batch's neighbourhood.
#[derive(Debug)]
pub(crate) struct Drawn {
    /// Seeds, in their order.
    pub seeds: Vec<u64>,
    /// Rows of the block of each layer, the one that runs first at the front.
    pub sizes: Vec<Sizes>,
    /// When it was there. The stream that it was drawn on may wait for others since, to use memory again.
    pub ready: Option<Event>,
    home: DrawnHome,
}

/// Where it lies.
#[derive(Debug)]
enum DrawnHome {
    /// In GPU memory of its own, which may be the sampler's.
    Own(Lists, #[expect(dead_code, reason = "held for its memory")] Option<Box<DeviceSample>>),
    /// In the slot of the batch, put there by another process.
    Slot,
    /// With that process, until there is room for it.
    Nowhere,
}

/// Nodes and edges of a batch in GPU memory.
#[derive(Debug, Clone)]
pub(crate) struct Lists {
    /// Ids of all nodes, u64 each.
    pub ids: Span,
    /// Neighbours of every edge, and who asked for them, in local numbers.
    pub sources: Span,
    pub targets: Span,
}

/// Who draws.
#[derive(Debug)]
pub(crate) enum Drawer {
    /// The GPU.
    Gpu(Box<GpuNeighbourSampler>),
    /// Threads.
    Cpu,
}

/// The batches of one epoch, one after the other.
pub(crate) struct Course<'a> {
    drawing: Arc<Drawing>,
    who: Who<'a>,
}

enum Who<'a> {
    Gpu { sampler: &'a GpuNeighbourSampler, begun: Option<Box<(u64, Begun<'a>)>> },
    Cpu { from: Receiver<Result<(Vec<u64>, Sample)>>, thread: Option<JoinHandle<()>> },
}

impl Drawer {
    /// Begins an epoch at a batch.
    pub fn epoch(&self, drawing: Drawing, first: u64) -> Result<Course<'_>> {
        let drawing = Arc::new(drawing);
        let who = match self {
            Self::Gpu(sampler) => Who::Gpu { sampler, begun: None },
            Self::Cpu => {
                let (to, from) = sync_channel(AHEAD);
                let own = Arc::clone(&drawing);
                let draw = move || {
                    for at in first..own.count() {
                        // Nobody listens any more when the run has ended.
                        if to.send(own.sample(at)).is_err() {
                            return;
                        }
                    }
                };
                let failed = |why| Error::Stage { stage: "sampler", why: threads::refused(1, &why) };
                let thread = std::thread::Builder::new().name("sampler".to_owned()).spawn(draw).map_err(failed)?;
                Who::Cpu { from, thread: Some(thread) }
            }
        };
        Ok(Course { drawing, who })
    }
}

impl Course<'_> {
    /// How many batches there are.
    pub fn count(&self) -> u64 {
        self.drawing.count()
    }

    /// Queues the work of a batch without waiting, where a GPU does it: whether it does. CPU threads are ahead by themselves.
    pub fn begin(&mut self, stream: &Stream, at: u64) -> Result<bool> {
        let Who::Gpu { sampler, begun } = &mut self.who else { return Ok(false) };
        let (seeds, key) = self.drawing.seeds(at);
        let wanted = Seeds { node_type: self.drawing.node_type(), nodes: &seeds, times: None };
        *begun = Some(Box::new((at, sampler.begin(stream, wanted, key)?)));
        Ok(true)
    }

    /// A batch; they come in order. It is there when this returns.
    pub fn draw(&mut self, stream: &Stream, at: u64) -> Result<Drawn> {
        match &mut self.who {
            Who::Gpu { sampler, begun } => {
                let (seeds, key) = self.drawing.seeds(at);
                let sample = match begun.take().filter(|begun| begun.0 == at) {
                    Some(begun) => begun.1.finish()?,
                    None => {
                        let wanted = Seeds { node_type: self.drawing.node_type(), nodes: &seeds, times: None };
                        sampler.sample(stream, wanted, key)?
                    }
                };
                Drawn::on_gpu(seeds, sample)
            }
            Who::Cpu { from, thread } => {
                let (seeds, sample) = next(from, thread.as_ref())?;
                Drawn::sent(stream, seeds, &sample)
            }
        }
    }
}

/// What threads drew. One that died is an error and not a silence.
fn next<T>(from: &Receiver<Result<T>>, thread: Option<&JoinHandle<()>>) -> Result<T> {
    let begun = Instant::now();
    let lost = |why: &str| Error::Stage { stage: "sampler", why: why.to_owned() };
    loop {
        match from.recv_timeout(LOOK) {
            Ok(found) => return found,
            Err(RecvTimeoutError::Disconnected) => return Err(lost("its thread ended without a word")),
            Err(RecvTimeoutError::Timeout) if thread.is_some_and(JoinHandle::is_finished) => {
                // It may have said something at the very end.
                return from.try_recv().unwrap_or_else(|_| Err(lost("its thread ended without a word")));
            }
            Err(RecvTimeoutError::Timeout) if begun.elapsed() > MOST => return Err(lost("a batch took too long")),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

impl Drop for Course<'_> {
    fn drop(&mut self) {
        if let Who::Cpu { from, thread } = &mut self.who {
            // Whoever waits for room in the queue is woken by its end.
            let (_, nobody) = sync_channel(0);
            *from = nobody;
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}

impl Drawn {
    fn on_gpu(seeds: Vec<u64>, sample: DeviceSample) -> Result<Self> {
        let [nodes] = &sample.nodes[..] else { return Err(several()) };
        let [segments] = &sample.segments[..] else { return Err(several()) };
        let edges: Vec<usize> = segments.iter().map(ExactSizeIterator::len).collect();
        let sizes = sizes(&nodes.per_hop, &edges);
        let lists = Lists { ids: nodes.ids.clone(), sources: sample.row.clone(), targets: sample.col.clone() };
        Ok(Self { seeds, sizes, ready: None, home: DrawnHome::Own(lists, Some(Box::new(sample))) })
    }

    fn sent(stream: &Stream, seeds: Vec<u64>, sample: &Sample) -> Result<Self> {
        let ([nodes], [edges]) = (&sample.nodes[..], &sample.edges[..]) else { return Err(several()) };
        let send = |bytes: &[u8]| -> Result<Span> {
            let span = copy_of(stream, bytes)?;
            Ok(span.part(0, bytes.len()).unwrap_or(span))
        };
        let ids = send(bytemuck::cast_slice(&nodes.ids))?;
        let (sources, targets) = (send(bytemuck::cast_slice(&edges.row))?, send(bytemuck::cast_slice(&edges.col))?);
        let sizes = sizes(&nodes.per_hop, &edges.per_hop);
        Ok(Self { seeds, sizes, ready: None, home: DrawnHome::Own(Lists { ids, sources, targets }, None) })
    }

    /// A batch that another process put into its slot.
    pub fn in_slot(seeds: Vec<u64>, sizes: Vec<Sizes>) -> Self {
        Self { seeds, sizes, ready: None, home: DrawnHome::Slot }
    }

    /// A batch that another process has drawn and that has no room yet.
    pub fn without_room(seeds: Vec<u64>, sizes: Vec<Sizes>) -> Self {
        Self { seeds, sizes, ready: None, home: DrawnHome::Nowhere }
    }

    /// There was room, and it lies in its slot now.
    pub fn set_in_slot(&mut self) {
        self.home = DrawnHome::Slot;
    }

    /// Whether it lies somewhere.
    pub fn has_room(&self) -> bool {
        !matches!(self.home, DrawnHome::Nowhere)
    }

    /// Whether another process put it into its slot.
    pub fn is_in_slot(&self) -> bool {
        matches!(self.home, DrawnHome::Slot)
    }

    /// Its own lists, where it has some.
    pub fn own_lists(&self) -> Option<&Lists> {
        match &self.home {
            DrawnHome::Own(lists, _) => Some(lists),
            DrawnHome::Slot | DrawnHome::Nowhere => None,
        }
    }

    /// Its own lists.
    pub fn lists(&self) -> Result<&Lists> {
        let elsewhere = || Error::Stage { stage: "sampler", why: "a batch lies in another process".to_owned() };
        self.own_lists().ok_or_else(elsewhere)
    }

    /// Nodes that it reads.
    pub fn nodes(&self) -> usize {
        self.sizes.first().map_or(0, |all| all.src)
    }
}

/// How large a sample of the host is.
pub(crate) fn sizes_of(sample: &Sample) -> Result<Vec<Sizes>> {
    let ([nodes], [edges]) = (&sample.nodes[..], &sample.edges[..]) else { return Err(several()) };
    Ok(sizes(&nodes.per_hop, &edges.per_hop))
}

/// Rows of every block: the layer that runs first reads all hops, the last one the first.
fn sizes(nodes_per_hop: &[usize], edges_per_hop: &[usize]) -> Vec<Sizes> {
    let within = |counts: &[usize], hops: usize| counts.iter().take(hops).sum();
    let block = |hops: usize| Sizes {
        src: within(nodes_per_hop, hops + 1),
        dst: within(nodes_per_hop, hops),
        edges: within(edges_per_hop, hops),
    };
    (1..=edges_per_hop.len()).rev().map(block).collect()
}

fn several() -> Error {
    Error::Model { why: "a batch of several node types or relations is put together on the host".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_prefixes_of_the_sample() {
        let room = |src, dst, edges| Sizes { src, dst, edges };
        assert_eq!(sizes(&[4, 9, 30], &[12, 50]), [room(43, 13, 62), room(13, 4, 12)]);
    }

    #[test]
    fn a_thread_that_dies_is_an_error() {
        let (to, from) = sync_channel::<Result<u32>>(1);
        let thread = std::thread::spawn(move || drop(to));
        let begun = Instant::now();
        let why = next(&from, Some(&thread)).unwrap_err();
        assert_eq!(why.to_string(), "the sampler failed: its thread ended without a word");
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
}
