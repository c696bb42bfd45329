//! Measures cases one after the other, each graph made once.

use headwater::compile::Optimisations;
use headwater::compile::adjacency::Adjacency;
use headwater::compile::cuda::{Tuning, tuned};
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
    /// What is known of cases on it.
    done: Vec<Done>,
}

/// A case that was measured.
struct Done {
    case: Case,
    /// Its kernels. Those of a case of an earlier run are compiled when there is something to compare them with.
    stack: Option<Stack>,
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

    /// Takes note of what an earlier run found.
    pub fn recall(&mut self, case: &Case, figures: &Figures) {
        self.turn_to(&case.like);
        if figures.same_kernels_as.is_none() {
            self.done.push(Done { case: case.clone(), stack: None, figures: figures.clone() });
        }
    }

    /// Forgets what belongs to another graph than that of this shape.
    fn turn_to(&mut self, like: &str) {
        if self.made.as_ref().is_some_and(|shape| shape.like != like) {
            // It goes before the next is made: both may not fit.
            self.made = None;
        }
        self.done.retain(|done| done.case.like == like);
    }

    /// Measures a case. One whose kernels are those of a case before it on the same graph is not run again: an optimisation that
    /// changes nothing has the same figures.
    pub fn measure(&mut self, case: &Case) -> anyhow::Result<Figures> {
        self.turn_to(&case.like);
        let shape = match &mut self.made {
            Some(shape) => shape,
            none => none.insert(Shape::new(self.args, &case.like)?),
        };
        let on = Self::optimisations(self.gpu);
        let scheduled = self.gpu.map(|gpu| (gpu, self.args.tune));
        // Cases of other models or sizes have other kernels.
        let is_alike = |done: &Done| Case { without: case.without.clone(), ..done.case.clone() } == *case;
        for done in self.done.iter_mut().filter(|done| done.stack.is_none() && is_alike(done)) {
            done.stack = Some(compiled(&done.case, shape, on, scheduled)?.0);
        }
        let (stack, graph) = compiled(case, shape, on, scheduled)?;
        let is_same = |done: &&Done| is_alike(done) && done.stack.as_ref().is_some_and(|own| own.is_same(&stack));
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
        self.done.push(Done { case: case.clone(), stack: Some(stack), figures: figures.clone() });
        Ok(figures)
    }

    /// Whether the device still works. A kernel that fails takes the GPU's context with it, and then no case would run.
    pub fn check(&self) -> anyhow::Result<()> {
        Ok(self.gpu.map_or(Ok(()), |gpu| Stream::new(gpu)?.synchronize())?)
    }
}

/// The kernels of a case, and the graph as it sees it.
fn compiled<'a>(
    case: &Case,
    shape: &'a mut Shape,
    on: Optimisations,
    scheduled: Option<(&Gpu, Tuning)>,
) -> anyhow::Result<(Stack, &'a Adjacency)> {
    let layer = case.layer()?;
    let graph = shape.seen(layer.self_loops)?;
    let mut stack = Stack::of(case, &layer.program, graph, on.without(&case.without)?)?;
    if let Some((gpu, tuning)) = scheduled {
        for pass in stack.passes_mut() {
            pass.program = tuned(std::mem::take(&mut pass.program), tuning, gpu, graph, case.precision.into())?;
        }
    }
    Ok((stack, graph))
}
