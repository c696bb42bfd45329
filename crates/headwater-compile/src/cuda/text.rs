//! The text of a program, launch by launch.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::dense::Dense;
use super::element::{Elements, is_flat};
use super::loops::Kept;
use super::lower::{Lowered, Work, lower};
use super::product::BLOCKS_PER_SM;
use super::table::{Chain, Table, Tiling};
use super::{Precision, nest};
use crate::inter::{Domain, Path, Reduce};
use crate::intra::{Body, Buffer, BufferId, KernelSchedule, Program, Read, Register, Role, StepOp, Traverse};

/// What stands before every emitted text, in order.
pub(super) static HEADERS: [(&str, &str); 8] = [
    headwater_graph::random::CUDA_HEADER,
    ("emitted.cuh", include_str!("emitted.cuh")),
    ("sums.cuh", include_str!("sums.cuh")),
    ("order.cuh", include_str!("order.cuh")),
    ("mma.cuh", include_str!("mma.cuh")),
    ("product.cuh", include_str!("product.cuh")),
    ("product_sum.cuh", include_str!("product_sum.cuh")),
    ("outer.cuh", include_str!("outer.cuh")),
];

/// A program as text.
#[derive(Debug, Clone, PartialEq)]
pub struct Emitted {
    /// Its name.
    pub name: String,
    /// In the order they run.
    pub launches: Vec<Launch>,
    /// The program's buffers, and those between launches.
    pub buffers: Vec<Buffer>,
    /// Buffers that have a row for every chunk, and which chunks.
    pub chunked: BTreeMap<BufferId, Tiling>,
    /// What kernels ask the graph.
    pub table: Table,
}

impl Emitted {
    /// CUDA C++ of all launches, in their order.
    #[must_use]
    pub fn text(&self) -> String {
        self.launches.iter().map(|launch| launch.text.as_str()).collect()
    }
}

/// One launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// The name of its `__global__` function: its place and what it does.
    pub entry: String,
    /// CUDA C++ of that function and of the structs it uses.
    pub text: String,
    /// Which of the program's kernels it is, or is a part of.
    pub kernel: usize,
    /// What its thread blocks are for.
    pub blocks: Blocks,
    /// What it reads and writes.
    pub buffers: Vec<BufferId>,
    /// What of it it writes.
    pub writes: Vec<BufferId>,
    /// What it does, in a few words.
    pub what: String,
    /// What it is where it is a product and nothing else.
    pub dense: Option<Dense>,
    /// What it is where it copies rows and nothing else.
    pub copy: Option<Copied>,
}

/// Rows of written nodes as rows of read ones, 0 where a node is read and not written. Where all nodes are written, both are the same rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Rows of written nodes.
    pub from: BufferId,
    /// Rows of read ones, which nothing outside the program needs.
    pub to: BufferId,
}

impl Copied {
    fn of(work: &Work, buffers: &[Buffer]) -> Option<Self> {
        let Work::Nest(Traverse { nest, body, .. }, _) = work else { return None };
        let ops: Vec<&StepOp> = body.steps.iter().map(|step| &step.op).collect();
        let [StepOp::Load(Read { from, hops }), StepOp::Reduce(Reduce::Sum, x), StepOp::Store(sum, to)] = ops[..]
        else {
            return None;
        };
        let is_plain = hops.is_empty() && (x.at(), sum.at()) == (0, 1) && nest[..] == [Domain::SRC, Domain::DST];
        let is_own = [from, to].into_iter().all(|id| buffers[id.at()].role == Role::Temporary);
        (is_plain && is_own).then_some(Self { from: *from, to: *to })
    }
}

/// What the thread blocks of a launch are for, so how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocks {
    /// For rows of a domain, so many at a time, with so many blocks beside each other for the same rows.
    Rows(Domain, usize, usize),
    /// For pieces of rows, with so many blocks beside each other for the same piece.
    Pieces(Tiling, usize),
    /// For pieces of rows that tensor cores multiply, with so many blocks for the same piece: small ones that stay for all of their pieces.
    Tensor {
        /// Tiles or chunks of rows of one type.
        pieces: Tiling,
        /// Blocks for the same piece.
        across: usize,
        /// Shared memory of a block, besides what the text declares.
        shared_bytes: usize,
        /// What they are where a GPU has warpgroups, if each is one there.
        group: Option<WarpgroupBlocks>,
    },
    /// For nodes whose sums of products a block has at a time: small blocks of tensor cores.
    Sums {
        /// The nodes.
        of: Domain,
        /// How many of them.
        nodes: usize,
        /// Blocks for the same nodes.
        across: usize,
        /// Shared memory of a block, besides what the text declares.
        shared_bytes: usize,
    },
    /// For rows of a domain that groups of lanes walk, so many groups a block; in an order by the members in another domain, where there is
    /// one, with a block for each of its hubs.
    Walk {
        /// The domain whose rows are walked.
        rows: Domain,
        /// Groups of lanes of a block.
        groups: usize,
        /// The domain whose rows count.
        by: Option<Domain>,
        /// Blocks that an SM shall have at once, which bounds the registers of a thread.
        at_once: usize,
    },
    /// For those rows of a domain that no row of another belongs to, so many at a time, with so many blocks beside each other.
    Rest {
        /// The domain whose rows they are.
        of: Domain,
        /// Where rows are that belong to one each.
        after: Domain,
        /// Rows that a block has at a time.
        a_block: usize,
        /// Blocks for the same rows.
        across: usize,
    },
}

/// Thread blocks that are a warpgroup each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarpgroupBlocks {
    /// Those that an SM has at once, which bounds the registers of a thread.
    pub at_once: usize,
    /// Shared memory of each, besides what the text declares.
    pub shared_bytes: usize,
}

/// Writes a program. Products are as exact as `precision` says.
#[must_use]
pub fn emit(program: &Program, precision: Precision) -> Emitted {
    let Lowered { work, kernels, buffers, chunked } = lower(program, precision);
    let mut found =
        Emitted { name: program.name.clone(), launches: Vec::new(), buffers, chunked, table: Table::default() };
    for (at, (kernel, work)) in kernels.iter().zip(&work).enumerate() {
        let what = work.what(&found.buffers);
        let entry = format!("k{at}_{}", identifier(&what));
        let mut writer = Writer {
            table: &mut found.table,
            buffers: &found.buffers,
            schedule: program.schedule(*kernel),
            walked: None,
            lines: String::new(),
            depth: 1,
            used: Used::default(),
        };
        let blocks = writer.work(work, &entry, precision);
        let (lines, used) = (writer.lines, writer.used);
        let heading = used.heading();
        // Products look up what they read first before they begin.
        let begin = if matches!(work, Work::Product(_)) { "" } else { "    hw_begin();\n" };
        let bounds = match blocks {
            Blocks::Tensor { group: Some(WarpgroupBlocks { at_once, .. }), .. } => {
                format!("HW_TENSOR_THREADS, HW_HAS_WARPGROUPS ? {at_once} : {BLOCKS_PER_SM}")
            }
            Blocks::Tensor { .. } | Blocks::Sums { .. } => format!("HW_TENSOR_THREADS, {BLOCKS_PER_SM}"),
            Blocks::Walk { at_once, .. } => format!("256, {at_once}"),
            _ => "256".to_owned(),
        };
        let text = format!(
            "{}extern \"C\" __global__ void __launch_bounds__({bounds})\n{entry}({PARAMETERS}) {{\n    (void)step;\n{heading}{begin}{lines}}}\n\n",
            used.structs
        );
        found.launches.push(Launch {
            entry,
            text,
            kernel: *kernel,
            blocks,
            buffers: used.buffers,
            writes: work.writes(),
            what,
            dense: Dense::of(work, &found.buffers),
            copy: Copied::of(work, &found.buffers),
        });
    }
    found
}

/// A description as the part of a kernel's name that profilers show.
fn identifier(what: &str) -> String {
    what.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_")
}

/// Writes one kernel.
pub(super) struct Writer<'a> {
    table: &'a mut Table,
    pub buffers: &'a [Buffer],
    /// How the kernel is run that this is, or is a part of.
    pub schedule: KernelSchedule,
    /// Whose members `own` is, at place `at_own` of their list.
    pub walked: Option<(Domain, Domain, Path)>,
    lines: String,
    depth: usize,
    used: Used,
}

/// What kernels, and functions that they end with, are given.
const PARAMETERS: &str = "const HwGraph *graph, const HwBuffer *buffers, const u64 *step";

/// Sorts of entries whose kinds a kernel may be compiled for; as `emitted.cuh` has it.
const SORTS: usize = 6;

/// What a kernel needs at its top.
#[derive(Default)]
struct Used {
    maps: Vec<usize>,
    members: Vec<usize>,
    tiles: Vec<usize>,
    orders: Vec<usize>,
    chains: Vec<usize>,
    counts: Vec<usize>,
    buffers: Vec<BufferId>,
    structs: String,
}

impl Used {
    fn heading(&self) -> String {
        let mut text = String::new();
        let entries = [
            ("HwMap", "map", "maps", &self.maps),
            ("HwMembers", "members", "members", &self.members),
            ("HwTiles", "tiles", "tiles", &self.tiles),
            ("HwOrder", "order", "orders", &self.orders),
            ("HwChain", "chain", "chains", &self.chains),
        ];
        for (sort, (of, name, all, used)) in entries.into_iter().enumerate() {
            for at in used {
                let place = SORTS * at + sort;
                let _ = writeln!(text, "    const {of} {name}{at} = hw_known<{place}>(graph->{all}[{at}]);");
            }
        }
        for at in &self.counts {
            let _ = writeln!(text, "    const u32 count{at} = graph->rows[{at}];");
        }
        for at in self.buffers.iter().map(|id| id.at()) {
            let place = SORTS * at + SORTS - 1;
            let _ = writeln!(text, "    const HwBuffer buffer{at} = hw_known_rows<{place}>(buffers[{at}]);");
        }
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
    fn work(&mut self, work: &Work, entry: &str, precision: Precision) -> Blocks {
        match work {
            Work::Nest(traverse, kept) => self.nest(traverse, kept, entry),
            Work::Product(gemm) => self.product(gemm, entry, precision),
            Work::ProductSum(sum, nodes) => self.product_sum(sum, *nodes, entry, precision),
            Work::Rest(gemm, to) => self.rest(gemm, *to),
            Work::Sums(sums) => self.sums(sums),
            Work::Total(sums) => self.totals(sums),
            Work::Outer(outer, chunks) => self.outer(outer, *chunks, entry, precision),
            Work::OuterTotal(outer, chunks) => self.outer_total(outer, *chunks),
            Work::Library(library) => self.library(library, entry),
        }
    }

    /// What is written apart from a kernel's own lines, and what it uses.
    fn apart(&mut self, write: impl FnOnce(&mut Writer<'_>)) -> (String, Used) {
        let (buffers, schedule) = (self.buffers, self.schedule);
        let (lines, used) = (String::new(), Used::default());
        let mut own = Writer { table: self.table, buffers, schedule, walked: None, lines, depth: 1, used };
        write(&mut own);
        (own.lines, own.used)
    }

    /// Writes a function that a kernel ends with, and calls it. It finds maps and buffers itself, so that the kernel does not keep what it
    /// needs of them in registers all the time.
    pub fn last(&mut self, name: &str, write: impl FnOnce(&mut Writer<'_>)) {
        let (lines, used) = self.apart(write);
        let heading = used.heading();
        self.used.structs += &used.structs;
        self.used.structs +=
            &format!("__device__ __noinline__ void {name}({PARAMETERS}) {{\n    (void)step;\n{heading}{lines}}}\n");
        used.buffers.iter().for_each(|id| _ = place(&mut self.used.buffers, *id));
        self.line(&format!("{name}(graph, buffers, step);"));
    }

    /// Writes a struct of methods that know the maps and buffers they use; what comes back makes one.
    pub fn methods(&mut self, name: &str, write: impl FnOnce(&mut Writer<'_>)) -> String {
        let (lines, used) = self.apart(write);
        let mut text = format!("struct {name} {{\n    const u64 *step;\n");
        used.maps.iter().for_each(|at| _ = writeln!(text, "    HwMap map{at};"));
        used.buffers.iter().for_each(|id| _ = writeln!(text, "    HwBuffer buffer{};", id.at()));
        let _ = writeln!(text, "{lines}}};");
        let maps = used.maps.iter().map(|at| format!(", map{at}"));
        let fields: String = maps.chain(used.buffers.iter().map(|id| format!(", buffer{}", id.at()))).collect();
        used.maps.iter().for_each(|at| _ = place(&mut self.used.maps, *at));
        used.buffers.iter().for_each(|id| _ = place(&mut self.used.buffers, *id));
        self.used.structs += &text;
        format!("{name}{{step{fields}}}")
    }

    pub fn line(&mut self, line: &str) {
        let _ = writeln!(self.lines, "{}{line}", "    ".repeat(self.depth));
    }

    pub fn indented(&mut self, write: impl FnOnce(&mut Self)) {
        self.depth += 1;
        write(self);
        self.depth -= 1;
    }

    /// How many rows of a domain there are.
    pub fn count(&mut self, rows: Domain) -> String {
        let at = domain_number(rows);
        place(&mut self.used.counts, at);
        format!("count{at}")
    }

    /// The list of members of one domain in another.
    pub fn members(&mut self, coarse: Domain, fine: Domain, path: Path) -> String {
        let at = place(&mut self.table.members, (coarse, fine, path));
        place(&mut self.used.members, at);
        format!("members{at}")
    }

    pub fn map(&mut self, fine: Domain, coarse: Domain, path: Path) -> String {
        let at = place(&mut self.table.maps, (fine, coarse, path));
        place(&mut self.used.maps, at);
        format!("map{at}")
    }

    /// Rows in pieces of one type.
    pub fn tiles(&mut self, tiling: Tiling) -> String {
        let at = place(&mut self.table.tiles, tiling);
        place(&mut self.used.tiles, at);
        format!("tiles{at}")
    }

    /// Rows of a domain by how many rows of another they have.
    pub fn order(&mut self, rows: Domain, by: Domain) -> String {
        let at = place(&mut self.table.orders, (rows, by));
        place(&mut self.used.orders, at);
        format!("order{at}")
    }

    /// Where a row of a buffer begins that has `len` elements a row.
    pub fn buffer_at(&mut self, id: BufferId, row: &str, len: usize) -> String {
        format!("{} + (u64){row} * {len}", self.buffer(id))
    }

    /// The elements of a buffer.
    pub fn buffer(&mut self, id: BufferId) -> String {
        place(&mut self.used.buffers, id);
        format!("buffer{}.data", id.at())
    }

    /// The row of a buffer that a row reads.
    pub fn row_of(&mut self, from: Domain, read: &Read, row: &str) -> String {
        let chain = self.walked.filter(|_| row == "own").map(|members| Chain { members, hops: read.hops.clone() });
        let (mut domain, mut row) = (from, row.to_owned());
        for hop in &read.hops {
            row = format!("hw_map({}, {row})", self.map(domain, hop.to, hop.path));
            domain = hop.to;
        }
        if let Some(chain) = chain.filter(Chain::is_worth_it) {
            let at = place(&mut self.table.chains, chain);
            place(&mut self.used.chains, at);
            row = format!("(chain{at}.kind == HW_MAP_LISTED ? chain{at}.list[at_own] : {row})");
        }
        place(&mut self.used.buffers, read.from);
        // Only what a caller gives may be rows of a larger table.
        match self.buffers[read.from.at()].role {
            Role::Input => format!("hw_row(buffer{}, {row})", read.from.at()),
            _ => row,
        }
    }

    /// A group of lanes for every outermost row, or a thread for every element where lanes need not meet.
    fn nest(&mut self, traverse: &Traverse, kept: &Kept, entry: &str) -> Blocks {
        if traverse.nest.len() == 1 && is_flat(&traverse.body) {
            return self.flat(traverse.nest[0], &traverse.body, None);
        }
        nest::write(self, traverse, kept, entry)
    }

    /// A thread for every element of what is stored or for four of them, of all rows or those of which something is true; vectors of one length are walked
    /// together.
    pub fn flat(&mut self, rows: Domain, body: &Body, which: Option<&str>) -> Blocks {
        let stores = body.steps.iter().filter_map(|step| match step.op {
            StepOp::Store(x, to) => Some((step.shape.len(), x, to)),
            _ => None,
        });
        let mut by_len: BTreeMap<usize, Vec<(Register, BufferId)>> = BTreeMap::new();
        stores.for_each(|(len, x, to)| by_len.entry(len).or_default().push((x, to)));
        // Threads that a row takes: one for four elements where 4 divides their number.
        let threads = |len: usize| if len.is_multiple_of(4) { len / 4 } else { len };
        let most = by_len.keys().map(|len| threads(*len)).max().unwrap_or(1).max(1);
        let count = self.count(rows);
        self.line(&format!("const u64 rows = {count};"));
        for (len, stores) in by_len {
            let own = threads(len);
            self.line(&format!(
                "for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < rows * {own}; at += (u64)gridDim.x * 256) {{"
            ));
            self.indented(|out| {
                out.line(&format!("const u32 row = (u32)(at / {own});"));
                if let Some(which) = which {
                    out.line(&format!("if (!({which})) continue;"));
                }
                let places = &PLACES[..len / own];
                out.neighbours(&format!("(u32)(at % {own}) * {}", places.len()), places);
                let mut elements = Elements::new(body, rows, "row").at(places, len);
                for (x, to) in stores {
                    let values: Vec<String> = places.iter().map(|at| elements.value(out, x, at)).collect();
                    out.put(to, "row", len, &values, None);
                }
            });
            self.line("}");
        }
        Blocks::Rows(rows, (256 / most).max(1), most.div_ceil(256))
    }

    /// Names neighbouring places, of which the first is given.
    pub fn neighbours(&mut self, first: &str, places: &[&str]) {
        self.line(&format!("const u32 {} = {first};", places[0]));
        for (at, place) in places.iter().enumerate().skip(1) {
            self.line(&format!("const u32 {place} = {} + {at};", places[0]));
        }
        places.iter().for_each(|place| self.line(&format!("(void){place};")));
    }

    /// Stores one element of a row, or four neighbours, at the first of the places; always, or if something is true.
    pub fn put(&mut self, to: BufferId, row: &str, len: usize, values: &[String], if_true: Option<&str>) {
        let place = format!("{} + (u64){row} * {len} + {}", self.buffer(to), PLACES[0]);
        let condition = if_true.map_or_else(String::new, |name| format!("if ({name}) "));
        match values {
            [one] => self.line(&format!("{condition}*({place}) = {one};")),
            all => self.line(&format!("{condition}*(float4 *)({place}) = make_float4({});", all.join(", "))),
        }
    }
}

/// Names of neighbouring places of a vector.
pub(super) const PLACES: [&str; 4] = ["g0", "g1", "g2", "g3"];

/// The place of a domain in the list of rows.
pub(super) fn domain_number(domain: Domain) -> usize {
    Domain::ALL.iter().position(|other| *other == domain).unwrap_or(0)
}
