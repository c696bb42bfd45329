//! Steps by the clock: alone, and beside each of the other stages, to see which one they suffer from.

use std::collections::VecDeque;

use headwater_cuda::{Event, Stream, TracedLaunch};
use serde::Serialize;

use super::sampled::{Pipeline, Step};
use super::site::Shared;
use super::source::Source;
use super::wait::wait;
use crate::error::{Error, Result};
use crate::task::Task;
use crate::trainer::draw::Drawing;

/// Rounds of another stage that are queued at a time, so that it never pauses.
const QUEUED: usize = 2;
/// Rounds beside steps that never end; whoever waits for these then says so.
const MOST_ROUNDS: u64 = 1 << 16;

/// What goes on beside steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Company {
    /// Nothing.
    None,
    /// Batches are drawn.
    Sampling,
    /// Tables of blocks are made.
    Blocks,
    /// Features are brought.
    Features,
}

impl Company {
    /// Everything that may go on beside steps, nothing first.
    pub const ALL: [Self; 4] = [Self::None, Self::Sampling, Self::Blocks, Self::Features];
}

/// What is timed.
pub(crate) struct Repeat<'a> {
    pub task: &'a Task,
    /// The epoch whose first batches are company.
    pub drawing: Drawing,
    pub step: Step,
    pub times: u32,
    pub company: Company,
}

impl Pipeline {
    /// Milliseconds of a step on a batch again and again. Parameters change. `None` where another process is the company.
    pub fn repeat(&mut self, shared: &Shared<'_>, repeat: Repeat<'_>) -> Result<Option<f64>> {
        let Repeat { task, drawing, step, times, company } = repeat;
        let Self { streams, source, degrees, slots, .. } = self;
        if company != Company::None && matches!(source, Source::Beside(_)) {
            return Ok(None);
        }
        let nothing = || Error::Stage { stage: "step", why: "no batch was trained on yet".to_owned() };
        let Some([own, other]) = slots.as_mut().map(|slots| &mut slots.all[..]) else { return Err(nothing()) };
        let mut beside = None;
        if company != Company::None {
            let mut batches = source.epoch(drawing, 0)?;
            let first = batches.draw(&streams.sample, 0)?;
            beside = Some((batches, first));
        }
        let stream = &streams.train;
        let marks = [Event::timed(stream.gpu())?, Event::timed(stream.gpu())?];
        own.site.step(stream, shared, &step)?;
        marks[0].record_on(stream)?;
        (0..times).try_for_each(|_| own.site.step(stream, shared, &step))?;
        marks[1].record_on(stream)?;
        if let Some((batches, first)) = &mut beside {
            let mut queued = Queued::default();
            for round in 1..MOST_ROUNDS {
                if marks[1].has_passed()? {
                    break;
                }
                match company {
                    Company::Blocks => other.fill(&streams.blocks, first, degrees.as_ref())?,
                    Company::Features => batches.gather(&streams.gather, task, first, other)?,
                    Company::Sampling if round < batches.count() => drop(batches.draw(&streams.sample, round)?),
                    Company::Sampling | Company::None => break,
                }
                queued.add(if company == Company::Blocks { &streams.blocks } else { &streams.gather })?;
            }
        }
        wait(&marks[1], "step")?;
        stream.take_fault()?;
        Ok(Some(f64::from(marks[1].ms_since(&marks[0])?) / f64::from(times.max(1))))
    }

    /// A step on the last batch, kernel by kernel: what ran, and for how many milliseconds. Parameters change.
    pub fn kernels(&mut self, shared: &Shared<'_>, step: &Step) -> Result<Vec<(String, f64)>> {
        let Some(slot) = self.slots.as_mut().and_then(|slots| slots.all.first_mut()) else { return Ok(Vec::new()) };
        let stream = Stream::new(self.streams.train.gpu())?;
        stream.wait_for(&self.streams.train)?;
        stream.trace_launches();
        slot.site.step(&stream, shared, step)?;
        stream.synchronize()?;
        let length = |own: TracedLaunch| Ok((own.name, f64::from(own.end.ms_since(&own.begin)?)));
        stream.take_traced()?.into_iter().map(length).collect()
    }
}

/// Rounds that were queued and may not be over.
#[derive(Default)]
pub(super) struct Queued(VecDeque<Event>);

impl Queued {
    pub fn add(&mut self, stream: &Stream) -> Result<()> {
        self.0.push_back(stream.record()?);
        while self.0.len() > QUEUED {
            self.0.pop_front().map_or(Ok(()), |event| wait(&event, "company"))?;
        }
        Ok(())
    }
}
