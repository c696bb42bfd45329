//! The intra-operator form: which kernels run, over which rows, and what they do with each.
//!
//! A program is a list of kernels that read and write buffers. There are few kinds:
//!
//! | kernel | what it does |
//! | --- | --- |
//! | [`Gemm`] | rows, gathered and scaled, times the matrix of their type; scattered; then a body for every row |
//! | [`GemmSum`] | products of rows, added up by the nodes that they belong to, in no memory in between; then a body for every node |
//! | [`Outer`] | the sum over rows of outer products, a matrix a type: the gradient of a weight |
//! | [`Traverse`] | nested rows (a node, its pairs, their edges) and a body for each; of a softmax over the innermost, scores are walked twice and vectors once; sums of exponentials below the largest of their rows take one walk |
//! | [`Library`] | products of weights |
//!
//! A [`Body`] is straight code over vectors. It has no loops of its own: a step belongs to a level of the nest and runs for
//! every row there. [`crate::cpu::reference`] defines what all of it means.

mod apart;
mod body;
mod print;
mod running;
mod schedule;
mod verify;

pub use body::{Body, Hop, Read, Register, Step, StepOp};
pub use print::{headline, print};
pub(crate) use running::{Running, running};
pub use schedule::{KernelSchedule, SUM_NODES};
pub(crate) use schedule::{beside, blocks_at_once, most_alone, rows_ahead, usual_lanes};
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
    /// Rows times matrices, added up by the nodes that rows belong to.
    GemmSum(GemmSum),
    /// Sums of outer products.
    Outer(Outer),
    /// Nested rows.
    Traverse(Traverse),
    /// Products of weights.
    Library(Library),
}

/// Every row of a domain, times a scalar where there is one, times the matrix of its type.
#[derive(Debug, Clone, PartialEq)]
pub struct RowProduct {
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
}

/// Products of rows, and what happens with each.
#[derive(Debug, Clone, PartialEq)]
pub struct Gemm {
    /// The products.
    pub product: RowProduct,
    /// Where products go, if not to their own rows: to the rows that they belong to, of which no two are the same. The
    /// product of a row that none goes to is 0.
    pub scatter: Option<Domain>,
    /// What happens with the product, which is register 0, for every row where products go.
    pub body: Body,
}

/// Rows of a domain, each the sum of the products of all rows that belong to it.
#[derive(Debug, Clone, PartialEq)]
pub struct GemmSum {
    /// Which rows products are added up for: nodes of one side.
    pub to: Domain,
    /// Products of rows that each belong to one of these, in the order in which they are added. Of the rows of one type, no two belong to the
    /// same.
    pub terms: Vec<RowProduct>,
    /// What happens with the sum, which is register 0, for every row.
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

impl RowProduct {
    /// Buffers that are read.
    pub fn reads(&self) -> impl Iterator<Item = BufferId> + '_ {
        std::iter::once(self.x.from).chain(self.scale.as_ref().map(|scale| scale.from)).chain([self.w])
    }

    /// Whether vectors on both sides of the matrices come in fours, as tensor cores are given them.
    #[must_use]
    pub fn is_in_fours(&self, buffers: &[Buffer]) -> bool {
        let Shape::Matrix { rows, cols, .. } = buffers[self.w.at()].shape else { return false };
        rows.is_multiple_of(4) && cols.is_multiple_of(4)
    }
}

impl Gemm {
    /// The rows of the body.
    #[must_use]
    pub fn body_rows(&self) -> &Domain {
        self.scatter.as_ref().unwrap_or(&self.product.rows)
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

impl Program {
    /// The program without temporary buffers that no kernel writes.
    #[must_use]
    pub fn without_unused(mut self) -> Self {
        let mut is_used: Vec<bool> = self.buffers.iter().map(|buffer| buffer.role != Role::Temporary).collect();
        self.kernels.iter().flat_map(Kernel::writes).for_each(|id| is_used[id.at()] = true);
        let places: Vec<BufferId> = is_used
            .iter()
            .scan(0, |next, is_used| {
                let place = BufferId::new(*next);
                *next += usize::from(*is_used);
                Some(place)
            })
            .collect();
        let mut is_left = is_used.into_iter();
        self.buffers.retain(|_| is_left.next().unwrap_or(true));
        self.kernels.iter_mut().flat_map(Kernel::buffers).for_each(|id| *id = places[id.at()]);
        self
    }
}

impl Kernel {
    /// All that it reads or writes, wherever it names them.
    fn buffers(&mut self) -> Vec<&mut BufferId> {
        fn of_product(product: &mut RowProduct) -> impl Iterator<Item = &mut BufferId> {
            let scale = product.scale.as_mut().map(|scale| &mut scale.from);
            [&mut product.x.from, &mut product.w].into_iter().chain(scale)
        }
        match self {
            Self::Gemm(Gemm { product, body, .. }) => of_product(product).chain(body.buffers()).collect(),
            Self::GemmSum(GemmSum { terms, body, .. }) => {
                terms.iter_mut().flat_map(of_product).chain(body.buffers()).collect()
            }
            Self::Outer(Outer { x, y, to, .. }) => vec![&mut x.from, &mut y.from, to],
            Self::Traverse(Traverse { body, .. }) => body.buffers().collect(),
            Self::Library(Library::Product { a, b, to }) => vec![&mut a.0.from, &mut b.0.from, to],
        }
    }

    /// Buffers that are read, in order, with repetitions.
    #[must_use]
    pub fn reads(&self) -> Vec<BufferId> {
        match self {
            Self::Gemm(gemm) => gemm.product.reads().chain(gemm.body.reads()).collect(),
            Self::GemmSum(sum) => sum.terms.iter().flat_map(RowProduct::reads).chain(sum.body.reads()).collect(),
            Self::Outer(outer) => vec![outer.x.from, outer.y.from],
            Self::Traverse(traverse) => traverse.body.reads().collect(),
            Self::Library(Library::Product { a, b, .. }) => vec![a.0.from, b.0.from],
        }
    }

    /// Buffers that are written.
    #[must_use]
    pub fn writes(&self) -> Vec<BufferId> {
        match self {
            Self::Gemm(Gemm { body, .. })
            | Self::GemmSum(GemmSum { body, .. })
            | Self::Traverse(Traverse { body, .. }) => body.writes().collect(),
            Self::Outer(Outer { to, .. }) | Self::Library(Library::Product { to, .. }) => vec![*to],
        }
    }

    /// The domains it goes over, the coarsest first.
    #[must_use]
    pub fn nest(&self) -> &[Domain] {
        match self {
            Self::Gemm(Gemm { product: RowProduct { rows, .. }, .. })
            | Self::GemmSum(GemmSum { to: rows, .. })
            | Self::Outer(Outer { rows, .. }) => std::slice::from_ref(rows),
            Self::Traverse(traverse) => &traverse.nest,
            Self::Library(_) => &[],
        }
    }
}
