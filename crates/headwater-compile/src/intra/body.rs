//! What happens with a row: straight code over vectors.
//!
//! Each step makes one register, which holds a vector for every row of the step's level. Level 0 is the outermost domain of
//! a kernel. Steps run in order, each for all rows of its level that belong to the outermost row at hand; so a reduction is
//! complete before the step behind it reads it.

use super::BufferId;
use crate::inter::{Binary, Domain, Path, Reduce, Shape, Unary};

/// A register, by its step's place in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Register(pub(crate) u32);

/// One map on the way from a row to a row of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hop {
    /// The coarser domain.
    pub to: Domain,
    /// The way there.
    pub path: Path,
}

/// A row of a buffer, found from the row at hand by maps one after the other; without any, the row itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The buffer.
    pub from: BufferId,
    /// The maps.
    pub hops: Vec<Hop>,
}

/// A register and how it is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The level whose rows have it.
    pub level: usize,
    /// What it holds.
    pub shape: Shape,
    /// How it is made.
    pub op: StepOp,
}

/// How a register is made.
#[derive(Debug, Clone, PartialEq)]
pub enum StepOp {
    /// The product of a GEMM: its first step.
    Product,
    /// A row of a buffer.
    Load(Read),
    /// A number.
    Constant(f64),
    /// A function of every element.
    Unary(Unary, Register),
    /// A function of every two elements.
    Binary(Binary, Register, Register),
    /// The inner product, a head at a time.
    Dot(Register, Register),
    /// Both vectors of a head in one.
    Concat(Register, Register),
    /// A part of every head's vector, from an element on.
    Slice(Register, usize),
    /// Zeros around every head's vector, which begins at an element.
    Pad(Register, usize),
    /// The same numbers with other heads and widths.
    Reshape(Register),
    /// Heads or widths of 1 repeated.
    Expand(Register),
    /// The sum over heads.
    SumHeads(Register),
    /// The sum over a head's vector.
    SumWidth(Register),
    /// Elements set to 0 at random, by the row's number in its domain.
    Dropout {
        /// Of what.
        x: Register,
        /// How likely.
        probability: f64,
        /// Which of the step's dropouts.
        key: u64,
    },
    /// The register of a coarser level, for each of its rows.
    Spread(Register),
    /// The register of a finer level, combined over the rows that belong to one.
    Reduce(Reduce, Register),
    /// Exponentials of a register of the same level that add up to 1 over each row of a coarser level.
    Softmax {
        /// Of what.
        x: Register,
        /// The coarser level.
        over: usize,
    },
    /// Writes a register into the row of a buffer of the level's domain.
    Store(Register, BufferId),
}

/// Steps in the order they run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Body {
    /// Steps.
    pub steps: Vec<Step>,
}

impl Register {
    /// The register of a step.
    #[must_use]
    pub fn new(at: usize) -> Self {
        Self(u32::try_from(at).unwrap_or(u32::MAX))
    }

    /// The step's place.
    #[must_use]
    pub fn at(self) -> usize {
        self.0 as usize
    }

    /// The register so many steps behind.
    #[must_use]
    pub fn after(self, steps: u32) -> Self {
        Self(self.0 + steps)
    }
}

impl Body {
    /// Adds a step.
    pub fn push(&mut self, level: usize, shape: Shape, op: StepOp) -> Register {
        self.steps.push(Step { level, shape, op });
        Register::new(self.steps.len() - 1)
    }

    /// Buffers that are read.
    pub fn reads(&self) -> impl Iterator<Item = BufferId> + '_ {
        self.steps.iter().filter_map(|step| match &step.op {
            StepOp::Load(read) => Some(read.from),
            _ => None,
        })
    }

    /// All that it reads or writes, wherever it names them.
    pub(super) fn buffers(&mut self) -> impl Iterator<Item = &mut BufferId> {
        self.steps.iter_mut().filter_map(|step| match &mut step.op {
            StepOp::Load(Read { from: id, .. }) | StepOp::Store(_, id) => Some(id),
            _ => None,
        })
    }

    /// Buffers that are written.
    pub fn writes(&self) -> impl Iterator<Item = BufferId> + '_ {
        self.steps.iter().filter_map(|step| match &step.op {
            StepOp::Store(_, to) => Some(*to),
            _ => None,
        })
    }
}

impl StepOp {
    /// Registers that are read.
    #[must_use]
    pub fn operands(&self) -> Vec<Register> {
        self.clone().registers().into_iter().flatten().map(|register| *register).collect()
    }

    /// The same of other registers.
    #[must_use]
    pub fn with_registers(mut self, of: impl Fn(Register) -> Register) -> Self {
        self.registers().into_iter().flatten().for_each(|register| *register = of(*register));
        self
    }

    fn registers(&mut self) -> [Option<&mut Register>; 2] {
        match self {
            Self::Product | Self::Load(_) | Self::Constant(_) => [None, None],
            Self::Binary(_, x, y) | Self::Dot(x, y) | Self::Concat(x, y) => [Some(x), Some(y)],
            Self::Unary(_, x)
            | Self::Slice(x, _)
            | Self::Pad(x, _)
            | Self::Reshape(x)
            | Self::Expand(x)
            | Self::SumHeads(x)
            | Self::SumWidth(x)
            | Self::Dropout { x, .. }
            | Self::Spread(x)
            | Self::Reduce(_, x)
            | Self::Softmax { x, .. }
            | Self::Store(x, _) => [Some(x), None],
        }
    }
}
