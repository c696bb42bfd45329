//! Steps on the GPU: all parameters are one flat array, their gradients another of the same layout.
//!
//! Every element is what [`Optimiser::step`] makes of it, to the bit where gradients are not clipped: the norm is
//! summed in another order. A segment of the array is a parameter, with its weight decay; memory between two parameters
//! belongs to the first and has gradients of 0.
//!
//! What changes from step to step is written before it by [`announce`](DeviceOptimiser::announce), which is a launch of
//! its own with the numbers as arguments: a copy from host memory would have to wait before that memory is written
//! again. The step itself can be recorded once and replayed.
//!
//! A norm that is not finite leaves everything as it was; the host reads the norm when it likes and stops.

mod cuda;
#[cfg(test)]
mod tests;

use headwater_cuda::{Span, Stream};

pub use cuda::kernel_builds;

use super::{Now, Optimiser, Rule};
use crate::array::check_length;
use crate::device::{PARTS_BYTES, copy_of, zeros};
use crate::error::{Error, Result};

/// A part of the flat array, up to the next one's start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    /// Its first element. Segments are in order, and the first begins at 0.
    pub start: u64,
    /// Weight decay of its elements.
    pub decay: f64,
}

/// What a step is taken by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The rule.
    pub rule: Rule,
    /// The norm that gradients have together at most.
    pub most_norm: Option<f64>,
}

/// The arrays of a step.
#[derive(Debug, Clone, Copy)]
pub struct Arrays<'a> {
    /// All parameters, f32.
    pub values: &'a Span,
    /// Their gradients.
    pub gradient: &'a Span,
}

/// A rule with its memory of the steps before, on a GPU.
#[derive(Debug)]
pub struct DeviceOptimiser {
    rule: Rule,
    segments: Vec<Segment>,
    tables: Tables,
}

/// What kernels read and write besides the caller's arrays.
#[derive(Debug)]
struct Tables {
    count: usize,
    segments: u32,
    starts: Span,
    decays: Span,
    /// Arrays that the rule keeps; those it does not keep are empty.
    state: [Span; 2],
    now: Span,
    parts: Span,
    norm: Span,
    most_norm: f64,
}

impl DeviceOptimiser {
    /// One for an array of `count` elements that has taken no step.
    pub fn new(stream: &Stream, settings: Settings, segments: &[Segment], count: usize) -> Result<Self> {
        check_segments(segments, count)?;
        let (starts, decays): (Vec<u64>, Vec<f64>) = segments.iter().map(|own| (own.start, own.decay)).unzip();
        let slots = settings.rule.slots().len();
        let state = |slot: usize| zeros(stream, if slot < slots { 4 * count } else { 0 });
        let tables = Tables {
            count,
            segments: u32::try_from(segments.len()).unwrap_or(u32::MAX),
            starts: copy_of(stream, bytemuck::cast_slice(&starts))?,
            decays: copy_of(stream, bytemuck::cast_slice(&decays))?,
            state: [state(0)?, state(1)?],
            now: zeros(stream, cuda::NOW_BYTES)?,
            parts: zeros(stream, PARTS_BYTES)?,
            norm: zeros(stream, 8)?,
            most_norm: settings.most_norm.unwrap_or(f64::INFINITY),
        };
        Ok(Self { rule: settings.rule, segments: segments.to_vec(), tables })
    }

    /// Queues the numbers of a step, counted from 1: before each, and never recorded.
    pub fn announce(&self, stream: &Stream, rate: f64, step: u64) -> Result<()> {
        cuda::tell(stream, self.rule, self.at(rate, step), rate, &self.tables.now)
    }

    /// Queues the step that was announced.
    pub fn step(&self, stream: &Stream, arrays: Arrays<'_>) -> Result<()> {
        // Of these numbers only those are taken that are the same in every step.
        cuda::step(stream, self.rule, self.at(0.0, 1), &self.tables, &arrays)
    }

    fn at(&self, rate: f64, step: u64) -> super::Step {
        self.rule.at(Now { rate, decay: 0.0, step })
    }

    /// The norm of the last step's gradients before they were clipped, one f64.
    #[must_use]
    pub fn norm(&self) -> &Span {
        &self.tables.norm
    }

    /// Takes over what an optimiser of the same rule and parameters remembers. Waits.
    pub fn load(&self, stream: &Stream, from: &Optimiser) -> Result<()> {
        self.each_slot(from, |own, slot| {
            Ok(stream.upload(bytemuck::cast_slice(&from.state[slot.0][slot.1].values), own)?)
        })
    }

    /// Gives what it remembers to an optimiser of the same rule and parameters; who counts steps tells it. Waits.
    pub fn save(&self, stream: &Stream, to: &mut Optimiser) -> Result<()> {
        let mut found = to.state.clone();
        self.each_slot(to, |own, slot| {
            Ok(stream.download(own, bytemuck::cast_slice_mut(&mut found[slot.0][slot.1].values))?)
        })?;
        to.state = found;
        Ok(())
    }

    /// Calls `with` for every array that the other remembers: the memory here, and which parameter's which array it is.
    fn each_slot(&self, other: &Optimiser, mut with: impl FnMut(&Span, (usize, usize)) -> Result<()>) -> Result<()> {
        if self.rule != other.rule {
            return Err(Error::OptimiserState { why: format!("is of {:?}; expected {:?}", other.rule, self.rule) });
        }
        check_length("the list of segments", self.segments.len(), other.state.len())?;
        for (parameter, (segment, slots)) in self.segments.iter().zip(&other.state).enumerate() {
            for (slot, array) in slots.iter().enumerate().filter(|(_, array)| !array.values.is_empty()) {
                let first = usize::try_from(segment.start).ok().and_then(|start| start.checked_mul(4));
                let own = first.and_then(|first| self.tables.state[slot].part(first, 4 * array.values.len()));
                let own =
                    own.ok_or_else(|| Error::OptimiserState { why: format!("has no room for {:?}", array.name) })?;
                with(&own, (parameter, slot))?;
            }
        }
        Ok(())
    }
}

fn check_segments(segments: &[Segment], count: usize) -> Result<()> {
    let starts_well = segments.first().map_or(count == 0, |first| first.start == 0);
    let is_sorted = segments.is_sorted_by(|a, b| a.start <= b.start);
    let is_inside = segments.last().is_none_or(|last| last.start <= count as u64);
    if starts_well && is_sorted && is_inside {
        return Ok(());
    }
    let starts: Vec<u64> = segments.iter().map(|segment| segment.start).collect();
    let expected = format!("starts from 0 on, in order, up to {count}");
    Err(Error::Setting { field: "segments", value: format!("{starts:?}"), expected })
}
