//! Steps over batches of training nodes, overlapped: while one batch is trained on, the tables of the next are made, its
//! features are gathered and the one after that is drawn, each on a stream of its own.
//!
//! Who draws and gathers is the source's business; it may be another process.
//!
//! The host waits once a batch, for two things together: that the next sample is there, since its size decides what is queued,
//! and that the step before the last is over, since its loss is read and its room is used again. Whatever fails ends the epoch
//! with its error: there is one thread, and nothing that it waits for is waited for without end.

use headwater_cuda::{Event, Gpu, GreenContext, Span, Stream};
use headwater_graph::random::Key;

use super::capacity::Capacity;
use super::draw::Drawn;
use super::features::BroughtRows;
use super::pace::Pace;
use super::plan::Mode;
use super::provide::Provision;
use super::site::{Found, Shared};
use super::slots::{Home, SLOTS, Sizing, Slots, place};
use super::source::{Batches, Source};
use super::timeline::{Stage, Timeline};
use super::wait::wait;
use crate::blocks::SelfLoops;
use crate::error::{Error, Result};
use crate::labels::Labels;
use crate::task::Task;
use crate::trainer::draw::Drawing;

/// What a batch is trained with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub rate: f64,
    /// Counted over the whole run, from 0.
    pub number: u64,
    pub key: Key,
}

/// The pipeline.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(super) streams: Streams,
    /// Goes before the slots: a process that maps them ends first.
    pub source: Source,
    pub(super) degrees: Option<Span>,
    pub(super) slots: Option<Slots>,
    settings: Settings,
    pace: Pace,
    pub timeline: Timeline,
}

/// What does not change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub loops: SelfLoops,
    pub width: usize,
    pub seeds: usize,
    pub home: Home,
    /// SMs that the driver sets aside for gathers.
    pub green_sms: Option<u32>,
    /// Whether what gathers have under way is found in the first batches.
    pub finds_window: bool,
}

#[derive(Debug)]
pub(super) struct Streams {
    pub sample: Stream,
    pub blocks: Stream,
    pub gather: Stream,
    pub train: Stream,
}

impl Streams {
    fn each(&self) -> [(Stage, &Stream); 4] {
        let Self { sample, blocks, gather, train } = self;
        [(Stage::Sample, sample), (Stage::Blocks, blocks), (Stage::Gather, gather), (Stage::Train, train)]
    }
}

/// What an epoch asks of whoever runs it.
pub(crate) trait Epoch {
    /// The first batch that is not done.
    fn first(&self) -> u64;

    /// Its batches.
    fn drawing(&self) -> Result<Drawing>;

    /// The labels of seeds.
    fn labels(&self, seeds: &[u64]) -> Labels;

    /// With what the batch that comes `ahead` batches from now is trained.
    fn step(&self, ahead: u64) -> Step;

    /// A batch is done. Whether to go on.
    fn done(&mut self, found: Found) -> Result<bool>;
}

impl Pipeline {
    pub fn new(gpu: &Gpu, source: Source, degrees: Option<Span>, settings: Settings) -> Result<Self> {
        // All but steps are short and others wait for them, so they go first.
        let streams = Streams {
            sample: Stream::urgent(gpu)?,
            blocks: Stream::urgent(gpu)?,
            gather: gathering(gpu, settings.green_sms)?,
            train: Stream::new(gpu)?,
        };
        let timeline = Timeline::new(gpu)?;
        let settings = Settings { home: source.home(), ..settings };
        let pace = settings.pace(&source);
        Ok(Self { streams, source, degrees, slots: None, settings, pace, timeline })
    }

    /// Keeps from now on when stages and their kernels run. Steps are queued launch by launch for that.
    pub fn trace(&mut self) {
        self.timeline.keep();
        self.streams.each().into_iter().for_each(|(_, stream)| stream.trace_launches());
    }

    /// Places features anew. The memory of batches is given back and made again when the next one comes.
    pub fn place(&mut self, own: &Provision<'_>, mode: Mode) -> Result<()> {
        self.give_up_memory()?;
        self.source.place(own, mode)?;
        self.pace = self.settings.pace(&self.source);
        Ok(())
    }

    fn give_up_memory(&mut self) -> Result<()> {
        self.source.give_up()?;
        self.slots = None;
        Ok(self.streams.each().into_iter().try_for_each(|(_, stream)| stream.synchronize())?)
    }

    /// Rows of features that were brought so far.
    pub fn brought(&mut self) -> Result<BroughtRows> {
        self.source.brought(&self.streams.gather)
    }

    /// Trains on the batches of an epoch that are not done yet, until it ends or somebody stops it.
    pub fn epoch(&mut self, shared: &Shared<'_>, task: &Task, epoch: &mut dyn Epoch) -> Result<()> {
        let Self { streams, source, degrees, slots, settings, pace, timeline } = self;
        let (degrees, settings) = (degrees.as_ref(), *settings);
        let first = epoch.first();
        let batches = source.epoch(epoch.drawing()?, first)?;
        let count = batches.count();
        let mut run = Running { streams, batches, begun: None, degrees, slots, settings, pace, timeline, shared, task };
        if first >= count {
            return Ok(());
        }
        let mut open: Vec<u64> = Vec::new();
        run.begin(first)?;
        let mut drawn = run.draw(first)?;
        for at in first..count {
            run.fit(&mut drawn, &mut open, epoch)?;
            let step = epoch.step(open.len() as u64);
            let has_next = at + 1 < count;
            // The next batch is drawn while steps are still under way, so that its gather waits for a free slot alone; and while
            // CPU threads collect rows of this one. A gather that only has to be queued goes first.
            let begins_first = has_next && run.batches.gathers_on_host();
            let begun = if begins_first { run.begin(at + 1) } else { Ok(()) };
            run.told(begun, &mut open, epoch)?;
            let gathered = run.gather(at, &drawn, &step, &epoch.labels(&drawn.seeds));
            run.told(gathered, &mut open, epoch)?;
            let begun = if has_next && !begins_first { run.begin(at + 1) } else { Ok(()) };
            run.told(begun, &mut open, epoch)?;
            if open.len() == SLOTS && !run.close(open.remove(0), epoch)? {
                break;
            }
            let trained = run.train(at, &step);
            run.told(trained, &mut open, epoch)?;
            open.push(at);
            if !has_next {
                break;
            }
            let is_full = open.len() == SLOTS && run.batches.needs_free_slot();
            if is_full && !run.close(open.remove(0), epoch)? {
                break;
            }
            let next = run.draw(at + 1);
            drawn = run.told(next, &mut open, epoch)?;
        }
        // What was queued is done, whoever stopped it.
        for at in open {
            run.close(at, epoch)?;
        }
        Ok(())
    }
}

/// An epoch under way.
struct Running<'a> {
    streams: &'a Streams,
    batches: Batches<'a>,
    /// When the batch that is being drawn will be there.
    begun: Option<Event>,
    degrees: Option<&'a Span>,
    slots: &'a mut Option<Slots>,
    settings: Settings,
    pace: &'a mut Pace,
    timeline: &'a mut Timeline,
    shared: &'a Shared<'a>,
    task: &'a Task,
}

impl Running<'_> {
    /// Queues the drawing of a batch, where the GPU does it.
    fn begin(&mut self, at: u64) -> Result<()> {
        let sample = &self.streams.sample;
        self.timeline.begin(Stage::Sample, at, sample)?;
        if self.batches.begin(sample, at)? {
            self.timeline.end(Stage::Sample, at, sample)?;
            self.begun = Some(sample.record()?);
        }
        Ok(())
    }

    /// A batch. One that was begun is there already, unless it is one of the first.
    fn draw(&mut self, at: u64) -> Result<Drawn> {
        let sample = &self.streams.sample;
        let begun = self.begun.take();
        begun.iter().try_for_each(|begun| wait(begun, "sampler"))?;
        let mut drawn = self.batches.draw(sample, at)?;
        if begun.is_none() {
            self.timeline.end(Stage::Sample, at, sample)?;
        }
        drawn.ready = Some(sample.record()?);
        Ok(drawn)
    }

    /// Makes room for a batch that has none. What is under way ends first.
    fn fit(&mut self, drawn: &mut Drawn, open: &mut Vec<u64>, epoch: &mut dyn Epoch) -> Result<()> {
        let has_slots = self.slots.as_ref().is_some_and(|slots| slots.capacity.holds(&drawn.sizes));
        if has_slots && drawn.has_room() {
            return Ok(());
        }
        if drawn.is_in_slot() {
            let why = format!("it put a batch of {:?} into slots that cannot hold it", drawn.sizes);
            return Err(Error::Stage { stage: "producer", why });
        }
        for at in open.drain(..) {
            // Whether to go on is asked again at the next one.
            self.close(at, epoch)?;
        }
        if !has_slots {
            self.make_slots(drawn)?;
        }
        self.slots.as_ref().map_or(Ok(()), |slots| self.batches.settle(drawn, slots))
    }

    /// Slots for batches up to this one and those before.
    fn make_slots(&mut self, drawn: &Drawn) -> Result<()> {
        let before = self.slots.take();
        let capacity = match &before {
            Some(slots) => slots.capacity.grown(&drawn.sizes),
            None => Capacity::like(&drawn.sizes),
        };
        if before.is_some() {
            log::info!("a batch was larger than those before; room is made for {:?}", capacity.blocks);
        }
        drop(before);
        let sizing = self.settings.sizing(self.shared, capacity, self.degrees.is_some());
        *self.slots = Some(Slots::new(&self.streams.train, sizing)?);
        // Memory is made in the order of one stream and used on another.
        let Streams { blocks, gather, train, .. } = self.streams;
        Ok([blocks, gather].into_iter().try_for_each(|stream| stream.wait_for(train))?)
    }

    /// What a stage made. Where memory ran out the epoch begins again after the steps that are under way, so these are told
    /// first: they would be made twice.
    fn told<T>(&mut self, made: Result<T>, open: &mut Vec<u64>, epoch: &mut dyn Epoch) -> Result<T> {
        if made.as_ref().is_err_and(|why| why.is_out_of_memory() || why.is_unpinned()) {
            open.drain(..).try_for_each(|at| self.close(at, epoch).map(drop))?;
        }
        made
    }

    /// Queues everything that a batch needs before it is trained on.
    fn gather(&mut self, at: u64, drawn: &Drawn, step: &Step, labels: &Labels) -> Result<()> {
        let Some(slot) = self.slots.as_mut().and_then(|slots| slots.all.get_mut(place(at))) else { return Ok(()) };
        let Streams { blocks, gather, .. } = self.streams;
        if let Some(read) = slot.read.take() {
            wait(&read, "blocks")?;
        }
        slot.site.write(self.shared, step, labels)?;
        for stream in [blocks, gather] {
            slot.free.iter().chain(&drawn.ready).try_for_each(|event| stream.wait(event))?;
        }
        self.timeline.begin(Stage::Blocks, at, blocks)?;
        slot.site.send(blocks)?;
        slot.read = Some(blocks.record()?);
        slot.fill(blocks, drawn, self.degrees)?;
        self.timeline.end(Stage::Blocks, at, blocks)?;
        self.timeline.begin(Stage::Gather, at, gather)?;
        self.batches.gather(gather, self.task, drawn, slot)?;
        self.timeline.end(Stage::Gather, at, gather)
    }

    /// Queues the step of a batch that is gathered or on its way.
    fn train(&mut self, at: u64, step: &Step) -> Result<()> {
        let Some(slot) = self.slots.as_mut().and_then(|slots| slots.all.get_mut(place(at))) else { return Ok(()) };
        let Streams { blocks, gather, train: stream, .. } = self.streams;
        [blocks, gather].into_iter().try_for_each(|other| stream.wait_for(other))?;
        self.timeline.begin(Stage::Train, at, stream)?;
        slot.site.step(stream, self.shared, step)?;
        self.timeline.end(Stage::Train, at, stream)?;
        slot.free = Some(stream.record()?);
        Ok(())
    }

    /// Waits until a step is over, the next batch is drawn and letters have left, all at once. Nothing is drawn before this
    /// returns, so nothing is late because the stream that draws waits too.
    fn wait_for_step(&self, at: u64) -> Result<()> {
        let Some(slots) = &*self.slots else { return Ok(()) };
        let sample = &self.streams.sample;
        let step = slots.all.get(place(at)).and_then(|slot| slot.free.as_ref());
        let letters = slots.all.iter().filter_map(|slot| slot.read.as_ref());
        let awaited: Vec<&Event> = step.into_iter().chain(letters).collect();
        awaited.iter().try_for_each(|event| sample.wait(event))?;
        wait(&sample.record()?, "step")?;
        // They have passed. Asked, they say so to whoever reads memory that was used before them.
        Ok(awaited.into_iter().try_for_each(|event| event.has_passed().map(drop))?)
    }

    /// Waits until a step is over and tells what it found. Whether to go on.
    fn close(&mut self, at: u64, epoch: &mut dyn Epoch) -> Result<bool> {
        self.wait_for_step(at)?;
        let Some(slot) = self.slots.as_mut().and_then(|slots| slots.all.get_mut(place(at))) else { return Ok(true) };
        let Streams { blocks, gather, train, .. } = self.streams;
        [blocks, gather, train].into_iter().try_for_each(Stream::take_fault)?;
        let batch_ms = self.timeline.close(at)?;
        self.streams.each().into_iter().try_for_each(|(stage, stream)| self.timeline.add_kernels(stage, stream))?;
        if let Some(window) = self.pace.note(batch_ms) {
            self.batches.set_window(window);
        }
        let found = slot.site.found()?;
        self.batches.free(at)?;
        epoch.done(found)
    }
}

/// The stream of gathers. Where the driver cannot set SMs aside for it, the number of its blocks is what holds it back.
fn gathering(gpu: &Gpu, green_sms: Option<u32>) -> Result<Stream> {
    if let Some(sms) = green_sms {
        match GreenContext::new(gpu, sms).and_then(|green| green.stream()) {
            Ok(stream) => return Ok(stream),
            Err(why) => log::warn!("gathers are held back by the number of their blocks alone: {why}"),
        }
    }
    Ok(Stream::urgent(gpu)?)
}

impl Settings {
    /// How greedy gathers are, or the way to find it.
    fn pace(self, source: &Source) -> Pace {
        let is_here = matches!(source, Source::Here(_));
        Pace::new(self.finds_window && is_here && source.mode().reads_host_in_order())
    }

    /// Room for batches up to a capacity.
    pub fn sizing<'a>(self, shared: &'a Shared<'a>, capacity: Capacity, needs_scales: bool) -> Sizing<'a> {
        let Self { loops, width, seeds, home, .. } = self;
        Sizing { shared, capacity, loops, width, seeds, needs_scales, home }
    }
}
