//! The producer's end: draws the batches that the trainer asks for and puts them into its slots.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::parent_id;
use std::sync::Arc;
use std::time::Duration;

use headwater_cuda::{Gpu, Span, Stream};
use headwater_memory::receive_device;

use super::super::capacity::Capacity;
use super::super::draw::Drawn;
use super::super::features::DeviceFeatures;
use super::super::provide::{Provider, Provision};
use super::super::slots::{SLOTS, place};
use super::super::wait::wait;
use super::link::{Link, Lost};
use super::protocol::{Answer, Ask, Deed, Order, Rows, Turns};
use super::shelf::Shelf;
use crate::error::{Error, Result};
use crate::run_config::{RunConfig, RunFile};
use crate::task::Task;
use crate::trainer::draw::Drawing;

/// Between epochs a trainer evaluates, which may take hours. That it lives is seen meanwhile.
const MOST: Duration = Duration::from_secs(7 * 24 * 3600);

/// Serves the trainer at the other end of the standard input, until it ends. `open` opens the task of a run.
pub fn serve_stdin(open: &dyn Fn(&RunConfig) -> Result<Task>) -> Result<()> {
    let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(|why| lost(&why))?;
    serve(UnixStream::from(input), open)
}

/// Serves the trainer at the other end of a socket, until it ends. What fails is told there.
pub fn serve(socket: UnixStream, open: &dyn Fn(&RunConfig) -> Result<Task>) -> Result<()> {
    let link = Link::new(socket).map_err(|why| lost(&format!("the standard input is no socket of one: {why}")))?;
    let trainer = Trainer { link, pid: parent_id() };
    let Err(why) = attend(&trainer, open) else { return Ok(()) };
    match trainer.link.send(&Answer::Failed { why: why.to_string() }) {
        // A trainer that ended wants nothing any more.
        Ok(()) | Err(Lost::Gone) => Ok(()),
        Err(_) => Err(why),
    }
}

fn attend(trainer: &Trainer, open: &dyn Fn(&RunConfig) -> Result<Task>) -> Result<()> {
    match trainer.ask()? {
        Some(Ask::Begin(order)) => Producer::new(trainer, *order, open)?.run(),
        Some(other) => Err(unexpected(&other)),
        None => Ok(()),
    }
}

/// Who asks.
struct Trainer {
    link: Link,
    pid: u32,
}

impl Trainer {
    /// The next question; none when the trainer has ended.
    fn ask(&self) -> Result<Option<Ask>> {
        match self.link.receive(MOST, &mut || parent_id() == self.pid) {
            Ok(ask) => Ok(Some(ask)),
            Err(Lost::Gone) => Ok(None),
            Err(why) => Err(lost(&why)),
        }
    }

    fn answer(&self, answer: &Answer) -> Result<()> {
        self.link.send(answer).map_err(|why| lost(&why))
    }
}

struct Producer<'a> {
    trainer: &'a Trainer,
    gpu: Gpu,
    sample: Stream,
    gather: Stream,
    config: RunConfig,
    task: Arc<Task>,
    provider: Provider,
    slots: Option<Slots>,
}

/// The trainer's slots, mapped here.
struct Slots {
    /// The trainer makes new slots for whatever this does not hold, so both go by the same rule.
    capacity: Capacity,
    shelf: Shelf,
    all: Vec<Span>,
}

/// Whether there is somebody to go on for.
enum Trainers {
    Lives,
    Ended,
}

impl<'a> Producer<'a> {
    fn new(trainer: &'a Trainer, order: Order, open: &dyn Fn(&RunConfig) -> Result<Task>) -> Result<Self> {
        let config = RunConfig::resolve(RunFile::default(), order.config)?;
        let gpu = Gpu::open(order.ordinal)?;
        drop(receive_device(trainer.link.socket(), &gpu)?);
        let task = Arc::new(open(&config)?);
        let (sample, gather) = (Stream::new(&gpu)?, Stream::new(&gpu)?);
        let provider = Provider::new(&Provision { gpu: &gpu, config: &config, task: &task }, order.working_bytes)?;
        trainer.answer(&Answer::Placed(provider.mode))?;
        Ok(Self { trainer, gpu, sample, gather, config, task, provider, slots: None })
    }

    fn run(&mut self) -> Result<()> {
        let _current = self.gpu.make_current()?;
        while let Some(ask) = self.trainer.ask()? {
            match ask {
                Ask::Epoch { epoch, first } => match self.epoch(epoch, first) {
                    Ok(Trainers::Lives) => {}
                    Ok(Trainers::Ended) => return Ok(()),
                    // The trainer says what to give up.
                    Err(why) if why.is_out_of_memory() => {
                        self.slots = None;
                        self.trainer.answer(&Answer::Short { why: why.to_string() })?;
                    }
                    Err(why) => return Err(why),
                },
                Ask::Place(mode) => {
                    self.slots = None;
                    self.provider.give_up();
                    [&self.sample, &self.gather].into_iter().try_for_each(Stream::synchronize)?;
                    self.provider.place(&Provision { gpu: &self.gpu, config: &self.config, task: &self.task }, mode)?;
                    self.trainer.answer(&Answer::Placed(self.provider.mode))?;
                }
                Ask::Stop => {
                    self.slots = None;
                    self.trainer.answer(&Answer::Stopped)?;
                }
                Ask::Count => {
                    self.trainer.answer(&Answer::Counted(self.provider.features.brought(&self.gather)?))?;
                }
                // Of the last batches of an epoch.
                Ask::Free { .. } => {}
                other => return Err(unexpected(&other)),
            }
        }
        Ok(())
    }

    fn epoch(&mut self, epoch: u64, first: u64) -> Result<Trainers> {
        let Self { trainer, gpu, sample, gather, config, task, provider, slots } = self;
        let mut course = provider.drawer.epoch(Drawing::of(config, task, epoch)?, first)?;
        let mut turns = Turns::new(first, course.count());
        let mut drawn: Option<Drawn> = None;
        loop {
            let sizes = drawn.as_ref().map(|drawn| Rows::told(&drawn.sizes)).unwrap_or_default();
            let room = drawn.as_ref().zip(slots.as_ref()).filter(|(drawn, slots)| slots.capacity.holds(&drawn.sizes));
            match turns.deed(room.is_some()) {
                Deed::End => return Ok(Trainers::Lives),
                Deed::Draw(batch) => {
                    drawn = Some(course.draw(sample, batch)?);
                    turns.drawn();
                }
                Deed::Outgrow(batch) => {
                    *slots = None;
                    trainer.answer(&Answer::Outgrown { batch, sizes })?;
                    turns.asked();
                }
                Deed::Fill(batch) => {
                    let fill = |(drawn, slots): (&Drawn, &Slots)| {
                        slots.fill(batch, drawn, gather, task, &mut provider.features)
                    };
                    room.map_or(Ok(()), fill)?;
                    // The next one is drawn meanwhile.
                    if batch + 1 < course.count() {
                        course.begin(sample, batch + 1)?;
                    }
                    // Streams of two processes know nothing of each other, so this one is waited for here.
                    wait(&gather.record()?, "gather")?;
                    gather.take_fault()?;
                    trainer.answer(&Answer::Ready { batch, sizes })?;
                    turns.filled();
                    drawn = None;
                }
                Deed::Listen => match trainer.ask()? {
                    Some(Ask::Free { batch }) => turns.freed(batch).map_err(|why| lost(&why))?,
                    Some(Ask::Room { blocks, width }) => {
                        turns.room().map_err(|why| lost(&why))?;
                        *slots = Some(Slots::receive(trainer, gpu, &blocks, width)?);
                    }
                    Some(Ask::Stop) => {
                        *slots = None;
                        trainer.answer(&Answer::Stopped)?;
                        return Ok(Trainers::Lives);
                    }
                    Some(other) => return Err(unexpected(&other)),
                    None => return Ok(Trainers::Ended),
                },
            }
        }
    }
}

impl Slots {
    fn receive(trainer: &Trainer, gpu: &Gpu, blocks: &[Rows], width: usize) -> Result<Self> {
        let capacity = Capacity { blocks: Rows::heard(blocks) };
        let shelf = Shelf::of(&capacity.blocks, width).checked()?;
        let expected = shelf.bytes();
        let slot = |_| {
            let span = receive_device(trainer.link.socket(), gpu)?;
            let what = || "a slot".to_owned();
            let found = span.bytes();
            if found == expected { Ok(span) } else { Err(Error::Length { what: what(), found, expected }) }
        };
        Ok(Self { capacity, shelf, all: (0..SLOTS).map(slot).collect::<Result<_>>()? })
    }

    /// Queues what puts a batch into its slot.
    fn fill(
        &self,
        batch: u64,
        drawn: &Drawn,
        stream: &Stream,
        task: &Task,
        features: &mut DeviceFeatures,
    ) -> Result<()> {
        let (slot, lists) = (&self.all[place(batch)], drawn.lists()?);
        let (nodes, edges) = drawn.sizes.first().map_or((0, 0), |all| (all.src, all.edges));
        let theirs = self.shelf.lists(slot, nodes)?;
        features.gather(stream, task, &lists.ids, &self.shelf.rows(slot, nodes)?)?;
        stream.copy(&lists.ids, &theirs.ids)?;
        for (from, to) in [(&lists.sources, &theirs.sources), (&lists.targets, &theirs.targets)] {
            let both = from.part(0, 4 * edges).zip(to.part(0, 4 * edges)).filter(|_| edges > 0);
            both.map_or(Ok(()), |(from, to)| stream.copy(&from, &to))?;
        }
        Ok(())
    }
}

fn unexpected(ask: &Ask) -> Error {
    lost(&format!("it asked for {ask:?} when that made no sense"))
}

fn lost(why: &dyn ToString) -> Error {
    Error::Stage { stage: "trainer", why: why.to_string() }
}
