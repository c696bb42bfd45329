//! The intra-operator form: which kernels run, over which rows, and what they do with each.
//!
//! A program is a list of kernels that read and write buffers. There are few kinds:
//!
//! | kernel | what it does |
//! | --- | --- |
//! | [`Gemm`] | rows, gathered and scaled, times the matrix of their type; scattered; then a body for every row |
//! | [`Outer`] | the sum over rows of outer products, a matrix a type: the gradient of a weight |
//! | [`Traverse`] | nested rows (a node, its pairs, their edges) and a body for each; of a softmax over the innermost, scores are walked twice and vectors once |
//! | [`Library`] | products of weights |
//!
//! A [`Body`] is straight code over vectors. It has no loops of its own: a step belongs to a level of the nest and runs for
//! every row there. [`crate::cpu::reference`] defines what all of it means.

mod body;
mod print;
mod schedule;
mod verify;

pub use body::{Body, Hop, Read, Register, Step, StepOp};
pub use print::{headline, print};
pub use schedule::KernelSchedule;
pub(crate) use schedule::{beside, most_alone, usual_lanes};
pub use verify::verify;

use crate::inter::{Domain, Path, Shape};

/// A buffer of a program, by its place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub(crate) u32);

/// Rows of numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    /// Its name: the caller's for what goes in and out, else the value's.
    pub name: String,
    /// Which rows.
    pub domain: Domain,
    /// What a row holds.
    pub shape: Shape,
    /// Who makes it and who wants it.
    pub role: Role,
}

/// Who makes a buffer and who wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The caller gives it.
    Input,
    /// The caller gives it, and learns it.
    Parameter,
    /// Made and used inside.
    Temporary,
    /// Made for the caller.
    Output,
}

/// What runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Kernel {
    /// Rows times matrices.
    Gemm(Gemm),
    /// Sums of outer products.
    Outer(Outer),
    /// Nested rows.
    Traverse(Traverse),
    /// Products of weights.
    Library(Library),
}

/// Every row of a domain, times a scalar where there is one, times the matrix of its type.
#[derive(Debug, Clone, PartialEq)]
pub struct Gemm {
    /// Which rows.
    pub rows: Domain,
    /// The vector of each.
    pub x: Read,
    /// A factor of each.
    pub scale: Option<Read>,
    /// The matrices.
    pub w: BufferId,
    /// Whether columns of the matrix meet the vector's elements.
    pub transposed: bool,
    /// How a row finds its matrix.
    pub path: Path,
    /// Where products go, if not to their own rows: to the rows that they belong to, of which no two are the same. The
    /// product of a row that none goes to is 0.
    pub scatter: Option<Domain>,
    /// What happens with the product, which is register 0, for every row where products go.
    pub body: Body,
}

/// `to[t] = sum over rows of type t: x outer y`.
#[derive(Debug, Clone, PartialEq)]
pub struct Outer {
    /// Which rows.
    pub rows: Domain,
    /// Gives rows of the matrix.
    pub x: Read,
    /// Gives columns.
    pub y: Read,
    /// How a row finds its type.
    pub path: Path,
    /// The matrices.
    pub to: BufferId,
}

/// A body for the rows of a domain, and for those that belong to them.
#[derive(Debug, Clone, PartialEq)]
pub struct Traverse {
    /// Domains, the coarsest first. Rows of each belong to rows of the one before.
    pub nest: Vec<Domain>,
    /// The way from the second of them to the first; further in there is one way.
    pub path: Path,
    /// What happens.
    pub body: Body,
}

/// What needs no graph.
#[derive(Debug, Clone, PartialEq)]
pub enum Library {
    /// `to[t] = a[t] x b[t]`, a head at a time.
    Product {
        /// The left matrix of a type and whether it is transposed first.
        a: (Read, bool),
        /// The right matrix, and whether it is transposed.
        b: (Read, bool),
        /// The products.
        to: BufferId,
    },
}

/// Kernels in the order they run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// The layer's name and the direction.
    pub name: String,
    /// Buffers.
    pub buffers: Vec<Buffer>,
    /// Kernels.
    pub kernels: Vec<Kernel>,
    /// How a GPU runs each of them; as it runs all such kernels where nothing is said.
    pub schedules: Vec<KernelSchedule>,
}

impl Gemm {
    /// The rows of the body.
    #[must_use]
    pub fn body_rows(&self) -> &Domain {
        self.scatter.as_ref().unwrap_or(&self.rows)
    }
}

impl BufferId {
    /// The buffer at a place.
    #[must_use]
    pub fn new(at: usize) -> Self {
        Self(u32::try_from(at).unwrap_or(u32::MAX))
    }

    /// Its place.
    #[must_use]
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

impl std::ops::Index<BufferId> for Program {
    type Output = Buffer;

    fn index(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.at()]
    }
}

impl Program {
    /// How a GPU runs one of the kernels.
    #[must_use]
    pub fn schedule(&self, kernel: usize) -> KernelSchedule {
        let usual = || self.kernels.get(kernel).and_then(|kernel| KernelSchedule::all(kernel).first().copied());
        self.schedules.get(kernel).copied().or_else(usual).unwrap_or(KernelSchedule::Only)
    }

    /// A buffer by its name.
    #[must_use]
    pub fn buffer(&self, name: &str) -> Option<BufferId> {
        self.buffers.iter().position(|buffer| buffer.name == name).map(BufferId::new)
    }
}

impl Kernel {
    /// Buffers that are read, in order, with repetitions.
    #[must_use]
    pub fn reads(&self) -> Vec<BufferId> {
        match self {
            Self::Gemm(gemm) => {
                let first = std::iter::once(gemm.x.from).chain(gemm.scale.as_ref().map(|scale| scale.from));
                first.chain([gemm.w]).chain(gemm.body.reads()).collect()
            }
            Self::Outer(outer) => vec![outer.x.from, outer.y.from],
            Self::Traverse(traverse) => traverse.body.reads().collect(),
            Self::Library(Library::Product { a, b, .. }) => vec![a.0.from, b.0.from],
        }
    }

    /// Buffers that are written.
    #[must_use]
    pub fn writes(&self) -> Vec<BufferId> {
        match self {
            Self::Gemm(Gemm { body, .. }) | Self::Traverse(Traverse { body, .. }) => body.writes().collect(),
            Self::Outer(Outer { to, .. }) | Self::Library(Library::Product { to, .. }) => vec![*to],
        }
    }

    /// The domains it goes over, the coarsest first.
    #[must_use]
    pub fn nest(&self) -> &[Domain] {
        match self {
            Self::Gemm(Gemm { rows, .. }) | Self::Outer(Outer { rows, .. }) => std::slice::from_ref(rows),
            Self::Traverse(traverse) => &traverse.nest,
            Self::Library(_) => &[],
        }
    }
}
