//! A place on the GPU where a batch is brought and a step is made of it: forward pass, loss, backward pass, new parameters.
//!
//! The first step is queued launch by launch, which also compiles what was never run. The second is recorded, and from
//! then on a step is one launch.

use headwater_compile::cuda::DeviceRows;
use headwater_cuda::{Graph, Span, Stream};
use headwater_memory::{Buffer, Pinned};

use super::finish::Finish;
use super::flat::Flat;
use super::layers::DeviceLayer;
use super::letter::Letter;
use super::mover::ActivationMover;
use super::passes::{Brought, Passes, last_outputs};
use super::sampled::Step;
use super::step_memory::StepMemory;
use crate::error::{Error, Result};
use crate::labels::Labels;

/// Parts of the letter.
const KEYS: usize = 0;
const COUNTS: usize = 1;
const TARGETS: usize = 2;

/// What a step reads besides the batch: memory that all sites share, and what is learnt.
pub(crate) struct Shared<'a> {
    pub layers: &'a [DeviceLayer],
    pub finish: &'a Finish,
    pub flat: &'a Flat,
}

/// What a step found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Found {
    /// The mean loss.
    pub loss: f64,
    /// The norm of all gradients.
    pub norm: f64,
}

/// The place.
#[derive(Debug)]
pub(crate) struct Site {
    letter: Letter,
    passes: Passes,
    outputs: Span,
    slope: Span,
    /// The gradient of all outputs, where it has to be cleared in every step: others use its memory, and rows without targets have none.
    cleared: Option<Span>,
    found: Buffer<f64, Pinned>,
    recorded: Option<Graph>,
    steps: u64,
}

/// What a site is made for.
pub(crate) struct Ground<'a> {
    pub brought: Brought<'a>,
    pub memory: StepMemory<'a>,
    /// Rows of outputs that have targets: which is the first, and how many there may be.
    pub first_row: usize,
    pub most_rows: usize,
}

impl Site {
    /// Room for the letter of a batch. It is made first: layers read keys there.
    pub fn letter(stream: &Stream, shared: &Shared<'_>, most_rows: usize) -> Result<Letter> {
        let Finish { columns, .. } = shared.finish;
        let targets = 4 * most_rows * if shared.finish.is_of_classes() { 1 } else { *columns };
        Letter::new(stream, &[8 * shared.layers.len(), 8, targets])
    }

    /// Where each layer finds the key of its dropouts.
    pub fn keys(letter: &Letter, layers: usize) -> Result<Vec<Span>> {
        let keys = letter.part(KEYS)?;
        let short =
            || Error::Length { what: "the keys of a batch".to_owned(), found: keys.bytes() / 8, expected: layers };
        (0..layers).map(|at| keys.part(8 * at, 8).ok_or_else(short)).collect()
    }

    /// Puts a step over what is brought.
    pub fn new(stream: &Stream, shared: &Shared<'_>, letter: Letter, ground: &Ground<'_>) -> Result<Self> {
        let Shared { layers, finish, flat } = shared;
        let passes = Passes::new(stream, layers, &ground.brought, &ground.memory, flat)?;
        let (outputs, slope) = last_outputs(&ground.memory, layers)?;
        // Rows without targets have no gradient, and nobody writes there.
        stream.fill(&slope, 0)?;
        let has_others = 4 * finish.columns * ground.most_rows < slope.bytes();
        let own = |span: &Span| {
            let (first, bytes) = (4 * finish.columns * ground.first_row, 4 * finish.columns * ground.most_rows);
            let short = || Error::Length { what: "outputs".to_owned(), found: span.bytes(), expected: first + bytes };
            span.part(first, bytes).ok_or_else(short)
        };
        Ok(Self {
            letter,
            passes,
            outputs: own(&outputs)?,
            slope: own(&slope)?,
            cleared: (has_others && ground.memory.is_planned()).then_some(slope),
            found: Buffer::<f64, Pinned>::new(stream.gpu(), 2)?,
            recorded: None,
            steps: 0,
        })
    }

    /// Writes what the host tells of a batch. Nobody may be reading the letter.
    pub fn write(&mut self, shared: &Shared<'_>, step: &Step, labels: &Labels) -> Result<()> {
        let finish = shared.finish;
        self.write_keys(shared, step)?;
        let (targets, counted) = finish.targets(labels);
        let rows = u32::try_from(labels.nodes()).unwrap_or(u32::MAX);
        self.letter.write(COUNTS, bytemuck::cast_slice(&[rows, counted]))?;
        self.letter.write(TARGETS, &targets)
    }

    /// The same of a step over the batch that the letter was last written for.
    pub fn write_keys(&mut self, shared: &Shared<'_>, step: &Step) -> Result<()> {
        let keys: Vec<u64> = (0..shared.layers.len() as u64).map(|layer| step.key.of(layer).bits()).collect();
        self.letter.write(KEYS, bytemuck::cast_slice(&keys))
    }

    /// Queues the copy of the letter.
    pub fn send(&self, stream: &Stream) -> Result<()> {
        self.letter.send(stream)
    }

    /// Queues a step. What it finds is there when the stream has passed this point.
    pub fn step(&mut self, stream: &Stream, shared: &Shared<'_>, step: &Step) -> Result<()> {
        shared.finish.announce(stream, step)?;
        self.steps += 1;
        // Launches that somebody wants to see cannot be part of one, and copies to disk are no work of a GPU.
        if self.steps == 1 || stream.is_traced() || self.passes.mover().is_some() {
            return self.queue(stream, shared);
        }
        if self.recorded.is_none() {
            self.recorded = Some(Graph::capture(stream, |stream| self.queue(stream, shared))?);
        }
        match &mut self.recorded {
            Some(recorded) => Ok(recorded.launch(stream)?),
            None => self.queue(stream, shared),
        }
    }

    /// Queues a step launch by launch.
    fn queue(&mut self, stream: &Stream, shared: &Shared<'_>) -> Result<()> {
        let Shared { layers, finish, flat } = shared;
        self.passes.forward(stream, layers)?;
        if let Some(cleared) = &self.cleared {
            stream.fill(cleared, 0)?;
        }
        let (counts, targets) = (self.letter.part(COUNTS)?, self.letter.part(TARGETS)?);
        finish.loss(stream, (&self.outputs, &self.slope), &counts, &targets)?;
        self.passes.backward(stream, layers)?;
        // From here on something is learnt.
        self.passes.see_moments(stream, layers).map_err(half_done)?;
        finish.step(stream, flat).map_err(half_done)?;
        finish.found(stream, self.found.whole()).map_err(half_done)
    }

    /// What moves activations, where some leave.
    pub fn mover(&self) -> Option<&ActivationMover> {
        self.passes.mover()
    }

    /// What the last step found. It must be over.
    pub fn found(&self) -> Result<Found> {
        let mut words = [0.0; 2];
        self.found.read(0, &mut words)?;
        let [loss, norm] = words;
        Ok(Found { loss, norm })
    }
}

/// Rows of a span as a layer reads them.
pub(crate) fn rows(span: &Span) -> Option<DeviceRows> {
    Some(DeviceRows::from(span.clone()))
}

/// An error after something was learnt. Had memory run out, the step would be made once more, and learn twice.
fn half_done(why: Error) -> Error {
    if why.is_out_of_memory() || why.is_unpinned() || matches!(why, Error::Offload(_)) {
        return Error::Stage { stage: "step", why: format!("it was half done: {why}") };
    }
    why
}
