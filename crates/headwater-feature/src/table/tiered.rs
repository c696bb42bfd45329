//! A table over several memories: made, and asked for rows.

use std::sync::atomic::AtomicBool;

use headwater_cuda::{Gpu, SmShare, Span, Stream};
use headwater_memory::{Buffer, Device};
use headwater_tensor::gather::plan::{GatherOptions, Plan, Shape, TablePlace, Variant, plan};
use headwater_tensor::gather::{IdType, Ordered, OrderedRows, order_rows};

use super::beyond::Beyond;
use super::counts::Served;
use super::cuda::{Buffers, Build, List, SERVED_WORDS, TURN_WORDS, Tiers, serve};
use super::layout::{Layout, MOST_MEMBERS, index};
use super::map::{DeviceMap, IdMap};
use super::parts::{HostHome, Parts, Placing, source_row};
use super::source::Source;
use crate::error::{Error, Result};
use crate::rows::{RowFormat, Stored};

/// Ids that one gather takes; places are 32 bits wide.
const MOST_IDS: u64 = 1 << 31;

/// Translations of host addresses under way at which a gather alone on a GPU is fastest. The same number stands in
/// `lines.cuh`.
pub const WINDOW: u64 = 256;

/// A table over several memories, for one GPU.
#[derive(Debug)]
pub struct TieredTable {
    pub(super) gpu: Gpu,
    pub(super) group: Vec<Gpu>,
    pub(super) format: RowFormat,
    pub(super) layout: Layout,
    pub(super) parts: Parts,
    /// None for tables that another process placed.
    pub(super) source: Option<Source>,
    /// From the ids people use to rows of the source.
    pub(super) id_map: Option<IdMap>,
    /// From rows of the source to rows of the table, when they are not the same.
    pub(super) moved_to: Option<IdMap>,
    /// Source rows of the rows that tiers hold copies of, when they are not the same.
    pub(super) moved: Option<Vec<u64>>,
    /// From ids to rows of the table, when they are not the same.
    pub(super) lookup: Option<DeviceMap>,
    /// The way to rows on disk.
    pub(super) beyond: Option<Beyond>,
    /// Whether a re-tiering failed half way.
    pub(super) is_torn: bool,
    /// Whether other processes may be reading it.
    pub(super) is_sent: AtomicBool,
    served: Span,
    /// How much of the GPU a gather may use.
    pub(super) share: SmShare,
    /// Translations of host addresses that a gather has under way.
    window: u64,
    /// Reads of every row, when they are counted.
    pub(super) reads: Option<Span>,
}

/// How a table is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Which rows in which memory.
    pub layout: Layout,
    /// Rows begin on lines of 128 bytes. Rows in host memory are copied for that.
    pub on_lines: bool,
    /// Where the part in host memory is.
    pub host: HostHome,
}

impl From<Layout> for Placement {
    fn from(layout: Layout) -> Self {
        Self { layout, on_lines: false, host: HostHome::InPlace }
    }
}

impl TieredTable {
    /// Puts the rows of `source`, in the order they have there, where `placement` says, to be read by `gpu`. `group` are the
    /// members of its group. Rows in host memory stay where they are and are registered.
    pub fn place(gpu: &Gpu, group: &[Gpu], source: &Source, placement: impl Into<Placement>) -> Result<Self> {
        let Placement { layout, on_lines, host } = placement.into();
        let packed = *source.format();
        let format = if on_lines { RowFormat::on_lines(packed.elements, packed.stored) } else { packed };
        check(group, source, &layout)?;
        let parts = Placing { gpu, group, source, format, layout, host, moved: None }.fill()?;
        let beyond = Beyond::new(gpu, source.disk().filter(|_| layout.disk_rows() > 0), format.stored)?;
        Self::over(gpu, group, format, layout, parts, beyond, Some(source.clone()))
    }

    /// A table over memories that are filled.
    pub(super) fn over(
        gpu: &Gpu,
        group: &[Gpu],
        format: RowFormat,
        layout: Layout,
        parts: Parts,
        beyond: Option<Beyond>,
        source: Option<Source>,
    ) -> Result<Self> {
        let stream = Stream::new(gpu)?;
        let served = Buffer::<u64, Device>::from_slice(&stream, &[0; SERVED_WORDS])?.whole().clone();
        Ok(Self {
            gpu: gpu.clone(),
            group: group.to_vec(),
            format,
            layout,
            parts,
            source,
            id_map: None,
            moved_to: None,
            moved: None,
            lookup: None,
            beyond,
            is_torn: false,
            is_sent: AtomicBool::new(false),
            served,
            share: SmShare::All,
            window: WINDOW,
            reads: None,
        })
    }

    /// The same table, reached by ids that `map` turns into rows of the source.
    pub fn with_id_map(mut self, map: IdMap) -> Result<Self> {
        map.check(self.source_rows())?;
        self.id_map = Some(map);
        self.lookup = self.make_lookup()?;
        Ok(self)
    }

    /// Gathers use this much of the GPU from now on.
    pub fn set_share(&mut self, share: SmShare) {
        self.share = share;
    }

    /// Gathers have so many translations of host addresses under way from now on. Alone on a GPU they are fastest with
    /// [`WINDOW`]; kernels beside them are slower the more are under way.
    pub fn set_window(&mut self, translations: u64) {
        self.window = translations.max(1);
    }

    /// Translations of host addresses that a gather has under way.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Where rows lie.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How rows are stored.
    #[must_use]
    pub fn format(&self) -> &RowFormat {
        &self.format
    }

    /// The GPU that reads it.
    #[must_use]
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Rows of the source. Where some were moved the table has copies besides.
    #[must_use]
    pub fn source_rows(&self) -> u64 {
        self.layout.rows - self.moved.as_ref().map_or(0, |moved| moved.len() as u64)
    }

    /// Queues `out[i] = row of ids[i]`, its elements as `out_type`. An id that is none is reported by the stream's next
    /// synchronisation, and its row comes out as zeros. Waits for the stream only where rows may be on disk; then a read
    /// that fails, or a bad id, is an error of this call, and the table stays usable.
    pub fn gather(&self, stream: &Stream, ids: &Span, id_type: IdType, out_type: Stored, out: &Span) -> Result<()> {
        let count = (ids.bytes() / id_type.size_bytes()) as u64;
        self.check_gather(stream, count, out_type, out)?;
        check_address("ids", ids, id_type.size_bytes())?;
        check_address("the output", out, out_type.bytes())?;
        if count == 0 || self.format.elements == 0 {
            return Ok(());
        }
        let Some(map) = &self.lookup else { return self.gather_rows(stream, (ids, id_type), out_type, out) };
        let rows = stream.scratch(index(count) * map.row_type.size_bytes())?;
        map.look_up(stream, (ids, id_type), &rows)?;
        self.gather_rows(stream, (&rows, map.row_type), out_type, out)
    }

    /// Asks for rows on disk that a later gather will want; whether that was taken on. Other ids cost little.
    pub fn prefetch(&self, ids: &[u64]) -> bool {
        let Some(beyond) = &self.beyond else { return true };
        if self.lookup.is_some() && self.id_map.is_none() && self.moved_to.is_none() {
            // Another process has the map.
            return false;
        }
        let row_of = |id: &u64| {
            let row = self.id_map.as_ref().map_or(Some(*id), |map| map.row(*id))?;
            self.moved_to.as_ref().map_or(Some(row), |map| map.row(row))
        };
        let on_disk = |row: &u64| (self.layout.host_end..self.layout.rows).contains(row);
        let rows: Vec<u64> = ids.iter().filter_map(row_of).filter(on_disk).map(|row| self.source_row(row)).collect();
        beyond.prefetch(&rows)
    }

    /// What was served so far. Waits for the stream.
    pub fn served(&self, stream: &Stream) -> Result<Served> {
        let mut words = [0u64; SERVED_WORDS];
        stream.download(&self.served, bytemuck::cast_slice_mut(&mut words))?;
        let brought = self.beyond.as_ref().map(Beyond::brought).unwrap_or_default();
        let reads = self.beyond.as_ref().map(Beyond::counts).unwrap_or_default();
        Ok(Served::new(words, self.format.row_bytes(), brought, reads))
    }

    /// The source row that is row `row` of the table.
    pub(super) fn source_row(&self, row: u64) -> u64 {
        source_row(self.moved.as_deref(), row)
    }

    /// From ids to rows of the table, in the GPU's memory.
    pub(super) fn make_lookup(&self) -> Result<Option<DeviceMap>> {
        let map = match (&self.id_map, &self.moved_to) {
            (None, None) => return Ok(None),
            (Some(map), None) | (None, Some(map)) => return Ok(Some(DeviceMap::new(&self.gpu, map)?)),
            (Some(ids), Some(moved_to)) => ids.then(moved_to, self.layout.rows),
        };
        Ok(Some(DeviceMap::new(&self.gpu, &map)?))
    }

    fn check_gather(&self, stream: &Stream, count: u64, out_type: Stored, out: &Span) -> Result<()> {
        if self.is_torn {
            let why = "is half placed: moving its rows failed; move them again";
            return Err(Error::Table { why });
        }
        if stream.gpu().ordinal() != self.gpu.ordinal() {
            return Err(Error::OtherGpu { found: stream.gpu().ordinal(), expected: self.gpu.ordinal() });
        }
        let expected = count.saturating_mul((self.format.elements * out_type.bytes()) as u64);
        if !self.format.stored.comes_out_as(out_type) || out.bytes() as u64 != expected {
            return Err(Error::Bytes { name: "the output", found: out.bytes() as u64, expected });
        }
        if count >= MOST_IDS {
            return Err(Error::Parameter { name: "ids", value: count as f64, expected: "below 2^31 at a time" });
        }
        Ok(())
    }

    fn gather_rows(&self, stream: &Stream, rows: (&Span, IdType), out_type: Stored, out: &Span) -> Result<()> {
        let has_cold = self.layout.interleaved_end < self.layout.rows;
        if !has_cold {
            return self.serve(stream, List::Ids(rows.0), rows, None, out_type, out);
        }
        let sms = stream.gpu().facts().sms;
        let Layout { rows: all, interleaved_end: first, .. } = self.layout;
        let table = OrderedRows { rows: all, first, stride_bytes: self.format.stride_bytes as u64 };
        let ordered = order_rows(stream, rows.0, rows.1, &table, sms)?;
        let list = List::Ordered { rows: &ordered.rows, places: &ordered.places, ends: &ordered.ends };
        let beyond = self.beyond.as_ref();
        // Known before memory is read, so that the disk and the GPU are busy at the same time.
        let absent = beyond.map(|beyond| beyond.list(stream, &ordered, &self.layout)).transpose()?;
        self.serve(stream, list, (&ordered.rows, ordered.row_type), Some(&ordered), out_type, out)?;
        if let (Some(beyond), Some(absent)) = (beyond, absent) {
            beyond.bring(stream, &absent, |row| self.source_row(row), self.format.elements, out_type, out)?;
        }
        Ok(())
    }

    fn serve(
        &self,
        stream: &Stream,
        list: List<'_>,
        rows: (&Span, IdType),
        ordered: Option<&Ordered>,
        out_type: Stored,
        out: &Span,
    ) -> Result<()> {
        let count = (rows.0.bytes() / rows.1.size_bytes()) as u64;
        let layout = &self.layout;
        let is_ordered = ordered.is_some();
        let plan = self.plan(stream, count, out_type, out, is_ordered);
        let turn = stream.scratch(8 * TURN_WORDS)?;
        stream.fill(&turn, 0)?;
        // Two blocks an SM.
        let most_blocks = 2 * self.share.sms(stream.gpu().facts().sms);
        let link_blocks = if is_ordered { plan.blocks.min(most_blocks) } else { 0 };
        let has_warm = layout.interleaved_end > 0;
        let all_blocks = most_blocks.max(link_blocks + 1);
        let blocks = if has_warm || !is_ordered { all_blocks } else { link_blocks };
        let tiers = Tiers {
            rows: layout.rows,
            replicated_end: layout.replicated_end,
            interleaved_end: layout.interleaved_end,
            host_end: layout.host_end,
            width: self.format.row_bytes() as u64,
            stride: self.format.stride_bytes as u64,
            elements: self.format.elements as u64,
            count,
            out_rows: count,
            chunks: plan.lanes.chunks(),
            cold_bucket: ordered.map_or(0, |ordered| layout.interleaved_end >> ordered.shift),
            link_blocks: u64::from(link_blocks),
            window: self.window,
            scale_rows: (self.parts.scales.bytes() / 4) as u64,
            read_rows: self.reads.as_ref().map_or(0, |reads| (reads.bytes() / 4) as u64),
            member_rows: self.member_rows(),
        };
        let build = Build {
            row_type: rows.1,
            lanes: plan.lanes,
            threads: plan.threads,
            stored: self.format.stored,
            out: out_type,
            members: layout.members,
            in_stretches: layout.stretches.is_some(),
        };
        let Parts { replicated, members, host, scales, .. } = &self.parts;
        let (served, reads, turn) = (&self.served, self.reads.as_ref(), &*turn);
        let buffers = Buffers { replicated, members, host, scales, list, out, turn, served, reads };
        serve(stream, build, blocks, &tiers, &buffers)
    }

    fn member_rows(&self) -> [u64; MOST_MEMBERS] {
        std::array::from_fn(|at| if at < self.parts.members.len() { self.layout.share_rows(at as u64) } else { 0 })
    }

    /// Lanes and threads, as the row gather has them for a table of one memory.
    fn plan(&self, stream: &Stream, count: u64, out_type: Stored, out: &Span, has_host: bool) -> Plan {
        let same_out = if out_type == self.format.stored { out.pointer() } else { 0 };
        let Parts { replicated, members, host, .. } = &self.parts;
        let parts = members.iter().chain([replicated, host]).filter(|part| part.bytes() > 0);
        let addresses = parts.fold(same_out, |bits, part| bits | part.pointer());
        let place = if has_host { TablePlace::Host } else { TablePlace::Device };
        plan_rows(stream, &self.format, addresses, self.layout.rows, count, place)
    }
}

/// How `count` rows at `addresses` are copied, as the row gather decides it.
pub(super) fn plan_rows(
    stream: &Stream,
    format: &RowFormat,
    addresses: u64,
    table_rows: u64,
    count: u64,
    place: TablePlace,
) -> Plan {
    let facts = stream.gpu().facts();
    let widths = format.row_bytes() as u64 | format.stride_bytes as u64;
    let shape = Shape {
        table_rows,
        width_bytes: format.row_bytes() as u64,
        count,
        alignment_bytes: 1 << (addresses | widths).trailing_zeros().min(7),
        place,
        link_gb_per_s: facts.link_gb_per_s(),
        sms: facts.sms,
    };
    let variant = if place == TablePlace::Host { Variant::Sorted } else { Variant::Aligned };
    plan(&shape, &GatherOptions { variant, ..GatherOptions::default() })
}

/// A kernel that meets an element across its alignment does not fail alone: the whole context is lost.
fn check_address(name: &'static str, span: &Span, element_bytes: usize) -> Result<()> {
    let off_bytes = span.pointer() % element_bytes as u64;
    if off_bytes == 0 { Ok(()) } else { Err(Error::Alignment { name, element_bytes, off_bytes }) }
}

fn check(group: &[Gpu], source: &Source, layout: &Layout) -> Result<()> {
    layout.checked()?;
    if source.rows() < layout.rows {
        let width = source.format().stride_bytes as u64;
        let (found, expected) = (source.rows() * width, layout.rows.saturating_mul(width));
        return Err(Error::Bytes { name: "the table", found, expected });
    }
    if layout.disk_rows() > 0 && source.disk().is_none() {
        return Err(Error::Table { why: "has all rows in memory, so none can be left on disk" });
    }
    if group.len() as u64 != layout.members {
        let (found, expected) = (group.len() as u64, layout.members);
        return Err(Error::Bytes { name: "the group, in members,", found, expected });
    }
    Ok(())
}
