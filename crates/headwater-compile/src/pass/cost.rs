//! What kernels will move and compute, from how many rows there are. Nothing is measured and nothing is run.
//!
//! Numbers are counted as single precision. A row that is found through a map is counted as often as it is read, for such
//! reads rarely meet the same line twice; rows of types are few and stay close, so they are counted once.
//!
//! Products of sparse rows cost what is not 0 in them, with a column for each number. Other kernels read such rows in full.

use super::buffers::share;
use super::statistics::RUN_NODES;
use super::{Statistics, scatter_reads};
use crate::inter::{Domain, Shape, Side};
use crate::intra::{
    Body, Buffer, BufferId, GemmSum, Kernel, Library, Outer, Program, Read, Role, RowProduct, SUM_NODES, StepOp,
    Traverse,
};

/// What a kernel or a program costs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Additions, multiplications and functions.
    pub flops: f64,
    /// Bytes that are read.
    pub read_bytes: f64,
    /// Bytes that are written.
    pub written_bytes: f64,
    /// Rows that are found through a map, among those that are read.
    pub gathered_rows: f64,
    /// Bytes that a GPU could move in order in the time that its kernels take; 0 on a CPU.
    pub gpu_bytes: f64,
}

/// Operations of a CPU in the time of one byte.
const FLOPS_PER_BYTE: f64 = 12.0;
/// Those of a GPU, which moves bytes meanwhile: 54 TFLOP/s as three products in TF32 beside 3.4 TB/s, both of which products of 64 by 64 reach
/// on an H200.
const GPU_FLOPS_PER_BYTE: f64 = 16.0;
/// Of a number, and of a row's place.
const NUMBER_BYTES: f64 = 4.0;
const INDEX_BYTES: f64 = 4.0;
/// Operations of an exponential, about.
const FUNCTION_FLOPS: f64 = 8.0;
/// Bytes that a GPU could move in the time that a launch of a CUDA graph takes beyond its own: 4.2 microseconds at 3.3 TB/s, by which layers of
/// 15 to 41 launches on the shapes of aifb and mutag took longer on an H200 than their bytes.
const LAUNCH_BYTES: f64 = 14e6;
/// Those of products that are added up by node, full tiles and others alike: 3.6 microseconds a tile of 64 by 64 by 64 with two thread blocks on
/// each of an H200's SMs, on the shapes of mag and am.
const SUM_FLOPS_PER_BYTE: f64 = 11.0;
/// Rows of such a tile.
const TILE_ROWS: f64 = 64.0;
/// Elements of rows that a step of tensor cores takes; as `cuda/product.rs` has it.
const STEP: usize = 16;
/// Thread blocks of such a kernel that an H200 has at once.
const SUM_BLOCKS: f64 = 264.0;

impl Cost {
    /// Bytes in both directions.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.read_bytes + self.written_bytes
    }

    /// One number to compare by: bytes, and operations as the bytes that could move meanwhile.
    #[must_use]
    pub fn price(&self) -> f64 {
        if self.gpu_bytes > 0.0 { self.gpu_bytes } else { self.bytes() + self.flops / FLOPS_PER_BYTE }
    }

    /// The same on a GPU: each kernel takes as long as the slowest of its bytes, those that come out of a cache too, and its operations, and a
    /// launch.
    #[must_use]
    pub fn on_gpu(self, program: &Program, statistics: &Statistics) -> Self {
        let one = |(kernel, cost): (&Kernel, &Self)| {
            let moved = cost.bytes() + scatter_reads::extra_bytes(program, kernel, statistics);
            let busy = match kernel {
                Kernel::GemmSum(sum) => {
                    let by = |nodes: usize| sum_bytes(program, sum, statistics, (nodes, SUM_BLOCKS));
                    SUM_NODES.into_iter().map(by).fold(f64::INFINITY, f64::min)
                }
                _ => moved.max(cost.flops / GPU_FLOPS_PER_BYTE),
            };
            busy + launches(kernel) * LAUNCH_BYTES
        };
        Self { gpu_bytes: program.kernels.iter().zip(&kernels(program, statistics)).map(one).sum(), ..self }
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), |a, b| Self {
            flops: a.flops + b.flops,
            read_bytes: a.read_bytes + b.read_bytes,
            written_bytes: a.written_bytes + b.written_bytes,
            gathered_rows: a.gathered_rows + b.gathered_rows,
            gpu_bytes: a.gpu_bytes + b.gpu_bytes,
        })
    }
}

/// The cost of each kernel of a program.
#[must_use]
pub fn kernels(program: &Program, statistics: &Statistics) -> Vec<Cost> {
    program.kernels.iter().map(|kernel| Counter { program, statistics, cost: Cost::default() }.kernel(kernel)).collect()
}

/// The cost of a program.
#[must_use]
pub fn total(program: &Program, statistics: &Statistics) -> Cost {
    kernels(program, statistics).into_iter().sum()
}

/// Bytes of all temporaries at once: memory that several of them share is counted as the largest of them.
#[must_use]
pub fn temporary_bytes(program: &Program, statistics: &Statistics) -> f64 {
    let slots = share(program);
    let mut bytes = vec![0.0_f64; slots.count];
    for (buffer, slot) in program.buffers.iter().zip(&slots.of) {
        if let Some(slot) = slot {
            bytes[*slot] = bytes[*slot].max(statistics.rows(buffer.domain) * numbers(buffer.shape));
        }
    }
    total_of(bytes.into_iter())
}

/// Bytes that a forward program keeps for the backward one.
#[must_use]
pub fn saved_bytes(forward: &Program, statistics: &Statistics) -> f64 {
    let is_saved = |buffer: &&Buffer| buffer.role == Role::Output && buffer.name.starts_with("saved.");
    let saved = forward.buffers.iter().filter(is_saved);
    total_of(saved.map(|buffer| statistics.rows(buffer.domain) * numbers(buffer.shape)))
}

/// A sum that is 0 where there is nothing: `Iterator::sum` of no floats is -0.
fn total_of(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(0.0, |sum, number| sum + number)
}

/// Bytes that a GPU could move in order while products are added up by so many nodes a thread block, of which it has so many at once. A tile takes
/// as long however few rows it has.
pub(super) fn sum_bytes(
    program: &Program,
    sum: &GemmSum,
    statistics: &Statistics,
    (nodes, blocks): (usize, f64),
) -> f64 {
    let mut counter = Counter { program, statistics, cost: Cost::default() };
    let slabs = sum.slabs() as f64;
    let mut flops = 0.0;
    for term in &sum.terms {
        counter.product(term);
        let (rows, shorter) = (statistics.rows(term.rows), RUN_NODES as f64 / nodes as f64);
        let runs = (statistics.runs(term.rows) * shorter).min(rows);
        // Of a long run, half a tile is empty in the mean.
        let tiles = runs.max(rows / TILE_ROWS + runs / 2.0);
        let depth = program[term.x.from].shape.len() / sum.shape().heads().max(1);
        flops += 2.0 * tiles * TILE_ROWS * slabs * sum.columns() as f64 * depth.next_multiple_of(STEP) as f64;
    }
    counter.body(std::slice::from_ref(&sum.to), &sum.body);
    let busy = counter.cost.bytes().max(flops / SUM_FLOPS_PER_BYTE);
    let waves = ((statistics.rows(sum.to) / nodes as f64).ceil() * slabs / blocks).max(f64::MIN_POSITIVE);
    busy * waves.ceil() / waves
}

/// Launches of a kernel on a GPU: sums over the rows of types are those of chunks, and theirs.
fn launches(kernel: &Kernel) -> f64 {
    match kernel {
        Kernel::Outer(_) => 2.0,
        Kernel::Traverse(Traverse { nest, .. }) if nest.len() > 1 && nest[0].is_type() => 2.0,
        _ => 1.0,
    }
}

/// Bytes of a row.
fn numbers(shape: Shape) -> f64 {
    shape.len() as f64 * NUMBER_BYTES
}

struct Counter<'a> {
    program: &'a Program,
    statistics: &'a Statistics,
    cost: Cost,
}

impl Counter<'_> {
    fn kernel(mut self, kernel: &Kernel) -> Cost {
        match kernel {
            Kernel::Gemm(gemm) => {
                self.product(&gemm.product);
                self.body(std::slice::from_ref(gemm.body_rows()), &gemm.body);
            }
            Kernel::GemmSum(sum) => {
                for term in &sum.terms {
                    self.product(term);
                }
                self.body(std::slice::from_ref(&sum.to), &sum.body);
            }
            Kernel::Outer(outer) => self.outer(outer),
            Kernel::Traverse(Traverse { nest, body, .. }) => {
                self.body(nest, body);
            }
            Kernel::Library(Library::Product { a, b, to }) => {
                let (left, to_shape) = (self.program[a.0.from].shape, self.program[*to].shape);
                let types = self.program[*to].domain;
                self.cost.flops += 2.0 * self.statistics.rows(types) * multiplications(left, to_shape);
                self.read(&[types], 0, &a.0);
                self.read(&[types], 0, &b.0);
                self.write(*to);
            }
        }
        self.cost
    }

    fn product(&mut self, product: &RowProduct) {
        let w = self.program[product.w].shape;
        let filled = if product.scale.is_none() { self.filled(product.rows, &product.x) } else { 1.0 };
        let rows = std::slice::from_ref(&product.rows);
        self.cost.flops += 2.0 * self.statistics.rows(product.rows) * w.len() as f64 * filled;
        self.read_product(rows, &product.x, filled);
        if let Some(scale) = &product.scale {
            self.read(rows, 0, scale);
            self.cost.flops += self.statistics.rows(product.rows) * self.program[product.x.from].shape.len() as f64;
        }
        self.read_all(product.w);
    }

    fn outer(&mut self, outer: &Outer) {
        let filled = self.filled(outer.rows, &outer.x);
        let products = self.statistics.rows(outer.rows) * self.program[outer.to].shape.len() as f64;
        let rows = std::slice::from_ref(&outer.rows);
        self.cost.flops += 2.0 * products * filled;
        self.read_product(rows, &outer.x, filled);
        self.read(rows, 0, &outer.y);
        self.write(outer.to);
    }

    fn body(&mut self, nest: &[Domain], body: &Body) {
        for step in &body.steps {
            let rows = self.statistics.rows(nest[step.level]);
            let elements = |register: crate::intra::Register| body.steps[register.at()].shape.len() as f64;
            self.cost.flops += match &step.op {
                StepOp::Load(read) => {
                    self.read(nest, step.level, read);
                    0.0
                }
                StepOp::Store(_, to) => {
                    self.write(*to);
                    0.0
                }
                StepOp::Dot(x, _) => 2.0 * rows * elements(*x),
                StepOp::SumHeads(x) | StepOp::SumWidth(x) => rows * elements(*x),
                StepOp::Reduce(_, x) => self.statistics.rows(nest[body.steps[x.at()].level]) * elements(*x),
                StepOp::Unary(..) | StepOp::Softmax { .. } => FUNCTION_FLOPS * rows * step.shape.len() as f64,
                StepOp::Binary(..) | StepOp::Dropout { .. } => rows * step.shape.len() as f64,
                _ => 0.0,
            };
        }
    }

    /// Rows of a buffer, found from the rows of a level of a nest.
    fn read(&mut self, nest: &[Domain], level: usize, read: &Read) {
        let (buffer, from) = (&self.program[read.from], nest[level]);
        let rows = self.statistics.rows(from);
        let count =
            if is_near(nest, from, buffer.domain) { rows.min(self.statistics.rows(buffer.domain)) } else { rows };
        self.cost.read_bytes += count * numbers(buffer.shape);
        if !(read.hops.is_empty() || buffer.domain.is_type()) {
            self.cost.read_bytes += rows * INDEX_BYTES * read.hops.len() as f64;
            self.cost.gathered_rows += count;
        }
    }

    /// The share of rows that is not 0, for a product that reads them in order: that of the input `x`, dropped or not.
    fn filled(&self, from: Domain, read: &Read) -> f64 {
        let is_x = |id: BufferId| self.program[id].role == Role::Input && self.program[id].name == "x";
        // Written nodes are the first of those that are read.
        let in_order = matches!((from, read.hops.len()), (Domain::SRC, 0) | (Domain::DST, 1));
        let is_sparse = is_x(read.from) || self.program.kernels.iter().any(|kernel| drops(kernel, read.from, &is_x));
        if in_order && is_sparse { self.statistics.filled } else { 1.0 }
    }

    /// Rows of a product's operand: all numbers, or those that are not 0 with their columns, whichever is less.
    fn read_product(&mut self, rows: &[Domain], read: &Read, filled: f64) {
        let before = self.cost.read_bytes;
        self.read(rows, 0, read);
        let share = (filled * (NUMBER_BYTES + INDEX_BYTES) / NUMBER_BYTES).min(1.0);
        self.cost.read_bytes = before + share * (self.cost.read_bytes - before);
    }

    fn read_all(&mut self, id: BufferId) {
        self.cost.read_bytes += self.bytes(id);
    }

    fn write(&mut self, id: BufferId) {
        self.cost.written_bytes += self.bytes(id);
    }

    fn bytes(&self, id: BufferId) -> f64 {
        self.statistics.rows(self.program[id].domain) * numbers(self.program[id].shape)
    }
}

/// Whether neighbouring rows of a level read the same row of another domain, so that it is read from memory once: types, which are few, and the pairs of
/// edges that a nest walks pair by pair. Edges lie in the order of their destinations' pairs.
fn is_near(nest: &[Domain], from: Domain, to: Domain) -> bool {
    let walked = match nest[0] {
        Domain::Node(side) | Domain::Pair(side) => side,
        _ => Side::Dst,
    };
    to.is_type() || (from, to) == (Domain::Edge, Domain::Pair(walked))
}

/// Whether a kernel makes `to` of a buffer by dropping elements, and nothing else.
fn drops(kernel: &Kernel, to: BufferId, is_from: &dyn Fn(BufferId) -> bool) -> bool {
    let Kernel::Traverse(Traverse { body, .. }) = kernel else { return false };
    let ops: Vec<&StepOp> = body.steps.iter().map(|step| &step.op).collect();
    matches!(ops[..], [StepOp::Load(read), StepOp::Dropout { .. }, StepOp::Store(_, id)]
        if *id == to && read.hops.is_empty() && is_from(read.from))
}

/// Multiplications of a product of two matrices, by the left one and the result.
fn multiplications(left: Shape, to: Shape) -> f64 {
    match to {
        Shape::Matrix { cols, .. } => left.len() as f64 * cols as f64,
        Shape::Row { .. } => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inter::{Binary, Builder, Reduce};
    use crate::pass::select::{Fusion, select};

    const ROWS: Statistics = Statistics {
        node_types: 2.0,
        edge_types: 3.0,
        sources: 100.0,
        destinations: 50.0,
        source_pairs: 200.0,
        destination_pairs: 120.0,
        edges: 1000.0,
        source_runs: 20.0,
        destination_runs: 10.0,
        filled: 1.0,
    };

    /// The sum over edges of a source's row, times a typed weight before or behind.
    fn cost_of(build: impl Fn(&mut Builder)) -> (Cost, f64) {
        let mut b = Builder::new("p");
        build(&mut b);
        let kernels = select(&b.finish(), Fusion::On).unwrap();
        (total(&kernels, &ROWS), temporary_bytes(&kernels, &ROWS))
    }

    #[test]
    fn a_product_reads_its_rows_and_every_weight_once() {
        let (cost, kept) = cost_of(|b| {
            let x = b.input("x", Domain::SRC, Shape::vector(8));
            let w = b.parameter("W", Domain::EdgeType, Shape::matrix(8, 4));
            let z = b.lift(x, Domain::Pair(Side::Src)).and_then(|x| b.linear(x, w)).unwrap();
            b.output("out", z);
        });
        let (rows, index, weights) = (200.0 * 8.0 * 4.0, 200.0 * 4.0, 3.0 * 32.0 * 4.0);
        let wanted = Cost {
            flops: 2.0 * 200.0 * 32.0,
            read_bytes: rows + index + weights,
            written_bytes: 200.0 * 4.0 * 4.0,
            gathered_rows: 200.0,
            gpu_bytes: 0.0,
        };
        assert_eq!((cost, kept), (wanted, 0.0));
    }

    /// A tenth of the numbers, dropped or not, is a tenth of the work; rows that are gathered are read in full.
    #[test]
    fn products_of_sparse_rows_cost_what_is_in_them() {
        let flops = |filled: f64, probability: f64, rows: Domain| {
            let mut b = Builder::new("p");
            let x = b.input("x", Domain::SRC, Shape::vector(8));
            let w = b.parameter("W", Domain::Const, Shape::matrix(8, 4));
            let x = if probability > 0.0 { b.dropout(x, probability, 0) } else { x };
            let z = b.lift(x, rows).and_then(|x| b.linear(x, w)).unwrap();
            b.output("out", z);
            let kernels = select(&b.finish(), Fusion::On).unwrap();
            let costs = super::kernels(&kernels, &ROWS.with_filled(filled));
            let product = kernels.kernels.iter().position(|kernel| matches!(kernel, Kernel::Gemm(_))).unwrap();
            (costs[product].flops, costs[product].read_bytes)
        };
        for probability in [0.0, 0.5] {
            for rows in [Domain::SRC, Domain::DST] {
                let (whole, part) = (flops(1.0, probability, rows), flops(0.125, probability, rows));
                assert_eq!(part.0, whole.0 / 8.0);
                assert!(part.1 < whole.1 / 2.0);
            }
            let pairs = Domain::Pair(Side::Src);
            assert_eq!(flops(0.125, probability, pairs), flops(1.0, probability, pairs));
        }
    }

    #[test]
    fn what_stays_in_a_kernel_is_not_moved() {
        let (cost, kept) = cost_of(|b| {
            let x = b.input("x", Domain::SRC, Shape::vector(8));
            let s = b.input("s", Domain::Edge, Shape::SCALAR);
            let m = b.lift(x, Domain::Edge).and_then(|x| b.binary(Binary::Mul, x, s)).unwrap();
            let sum = b.reduce(m, Domain::DST, Reduce::Sum).unwrap();
            b.output("out", sum);
        });
        assert_eq!(cost.read_bytes, 1000.0 * (32.0 + 4.0 + 4.0));
        assert_eq!((cost.written_bytes, cost.flops, kept), (50.0 * 32.0, 16_000.0, 0.0));
    }

    /// Edges of a destination lie pair by pair, so that a pair's row is read once; those of a source do not.
    #[test]
    fn rows_of_pairs_are_read_once_by_walks_over_their_side_alone() {
        let read_by = |side: Side, to: Domain| {
            let (cost, _) = cost_of(|b| {
                let p = b.input("p", Domain::Pair(side), Shape::vector(8));
                let sum = b.lift(p, Domain::Edge).and_then(|p| b.reduce(p, to, Reduce::Sum)).unwrap();
                b.output("out", sum);
            });
            cost.read_bytes
        };
        let (row, index) = (32.0, 1000.0 * 4.0);
        assert_eq!(read_by(Side::Dst, Domain::DST), 120.0 * row + index);
        assert_eq!(read_by(Side::Dst, Domain::SRC), 1000.0 * row + index);
        assert_eq!(read_by(Side::Src, Domain::SRC), 200.0 * row + index);
        assert_eq!(read_by(Side::Src, Domain::DST), 1000.0 * row + index);
    }

    /// A GPU moves bytes while it computes, and pays for every launch.
    #[test]
    fn a_gpu_takes_the_longer_of_bytes_and_operations_and_launches() {
        let price = |width: usize| {
            let mut b = Builder::new("p");
            let x = b.input("x", Domain::SRC, Shape::vector(width));
            let w = b.parameter("W", Domain::Const, Shape::matrix(width, width));
            let last = (0..3).fold(x, |x, _| b.linear(x, w).unwrap());
            b.output("out", last);
            let kernels = select(&b.finish(), Fusion::On).unwrap();
            let cost = total(&kernels, &ROWS);
            (cost.on_gpu(&kernels, &ROWS).price() - 3.0 * LAUNCH_BYTES, cost)
        };
        let (narrow, cost) = price(8);
        assert!((narrow - cost.bytes()).abs() < 1.0);
        let (wide, cost) = price(512);
        assert!((wide - cost.flops / GPU_FLOPS_PER_BYTE).abs() < 1.0 && cost.bytes() < wide);
    }

    #[test]
    fn temporaries_that_share_memory_are_counted_once() {
        let (_, kept) = cost_of(|b| {
            let x = b.input("x", Domain::SRC, Shape::vector(8));
            let w = b.parameter("W", Domain::Const, Shape::matrix(8, 8));
            let last = (0..4).fold(x, |x, _| b.linear(x, w).unwrap());
            b.output("out", last);
        });
        assert_eq!(kept, 2.0 * 100.0 * 32.0, "one is read while another is written");
    }
}
