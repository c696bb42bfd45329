//! The kernels of a call for a GPU, run on memory of the caller's.

use std::sync::Arc;

use headwater_cuda::Stream;

use super::is_dropout;
use super::plan::given_names;
use crate::cuda::{CallMemory, DeviceGraph, Executor, Precision, RepeatCounts, Repeats, Table};
use crate::error::{Error, Result};
use crate::inter::Program;
use crate::intra::{self, Role};
use crate::pass::{self, Optimisations, Statistics};

/// Which way a run goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From inputs and weights to `out`, and to what the other direction reads besides.
    Forward,
    /// From that to gradients, by names such as `d.x`.
    Backward,
}

/// Gives kernels their schedules.
pub type Tune<'a> = &'a (dyn Fn(intra::Program) -> Result<intra::Program> + Sync);

/// Kernels, and the rows that they were made for.
#[derive(Debug)]
pub struct DevicePlan {
    statistics: Statistics,
    precision: Precision,
    forward: Run,
    backward: Option<Run>,
}

/// The kernels of a direction, and where they were queued before.
#[derive(Debug)]
struct Run {
    executor: Executor,
    repeats: Repeats,
}

impl DevicePlan {
    /// Compiles a layer; without gradients, from inputs to outputs alone.
    pub(super) fn new(
        program: &Program,
        statistics: &Statistics,
        with_gradients: bool,
        (precision, on): (Precision, Optimisations),
        tune: Tune<'_>,
    ) -> Result<Self> {
        let draws = program.values.iter().any(|value| is_dropout(&value.op));
        let run = |program: intra::Program, pass| {
            let executor = Executor::with_precision(&tune(program)?, precision).labelled(format!("layer {pass}"));
            Ok::<_, Error>(Run { executor, repeats: Repeats::new(draws) })
        };
        let (forward, backward) = if with_gradients {
            let compiled = pass::compile(program, statistics, on)?;
            (run(compiled.forward, "forward")?, Some(run(compiled.backward, "backward")?))
        } else {
            (run(pass::inference(program, statistics, on)?, "inference")?, None)
        };
        Ok(Self { statistics: *statistics, precision, forward, backward })
    }

    /// Whether it is for graphs with rows like these, and as exact.
    pub(super) fn serves(&self, statistics: &Statistics, precision: Precision) -> bool {
        self.precision == precision && self.statistics.is_like(statistics)
    }

    /// Names of what the backward pass reads: arrays that the forward pass reads too, what that gives, and `d.out`.
    #[must_use]
    pub fn backward_reads(&self) -> Vec<&str> {
        let runs = self.backward.iter();
        runs.flat_map(|backward| given_names(&backward.executor.emitted().buffers)).collect()
    }

    /// What both directions ask a graph.
    #[must_use]
    pub fn tables(&self) -> Vec<&Table> {
        let runs = [Some(&self.forward), self.backward.as_ref()].into_iter().flatten();
        runs.map(|run| &run.executor.emitted().table).collect()
    }

    /// Names of what a direction reads and makes, in the order in which [`Self::queue`] takes their memory.
    #[must_use]
    pub fn takes(&self, direction: Direction) -> Vec<&str> {
        let buffers = self.run(direction).into_iter().flat_map(|run| &run.executor.emitted().buffers);
        buffers.filter(|buffer| buffer.role != Role::Temporary).map(|buffer| buffer.name.as_str()).collect()
    }

    /// Names of what a direction makes, and how many numbers each has.
    #[must_use]
    pub fn makes(&self, direction: Direction, graph: &DeviceGraph) -> Vec<(&str, usize)> {
        let buffers = self.run(direction).into_iter().flat_map(|run| &run.executor.emitted().buffers);
        let made = buffers.filter(|buffer| buffer.role == Role::Output);
        made.map(|buffer| (buffer.name.as_str(), graph.room(buffer.domain) * buffer.shape.len())).collect()
    }

    /// Bytes that a direction needs while it runs.
    #[must_use]
    pub fn temporary_bytes(&self, direction: Direction, graph: &DeviceGraph) -> usize {
        self.run(direction).map_or(0, |run| run.executor.temporary_bytes(graph))
    }

    /// Queues a direction over memory of what it [takes](Self::takes). Both directions of a call have the same key of dropouts.
    /// A call at addresses where one was made before, with the same graph and on the same stream, is one launch. Where somebody
    /// records the stream, it becomes a part of their graph, which keeps the memory of ours that it needs.
    pub fn queue(
        &self,
        direction: Direction,
        stream: &Stream,
        graph: &Arc<DeviceGraph>,
        memory: CallMemory<'_>,
    ) -> Result<()> {
        let Some(run) = self.run(direction) else { return Ok(()) };
        run.repeats.queue(&run.executor, stream, graph, memory)
    }

    /// How calls of a direction went.
    #[must_use]
    pub fn repeats(&self, direction: Direction) -> Option<RepeatCounts> {
        self.run(direction).map(|run| run.repeats.counts())
    }

    fn run(&self, direction: Direction) -> Option<&Run> {
        match direction {
            Direction::Forward => Some(&self.forward),
            Direction::Backward => self.backward.as_ref(),
        }
    }
}
