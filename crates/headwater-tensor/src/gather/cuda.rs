//! The gather on the GPU: launches, scratch memory, and the promises about the kernels' reach.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Grid, Kernel, Param, Scalar, Scratch, Source, Span, Stream};

use super::plan::pieces_of;
use super::plan::{GatherOptions, Plan, Shape, TablePlace, Variant, plan};
use super::{GatherError, IdType, alignment_bytes, check_sizes};
use crate::error::Result;

const ROWS: (&str, &str) = ("rows.cuh", include_str!("rows.cuh"));
/// Rows copied line by line, for the kernels of others.
pub const LINES_HEADER: (&str, &str) = ("lines.cuh", include_str!("lines.cuh"));

static ELEMENTS: Source = Source { name: "elements.cu", text: include_str!("elements.cu"), headers: &[ROWS] };
static GATHER: Source = Source { name: "gather.cu", text: include_str!("gather.cu"), headers: &[ROWS, LINES_HEADER] };
static ORDER: Source = Source { name: "order.cu", text: include_str!("order.cu"), headers: &[] };

/// Kernel texts of this folder with the defines they are used with, for tests that compile every one.
pub static SOURCES: &[&Source] = &[&ELEMENTS, &GATHER, &ORDER];

const ELEMENT_PARAMS: &[Param] = &[
    Param::Read("table", Element::Bytes, &["rows", "units", "UNIT_BYTES"]),
    Param::Value("rows", Scalar::U64),
    Param::Value("units", Scalar::U64),
    Param::Read("ids", Element::Bytes, &["count", "ID_BYTES"]),
    Param::Value("count", Scalar::U64),
    Param::Write("out", Element::Bytes, &["count", "units", "UNIT_BYTES"]),
    Param::Fault,
];
// SAFETY: both kernels read ids below `count`, write outputs below `count * units`, and read rows below `rows` only.
static NAIVE: Kernel = unsafe { Kernel::declare(&ELEMENTS, "gather_naive", ELEMENT_PARAMS) };
// SAFETY: as above; a rotated column stays below `units`.
static SHIFT: Kernel = unsafe { Kernel::declare(&ELEMENTS, "gather_shift", ELEMENT_PARAMS) };
// SAFETY: ids and places are read below `count`; a row is read only when below `rows`, and only its own bytes (words that
// hang over a row stay inside the table, by `load_word`); a place is written only when below `out_rows`.
static LINES: Kernel = unsafe {
    Kernel::declare(
        &GATHER,
        "gather_lines",
        &[
            Param::Read("table", Element::Bytes, &["rows", "width"]),
            Param::Value("rows", Scalar::U64),
            Param::Value("width", Scalar::U64),
            Param::Read("ids", Element::Bytes, &["count", "ID_BYTES"]),
            Param::Read("places", Element::Bytes, &["count", "PLACE_BYTES"]),
            Param::Read("ends", Element::U32, &["END_WORDS"]),
            Param::Value("count", Scalar::U64),
            Param::Value("chunks", Scalar::U64),
            Param::Write("out", Element::Bytes, &["out_rows", "width"]),
            Param::Value("out_rows", Scalar::U64),
            Param::Write("claimed", Element::U64, &[]),
            Param::Fault,
        ],
    )
};
// SAFETY: ids are read below `count`; a bucket is below BUCKETS, whatever the id and the shift.
static COUNT: Kernel = unsafe {
    Kernel::declare(
        &ORDER,
        "order_count",
        &[
            Param::Read("ids", Element::Bytes, &["count", "ID_BYTES"]),
            Param::Value("count", Scalar::U64),
            Param::Value("rows", Scalar::U64),
            Param::Value("shift", Scalar::U32),
            Param::Write("counts", Element::U32, &["BUCKETS"]),
        ],
    )
};
// SAFETY: one block reads and writes BUCKETS counters, and one behind them.
static SCAN: Kernel = unsafe {
    Kernel::declare(
        &ORDER,
        "order_scan",
        &[
            Param::Write("counts", Element::U32, &["BUCKETS_AND_ONE"]),
            Param::Value("first_bucket", Scalar::U32),
            Param::Value("pieces", Scalar::F32),
        ],
    )
};
// SAFETY: as for COUNT; a place is written only when below `count`.
static SCATTER: Kernel = unsafe {
    Kernel::declare(
        &ORDER,
        "order_scatter",
        &[
            Param::Read("ids", Element::Bytes, &["count", "ID_BYTES"]),
            Param::Value("count", Scalar::U64),
            Param::Value("rows", Scalar::U64),
            Param::Value("shift", Scalar::U32),
            Param::Write("starts", Element::U32, &["BUCKETS"]),
            Param::Write("ordered", Element::Bytes, &["count", "ROW_BYTES"]),
            Param::Write("places", Element::U32, &["count"]),
            Param::Fault,
        ],
    )
};

/// Buckets of the partition: as many counters as fit a block's shared memory. 64 GiB come in buckets of 8 MiB.
pub const BUCKETS_LOG2: u32 = 13;
const ORDER_THREADS: u32 = 1024;
/// Fewer ids than this are not worth a block of their own.
const ORDER_IDS_PER_BLOCK: usize = 4096;
/// Places are 32 bits wide, so longer lists of ids are gathered in parts.
const MOST_IDS: u64 = 1 << 31;

/// A gather on one stream.
#[derive(Debug, Clone, Copy)]
pub struct GpuGather<'a> {
    /// Where it runs.
    pub stream: &'a Stream,
    /// The table, in any memory the GPU reaches.
    pub table: &'a Span,
    /// The same table for the CPU, when it can read it; `cpu` and `hybrid` need it.
    pub host_table: Option<&'a [u8]>,
    /// Rows of the table.
    pub rows: u64,
    /// Bytes a row.
    pub width_bytes: u64,
    /// The ids, in any memory the GPU reaches.
    pub ids: &'a Span,
    /// Their type.
    pub id_type: IdType,
    /// As many rows as ids.
    pub out: &'a Span,
    /// How to do it.
    pub options: GatherOptions,
}

/// Ids in address order, as far as that pays, with the place of each.
#[derive(Debug)]
pub struct Ordered {
    /// The ids, bucket after bucket; the largest number for ids that are no rows.
    pub rows: Scratch,
    /// How wide those are.
    pub row_type: IdType,
    /// Where each stood among the ids; 32 bits.
    pub places: Scratch,
    /// Where each bucket ends, and then how many pieces of memory the rows are expected to touch; 32 bits.
    pub ends: Scratch,
    /// Rows of a bucket, as a power of two.
    pub shift: u32,
}

/// Some rows with their places; no rows means that the table's own order is meant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed<'a> {
    pub rows: Option<(&'a Span, IdType)>,
    pub places: &'a Span,
    /// Where buckets end, when the rows are all that were put in order.
    pub ends: Option<&'a Span>,
}

impl Ordered {
    fn all(&self) -> Placed<'_> {
        Placed { rows: Some((&self.rows, self.row_type)), places: &self.places, ends: Some(&self.ends) }
    }
}

impl GpuGather<'_> {
    /// Queues the gather and says how it is done.
    pub fn run(&self) -> Result<Plan> {
        let plan = self.plan();
        self.run_plan(&plan)?;
        Ok(plan)
    }

    /// How this gather would be done.
    #[must_use]
    pub fn plan(&self) -> Plan {
        plan(&self.shape(), &self.options)
    }

    /// Queues the gather the way `plan` says.
    pub fn run_plan(&self, plan: &Plan) -> Result<()> {
        let (table_bytes, out_bytes) = (self.table.bytes() as u64, self.out.bytes() as u64);
        check_sizes(table_bytes, self.rows, self.width_bytes, self.count(), out_bytes)?;
        let (address, id_bytes) = (self.ids.pointer(), self.id_type.size_bytes());
        if address % id_bytes as u64 != 0 {
            return Err(GatherError::IdAlignment { address, id_bytes }.into());
        }
        if self.count() == 0 {
            return Ok(());
        }
        // From here on the table is exactly its rows, for both sides.
        let table = cut(self.table, 0, self.rows * self.width_bytes)?;
        let host_table = self.host_table.and_then(|bytes| bytes.get(..table.bytes()));
        let exact = GpuGather { table: &table, host_table, ..*self };
        match plan.variant {
            Variant::Cpu => super::staged::run(&exact),
            Variant::Hybrid if self.count() <= MOST_IDS => super::hybrid::run(&exact, plan),
            Variant::Naive => exact.by_element(&NAIVE, plan),
            Variant::Shift => exact.by_element(&SHIFT, plan),
            Variant::Aligned | Variant::Sorted | Variant::Hybrid | Variant::Auto => exact.by_line(plan),
        }
    }

    pub(super) fn count(&self) -> u64 {
        (self.ids.bytes() / self.id_type.size_bytes()) as u64
    }

    /// This gather in numbers.
    #[must_use]
    pub fn shape(&self) -> Shape {
        let facts = self.stream.gpu().facts();
        let place = if self.table.allocation().is_device_only() { TablePlace::Device } else { TablePlace::Host };
        Shape {
            table_rows: self.rows,
            width_bytes: self.width_bytes,
            count: self.count(),
            alignment_bytes: alignment_bytes([self.table, self.out], self.width_bytes),
            place,
            link_gb_per_s: facts.link_gb_per_s(),
            sms: facts.sms,
        }
    }

    fn by_element(&self, kernel: &'static Kernel, plan: &Plan) -> Result<()> {
        let unit_bytes = alignment_bytes([self.table, self.out], self.width_bytes).min(4);
        let defines = unit_defines(self.id_type, unit_bytes, plan.line_bytes);
        let grid = Grid { blocks: plan.blocks, threads: 1024, shared_bytes: 0 };
        kernel
            .on(self.stream, &defines, grid)
            .bytes(self.table)
            .u64(self.rows)
            .u64(self.width_bytes / unit_bytes)
            .bytes(self.ids)
            .u64(self.count())
            .bytes(self.out)
            .go()?;
        Ok(())
    }

    fn by_line(&self, plan: &Plan) -> Result<()> {
        let mut first = 0;
        while first < self.count() {
            let part = MOST_IDS.min(self.count() - first);
            let size = self.id_type.size_bytes() as u64;
            let ids = cut(self.ids, first * size, part * size)?;
            let out = cut(self.out, first * self.width_bytes, part * self.width_bytes)?;
            if plan.ordered {
                let ordered = self.order(&ids)?;
                self.lines(plan, self.stream, self.table, ordered.all(), &out)?;
            } else {
                self.lines_in_place(plan, &ids, &out)?;
            }
            first += part;
        }
        Ok(())
    }

    fn lines_in_place(&self, plan: &Plan, ids: &Span, out: &Span) -> Result<()> {
        let count = (ids.bytes() / self.id_type.size_bytes()) as u64;
        let (ids, places) = (Some((ids, self.id_type)), None);
        let (table, rows, width_bytes) = (self.table, self.rows, self.width_bytes);
        launch_lines(self.stream, plan, &Lines { table, rows, width_bytes, ids, places, ends: None, count, out })
    }

    /// Gathers rows that carry their places.
    pub(super) fn lines(
        &self,
        plan: &Plan,
        stream: &Stream,
        table: &Span,
        placed: Placed<'_>,
        out: &Span,
    ) -> Result<()> {
        let (ids, places, width_bytes) = (placed.rows, Some(placed.places), self.width_bytes);
        let (rows, count) = (table.bytes() as u64 / width_bytes, placed.places.bytes() as u64 / 4);
        let ends = placed.ends;
        launch_lines(stream, plan, &Lines { table, rows, width_bytes, ids, places, ends, count, out })
    }

    /// Puts `ids` into address order on the GPU.
    pub(super) fn order(&self, ids: &Span) -> Result<Ordered> {
        let most = self.options.share.sms(self.stream.gpu().facts().sms);
        let rows = OrderedRows { rows: self.rows, first: 0, stride_bytes: self.width_bytes };
        order_rows(self.stream, ids, self.id_type, &rows, most)
    }
}

/// The rows that are put into order.
#[derive(Debug, Clone, Copy)]
pub struct OrderedRows {
    /// How many there are.
    pub rows: u64,
    /// The first that lies in host memory.
    pub first: u64,
    /// Bytes from a row to the next.
    pub stride_bytes: u64,
}

/// Queues the ordering of `ids`, of which there are below 2^31, on at most `most_blocks` blocks. An id that is no row is
/// reported by the stream's next synchronisation.
pub fn order_rows(
    stream: &Stream,
    ids: &Span,
    id_type: IdType,
    table: &OrderedRows,
    most_blocks: u32,
) -> Result<Ordered> {
    let (count, rows) = (ids.bytes() / id_type.size_bytes(), table.rows);
    let (address, id_bytes) = (ids.pointer(), id_type.size_bytes());
    if address % id_bytes as u64 != 0 {
        return Err(GatherError::IdAlignment { address, id_bytes }.into());
    }
    let row_type = if rows < u64::from(u32::MAX) { IdType::U32 } else { IdType::U64 };
    let row_bits = u64::BITS - rows.saturating_sub(1).leading_zeros();
    let ordered = Ordered {
        rows: stream.scratch(count * row_type.size_bytes())?,
        row_type,
        places: stream.scratch(count * 4)?,
        ends: stream.scratch((4 << BUCKETS_LOG2) + 4)?,
        shift: row_bits.saturating_sub(BUCKETS_LOG2),
    };
    stream.fill(&ordered.ends, 0)?;
    let defines = order_defines(id_type, row_type);
    let blocks = u32::try_from(count / ORDER_IDS_PER_BLOCK).unwrap_or(u32::MAX).clamp(1, most_blocks.max(1));
    let grid = |blocks| Grid { blocks, threads: ORDER_THREADS, shared_bytes: 0 };
    let start = |kernel: &'static Kernel| {
        kernel.on(stream, &defines, grid(blocks)).bytes(ids).u64(count as u64).u64(rows).u32(ordered.shift)
    };
    start(&COUNT).buffer(&ordered.ends, Element::U32).go()?;
    let first_bucket = u32::try_from(table.first >> ordered.shift).unwrap_or(u32::MAX);
    let scan = SCAN.on(stream, &defines, grid(1)).buffer(&ordered.ends, Element::U32).u32(first_bucket);
    scan.f32(pieces_of(1 << ordered.shift, table.stride_bytes)).go()?;
    let launch = start(&SCATTER).buffer(&ordered.ends, Element::U32).bytes(&ordered.rows);
    launch.buffer(&ordered.places, Element::U32).go()?;
    Ok(ordered)
}

struct Lines<'a> {
    table: &'a Span,
    rows: u64,
    width_bytes: u64,
    /// None when row i is wanted i-th.
    ids: Option<(&'a Span, IdType)>,
    /// None when rows are written in the order of the ids.
    places: Option<&'a Span>,
    /// Where buckets end, and what rows touch.
    ends: Option<&'a Span>,
    count: u64,
    out: &'a Span,
}

fn launch_lines(stream: &Stream, plan: &Plan, lines: &Lines<'_>) -> Result<()> {
    let id_type = lines.ids.map_or(IdType::U32, |(_, id_type)| id_type);
    let in_order = lines.ids.is_none();
    let lists = LineLists { in_order, placed: lines.places.is_some(), with_ends: lines.ends.is_some() };
    let defines = line_defines(id_type, plan, lists);
    // A list that is not read still needs an address; the other list serves.
    let any = lines.ids.map(|(ids, _)| ids).or(lines.places).unwrap_or(lines.table);
    let grid = Grid { blocks: plan.blocks, threads: plan.threads, shared_bytes: 0 };
    let claimed = stream.scratch(8)?;
    if plan.claims {
        stream.fill(&claimed, 0)?;
    }
    LINES
        .on(stream, &defines, grid)
        .bytes(lines.table)
        .u64(lines.rows)
        .u64(lines.width_bytes)
        .bytes(any)
        .bytes(lines.places.unwrap_or(any))
        .buffer(lines.ends.unwrap_or(&claimed), Element::U32)
        .u64(lines.count)
        .u64(plan.lanes.chunks())
        .bytes(lines.out)
        .u64(lines.out.bytes() as u64 / lines.width_bytes)
        .buffer(&claimed, Element::U64)
        .go()?;
    Ok(())
}

fn id_defines(id_type: IdType) -> Defines {
    Defines::new().with("ID", id_type.in_kernels()).with("ID_BYTES", id_type.size_bytes())
}

/// The naive kernels' defines.
pub(super) fn unit_defines(id_type: IdType, unit_bytes: u64, line_bytes: u64) -> Defines {
    let unit = match unit_bytes {
        4 => "u32",
        2 => "u16",
        _ => "u8",
    };
    let line_units = line_bytes / unit_bytes;
    id_defines(id_type).with("UNIT", unit).with("UNIT_BYTES", unit_bytes).with("LINE_UNITS", line_units)
}

/// Which lists the line kernel reads besides the rows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LineLists {
    /// Row i is wanted i-th, and ids are not read.
    pub in_order: bool,
    /// Rows have places.
    pub placed: bool,
    /// It is known what the rows touch.
    pub with_ends: bool,
}

/// The line kernel's defines.
pub(super) fn line_defines(id_type: IdType, plan: &Plan, lists: LineLists) -> Defines {
    let LineLists { in_order, placed, with_ends } = lists;
    id_defines(id_type)
        .with("END_WORDS", if with_ends { (1u32 << BUCKETS_LOG2) + 1 } else { 0 })
        .with("IN_ORDER", u32::from(in_order))
        .with("LANES", plan.lanes.per_row)
        .with("DEPTH", plan.lanes.depth)
        .with("THREADS", plan.threads)
        .with("CLAIMS", u32::from(plan.claims))
        .with("PIECE_BYTES", plan.lanes.piece_bytes)
        .with("PLACE_BYTES", if placed { 4 } else { 0 })
}

/// The ordering kernels' defines.
pub(super) fn order_defines(id_type: IdType, row_type: IdType) -> Defines {
    id_defines(id_type)
        .with("ROW", row_type.in_kernels())
        .with("ROW_BYTES", row_type.size_bytes())
        .with("BUCKETS", 1u32 << BUCKETS_LOG2)
        .with("BUCKETS_AND_ONE", (1u32 << BUCKETS_LOG2) + 1)
        .with("THREADS", ORDER_THREADS)
}

pub(super) fn cut(span: &Span, offset: u64, bytes: u64) -> Result<Span, GatherError> {
    let part = usize::try_from(offset).ok().zip(usize::try_from(bytes).ok()).and_then(|(at, len)| span.part(at, len));
    part.ok_or(GatherError::OutputSize { out_bytes: span.bytes() as u64, count: bytes, width_bytes: 1 })
}
