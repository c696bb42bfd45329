//! Programs of kernels run fast: blocks of rows, loops for the widest vectors, all cores.
//!
//! Results are those of [`reference`](super::reference) up to rounding, and the same to the bit for any number of threads.

mod ahead;
mod block;
mod chain;
mod eval;
mod fuse;
mod gemm;
mod index;
mod outer;
mod registers;
mod spare;
mod sparse;
mod traverse;
mod vector;
mod workspace;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use headwater_graph::random::Key;
use headwater_tensor::ops::matmul::{Before, Strided, product_into};

pub use sparse::SparseRows;
pub use workspace::{Timing, Workspace};

use self::chain::{Chain, in_chains, is_internal, is_sum, rows_of};
use self::eval::{Code, Loads};
use self::fuse::{Action, fuse};
use self::gemm::Rows;
use self::index::Index;
use super::dropout::Dropout;
use crate::adjacency::{Adjacency, Map};
use crate::error::{Error, Result};
use crate::inter::{Domain, Shape};
use crate::intra::{Body, Buffer, BufferId, Kernel, Library, Program, Read, Role, StepOp, Traverse, headline};
use crate::pass::buffers::last_reads;

/// A program made ready to run.
#[derive(Debug)]
pub struct Executor {
    program: Program,
    /// How the steps of every kernel are run.
    actions: Vec<Vec<Action>>,
    /// Kernels that run together.
    chains: Vec<Range<usize>>,
    /// The last kernel that reads each buffer.
    last_read: Vec<usize>,
}

/// Rows that a caller gives or gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    /// All elements.
    Dense(Vec<f32>),
    /// Those that are not zero.
    Sparse(SparseRows),
}

impl Array {
    /// The memory of its elements.
    #[must_use]
    pub fn into_values(self) -> Vec<f32> {
        match self {
            Self::Dense(values) => values,
            Self::Sparse(rows) => rows.values,
        }
    }
}

/// Rows that a caller lends.
#[derive(Debug, Clone, Copy)]
pub enum Given<'a> {
    /// All elements.
    Dense(&'a [f32]),
    /// Those that are not zero.
    Sparse(&'a SparseRows),
    /// Rows of a larger table: kernels read them where they lie.
    Picked {
        /// All rows of the table.
        table: &'a [f32],
        /// Which of them, in order.
        rows: &'a [u32],
    },
}

/// What a run is on.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The graph or block.
    pub graph: &'a Adjacency,
    /// Where dropouts draw from.
    pub step: Key,
}

/// A buffer while a program runs.
enum Held<'a> {
    Nothing,
    Lent(Given<'a>),
    Own(Array),
}

/// What kernels see.
struct Context<'a> {
    program: &'a Program,
    graph: &'a Adjacency,
    step: Key,
    buffers: &'a [Held<'a>],
}

/// A buffer that a kernel writes.
struct Written {
    id: BufferId,
    shape: Shape,
    values: Vec<f32>,
}

impl Executor {
    /// Makes a program ready.
    #[must_use]
    pub fn new(program: Program) -> Self {
        let (program, chains) = in_chains(program.apart());
        let actions = program.kernels.iter().map(|kernel| body(kernel).map(fuse).unwrap_or_default()).collect();
        let last_read = last_reads(&program);
        Self { program, actions, chains, last_read }
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs it. `given` lends every input and parameter by name. Outputs by name belong to the caller, who may give their memory
    /// back to `workspace`.
    pub fn run<'g>(
        &self,
        run: Run<'_>,
        given: &dyn Fn(&str) -> Option<Given<'g>>,
        workspace: &mut Workspace,
    ) -> Result<BTreeMap<String, Array>> {
        let mut buffers = Vec::with_capacity(self.program.buffers.len());
        for buffer in &self.program.buffers {
            buffers.push(lent(buffer, run.graph, given)?);
        }
        for chain in &self.chains {
            self.chain(chain, run, &mut buffers, workspace)?;
        }
        let mut outputs = BTreeMap::new();
        for (buffer, held) in self.program.buffers.iter().zip(buffers) {
            match (held, buffer.role) {
                (Held::Own(array), Role::Output) => {
                    outputs.insert(buffer.name.clone(), array);
                }
                (Held::Own(array), _) => workspace.give(array.into_values()),
                _ => {}
            }
        }
        Ok(outputs)
    }

    /// Runs kernels together, or one by one where that cannot be.
    fn chain(
        &self,
        chain: &Range<usize>,
        run: Run<'_>,
        buffers: &mut [Held<'_>],
        workspace: &mut Workspace,
    ) -> Result<()> {
        let name = |kernels: Range<usize>| {
            let all: Vec<String> = self.program.kernels[kernels.clone()].iter().map(headline).collect();
            format!("{} {}: {}", self.program.name, kernels.start, all.join("; "))
        };
        let is_together = chain.len() > 1
            && workspace.timed(|| name(chain.clone()), |workspace| self.together(chain, run, buffers, workspace))?;
        for at in chain.clone() {
            if !is_together {
                workspace.timed(|| name(at..at + 1), |workspace| self.kernel(at, run, buffers, workspace))?;
            }
            self.release(at, buffers, workspace);
        }
        Ok(())
    }

    /// Runs the kernels of a chain block by block, if they can be.
    fn together(
        &self,
        chain: &Range<usize>,
        run: Run<'_>,
        buffers: &mut [Held<'_>],
        workspace: &mut Workspace,
    ) -> Result<bool> {
        let kernels = &self.program.kernels[chain.clone()];
        let is_sparse =
            |id: &BufferId| matches!(buffers[id.at()], Held::Lent(Given::Sparse(_)) | Held::Own(Array::Sparse(_)));
        if kernels.iter().flat_map(Kernel::reads).any(|id| is_sparse(&id)) {
            return Ok(false);
        }
        let context = Context { program: &self.program, graph: run.graph, step: run.step, buffers };
        let Some(links) = Chain::new(&context, kernels, &self.actions[chain.clone()])? else { return Ok(false) };
        let rows = kernels.iter().filter(|kernel| !is_sum(kernel)).flat_map(Kernel::writes);
        let sums = kernels.iter().filter(|kernel| is_sum(kernel)).flat_map(Kernel::writes);
        let outlives = |id: &BufferId| !is_internal(&self.program, &self.last_read, chain, *id);
        let mut written = self.written(rows.chain(sums).filter(outlives), run.graph, workspace);
        let count = rows_of(&self.program, &kernels[0]).map_or(0, |rows| run.graph.rows(rows));
        links.run(count, &mut written)?;
        for Written { id, values, .. } in written {
            buffers[id.at()] = Held::Own(Array::Dense(values));
        }
        Ok(true)
    }

    /// Memory for what kernels write.
    fn written(
        &self,
        ids: impl IntoIterator<Item = BufferId>,
        graph: &Adjacency,
        workspace: &mut Workspace,
    ) -> Vec<Written> {
        let written = |id| {
            let Buffer { domain, shape, .. } = self.program[id];
            Written { id, shape, values: workspace.take(graph.rows(domain) * shape.len()) }
        };
        ids.into_iter().map(written).collect()
    }

    fn kernel(&self, at: usize, run: Run<'_>, buffers: &mut [Held<'_>], workspace: &mut Workspace) -> Result<()> {
        let kernel = &self.program.kernels[at];
        if let Some((to, dropped)) = dropped(kernel, buffers, run.step, workspace) {
            buffers[to.at()] = Held::Own(Array::Sparse(dropped));
            return Ok(());
        }
        self.make_dense(kernel, run.graph, buffers, workspace);
        let mut written = self.written(kernel.writes(), run.graph, workspace);
        let context = Context { program: &self.program, graph: run.graph, step: run.step, buffers };
        context.run(kernel, &self.actions[at], &mut written)?;
        for Written { id, values, .. } in written {
            buffers[id.at()] = Held::Own(Array::Dense(values));
        }
        Ok(())
    }

    /// Turns sparse rows into dense ones where a kernel needs all elements.
    fn make_dense(&self, kernel: &Kernel, graph: &Adjacency, buffers: &mut [Held<'_>], workspace: &mut Workspace) {
        let may_stay = sparse_reads(kernel, graph);
        for id in kernel.reads() {
            let sparse = match &buffers[id.at()] {
                Held::Lent(Given::Sparse(sparse)) => *sparse,
                Held::Own(Array::Sparse(sparse)) => sparse,
                _ => continue,
            };
            if may_stay.contains(&id) && kernel.reads().iter().filter(|other| **other == id).count() == 1 {
                continue;
            }
            let mut values = workspace.take(sparse.rows() * sparse.width);
            sparse.dense_into(&mut values);
            buffers[id.at()] = Held::Own(Array::Dense(values));
        }
    }

    /// Gives back what no later kernel reads.
    fn release(&self, at: usize, buffers: &mut [Held<'_>], workspace: &mut Workspace) {
        for (id, held) in buffers.iter_mut().enumerate() {
            let is_done = self.last_read[id] == at && self.program.buffers[id].role != Role::Output;
            if is_done && let Held::Own(array) = std::mem::replace(held, Held::Nothing) {
                workspace.give(array.into_values());
            }
        }
    }
}

impl<'a> Context<'a> {
    fn run(&self, kernel: &Kernel, actions: &[Action], written: &mut [Written]) -> Result<()> {
        match kernel {
            Kernel::Gemm(gemm) => {
                let x = self.rows(gemm.product.rows, &gemm.product.x)?;
                let scale = gemm.product.scale.as_ref().map(|scale| self.load(gemm.product.rows, scale)).transpose()?;
                let loads = self.loads(std::slice::from_ref(gemm.body_rows()), &gemm.body)?;
                let code = Code::new(&gemm.body, actions, &loads, self.step);
                let scale = scale.as_ref().map(|(scales, index)| (*scales, index));
                gemm::run(self, gemm, &x, scale, &code, written)
            }
            Kernel::Outer(outer) => {
                let (x, y) = (self.rows(outer.rows, &outer.x)?, self.rows(outer.rows, &outer.y)?);
                outer::run(self, outer, &x, &y, &mut written[0].values)
            }
            Kernel::Traverse(traverse) => {
                let loads = self.loads(&traverse.nest, &traverse.body)?;
                let code = Code::new(&traverse.body, actions, &loads, self.step);
                traverse::run(self, traverse, &code, written)
            }
            Kernel::Library(Library::Product { a, b, .. }) => self.product(a, b, &mut written[0]),
            Kernel::GemmSum(sum) => {
                let (program, at) = (self.program.name.clone(), format!("the sum over {}", sum.to));
                Err(Error::Malformed { program, at, why: "it was not taken apart".to_owned() })
            }
        }
    }

    fn loads(&self, nest: &[Domain], body: &Body) -> Result<Loads<'_>> {
        let mut loads = Vec::with_capacity(body.steps.len());
        for step in &body.steps {
            loads.push(match &step.op {
                StepOp::Load(read) => Some(self.load(nest[step.level], read)?),
                _ => None,
            });
        }
        Ok(loads)
    }

    fn rows(&self, from: Domain, read: &Read) -> Result<Rows<'_>> {
        Ok(match &self.buffers[read.from.at()] {
            Held::Lent(Given::Sparse(sparse)) => Rows::Sparse(sparse),
            Held::Own(Array::Sparse(sparse)) => Rows::Sparse(sparse),
            _ => {
                let (table, index) = self.load(from, read)?;
                Rows::Dense(table, index)
            }
        })
    }

    /// The table that rows of a domain read, and which row of it each.
    fn load(&self, from: Domain, read: &Read) -> Result<(&[f32], Index<'_>)> {
        let index = Index::new(self.graph, from, &read.hops)?;
        Ok(match &self.buffers[read.from.at()] {
            Held::Lent(Given::Picked { table, rows }) => (table, index.then(Map::Listed(rows), self.graph.rows(from))),
            _ => (self.dense(read.from), index),
        })
    }

    fn dense(&self, id: BufferId) -> &[f32] {
        match &self.buffers[id.at()] {
            Held::Lent(Given::Dense(values)) => values,
            Held::Own(Array::Dense(values)) => values,
            _ => &[],
        }
    }

    fn product(&self, a: &(Read, bool), b: &(Read, bool), to: &mut Written) -> Result<()> {
        let Shape::Matrix { heads, rows, cols } = to.shape else { return Ok(()) };
        let inner = self.program[a.0.from].shape.len() / (heads * rows);
        let types = self.program[to.id].domain;
        let (left, right) = (self.load(types, &a.0)?, self.load(types, &b.0)?);
        for (at, out) in to.values.chunks_exact_mut(rows * cols).enumerate() {
            let own = |index: &Index<'_>| index.get(at / heads) * heads + at % heads;
            let left = matrix(left.0, own(&left.1), (rows, inner), a.1);
            let right = matrix(right.0, own(&right.1), (inner, cols), b.1);
            product_into(left, right, out, cols, Before::Replaced)?;
        }
        Ok(())
    }
}

/// Matrix `at` of a table, or what lies there as its transpose, as one of so many rows and columns.
fn matrix(table: &[f32], at: usize, (rows, cols): (usize, usize), transposed: bool) -> Strided<'_> {
    let own = &table[at * rows * cols..][..rows * cols];
    if transposed { Strided::packed(own, cols, rows).transposed() } else { Strided::packed(own, rows, cols) }
}

fn body(kernel: &Kernel) -> Option<&Body> {
    match kernel {
        Kernel::Gemm(gemm) => Some(&gemm.body),
        Kernel::Traverse(traverse) => Some(&traverse.body),
        Kernel::GemmSum(_) | Kernel::Outer(_) | Kernel::Library(_) => None,
    }
}

/// Checks what a caller lends for a buffer.
fn lent<'g>(buffer: &Buffer, graph: &Adjacency, given: &dyn Fn(&str) -> Option<Given<'g>>) -> Result<Held<'g>> {
    if !matches!(buffer.role, Role::Input | Role::Parameter) {
        return Ok(Held::Nothing);
    }
    let expected = graph.rows(buffer.domain) * buffer.shape.len();
    let array = given(&buffer.name);
    let found = match array {
        Some(Given::Dense(values)) => values.len(),
        Some(Given::Picked { table, rows }) => {
            let is_inside = |row: &u32| (*row as usize + 1) * buffer.shape.len() <= table.len();
            if rows.iter().all(is_inside) { rows.len() * buffer.shape.len() } else { 0 }
        }
        Some(Given::Sparse(sparse)) if sparse.width == buffer.shape.len() => sparse.rows() * sparse.width,
        _ => 0,
    };
    match array {
        Some(array) if found == expected => Ok(Held::Lent(array)),
        _ => Err(Error::Binding { name: buffer.name.clone(), expected, found }),
    }
}

/// Buffers that a kernel can read as sparse rows: what is multiplied, row by row, by one matrix.
fn sparse_reads(kernel: &Kernel, graph: &Adjacency) -> Vec<BufferId> {
    let in_order = |from: Domain, read: &Read| matches!(Index::new(graph, from, &read.hops), Ok(Index::Same));
    match kernel {
        Kernel::Gemm(gemm) if in_order(gemm.product.rows, &gemm.product.x) && gemm.product.scale.is_none() => {
            vec![gemm.product.x.from]
        }
        Kernel::Outer(outer) if in_order(outer.rows, &outer.x) && in_order(outer.rows, &outer.y) => {
            vec![outer.x.from]
        }
        _ => Vec::new(),
    }
}

/// What a kernel makes that only drops elements of sparse rows.
fn dropped(
    kernel: &Kernel,
    buffers: &[Held<'_>],
    step: Key,
    workspace: &mut Workspace,
) -> Option<(BufferId, SparseRows)> {
    let Kernel::Traverse(Traverse { nest, body, .. }) = kernel else { return None };
    let [load, drop, store] = &body.steps[..] else { return None };
    let (StepOp::Load(read), StepOp::Dropout { probability, key, .. }, StepOp::Store(_, to)) =
        (&load.op, &drop.op, &store.op)
    else {
        return None;
    };
    let sparse = match &buffers[read.from.at()] {
        Held::Lent(Given::Sparse(sparse)) => *sparse,
        Held::Own(Array::Sparse(sparse)) => sparse,
        _ => return None,
    };
    if nest.len() != 1 || !read.hops.is_empty() {
        return None;
    }
    let dropout = Dropout::new(step, *key, *probability);
    let values = workspace.take(sparse.count());
    Some((*to, sparse.dropped(dropout, vector::single(dropout.scale()), values)))
}
