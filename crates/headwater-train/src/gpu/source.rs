//! Where batches come from: drawn and gathered in this process, or by a producer beside it. They are the same to the bit.

use headwater_cuda::{Span, Stream};

use super::beside::Remote;
use super::beside::protocol::News;
use super::draw::{Course, Drawn};
use super::features::{BroughtRows, DeviceFeatures};
use super::plan::Mode;
use super::provide::{Provider, Provision};
use super::slots::{Home, Slot, Slots};
use crate::error::{Error, Result};
use crate::task::Task;
use crate::trainer::draw::Drawing;

/// The source of a run.
#[derive(Debug)]
pub(crate) enum Source {
    /// This process.
    Here(Box<Provider>),
    /// One beside it.
    Beside(Box<Remote>),
}

impl Source {
    /// Begins an epoch at a batch.
    pub fn epoch(&mut self, drawing: Drawing, first: u64) -> Result<Batches<'_>> {
        match self {
            Self::Here(provider) => {
                let Provider { drawer, features, .. } = &mut **provider;
                Ok(Batches::Here { course: drawer.epoch(drawing, first)?, features })
            }
            Self::Beside(remote) => {
                if first < drawing.count() {
                    remote.epoch(drawing.epoch(), first, drawing.count())?;
                }
                Ok(Batches::Beside { remote, drawing: Box::new(drawing) })
            }
        }
    }

    /// Where slots must lie so that batches can be put there.
    pub fn home(&self) -> Home {
        match self {
            Self::Here(_) => Home::Own,
            Self::Beside(_) => Home::Shared,
        }
    }

    /// Where features lie.
    pub fn mode(&self) -> Mode {
        match self {
            Self::Here(provider) => provider.mode,
            Self::Beside(remote) => remote.mode,
        }
    }

    /// Translations of host addresses that a gather of this process has under way.
    pub fn window(&self) -> Option<u64> {
        match self {
            Self::Here(provider) => provider.features.window(),
            Self::Beside(_) => None,
        }
    }

    /// Nothing of the features stays in GPU memory, and nobody holds slots.
    pub fn give_up(&mut self) -> Result<()> {
        match self {
            Self::Here(provider) => {
                provider.give_up();
                Ok(())
            }
            Self::Beside(remote) => remote.stop(),
        }
    }

    /// Places features anew.
    pub fn place(&mut self, own: &Provision<'_>, mode: Mode) -> Result<()> {
        match self {
            Self::Here(provider) => provider.place(own, mode),
            Self::Beside(remote) => remote.place(mode),
        }
    }

    /// Rows that were brought so far.
    pub fn brought(&mut self, stream: &Stream) -> Result<BroughtRows> {
        match self {
            Self::Here(provider) => provider.features.brought(stream),
            Self::Beside(remote) => remote.brought(),
        }
    }
}

/// The batches of an epoch.
pub(crate) enum Batches<'a> {
    Here { course: Course<'a>, features: &'a mut DeviceFeatures },
    Beside { remote: &'a mut Remote, drawing: Box<Drawing> },
}

impl Batches<'_> {
    pub fn count(&self) -> u64 {
        match self {
            Self::Here { course, .. } => course.count(),
            Self::Beside { drawing, .. } => drawing.count(),
        }
    }

    /// Queues what this GPU does to draw a batch without waiting: whether it does anything.
    pub fn begin(&mut self, stream: &Stream, at: u64) -> Result<bool> {
        match self {
            Self::Here { course, .. } => course.begin(stream, at),
            Self::Beside { .. } => Ok(false),
        }
    }

    /// The next batch, or at least how large it is; they come in order.
    pub fn draw(&mut self, stream: &Stream, at: u64) -> Result<Drawn> {
        match self {
            Self::Here { course, .. } => course.draw(stream, at),
            Self::Beside { remote, drawing } => {
                let seeds = drawing.seeds(at).0;
                Ok(match remote.next()? {
                    News::Ready(sizes) => Drawn::in_slot(seeds, sizes),
                    News::Outgrown(sizes) => Drawn::without_room(seeds, sizes),
                })
            }
        }
    }

    /// Brings a batch that had no room into slots that hold it.
    pub fn settle(&mut self, drawn: &mut Drawn, slots: &Slots) -> Result<()> {
        let Self::Beside { remote, .. } = self else { return Ok(()) };
        if drawn.has_room() {
            return Ok(());
        }
        let all: Vec<&Span> = slots.all.iter().map(Slot::room).collect();
        remote.grant(&slots.capacity, slots.shelf.width, &all)?;
        match remote.next()? {
            News::Ready(sizes) if sizes == drawn.sizes => {
                drawn.set_in_slot();
                Ok(())
            }
            other => {
                let why = format!("a batch of {:?} became {other:?}", drawn.sizes);
                Err(Error::Stage { stage: "producer", why })
            }
        }
    }

    /// Queues the features of a batch, unless they are there.
    pub fn gather(&mut self, stream: &Stream, task: &Task, drawn: &Drawn, slot: &Slot) -> Result<()> {
        match self {
            Self::Here { features, .. } => features.gather(stream, task, &drawn.lists()?.ids, &slot.rows(drawn)?),
            Self::Beside { .. } => Ok(()),
        }
    }

    /// Whether [`gather`](Self::gather) works on the host before it returns.
    pub fn gathers_on_host(&self) -> bool {
        matches!(self, Self::Here { features, .. } if features.gathers_on_host())
    }

    /// Gathers out of host memory have so many translations under way from now on.
    pub fn set_window(&mut self, translations: u64) {
        if let Self::Here { features, .. } = self {
            features.set_window(translations);
        }
    }

    /// Whether a slot must be free before the next batch can come. A stream that waits for another makes it wait instead.
    pub fn needs_free_slot(&self) -> bool {
        matches!(self, Self::Beside { .. })
    }

    /// The step on a batch is over.
    pub fn free(&mut self, at: u64) -> Result<()> {
        match self {
            Self::Here { .. } => Ok(()),
            Self::Beside { remote, .. } => remote.free(at),
        }
    }
}
