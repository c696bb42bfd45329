//! The kernels of a call for a GPU, run on memory of the caller's.

use headwater_cuda::{Allocation, Span, Stream};
use headwater_graph::random::Key;

use super::plan::given_names;
use crate::cuda::{DeviceGraph, DeviceRows, Executor, Precision, Table, tell};
use crate::error::Result;
use crate::inter::Program;
use crate::intra::{Buffer, Role};
use crate::pass::{self, Optimisations, Statistics};

/// Which way a run goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From inputs and weights to `out`, and to what the other direction reads besides.
    Forward,
    /// From that to gradients, by names such as `d.x`.
    Backward,
}

/// Kernels, and the rows that they were made for.
#[derive(Debug)]
pub struct DevicePlan {
    statistics: Statistics,
    precision: Precision,
    forward: Executor,
    backward: Option<Executor>,
}

impl DevicePlan {
    /// Compiles a layer; without gradients, from inputs to outputs alone.
    pub(super) fn new(
        program: &Program,
        statistics: &Statistics,
        with_gradients: bool,
        precision: Precision,
    ) -> Result<Self> {
        let executor = |program, pass| Executor::with_precision(program, precision).labelled(format!("layer {pass}"));
        let (forward, backward) = if with_gradients {
            let compiled = pass::compile(program, statistics, Optimisations::GPU)?;
            (executor(&compiled.forward, "forward"), Some(executor(&compiled.backward, "backward")))
        } else {
            (executor(&pass::inference(program, statistics, Optimisations::GPU)?, "inference"), None)
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
        self.backward.iter().flat_map(|backward| given_names(&backward.emitted().buffers)).collect()
    }

    /// What both directions ask a graph.
    #[must_use]
    pub fn tables(&self) -> Vec<&Table> {
        let executors = [Some(&self.forward), self.backward.as_ref()].into_iter().flatten();
        executors.map(|executor| &executor.emitted().table).collect()
    }

    /// Names of what a direction makes, and how many numbers each has.
    #[must_use]
    pub fn makes(&self, direction: Direction, graph: &DeviceGraph) -> Vec<(&str, usize)> {
        let buffers = self.executor(direction).into_iter().flat_map(|executor| &executor.emitted().buffers);
        let made = buffers.filter(|buffer| buffer.role == Role::Output);
        made.map(|buffer| (buffer.name.as_str(), graph.room(buffer.domain) * buffer.shape.len())).collect()
    }

    /// Bytes that a direction needs while it runs.
    #[must_use]
    pub fn temporary_bytes(&self, direction: Direction, graph: &DeviceGraph) -> usize {
        self.executor(direction).map_or(0, |executor| executor.temporary_bytes(graph))
    }

    /// Queues a direction: out of arrays that `find` has by name, and into those. `key` is that of its dropouts; both directions
    /// of a call have the same.
    pub fn queue(
        &self,
        direction: Direction,
        stream: &Stream,
        graph: &DeviceGraph,
        (temporaries, key): (&Span, Key),
        find: &dyn Fn(&str) -> Option<Span>,
    ) -> Result<()> {
        let Some(executor) = self.executor(direction) else { return Ok(()) };
        let give = |buffer: &Buffer| Ok(find(&buffer.name).map(DeviceRows::from));
        let bound = executor.bind(stream, graph, temporaries, &give)?;
        let step = Span::whole(Allocation::on_stream(stream, size_of::<u64>())?);
        tell(stream, &[key.bits()], &step)?;
        executor.queue(stream, &bound, &step)
    }

    fn executor(&self, direction: Direction) -> Option<&Executor> {
        match direction {
            Direction::Forward => Some(&self.forward),
            Direction::Backward => self.backward.as_ref(),
        }
    }
}
