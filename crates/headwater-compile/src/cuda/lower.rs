//! Which launches a program is. A product goes on where it is made if that is done element by element; else its rows lie in a
//! buffer in between. Sums over the rows of types are two launches: chunks, and their totals.

use std::collections::BTreeMap;

use super::Precision;
use super::epilogue::Epilogue;
use super::loops::{Kept, repeated};
use super::nodes::Nodes;
use super::split::{Sums, split};
use super::table::{Cut, Tiling};
use crate::inter::{Domain, Path, Reduce, Shape};
use crate::intra::{
    Body, Buffer, BufferId, Gemm, GemmSum, Kernel, KernelSchedule, Library, Outer, Program, Read, Register, Role,
    RowProduct, StepOp, Traverse,
};

/// Rows and columns that a thread block makes of a matrix of outer products.
pub(super) const OUTER_TILE: usize = 128;

/// What one launch does.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Work {
    /// Nested rows, and what walks write down for those behind them.
    Nest(Traverse, Kept),
    /// Rows times matrices, and a body that is done where they are made.
    Product(Gemm),
    /// Rows times matrices, added up by the nodes that rows belong to, so many nodes at a time.
    ProductSum(GemmSum, usize),
    /// That body for the rows of a domain that no product goes to.
    Rest(Gemm, Domain),
    /// Sums of every chunk of the rows.
    Sums(Sums),
    /// Their sums.
    Total(Sums),
    /// Outer products of every chunk of the rows.
    Outer(Outer, Chunks),
    /// Their sums.
    OuterTotal(Outer, Chunks),
    Library(Library),
}

impl Work {
    /// Buffers that it writes.
    pub fn writes(&self) -> Vec<BufferId> {
        let stored = |body: &Body| -> Vec<BufferId> {
            let store = |op: &StepOp| if let StepOp::Store(_, to) = op { Some(*to) } else { None };
            body.steps.iter().filter_map(|step| store(&step.op)).collect()
        };
        match self {
            Self::Nest(nest, kept) => stored(&nest.body).into_iter().chain(kept.values().copied()).collect(),
            Self::Product(gemm) | Self::Rest(gemm, _) => stored(&gemm.body),
            Self::ProductSum(sum, _) => stored(&sum.body),
            Self::Sums(sums) => stored(&sums.body).into_iter().chain([sums.chunks.partial]).collect(),
            Self::Total(sums) => sums.all.iter().map(|sum| sum.to).collect(),
            Self::Outer(_, chunks) => vec![chunks.partial],
            Self::OuterTotal(outer, _) => vec![outer.to],
            Self::Library(Library::Product { to, .. }) => vec![*to],
        }
    }

    /// What it does, in a few words.
    pub fn what(&self, buffers: &[Buffer]) -> String {
        let shape = |id: BufferId| match buffers[id.at()].shape {
            Shape::Matrix { heads: 1, rows, cols } => format!("{rows} x {cols}"),
            shape => format!("{shape:?}"),
        };
        let over = |nest: &[Domain]| nest.iter().map(ToString::to_string).collect::<Vec<_>>().join(" > ");
        match self {
            Self::Nest(nest, _) => format!("nest over {}", over(&nest.nest)),
            Self::Product(gemm) => format!("product over {}, {}", gemm.product.rows, shape(gemm.product.w)),
            Self::ProductSum(sum, _) => {
                let term = |term: &RowProduct| format!("{}, {}", term.rows, shape(term.w));
                let terms: Vec<String> = sum.terms.iter().map(term).collect();
                format!("sum over {} of products over {}", sum.to, terms.join(" and "))
            }
            Self::Rest(_, to) => format!("rows of {to} without a product"),
            Self::Sums(_) => "sums of chunks".to_owned(),
            Self::Total(_) => "sums of sums".to_owned(),
            Self::Outer(outer, _) => format!("outer products over {}, {}", outer.rows, shape(outer.to)),
            Self::OuterTotal(..) => "sums of outer products".to_owned(),
            Self::Library(_) => "product of weights".to_owned(),
        }
    }
}

/// Rows in chunks, and the buffer that has a row for each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Chunks {
    pub tiling: Tiling,
    pub partial: BufferId,
}

/// Launches, all buffers (the program's, and those between launches), and which of these have a row for every chunk.
#[derive(Debug, Default)]
pub(super) struct Lowered {
    pub work: Vec<Work>,
    /// Which of the program's kernels each launch is, or is a part of.
    pub kernels: Vec<usize>,
    pub buffers: Vec<Buffer>,
    pub chunked: BTreeMap<BufferId, Tiling>,
}

impl Lowered {
    pub fn buffer(&mut self, name: &str, domain: Domain, shape: Shape) -> BufferId {
        self.buffers.push(Buffer { name: name.to_owned(), domain, shape, role: Role::Temporary });
        BufferId::new(self.buffers.len() - 1)
    }

    /// The launch of a nest.
    pub fn nest(&mut self, traverse: Traverse) {
        let (nodes, levels) = (Nodes::new(&traverse.body), traverse.nest.len());
        let mut kept = Kept::new();
        for node in repeated(&nodes, levels) {
            let own = || self.buffer("kept", traverse.nest[levels - 1], nodes.all[node].shape);
            kept.insert(node, nodes.stored(node).unwrap_or_else(own));
        }
        self.work.push(Work::Nest(traverse, kept));
    }

    /// A buffer with a row of so many numbers for every chunk.
    pub fn chunks(&mut self, tiling: Tiling, len: usize) -> Chunks {
        let partial = self.buffer("chunks", tiling.types, Shape::vector(len));
        self.chunked.insert(partial, tiling);
        Chunks { tiling, partial }
    }
}

/// All launches of a program.
pub(super) fn lower(program: &Program, precision: Precision) -> Lowered {
    let mut found = Lowered { buffers: program.buffers.clone(), ..Lowered::default() };
    for (at, kernel) in program.kernels.iter().enumerate() {
        lower_kernel(kernel, program.schedule(at), precision, &mut found);
        found.kernels.resize(found.work.len(), at);
    }
    found
}

fn lower_kernel(kernel: &Kernel, schedule: KernelSchedule, precision: Precision, found: &mut Lowered) {
    match kernel {
        Kernel::Traverse(traverse) => {
            if !split(traverse, found) {
                found.nest(traverse.clone());
            }
        }
        Kernel::Outer(outer) => {
            let chunks = outer_chunks(outer, schedule, found);
            found.work.extend([Work::Outer(outer.clone(), chunks), Work::OuterTotal(outer.clone(), chunks)]);
        }
        Kernel::Library(library) => found.work.push(Work::Library(library.clone())),
        Kernel::Gemm(gemm) => product(gemm, precision, found),
        Kernel::GemmSum(sum) => match (is_added_up(sum, precision, &found.buffers), schedule) {
            (true, KernelSchedule::Sums { nodes }) => found.work.push(Work::ProductSum(sum.clone(), nodes)),
            _ => {
                let parts = sum.apart(&mut |domain, shape| found.buffer("product", domain, shape));
                parts.iter().for_each(|part| lower_kernel(part, KernelSchedule::Only, precision, found));
            }
        },
    }
}

/// Whether products are added up where they are made: by tensor cores, four elements at a time, where what is done with the sums goes element by
/// element.
fn is_added_up(sum: &GemmSum, precision: Precision, buffers: &[Buffer]) -> bool {
    precision != Precision::F32
        && sum.terms.iter().all(|term| term.is_in_fours(buffers))
        && Epilogue::of(&sum.body, false).is_some()
}

/// A product, and a nest for what cannot be done where it is made.
fn product(gemm: &Gemm, precision: Precision, found: &mut Lowered) {
    // Plain arithmetic has a row's elements in many threads.
    if Epilogue::of(&gemm.body, precision != Precision::F32 && gemm.scatter.is_none()).is_some() {
        found.work.push(Work::Product(gemm.clone()));
        return found.work.extend(gemm.scatter.map(|to| Work::Rest(gemm.clone(), to)));
    }
    let shape = gemm.body.steps.first().map_or(Shape::SCALAR, |product| product.shape);
    let to = found.buffer("product", gemm.product.rows, shape);
    let mut body = Body::default();
    let product = body.push(0, shape, StepOp::Product);
    body.push(0, shape, StepOp::Store(product, to));
    found.work.push(Work::Product(Gemm { body, scatter: None, ..gemm.clone() }));
    found.nest(after(gemm, to));
}

/// How rows of outer products are cut: into fewer chunks where matrices are large, which several thread blocks make each.
fn outer_chunks(outer: &Outer, schedule: KernelSchedule, found: &mut Lowered) -> Chunks {
    let Buffer { domain, shape, .. } = found.buffers[outer.to.at()];
    let tiles = match shape {
        Shape::Matrix { heads, rows, cols } => heads * rows.div_ceil(OUTER_TILE) * cols.div_ceil(OUTER_TILE),
        Shape::Row { .. } => 1,
    };
    let most = if let KernelSchedule::Outer { chunks } = schedule { chunks } else { 1 };
    let cut = Cut::Chunks((most / tiles.max(1)).max(1));
    found.chunks(Tiling { rows: outer.rows, types: domain, path: outer.path, cut }, shape.len())
}

/// What is done with the rows of a product, once they are there. Where they go to other rows, each of these adds up the at
/// most one product that belongs to it.
fn after(gemm: &Gemm, product: BufferId) -> Traverse {
    let read = Read { from: product, hops: Vec::new() };
    let Some(to) = gemm.scatter else {
        let mut body = gemm.body.clone();
        body.steps
            .iter_mut()
            .filter(|step| step.op == StepOp::Product)
            .for_each(|step| step.op = StepOp::Load(read.clone()));
        return Traverse { nest: vec![gemm.product.rows], path: Path::Only, body };
    };
    let mut body = Body::default();
    let shape = gemm.body.steps.first().map_or(Shape::SCALAR, |product| product.shape);
    let own = body.push(1, shape, StepOp::Load(read));
    let sum = body.push(0, shape, StepOp::Reduce(Reduce::Sum, own));
    for step in &gemm.body.steps[1..] {
        let mut step = step.clone();
        step.op = step.op.with_registers(|register: Register| if register.at() == 0 { sum } else { register.after(1) });
        body.steps.push(step);
    }
    Traverse { nest: vec![to, gemm.product.rows], path: Path::Only, body }
}
