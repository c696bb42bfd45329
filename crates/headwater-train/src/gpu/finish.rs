//! What stands behind the layers: the loss of their outputs, and the step that its gradients make.

use headwater_cuda::{Span, Stream};

use super::engine::Parts;
use super::flat::Flat;
use super::sampled::Step;
use crate::error::{Error, Result};
use crate::labels::Labels;
use crate::loss::device::{DeviceLoss, DeviceRows, DeviceTargets};
use crate::loss::{Loss, Targets, count_labels, count_values};
use crate::optimiser::Optimiser;
use crate::optimiser::device::{Arrays, DeviceOptimiser, Segment, Settings};

/// The loss and the optimiser of a run.
#[derive(Debug)]
pub(crate) struct Finish {
    /// Outputs of a row.
    pub columns: usize,
    kind: Loss,
    loss: DeviceLoss,
    optimiser: DeviceOptimiser,
}

impl Finish {
    pub fn new(stream: &Stream, parts: &Parts<'_>, flat: &Flat) -> Result<Self> {
        check_targets(parts)?;
        let decays = parts.optimiser.decays();
        let segment =
            |(place, decay): (&std::ops::Range<usize>, &f64)| Segment { start: place.start as u64, decay: *decay };
        let segments: Vec<Segment> = flat.places().iter().zip(decays).map(segment).collect();
        let settings = Settings { rule: parts.config.rule(), most_norm: parts.config.most_norm() };
        let optimiser = DeviceOptimiser::new(stream, settings, &segments, flat.len())?;
        let columns = parts.task.classes;
        let loss = DeviceLoss::new(stream, parts.loss, columns, None)?;
        let made = Self { columns, kind: parts.loss, loss, optimiser };
        made.send(stream, parts.optimiser)?;
        Ok(made)
    }

    /// Takes over what the optimiser of the host remembers.
    pub fn send(&self, stream: &Stream, from: &Optimiser) -> Result<()> {
        self.optimiser.load(stream, from)
    }

    /// Gives what it remembers to the optimiser of the host.
    pub fn fetch(&self, stream: &Stream, to: &mut Optimiser) -> Result<()> {
        self.optimiser.save(stream, to)
    }

    /// Whether a row should be of one class.
    pub fn is_of_classes(&self) -> bool {
        matches!(self.kind, Loss::CrossEntropy | Loss::Nll)
    }

    /// Targets as kernels read them, and how many of them count.
    pub fn targets(&self, labels: &Labels) -> (Vec<u8>, u32) {
        match labels.targets() {
            Targets::Classes(labels) => {
                // Classes are checked when a run begins.
                let classes: Vec<i32> = labels.iter().map(|label| i32::try_from(*label).unwrap_or(-1)).collect();
                let counted = classes.iter().filter(|class| **class >= 0).count();
                (bytemuck::cast_slice(&classes).to_vec(), u32::try_from(counted).unwrap_or(u32::MAX))
            }
            Targets::Values(values) => {
                let counted = values.iter().filter(|value| !value.is_nan()).count();
                (bytemuck::cast_slice(values).to_vec(), u32::try_from(counted).unwrap_or(u32::MAX))
            }
        }
    }

    /// Queues the numbers of a step: before each, and never recorded.
    pub fn announce(&self, stream: &Stream, step: &Step) -> Result<()> {
        self.optimiser.announce(stream, step.rate, step.number + 1)
    }

    /// Queues the loss of outputs and its gradient. `counts` are the number of rows and of targets that count.
    pub fn loss(
        &self,
        stream: &Stream,
        (outputs, gradient): (&Span, &Span),
        counts: &Span,
        targets: &Span,
    ) -> Result<()> {
        let count = |at: usize| counts.part(4 * at, 4).ok_or_else(short);
        let (rows, counted) = (&count(0)?, &count(1)?);
        let targets =
            if self.is_of_classes() { DeviceTargets::Classes(targets) } else { DeviceTargets::Values(targets) };
        self.loss.of(stream, DeviceRows { outputs, targets, rows, counted, gradient })
    }

    /// Queues the step that was announced.
    pub fn step(&self, stream: &Stream, flat: &Flat) -> Result<()> {
        self.optimiser.step(stream, Arrays { values: &flat.values, gradient: &flat.gradients })
    }

    /// Queues copies of what a step found: the mean loss and the norm of the gradients, f64 each.
    pub fn found(&self, stream: &Stream, to: &Span) -> Result<()> {
        for (at, from) in [self.loss.mean(), self.optimiser.norm()].into_iter().enumerate() {
            stream.copy(&from.part(0, 8).ok_or_else(short)?, &to.part(8 * at, 8).ok_or_else(short)?)?;
        }
        Ok(())
    }
}

/// What cannot be aimed at is named before anything is brought to a GPU.
fn check_targets(parts: &Parts<'_>) -> Result<()> {
    let labels = parts.task.labels.of(&parts.task.train);
    match (labels.targets(), parts.loss) {
        (Targets::Classes(labels), _) => count_labels(labels, parts.task.classes).map(|_| ()),
        (Targets::Values(values), loss) => {
            let (range, expected) = loss.range();
            count_values(values, parts.task.classes, range, expected).map(|_| ())
        }
    }
}

fn short() -> Error {
    Error::Length { what: "the counts of a batch".to_owned(), found: 0, expected: 8 }
}
