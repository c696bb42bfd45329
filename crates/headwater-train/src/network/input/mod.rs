//! What the first layer reads: features as they are, features projected to one width, or rows that are learnt.
//!
//! Projections are compiled layers over the nodes of one type without edges, so every back end that runs layers runs them.
//! The gradient of learnt rows is of the rows that were read: in a sample, of few.

mod of_type;
mod plan;

use headwater_compile::cpu::fast::{Given, Workspace};

pub(super) use of_type::Kept;
use of_type::{Back, TypeInput};
pub use plan::{InputPlan, TypePlan, Wanted};

use super::NodeInput;
use crate::error::Result;
use crate::gradient::Gradient;
use crate::parameter::Parameters;
use crate::run_config::RunConfig;

/// What a network is given of the nodes that its first layer reads.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// Features: one array of all types where they have one width, else one a type; `None` where a type has none.
    pub features: &'a [Option<Given<'a>>],
    /// Which nodes they are, of each type.
    pub nodes: &'a [Nodes<'a>],
}

/// Nodes of one type.
#[derive(Debug, Clone, Copy)]
pub enum Nodes<'a> {
    /// All of them, so many.
    All(usize),
    /// Some of them, none twice.
    Listed(&'a [u64]),
}

impl Nodes<'_> {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::All(count) => *count,
            Self::Listed(ids) => ids.len(),
        }
    }
}

/// The stage that makes what the first layer reads.
#[derive(Debug)]
pub(super) enum InputStage {
    /// What is given is read as it is.
    AsItIs,
    /// Every type by itself.
    Apart(Vec<TypeInput>),
}

/// What the first layer reads.
#[derive(Debug)]
pub enum Read<'a> {
    /// Nothing.
    Nothing,
    /// What was given.
    Lent(Given<'a>),
    /// What was made of it.
    Made(Vec<f32>),
}

impl Read<'_> {
    /// It, lent.
    #[must_use]
    pub fn given(&self) -> Option<Given<'_>> {
        match self {
            Self::Nothing => None,
            Self::Lent(given) => Some(*given),
            Self::Made(rows) => Some(Given::Dense(rows)),
        }
    }
}

impl InputStage {
    /// The stage of a plan; what it learns is added to the parameters.
    pub fn new(
        config: &RunConfig,
        plan: &InputPlan,
        node_types: &[NodeInput],
        parameters: &mut Parameters,
    ) -> Result<Self> {
        let InputPlan::Apart { width, types } = plan else { return Ok(Self::AsItIs) };
        let made =
            types.iter().zip(node_types).map(|(plan, own)| TypeInput::new(config, *plan, own, *width, parameters));
        Ok(Self::Apart(made.collect::<Result<_>>()?))
    }

    /// What the first layer reads, and what the backward pass will need.
    pub fn forward<'a>(
        &self,
        inputs: Inputs<'a>,
        parameters: &Parameters,
        workspace: &mut Workspace,
    ) -> Result<(Read<'a>, Vec<Kept>)> {
        let Self::Apart(types) = self else {
            let given = inputs.features.first().copied().flatten();
            return Ok((given.map_or(Read::Nothing, Read::Lent), Vec::new()));
        };
        let mut kept = Vec::new();
        let mut parts = Vec::new();
        for (at, own) in types.iter().enumerate() {
            let (out, own) = own.forward(at, inputs, parameters, workspace)?;
            parts.push(out);
            kept.push(own);
        }
        Ok((Read::Made(joined(parts, workspace)), kept))
    }

    /// From the gradient of what the first layer read to those of what the stage learns.
    pub fn backward(
        &self,
        inputs: Inputs<'_>,
        kept: Vec<Kept>,
        gradient: &[f32],
        parameters: &Parameters,
        gradients: &mut [Gradient],
        workspace: &mut Workspace,
    ) -> Result<()> {
        let Self::Apart(types) = self else { return Ok(()) };
        let rows: usize = inputs.nodes.iter().map(Nodes::count).sum();
        let width = gradient.len().checked_div(rows).unwrap_or(0);
        let mut rest = gradient;
        for (at, (own, kept)) in types.iter().zip(kept).enumerate() {
            let (slope, behind) = rest.split_at(inputs.nodes[at].count() * width);
            rest = behind;
            let back = Back { inputs, parameters, slope };
            own.backward(at, back, kept, gradients, workspace)?;
        }
        Ok(())
    }
}

/// Arrays one behind the other. What is there alone is not moved.
fn joined(mut parts: Vec<Vec<f32>>, workspace: &mut Workspace) -> Vec<f32> {
    if parts.len() == 1 {
        return parts.pop().unwrap_or_default();
    }
    let mut all = workspace.take(parts.iter().map(Vec::len).sum());
    let mut rest = all.as_mut_slice();
    for part in parts {
        let (own, behind) = rest.split_at_mut(part.len());
        own.copy_from_slice(&part);
        rest = behind;
        workspace.give(part);
    }
    all
}
