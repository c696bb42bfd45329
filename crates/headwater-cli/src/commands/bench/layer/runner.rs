//! Measures cases one after the other, each graph made once.

use headwater::compile::Optimisations;
use headwater::cuda::{Gpu, Stream};

use super::case::Case;
use super::figures::Figures;
use super::record::Setting;
use super::shape::Shape;
use super::stack::Stack;
use super::{cpu, gpu};
use crate::args::BenchLayerArgs;

/// What measures, and what it keeps from one case to the next.
pub struct Runner<'a> {
    args: &'a BenchLayerArgs,
    gpu: Option<&'a Gpu>,
    setting: &'a Setting,
    /// The graph of the case before.
    made: Option<Shape>,
    /// What was measured on it.
    done: Vec<Done>,
}

/// A case that was measured, and its kernels.
struct Done {
    case: Case,
    stack: Stack,
    figures: Figures,
}

impl<'a> Runner<'a> {
    /// One that has measured nothing.
    pub fn new(args: &'a BenchLayerArgs, gpu: Option<&'a Gpu>, setting: &'a Setting) -> Self {
        Self { args, gpu, setting, made: None, done: Vec::new() }
    }

    /// All optimisations of the device.
    pub fn optimisations(gpu: Option<&Gpu>) -> Optimisations {
        if gpu.is_some() { Optimisations::GPU } else { Optimisations::CPU }
    }

    /// Measures a case. One whose kernels are those of a case before it on the same graph is not run again: an optimisation that
    /// changes nothing has the same figures.
    pub fn measure(&mut self, case: &Case) -> anyhow::Result<Figures> {
        if self.made.as_ref().is_none_or(|shape| shape.like != case.like) {
            // The one before goes first: both may not fit.
            drop(self.made.take());
            self.done.clear();
        }
        let shape = match &mut self.made {
            Some(shape) => shape,
            none => none.insert(Shape::new(self.args, &case.like)?),
        };
        let layer = case.layer()?;
        let graph = shape.seen(layer.self_loops)?;
        let on = Self::optimisations(self.gpu).without(&case.without)?;
        let stack = Stack::of(case, &layer.program, graph, on)?;
        let is_same = |done: &&Done| done.case.precision == case.precision && done.stack.is_same(&stack);
        if let Some(done) = self.done.iter().find(is_same) {
            let same_kernels_as = Some(done.case.without.clone());
            return Ok(Figures { same_kernels_as, ..done.figures.clone() });
        }
        let Setting { rounds, seed, .. } = *self.setting;
        let found = match self.gpu {
            Some(gpu) => gpu::measure(&stack, graph, &gpu::On { gpu, precision: case.precision.into(), rounds, seed })?,
            None => cpu::measure(&stack, graph, rounds, seed)?,
        };
        let figures = Figures::new(case, &self.setting.machine, &stack, graph, found);
        self.done.push(Done { case: case.clone(), stack, figures: figures.clone() });
        Ok(figures)
    }

    /// Whether the device still works. A kernel that fails takes the GPU's context with it, and then no case would run.
    pub fn check(&self) -> anyhow::Result<()> {
        Ok(self.gpu.map_or(Ok(()), |gpu| Stream::new(gpu)?.synchronize())?)
    }
}
