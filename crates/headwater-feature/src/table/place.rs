//! A table being placed, and asked for rows.

use headwater_cuda::{Allocation, Gpu, Span, Stream};
use headwater_memory::{Buffer, Device, Foreign, Uploader, pin};
use headwater_tensor::gather::plan::{GatherOptions, Plan, Shape, TablePlace, Variant, plan};
use headwater_tensor::gather::{GpuGather, IdType, order_rows};
use serde::Serialize;

use super::cuda::{Buffers, Build, TIERS, Tiers, serve};
use super::layout::Layout;
use crate::error::{Error, Result};
use crate::rows::{RowFormat, Stored};

/// Ids that one gather takes; places are 32 bits wide.
const MOST_IDS: u64 = 1 << 31;

/// A table over several memories, for one GPU. Clones share it.
#[derive(Debug, Clone)]
pub struct TieredTable {
    format: RowFormat,
    layout: Layout,
    gpu: Gpu,
    replicated: Span,
    /// One share a member.
    members: Vec<Span>,
    host: Span,
    /// One a row for int8, else none.
    scales: Span,
    /// From the ids people use to rows.
    id_map: Option<(Span, IdType)>,
    /// Rows that each tier has served.
    served: Span,
}

/// Rows that each tier has served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Served {
    /// From the GPU's own copy.
    pub replicated: u64,
    /// From members of the group, itself included.
    pub interleaved: u64,
    /// From host memory.
    pub host: u64,
}

impl TieredTable {
    /// Puts `rows`, in the order of heat, where `layout` says, to be read by `gpu`. `group` are the members of its group.
    /// The part in host memory is not copied. `scales` has one number a row for int8, and none for other formats.
    pub fn place(
        gpu: &Gpu,
        group: &[Gpu],
        rows: &Foreign,
        scales: &[f32],
        format: RowFormat,
        layout: Layout,
    ) -> Result<Self> {
        check(group, rows, scales, &format, &layout)?;
        let part = |first: u64, end: u64| {
            let range = index(first) * format.stride_bytes..index(end) * format.stride_bytes;
            let (name, expected) = ("the table", range.end as u64);
            let found = rows.as_slice().len() as u64;
            rows.part(range).ok_or(Error::Bytes { name, found, expected })
        };
        let replicated = upload(gpu, part(0, layout.replicated_end)?.as_slice())?;
        let members = group.iter().enumerate().map(|(member, gpu)| upload_share(gpu, rows, &format, &layout, member));
        let members = members.collect::<Result<Vec<_>>>()?;
        connect(gpu, group)?;
        let host = pin(gpu, &part(layout.interleaved_end, layout.rows)?)?;
        let stream = Stream::new(gpu)?;
        let scales = Buffer::from_slice(&stream, scales)?.whole().clone();
        let served = Buffer::<u64, Device>::from_slice(&stream, &[0; TIERS])?.whole().clone();
        let gpu = gpu.clone();
        Ok(Self { format, layout, gpu, replicated, members, host, scales, id_map: None, served })
    }

    /// The same table, reached by ids that `map` turns into rows.
    pub fn with_id_map(self, stream: &Stream, map: &[u32]) -> Result<Self> {
        if let Some(&row) = map.iter().find(|row| u64::from(**row) >= self.layout.rows) {
            return Err(Error::Parameter { name: "id map", value: f64::from(row), expected: "rows of the table" });
        }
        let map = Buffer::<u32, Device>::from_slice(stream, map)?;
        Ok(Self { id_map: Some((map.whole().clone(), IdType::U32)), ..self })
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

    /// Queues `out[i] = row of ids[i]`, its elements as `out_type`. An id that is none is reported by the stream's next
    /// synchronisation, and its row comes out as zeros.
    pub fn gather(&self, stream: &Stream, ids: &Span, id_type: IdType, out_type: Stored, out: &Span) -> Result<()> {
        if stream.gpu().ordinal() != self.gpu.ordinal() {
            return Err(Error::OtherGpu { found: stream.gpu().ordinal(), expected: self.gpu.ordinal() });
        }
        let count = (ids.bytes() / id_type.size_bytes()) as u64;
        let expected = count.saturating_mul((self.format.elements * out_type.bytes()) as u64);
        if out_type == Stored::I8 || out.bytes() as u64 != expected {
            return Err(Error::Bytes { name: "the output", found: out.bytes() as u64, expected });
        }
        if count == 0 || self.format.elements == 0 {
            return Ok(());
        }
        if count >= MOST_IDS {
            return Err(Error::Parameter { name: "ids", value: count as f64, expected: "below 2^31 at a time" });
        }
        match &self.id_map {
            None => self.gather_rows(stream, ids, id_type, out_type, out),
            Some((map, row_type)) => {
                let rows = stream.scratch(index(count) * row_type.size_bytes())?;
                let (map_rows, width_bytes) = ((map.bytes() / 4) as u64, row_type.size_bytes() as u64);
                let (table, out_rows, options) = (map, &rows, GatherOptions::default());
                let lookup = GpuGather {
                    stream,
                    table,
                    host_table: None,
                    rows: map_rows,
                    width_bytes,
                    ids,
                    id_type,
                    out: out_rows,
                    options,
                };
                lookup.run()?;
                self.gather_rows(stream, &rows, *row_type, out_type, out)
            }
        }
    }

    /// Rows served so far. Waits for the stream.
    pub fn served(&self, stream: &Stream) -> Result<Served> {
        let mut counts = [0u64; TIERS];
        stream.download(&self.served, bytemuck::cast_slice_mut(&mut counts))?;
        let [replicated, interleaved, host] = counts;
        Ok(Served { replicated, interleaved, host })
    }

    fn gather_rows(&self, stream: &Stream, rows: &Span, row_type: IdType, out_type: Stored, out: &Span) -> Result<()> {
        let count = (rows.bytes() / row_type.size_bytes()) as u64;
        let has_host = self.layout.host_rows() > 0;
        let plan = self.plan(stream, count, out_type, out, has_host);
        let claimed = stream.scratch(8)?;
        stream.fill(&claimed, 0)?;
        let sms = stream.gpu().facts().sms;
        let ordered = if has_host { Some(order_rows(stream, rows, row_type, self.layout.rows, sms)?) } else { None };
        let (ordered_rows, ordered_type) = ordered.as_ref().map_or((rows, row_type), |o| (&*o.rows, o.row_type));
        let cold_bucket = ordered.as_ref().map_or(0, |o| self.layout.interleaved_end >> o.shift);
        let link_blocks = if has_host { plan.blocks } else { 0 };
        let has_warm = self.layout.interleaved_end > 0;
        let warm_blocks = if has_warm || !has_host { (2 * sms).saturating_sub(link_blocks).max(1) } else { 0 };
        let tiers = Tiers {
            rows: self.layout.rows,
            replicated_end: self.layout.replicated_end,
            interleaved_end: self.layout.interleaved_end,
            width: self.format.row_bytes() as u64,
            stride: self.format.stride_bytes as u64,
            elements: self.format.elements as u64,
            count,
            chunks: plan.lanes.chunks(),
            link_blocks: u64::from(link_blocks),
            cold_bucket,
            replicated_rows: self.layout.replicated_end,
            share_rows: self.layout.share_rows(),
            host_rows: self.layout.host_rows(),
            scale_rows: (self.scales.bytes() / 4) as u64,
        };
        let build = Build {
            row_type: ordered_type,
            ordered: has_host,
            lanes: plan.lanes,
            threads: plan.threads,
            stored: self.format.stored,
            out: out_type,
            members: self.layout.members,
        };
        let buffers = Buffers {
            replicated: &self.replicated,
            members: &self.members,
            host: &self.host,
            scales: &self.scales,
            rows: ordered_rows,
            order: ordered.as_ref().map(|o| (&*o.places, &*o.ends)),
            out,
            claimed: &claimed,
            served: &self.served,
        };
        serve(stream, build, link_blocks + warm_blocks, &tiers, &buffers)
    }

    /// Lanes and threads, as the row gather has them for a table of one memory.
    fn plan(&self, stream: &Stream, count: u64, out_type: Stored, out: &Span, has_host: bool) -> Plan {
        let facts = stream.gpu().facts();
        let same_out = if out_type == self.format.stored { out.pointer() } else { 0 };
        let parts = self.members.iter().chain([&self.replicated, &self.host]).filter(|part| part.bytes() > 0);
        let addresses = parts.fold(same_out, |bits, part| bits | part.pointer());
        let widths = self.format.row_bytes() as u64 | self.format.stride_bytes as u64;
        let shape = Shape {
            table_rows: self.layout.rows,
            width_bytes: self.format.row_bytes() as u64,
            count,
            alignment_bytes: 1 << (addresses | widths).trailing_zeros().min(7),
            place: if has_host { TablePlace::Host } else { TablePlace::Device },
            link_gb_per_s: facts.link_gb_per_s(),
            sms: facts.sms,
        };
        let variant = if has_host { Variant::Sorted } else { Variant::Aligned };
        plan(&shape, &GatherOptions { variant, ..GatherOptions::default() })
    }
}

fn check(group: &[Gpu], rows: &Foreign, scales: &[f32], format: &RowFormat, layout: &Layout) -> Result<()> {
    let expected = layout.rows.saturating_mul(format.stride_bytes as u64);
    let found = rows.as_slice().len() as u64;
    if found < expected {
        return Err(Error::Bytes { name: "the table", found, expected });
    }
    let wanted = if format.stored == Stored::I8 { layout.rows } else { 0 };
    if scales.len() as u64 != wanted {
        return Err(Error::Bytes { name: "scales", found: scales.len() as u64 * 4, expected: wanted * 4 });
    }
    if group.len() as u64 != layout.members {
        let (found, expected) = (group.len() as u64, layout.members);
        return Err(Error::Bytes { name: "the group, in members,", found, expected });
    }
    Ok(())
}

fn upload(gpu: &Gpu, bytes: &[u8]) -> Result<Span> {
    let span = Span::whole(Allocation::shareable(gpu, bytes.len())?);
    let mut uploader = Uploader::new(gpu, bytes.len())?;
    uploader.copy(bytes, &span)?;
    uploader.finish()?;
    Ok(span)
}

/// Every `members`-th row, from the member's own on.
fn upload_share(gpu: &Gpu, rows: &Foreign, format: &RowFormat, layout: &Layout, member: usize) -> Result<Span> {
    let (stride, bytes) = (format.stride_bytes, rows.as_slice());
    let span = Span::whole(Allocation::shareable(gpu, index(layout.share_rows()) * stride)?);
    let mut uploader = Uploader::new(gpu, span.bytes())?;
    uploader.fill(&span, |at, part| {
        // Parts need not begin where rows do.
        let (mut at, mut part) = (at, part);
        while !part.is_empty() {
            let (inside, length) = (at % stride, (stride - at % stride).min(part.len()));
            let (now, later) = part.split_at_mut(length);
            match layout.row_of_member(member as u64, (at / stride) as u64) {
                Some(row) => now.copy_from_slice(&bytes[index(row) * stride + inside..][..length]),
                None => now.fill(0),
            }
            (at, part) = (at + length, later);
        }
    })?;
    uploader.finish()?;
    Ok(span)
}

fn connect(gpu: &Gpu, group: &[Gpu]) -> Result<()> {
    for member in group.iter().filter(|member| member.ordinal() != gpu.ordinal()) {
        gpu.enable_access(member)?;
    }
    Ok(())
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
