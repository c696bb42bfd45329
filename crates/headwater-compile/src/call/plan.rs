//! The kernels of a call: forward, and backward where gradients are wanted.

use std::collections::BTreeMap;

use crate::cpu::fast::{Array, Executor, Given, Run, Workspace};
use crate::error::Result;
use crate::inter::Program;
use crate::intra::{Buffer, Role};
use crate::pass::{self, Compiled, Optimisations, Statistics};

/// Numbers by the names of inputs, weights, saved values and gradients.
pub type Arrays = BTreeMap<String, Vec<f32>>;

/// Kernels, and the rows that they were made for.
#[derive(Debug)]
pub struct Plan {
    statistics: Statistics,
    compiled: Option<Compiled>,
    forward: Executor,
    backward: Option<Executor>,
}

impl Plan {
    /// Compiles a layer; without gradients, from inputs to outputs alone.
    pub(super) fn new(
        program: &Program,
        statistics: &Statistics,
        with_gradients: bool,
        on: Optimisations,
    ) -> Result<Self> {
        if !with_gradients {
            let forward = Executor::new(pass::inference(program, statistics, on)?);
            return Ok(Self { statistics: *statistics, compiled: None, forward, backward: None });
        }
        let compiled = pass::compile(program, statistics, on)?;
        Ok(Self {
            statistics: *statistics,
            forward: Executor::new(compiled.forward.clone()),
            backward: Some(Executor::new(compiled.backward.clone())),
            compiled: Some(compiled),
        })
    }

    /// Rows that it was made for.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// What was compiled, where both directions were.
    #[must_use]
    pub fn compiled(&self) -> Option<&Compiled> {
        self.compiled.as_ref()
    }

    pub(super) fn forward_program(&self) -> &crate::intra::Program {
        self.forward.program()
    }

    /// Names of what the backward pass reads: arrays that the forward pass reads too, what that gives, and `d.out`.
    #[must_use]
    pub fn backward_reads(&self) -> Vec<&str> {
        self.backward.iter().flat_map(|backward| given_names(&backward.program().buffers)).collect()
    }

    /// From inputs and weights to `out`, and to what the backward pass reads besides.
    pub fn forward<'g>(
        &self,
        run: Run<'_>,
        given: &dyn Fn(&str) -> Option<&'g [f32]>,
        workspace: &mut Workspace,
    ) -> Result<Arrays> {
        arrays(&self.forward, run, given, workspace)
    }

    /// From what it reads to gradients, by names such as `d.x`. Nothing, where none are wanted.
    pub fn backward<'g>(
        &self,
        run: Run<'_>,
        given: &dyn Fn(&str) -> Option<&'g [f32]>,
        workspace: &mut Workspace,
    ) -> Result<Arrays> {
        self.backward.as_ref().map_or_else(|| Ok(Arrays::new()), |backward| arrays(backward, run, given, workspace))
    }
}

/// Names of buffers that callers give.
pub(super) fn given_names(buffers: &[Buffer]) -> impl Iterator<Item = &str> {
    let given = buffers.iter().filter(|buffer| matches!(buffer.role, Role::Input | Role::Parameter));
    given.map(|buffer| buffer.name.as_str())
}

fn arrays<'g>(
    executor: &Executor,
    run: Run<'_>,
    given: &dyn Fn(&str) -> Option<&'g [f32]>,
    workspace: &mut Workspace,
) -> Result<Arrays> {
    let found = executor.run(run, &|name| given(name).map(Given::Dense), workspace)?;
    // Nothing sparse goes in, so nothing sparse comes out.
    Ok(found.into_iter().map(|(name, array)| (name, Array::into_values(array))).collect())
}
