//! What trainer and producer say to each other, and what each may do next. Nothing is done here.
//!
//! An epoch is a row of batches in order. The producer draws one ahead, fills a slot as soon as the step on the batch before
//! the last is over, and says so. A batch that no slot can hold is announced instead: the producer lets go of the slots, the
//! trainer ends what is under way and makes larger ones. The trainer frees batches in their order.

use serde::{Deserialize, Serialize};

use super::super::capacity::Sizes;
use super::super::features::BroughtRows;
use super::super::plan::Mode;
use super::super::slots::SLOTS;
use crate::run_config::RunFile;

/// What the trainer asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Comes first. The handle of a few bytes of GPU memory follows, to see whether the driver lets it be mapped.
    Begin(Box<Order>),
    /// Place features anew, with less of them in GPU memory.
    Place(Mode),
    /// The batches of an epoch from one on.
    Epoch { epoch: u64, first: u64 },
    /// Slots for blocks up to these, with rows of so many features. The handle of each follows.
    Room { blocks: Vec<Rows>, width: usize },
    /// The step on a batch is over.
    Free { batch: u64 },
    /// Let go of the slots and of the epoch.
    Stop,
    /// How many rows were brought?
    Count,
}

/// What a producer is started for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub config: RunFile,
    /// The GPU.
    pub ordinal: usize,
    /// Bytes there that the trainer is going to take.
    pub working_bytes: u64,
}

/// What the producer answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Features lie like this.
    Placed(Mode),
    /// A batch is in its slot.
    Ready { batch: u64, sizes: Vec<Rows> },
    /// A batch needs more room. The producer has no slots any more.
    Outgrown { batch: u64, sizes: Vec<Rows> },
    /// GPU memory ran out here. The epoch is over, and so are the slots.
    Short { why: String },
    /// The epoch is over, and so are the slots.
    Stopped,
    /// So many rows.
    Counted(BroughtRows),
    /// The producer ends.
    Failed { why: String },
}

/// Rows of one block, as they are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rows {
    src: usize,
    dst: usize,
    edges: usize,
}

impl Rows {
    pub fn told(sizes: &[Sizes]) -> Vec<Self> {
        sizes.iter().map(|&Sizes { src, dst, edges }| Self { src, dst, edges }).collect()
    }

    pub fn heard(rows: &[Self]) -> Vec<Sizes> {
        rows.iter().map(|&Self { src, dst, edges }| Sizes { src, dst, edges }).collect()
    }
}

/// Where a producer is in an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turns {
    /// The batch that is filled next.
    next: u64,
    count: u64,
    /// The first batch that the trainer is not done with.
    freed: u64,
    is_drawn: bool,
    has_asked: bool,
}

/// What a producer does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Draw this batch.
    Draw(u64),
    /// Let go of the slots, and say that this batch needs more room.
    Outgrow(u64),
    /// Fill the slot of this batch, and say so.
    Fill(u64),
    /// Listen.
    Listen,
    /// Nothing: all batches are handed over.
    End,
}

impl Turns {
    pub fn new(first: u64, count: u64) -> Self {
        Self { next: first, count, freed: first, is_drawn: false, has_asked: false }
    }

    /// What comes next. `fits` says whether there are slots that hold the batch that was drawn.
    pub fn deed(&self, fits: bool) -> Deed {
        match *self {
            Self { next, count, .. } if next >= count => Deed::End,
            Self { next, is_drawn: false, .. } => Deed::Draw(next),
            Self { has_asked: true, .. } => Deed::Listen,
            Self { next, .. } if !fits => Deed::Outgrow(next),
            Self { next, freed, .. } if next < freed + SLOTS as u64 => Deed::Fill(next),
            _ => Deed::Listen,
        }
    }

    pub fn drawn(&mut self) {
        self.is_drawn = true;
    }

    pub fn asked(&mut self) {
        self.has_asked = true;
    }

    pub fn filled(&mut self) {
        (self.next, self.is_drawn) = (self.next + 1, false);
    }

    /// The trainer is done with a batch.
    pub fn freed(&mut self, batch: u64) -> Result<(), String> {
        if batch != self.freed || batch >= self.next {
            return Err(format!("batch {batch} was freed; expected {} and below {}", self.freed, self.next));
        }
        self.freed += 1;
        Ok(())
    }

    /// New slots came. All of them are free.
    pub fn room(&mut self) -> Result<(), String> {
        if !self.has_asked || self.freed != self.next {
            return Err("slots came that were not asked for, or while others were trained on".to_owned());
        }
        self.has_asked = false;
        Ok(())
    }
}

/// What the trainer expects of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Awaited {
    next: u64,
    count: u64,
    has_outgrown: bool,
}

/// What came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    /// The next batch is in its slot.
    Ready(Vec<Sizes>),
    /// It needs more room.
    Outgrown(Vec<Sizes>),
}

impl Awaited {
    pub fn new(first: u64, count: u64) -> Self {
        Self { next: first, count, has_outgrown: false }
    }

    /// Whether there is more to come.
    pub fn is_under_way(&self) -> bool {
        self.next < self.count
    }

    /// Takes an answer that can only be about the next batch.
    pub fn see(&mut self, answer: &Answer) -> Result<News, String> {
        match answer {
            Answer::Ready { batch, sizes } if *batch == self.next => {
                (self.next, self.has_outgrown) = (self.next + 1, false);
                Ok(News::Ready(Rows::heard(sizes)))
            }
            Answer::Outgrown { batch, sizes } if *batch == self.next && !self.has_outgrown => {
                self.has_outgrown = true;
                Ok(News::Outgrown(Rows::heard(sizes)))
            }
            Answer::Failed { why } => Err(why.clone()),
            other => Err(format!("it said {other:?}; expected batch {}", self.next)),
        }
    }
}
