//! Calls of the kernels that are templates: products, outer products, and sums over all rows.

use std::collections::BTreeMap;

use super::Precision;
use super::element::Elements;
use super::epilogue::{Behind, SIDE};
use super::lower::{Chunks, OUTER_TILE};
use super::split::{Sum, Sums};
use super::table::{Cut, Tiling};
use super::text::{Blocks, PLACES, WarpgroupBlocks, Writer};
use crate::adjacency::ByNodes;
use crate::inter::{Domain, Path, Reduce, Shape};
use crate::intra::{Buffer, Gemm, GemmSum, Library, Outer, Read, RowProduct, StepOp};

impl Precision {
    fn name(self) -> &'static str {
        match self {
            Self::F32 => "HW_F32",
            Self::Tf32 => "HW_TF32",
            Self::Tf32x3 => "HW_TF32X3",
            Self::Bf16 => "HW_BF16",
        }
    }
}

/// Elements of rows that a step of tensor cores takes, and those that are under way.
const STEP: usize = 16;
const AHEAD: usize = 4 * STEP;
/// Shared memory that matrices get in a thread block: two blocks of an SM of the smallest GPUs have so much, or one of two.
const KEPT_BYTES: usize = 96 << 10;
/// Blocks that an SM has at once which multiply by tensor cores: their registers are all it has.
pub(super) const BLOCKS_PER_SM: usize = 2;
/// Rows of a tile of a product by single warps, of which a warpgroup takes half; as `product.cuh` has it.
pub(super) const TILE_ROWS: usize = 128;
/// Rows, and columns, of a tile of a product in plain arithmetic.
const PLAIN_TILE_ROWS: usize = 64;
/// Blocks that an SM has at once where each is a warpgroup and their shared memory fits.
const GROUPS_PER_SM: usize = 3;
/// Shared memory of an SM with warpgroups that blocks may ask for, all together.
const SM_BYTES: usize = 224 << 10;
/// Rows times columns of a tile of products that are added up: 32 by 32 of each of four warps; as `product_sum.cuh` has it.
const PRODUCTS_OF_A_TILE: usize = 4 * 32 * 32;
/// Rows and columns that a thread block makes of a product of weights; as `outer.cuh` has it.
const WEIGHTS_TILE: usize = 32;

/// How much of a matrix lies in shared memory at once.
struct Kept {
    /// Slabs of columns: all of all heads, or one.
    slabs: usize,
    /// Elements of their columns.
    depth: usize,
    bytes: usize,
    /// Where blocks are warpgroups if a GPU has them: there is room for all parts of each element, and columns fill a slab.
    group: Option<WarpgroupBlocks>,
}

impl Kept {
    fn new(heads: usize, from: usize, to: usize, precision: Precision) -> Self {
        let (all, depth) = (heads * to.div_ceil(SIDE), from.next_multiple_of(STEP));
        let bytes = |slabs: usize, depth: usize| 4 * slabs * depth * to.next_multiple_of(STEP).min(SIDE);
        let most = KEPT_BYTES / bytes(1, AHEAD) * AHEAD;
        let (slabs, depth) = match (bytes(all, depth) <= KEPT_BYTES, bytes(1, depth) <= KEPT_BYTES) {
            (true, _) => (all, depth),
            (false, true) => (1, depth),
            (false, false) => (1, most),
        };
        let bytes = bytes(slabs, depth);
        let shared_bytes = if precision == Precision::Tf32x3 { 2 * bytes } else { bytes };
        let is_group = precision != Precision::F32 && to > SIDE - STEP && depth >= from && shared_bytes <= KEPT_BYTES;
        let at_once = (SM_BYTES / shared_bytes).clamp(1, GROUPS_PER_SM);
        Self { slabs, depth, bytes, group: is_group.then_some(WarpgroupBlocks { at_once, shared_bytes }) }
    }
}

impl Writer<'_> {
    /// Rows times matrices, and what is done with every product.
    pub fn product(&mut self, gemm: &Gemm, entry: &str, precision: Precision) -> Blocks {
        let Buffer { domain: types, shape, .. } = self.buffers[gemm.product.w.at()];
        let Shape::Matrix { heads, rows, cols } = shape else { return nothing(gemm.product.rows) };
        let (from, to) = if gemm.product.transposed { (cols, rows) } else { (rows, cols) };
        let x = self.rows(&format!("HwX_{entry}"), gemm.product.rows, &gemm.product.x, gemm.product.scale.as_ref());
        let out = self.epilogue(Behind::product(gemm, self.buffers), &format!("HwOut_{entry}"), to);
        let Kept { slabs, depth, bytes, group } = Kept::new(heads, from, to, precision);
        let cut = match (precision, group) {
            (Precision::F32, _) => Cut::Tiles(PLAIN_TILE_ROWS),
            (_, Some(_)) => Cut::GroupTiles,
            (_, None) => Cut::Tiles(TILE_ROWS),
        };
        let tiling = Tiling { rows: gemm.product.rows, types, path: gemm.product.path, cut };
        let tiles = self.tiles(tiling);
        let w = self.buffer(gemm.product.w);
        let (mode, count) = (precision.name(), self.count(gemm.product.rows));
        let (turned, is_group) = (gemm.product.transposed, group.is_some());
        let sizes = format!("{mode}, {heads}, {from}, {to}, {turned}, {slabs}, {depth}, {is_group}");
        self.line(&format!("hw_product<{sizes}>({x}, {w}, {tiles}, {count}, {out});"));
        match precision {
            Precision::F32 => Blocks::Pieces(tiling, heads * to.div_ceil(PLAIN_TILE_ROWS)),
            _ => {
                Blocks::Tensor { pieces: tiling, across: heads * to.div_ceil(SIDE) / slabs, shared_bytes: bytes, group }
            }
        }
    }

    /// Rows times matrices, added up by the nodes that rows belong to, and what is done with every sum.
    pub fn product_sum(&mut self, sum: &GemmSum, nodes: usize, entry: &str, precision: Precision) -> Blocks {
        let Shape::Row { heads, width: to } = sum.shape() else { return nothing(sum.to) };
        let (columns, slabs, mode) = (sum.columns(), sum.slabs(), precision.name());
        let across = slabs / heads.max(1);
        let count = self.count(sum.to);
        let out = self.epilogue(Behind::sum(sum), &format!("HwOut_{entry}"), to);
        let terms: Vec<String> = sum
            .terms
            .iter()
            .enumerate()
            .map(|(at, term)| self.term(sum.to, term, &format!("{entry}_{at}"), (nodes, columns)))
            .collect();
        self.line("extern __shared__ float4 sums[];");
        self.line(&format!("const u32 count = {count}, places = (count + {} - 1) / {nodes};", nodes));
        self.line(&format!("hw_clear_sums<{nodes}, {columns}>(sums);"));
        self.line(&format!("for (u32 at = blockIdx.x; at < places * {slabs}; at += gridDim.x) {{"));
        self.indented(|own| {
            own.line(&format!("const u32 place = at / {slabs}, first_node = place * {nodes};"));
            own.line(&format!("const u32 head = at % {slabs} / {across}, column = at % {across} * {columns};"));
            for term in terms {
                own.line(&format!("hw_add_products<{mode}, {term}, place, first_node, head, column, sums);"));
            }
            let least = format!("hw_least({nodes}, count - first_node)");
            own.line(&format!("hw_give_sums<{to}, {columns}>(sums, first_node, {least}, head, column, {out});"));
        });
        self.line("}");
        Blocks::Sums { of: sum.to, nodes, across: slabs, shared_bytes: 4 * nodes * columns }
    }

    /// The sizes of a term of a sum, and what it is made of.
    fn term(&mut self, to: Domain, term: &RowProduct, name: &str, (nodes, columns): (usize, usize)) -> String {
        let Buffer { domain: types, shape, .. } = self.buffers[term.w.at()];
        let Shape::Matrix { heads, rows, cols } = shape else { return String::new() };
        let (from, width) = if term.transposed { (cols, rows) } else { (rows, cols) };
        let x = self.rows_of(&format!("HwX_{name}"), term.rows, &term.x, term.scale.as_ref(), Some(to));
        self.line(&format!("const HwX_{name} x_{name} = {x};"));
        let cut = Cut::ByNodes(ByNodes { to, nodes }, PRODUCTS_OF_A_TILE / columns);
        let tiles = self.tiles(Tiling { rows: term.rows, types, path: term.path, cut });
        let (w, count) = (self.buffer(term.w), self.count(term.rows));
        format!("{heads}, {from}, {width}, {}, {columns}>(x_{name}, {w}, {tiles}, {count}", term.transposed)
    }

    /// What is done with rows that products could go to and none goes to: as if it were 0.
    pub fn rest(&mut self, gemm: &Gemm, to: Domain) -> Blocks {
        let mut body = gemm.body.clone();
        body.steps
            .iter_mut()
            .filter(|step| step.op == StepOp::Product)
            .for_each(|step| step.op = StepOp::Constant(0.0));
        let members = self.members(to, gemm.product.rows, Path::Only);
        let is_left = format!("hw_first({members}, row) == hw_end({members}, row)");
        match self.flat(to, &body, Some(&is_left)) {
            Blocks::Rows(_, a_block, across) => Blocks::Rest { of: to, after: gemm.product.rows, a_block, across },
            other => other,
        }
    }

    /// A struct that says which rows of a buffer rows are and where these lie, and one of it.
    fn rows(&mut self, name: &str, domain: Domain, read: &Read, scale: Option<&Read>) -> String {
        self.rows_of(name, domain, read, scale, None)
    }

    /// The same that also says which rows of another domain they belong to.
    fn rows_of(&mut self, name: &str, domain: Domain, read: &Read, scale: Option<&Read>, to: Option<Domain>) -> String {
        self.methods(name, |own| {
            if let Some(to) = to {
                let row = if to == domain {
                    "row".to_owned()
                } else {
                    format!("hw_map({}, row)", own.map(domain, to, Path::Only))
                };
                own.line(&format!("__device__ u32 to(u32 row) const {{ return {row}; }}"));
            }
            let (row, data) = (own.row_of(domain, read, "row"), own.buffer(read.from));
            let len = own.buffers[read.from.at()].shape.len();
            own.line(&format!("__device__ u32 at(u32 row) const {{ return {row}; }}"));
            own.line(&format!("__device__ const float *row(u32 at) const {{ return {data} + (u64)at * {len}; }}"));
            let factor = scale.map_or("1.0f".to_owned(), |scale| {
                let (row, data) = (own.row_of(domain, scale, "row"), own.buffer(scale.from));
                format!("{data}[{row}]")
            });
            own.line(&format!("__device__ float scale(u32 row) const {{ (void)row; return {factor}; }}"));
        })
    }

    /// Outer products of every chunk of the rows.
    pub fn outer(&mut self, outer: &Outer, chunks: Chunks, entry: &str, precision: Precision) -> Blocks {
        let x = self.rows(&format!("HwX_{entry}"), outer.rows, &outer.x, None);
        let y = self.rows(&format!("HwY_{entry}"), outer.rows, &outer.y, None);
        let Buffer { domain, shape, .. } = self.buffers[outer.to.at()];
        let Shape::Matrix { heads, rows, cols } = shape else { return nothing(domain) };
        let (tiles, partial) = (self.tiles(chunks.tiling), self.buffer(chunks.partial));
        let (mode, count) = (precision.name(), self.count(outer.rows));
        self.line(&format!("hw_outer<{mode}, {heads}, {rows}, {cols}>({x}, {y}, {tiles}, {count}, {partial});"));
        let tiles = |side: usize| heads * rows.div_ceil(side) * cols.div_ceil(side);
        match precision {
            Precision::F32 => Blocks::Pieces(chunks.tiling, tiles(32)),
            _ => Blocks::Tensor { pieces: chunks.tiling, across: tiles(OUTER_TILE), shared_bytes: 0, group: None },
        }
    }

    /// Their sums.
    pub fn outer_total(&mut self, outer: &Outer, chunks: Chunks) -> Blocks {
        let Buffer { domain, shape, .. } = self.buffers[outer.to.at()];
        let len = shape.len();
        let (tiles, partial, to) = (self.tiles(chunks.tiling), self.buffer(chunks.partial), self.buffer(outer.to));
        let (types, rows) = (self.count(domain), self.count(outer.rows));
        self.line(&format!("hw_total<HW_SUM, {len}, {len}>({partial}, {tiles}, {types}, {rows}, {to});"));
        Blocks::Rows(domain, 1, len.div_ceil(8))
    }

    /// Sums of every chunk of the rows, those of one length in one walk.
    pub fn sums(&mut self, sums: &Sums) -> Blocks {
        let mut by_len: BTreeMap<usize, Vec<&Sum>> = BTreeMap::new();
        sums.all.iter().for_each(|sum| by_len.entry(sum.len).or_default().push(sum));
        let longest = by_len.keys().max().copied().unwrap_or(1);
        let rows = self.count(sums.rows);
        let tiles = self.tiles(sums.chunks.tiling);
        self.line(&format!("const u32 rows = {rows}, chunks = hw_chunks({tiles}, rows);"));
        for (len, all) in by_len {
            let across = threads_of(len).2;
            self.line(&format!("for (u32 at = blockIdx.x; at < chunks * {across}; at += gridDim.x) {{"));
            self.indented(|out| out.chunk(sums, len, &all));
            self.line("}");
        }
        Blocks::Pieces(sums.chunks.tiling, threads_of(longest).2)
    }

    /// One chunk: threads lie along the row first, then over rows; their sums meet in the block.
    fn chunk(&mut self, sums: &Sums, len: usize, all: &[&Sum]) {
        let total: usize = sums.all.iter().map(|sum| sum.len).sum();
        let (places, side, across) = threads_of(len);
        let tiles = self.tiles(sums.chunks.tiling);
        self.line(&format!("const u32 place = at / {across};"));
        let first = format!("(at % {across} * {side} + threadIdx.x % {side}) * {}", places.len());
        self.neighbours(&first, places);
        self.line(&format!("const HwTile chunk = hw_chunk({tiles}, rows, place);"));
        self.line("const u32 end = chunk.first + chunk.count;");
        let name = |number: usize, at: &str| format!("sum{number}_{at}");
        for (number, sum) in all.iter().enumerate() {
            let none = format!("hw_sum_of_none<{}>()", how(sum.how));
            places.iter().for_each(|at| self.line(&format!("float {} = {none};", name(number, at))));
        }
        self.line(&format!("#pragma unroll {}", 16 / places.len()));
        self.line(&format!(
            "for (u32 row = {} < {len} ? chunk.first + threadIdx.x / {side} : end; row < end; row += {}) {{",
            places[0],
            256 / side
        ));
        self.indented(|out| {
            let mut elements = Elements::new(&sums.body, sums.rows, "row").at(places, len);
            for (number, sum) in all.iter().enumerate() {
                for at in places {
                    let (value, own) = (elements.value(out, sum.of, at), name(number, at));
                    out.line(&format!("{own} = hw_add<{}>({own}, {value});", how(sum.how)));
                }
            }
        });
        self.line("}");
        let partial = self.buffer(sums.chunks.partial);
        for (number, sum) in all.iter().enumerate() {
            for at in places {
                let own = name(number, at);
                self.line(&format!("{own} = hw_block_sum<{}, {side}>({own});", how(sum.how)));
                let place = format!("(u64)place * {total} + {} + {at}", sum.first);
                self.line(&format!("if (threadIdx.x < {side} && {at} < {len}) {partial}[{place}] = {own};"));
            }
        }
    }

    /// Totals of the chunks of every type.
    pub fn totals(&mut self, sums: &Sums) -> Blocks {
        let total: usize = sums.all.iter().map(|sum| sum.len).sum();
        let (partial, tiles) = (self.buffer(sums.chunks.partial), self.tiles(sums.chunks.tiling));
        let domain = sums.chunks.tiling.types;
        let (types, rows) = (self.count(domain), self.count(sums.rows));
        for Sum { how: reduce, to, len, first, .. } in &sums.all {
            let (how, to) = (how(*reduce), self.buffer(*to));
            let from = format!("{partial} + {first}");
            self.line(&format!("hw_total<{how}, {total}, {len}>({from}, {tiles}, {types}, {rows}, {to});"));
        }
        let longest = sums.all.iter().map(|sum| sum.len).max().unwrap_or(1);
        Blocks::Rows(domain, 1, longest.div_ceil(8))
    }

    /// Products of weights.
    pub fn library(&mut self, library: &Library, entry: &str) -> Blocks {
        let Library::Product { a, b, to } = library;
        let Buffer { domain, shape, .. } = self.buffers[to.at()];
        let Shape::Matrix { heads, rows, cols } = shape else { return nothing(domain) };
        let inner = self.buffers[a.0.from.at()].shape.len() / (heads * rows).max(1);
        let left = self.rows(&format!("HwX_{entry}"), domain, &a.0, None);
        let right = self.rows(&format!("HwY_{entry}"), domain, &b.0, None);
        let (to, types) = (self.buffer(*to), self.count(domain));
        let sizes = format!("{heads}, {rows}, {inner}, {cols}, {}, {}", a.1, b.1);
        self.line(&format!("hw_weights<{sizes}>({left}, {right}, {types}, {to});"));
        Blocks::Rows(domain, 1, heads * rows.div_ceil(WEIGHTS_TILE) * cols.div_ceil(WEIGHTS_TILE))
    }
}

/// How threads lie along rows of so many elements that are added up: neighbouring elements of each, threads beside each other, and how often
/// these are needed for a row.
fn threads_of(len: usize) -> (&'static [&'static str], usize, usize) {
    let places = if len.is_multiple_of(4) { &PLACES[..] } else { &PLACES[..1] };
    let side = (len / places.len()).next_power_of_two().min(256);
    (places, side, (len / places.len()).div_ceil(side))
}

fn how(reduce: Reduce) -> &'static str {
    match reduce {
        Reduce::Sum => "HW_SUM",
        Reduce::Mean => "HW_MEAN",
        Reduce::Max => "HW_MAX",
    }
}

/// A launch over shapes that no program has.
fn nothing(rows: Domain) -> Blocks {
    Blocks::Rows(rows, 1, 1)
}
