//! The text of a program, and what its kernels want to find in the tables they are given.

use std::fmt::Write as _;

use super::lower::{Work, lower};
use super::nodes::Nodes;
use super::row::{Rows, group_for};
use super::{nest, nodes};
use crate::inter::{Domain, Path, Shape};
use crate::intra::{Buffer, BufferId, Gemm, Library, Outer, Program, Read, Traverse};

/// What stands before every emitted text, in order.
pub(super) static HEADERS: [(&str, &str); 4] = [
    headwater_graph::random::CUDA_HEADER,
    ("emitted.cuh", include_str!("emitted.cuh")),
    ("product.cuh", include_str!("product.cuh")),
    ("outer.cuh", include_str!("outer.cuh")),
];

/// A program as text.
#[derive(Debug, Clone, PartialEq)]
pub struct Emitted {
    /// Its name.
    pub name: String,
    /// All kernels.
    pub text: String,
    /// In the order they run.
    pub launches: Vec<Launch>,
    /// The program's buffers, and those between launches.
    pub buffers: Vec<Buffer>,
    /// What kernels ask the graph.
    pub table: Table,
}

/// One launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// The kernel.
    pub entry: String,
    /// The rows it goes over; its grid follows from how many there are.
    pub rows: Domain,
    /// Rows that a thread block of 256 threads does at a time.
    pub rows_a_block: usize,
    /// Blocks beside each other for the same rows.
    pub across: usize,
    /// What it reads and writes.
    pub buffers: Vec<BufferId>,
}

/// Maps and lists of members, in the order kernels name them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// From a domain to a coarser one.
    pub maps: Vec<(Domain, Domain, Path)>,
    /// From a domain to a finer one.
    pub members: Vec<(Domain, Domain, Path)>,
}

/// Writes a program.
#[must_use]
pub fn emit(program: &Program) -> Emitted {
    let (work, buffers) = lower(program);
    let mut found = Emitted {
        name: program.name.clone(),
        text: String::new(),
        launches: Vec::new(),
        buffers,
        table: Table::default(),
    };
    for (at, work) in work.iter().enumerate() {
        let entry = format!("k{at}");
        let mut writer = Writer {
            table: &mut found.table,
            buffers: &found.buffers,
            lines: String::new(),
            depth: 1,
            used: Used::default(),
        };
        let (rows, rows_a_block, across) = match work {
            Work::Nest(traverse) => writer.nest(traverse),
            Work::Product(gemm, to) => writer.product(gemm, *to, &entry),
            Work::Outer(outer) => writer.outer(outer, &entry),
            Work::Library(Library::Product { a, b, to }) => writer.weights(*a, *b, *to),
        };
        let (lines, used) = (writer.lines, writer.used);
        let heading = used.heading();
        let _ = write!(
            found.text,
            "{}extern \"C\" __global__ void __launch_bounds__(256)\n{entry}(const HwGraph *graph, const HwBuffer *buffers, const u64 *step) {{\n    (void)step;\n{heading}{lines}}}\n\n",
            used.structs
        );
        found.launches.push(Launch { entry, rows, rows_a_block, across, buffers: used.buffers });
    }
    found
}

/// Writes one kernel.
pub(super) struct Writer<'a> {
    table: &'a mut Table,
    buffers: &'a [Buffer],
    lines: String,
    depth: usize,
    used: Used,
}

/// What a kernel needs at its top.
#[derive(Default)]
struct Used {
    maps: Vec<usize>,
    members: Vec<usize>,
    buffers: Vec<BufferId>,
    structs: String,
}

impl Used {
    fn heading(&self) -> String {
        let mut text = String::new();
        self.maps.iter().for_each(|at| _ = writeln!(text, "    const HwMap map{at} = graph->maps[{at}];"));
        self.members
            .iter()
            .for_each(|at| _ = writeln!(text, "    const HwMembers members{at} = graph->members[{at}];"));
        self.buffers.iter().for_each(|id| _ = writeln!(text, "    const HwBuffer buffer{0} = buffers[{0}];", id.at()));
        text
    }
}

fn place<T: PartialEq>(all: &mut Vec<T>, one: T) -> usize {
    all.iter().position(|other| *other == one).unwrap_or_else(|| {
        all.push(one);
        all.len() - 1
    })
}

impl Writer<'_> {
    pub fn line(&mut self, line: &str) {
        let _ = writeln!(self.lines, "{}{line}", "    ".repeat(self.depth));
    }

    pub fn indented(&mut self, write: impl FnOnce(&mut Self)) {
        self.depth += 1;
        write(self);
        self.depth -= 1;
    }

    /// The list of members of one domain in another.
    pub fn members(&mut self, coarse: Domain, fine: Domain, path: Path) -> String {
        let at = place(&mut self.table.members, (coarse, fine, path));
        place(&mut self.used.members, at);
        format!("members{at}")
    }

    fn map(&mut self, fine: Domain, coarse: Domain, path: Path) -> String {
        let at = place(&mut self.table.maps, (fine, coarse, path));
        place(&mut self.used.maps, at);
        format!("map{at}")
    }

    /// The elements of a buffer.
    pub fn buffer(&mut self, id: BufferId) -> String {
        place(&mut self.used.buffers, id);
        format!("buffer{}.data", id.at())
    }

    /// The row of a buffer that a row reads.
    pub fn row_of(&mut self, from: Domain, read: &Read, row: &str) -> String {
        let (mut domain, mut row) = (from, row.to_owned());
        for hop in &read.hops {
            row = format!("hw_map({}, {row})", self.map(domain, hop.to, hop.path));
            domain = hop.to;
        }
        place(&mut self.used.buffers, read.from);
        // Only what a caller gives may be rows of a larger table.
        match self.buffers[read.from.at()].role {
            crate::intra::Role::Input => format!("hw_row(buffer{}, {row})", read.from.at()),
            _ => row,
        }
    }

    fn nest(&mut self, traverse: &Traverse) -> (Domain, usize, usize) {
        let nodes = Nodes::new(&traverse.body);
        let widest = nodes.all.iter().map(|node: &nodes::Node| node.shape.len()).max().unwrap_or(1);
        let group = group_for(widest);
        let domain = domain_number(traverse.nest[0]);
        self.line(&format!("const u32 lane = threadIdx.x % {group}, lanes = hw_group_lanes<{group}>();"));
        self.line("(void)lane, (void)lanes;");
        self.line(&format!("const u32 rows = graph->rows[{domain}];"));
        self.line(&format!(
            "for (u32 row0 = (blockIdx.x * blockDim.x + threadIdx.x) / {group}; row0 < rows; row0 += gridDim.x * (blockDim.x / {group})) {{"
        ));
        let rows = Rows { nodes: &nodes, nest: &traverse.nest, group };
        self.depth += 1;
        nest::write(self, &rows, &traverse.nest, traverse.path);
        self.depth -= 1;
        self.line("}");
        (traverse.nest[0], 256 / group, 1)
    }

    /// A struct that says where rows lie, and one of it.
    fn rows(&mut self, name: &str, domain: Domain, read: &Read, scale: Option<&Read>) -> String {
        let mut own =
            Writer { table: self.table, buffers: self.buffers, lines: String::new(), depth: 0, used: Used::default() };
        let row = own.row_of(domain, read, "row");
        let data = own.buffer(read.from);
        let factor = scale.map_or("1.0f".to_owned(), |scale| {
            let (row, data) = (own.row_of(domain, scale, "row"), own.buffer(scale.from));
            format!("{data}[{row}]")
        });
        let len = self.buffers[read.from.at()].shape.len();
        let used = own.used;
        let mut text = format!("struct {name} {{\n");
        used.maps.iter().for_each(|at| _ = writeln!(text, "    HwMap map{at};"));
        used.buffers.iter().for_each(|id| _ = writeln!(text, "    HwBuffer buffer{};", id.at()));
        let _ =
            writeln!(text, "    __device__ const float *row(u32 row) const {{ return {data} + (u64){row} * {len}; }}");
        let _ = writeln!(text, "    __device__ float scale(u32 row) const {{ (void)row; return {factor}; }}\n}};");
        let maps = used.maps.iter().map(|at| format!("map{at}"));
        let fields: Vec<String> = maps.chain(used.buffers.iter().map(|id| format!("buffer{}", id.at()))).collect();
        used.maps.iter().for_each(|at| _ = place(&mut self.used.maps, *at));
        used.buffers.iter().for_each(|id| _ = place(&mut self.used.buffers, *id));
        self.used.structs += &text;
        format!("{name}{{{}}}", fields.join(", "))
    }

    fn product(&mut self, gemm: &Gemm, to: BufferId, entry: &str) -> (Domain, usize, usize) {
        let x = self.rows(&format!("HwX_{entry}"), gemm.rows, &gemm.x, gemm.scale.as_ref());
        let weights = &self.buffers[gemm.w.at()];
        let Shape::Matrix { heads, rows, cols } = weights.shape else { return (gemm.rows, 1, 1) };
        let (from, out) = if gemm.transposed { (cols, rows) } else { (rows, cols) };
        let types = self.map(gemm.rows, weights.domain, gemm.path);
        let (w, to) = (self.buffer(gemm.w), self.buffer(to));
        let count = format!("graph->rows[{}]", domain_number(gemm.rows));
        self.line(&format!(
            "hw_product<{heads}, {from}, {out}, {}>({x}, {w}, {types}, {count}, {to});",
            gemm.transposed
        ));
        (gemm.rows, 64, heads * out.div_ceil(64))
    }

    fn outer(&mut self, outer: &Outer, entry: &str) -> (Domain, usize, usize) {
        let x = self.rows(&format!("HwX_{entry}"), outer.rows, &outer.x, None);
        let y = self.rows(&format!("HwY_{entry}"), outer.rows, &outer.y, None);
        let Buffer { domain, shape, .. } = self.buffers[outer.to.at()];
        let Shape::Matrix { heads, rows, cols } = shape else { return (outer.rows, 1, 1) };
        let types = self.map(outer.rows, domain, outer.path);
        let to = self.buffer(outer.to);
        let (count, matrices) = (domain_number(outer.rows), domain_number(domain));
        self.line(&format!(
            "hw_outer<{heads}, {rows}, {cols}>({x}, {y}, {types}, graph->rows[{count}], graph->rows[{matrices}], {to});"
        ));
        (domain, 1, heads * rows.div_ceil(32) * cols.div_ceil(32))
    }

    fn weights(&mut self, a: (BufferId, bool), b: (BufferId, bool), to: BufferId) -> (Domain, usize, usize) {
        let Buffer { domain, shape, .. } = self.buffers[to.at()];
        let Shape::Matrix { heads, rows, cols } = shape else { return (domain, 1, 1) };
        let inner = self.buffers[a.0.at()].shape.len() / (heads * rows).max(1);
        let (left, right, out) = (self.buffer(a.0), self.buffer(b.0), self.buffer(to));
        let matrices = format!("graph->rows[{}] * {heads}", domain_number(domain));
        self.line(&format!(
            "hw_weights<{rows}, {inner}, {cols}, {}, {}>({left}, {right}, {matrices}, {out});",
            a.1, b.1
        ));
        (domain, 1, (heads * rows * cols).div_ceil(256))
    }
}

/// The place of a domain in the list of rows.
pub(super) fn domain_number(domain: Domain) -> usize {
    Domain::ALL.iter().position(|other| *other == domain).unwrap_or(0)
}
