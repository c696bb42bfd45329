//! The way to rows that are in no memory.
//!
//! Which rows those are only the GPU knows, so their numbers come to the host first. They are read into one half of a pinned
//! buffer, and a kernel takes them from there to their places while the other half is filled.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headwater_cuda::{Event, Gpu, Span, Stream};
use headwater_memory::{Buffer, Device, Pinned};
use headwater_tensor::gather::plan::TablePlace;
use headwater_tensor::gather::{IdType, Ordered};

use super::cuda::{Buffers, Build, List, SERVED_WORDS, TURN_WORDS, Tiers, serve};
use super::layout::{Layout, MOST_MEMBERS, index};
use super::tiered::{WINDOW, plan_rows};
use crate::disk::{DiskCounts, DiskRows};
use crate::error::{Error, Result};
use crate::rows::{RowFormat, Stored};

/// Bytes of a half: enough requests for a disk, and little next to a cache. Few in tests, which then use both.
const HALF_BYTES: usize = if cfg!(test) { 4096 } else { 8 << 20 };

/// Rows in a file, and the buffers they come through.
#[derive(Debug)]
pub(super) struct Beyond {
    disk: Arc<DiskRows>,
    stored: Stored,
    halves: Mutex<Halves>,
    rows: AtomicU64,
    busy_ns: AtomicU64,
    /// The kernel's own count goes here, where nobody looks.
    uncounted: Span,
}

#[derive(Debug)]
struct Halves {
    halves: [Half; 2],
    turn: usize,
}

#[derive(Debug)]
struct Half {
    rows: Buffer<u8, Pinned>,
    places: Buffer<u32, Pinned>,
    /// What must have passed before it may be filled again: the kernel that took its last rows, and nothing behind it.
    taken: Option<Event>,
}

/// Rows of the table that are on disk, with their places in the output.
#[derive(Debug, Default)]
pub(super) struct Absent {
    rows: Vec<u64>,
    places: Vec<u32>,
}

impl Beyond {
    /// None where there is no file.
    pub fn new(gpu: &Gpu, disk: Option<&Arc<DiskRows>>, stored: Stored) -> Result<Option<Self>> {
        let Some(disk) = disk else { return Ok(None) };
        let rows = (HALF_BYTES / disk.row_bytes()).max(1);
        let half = || -> Result<Half> {
            let (bytes, places) = (rows * disk.row_bytes(), rows);
            let (rows, places) = (Buffer::<_, Pinned>::new(gpu, bytes)?, Buffer::<_, Pinned>::new(gpu, places)?);
            Ok(Half { rows, places, taken: None })
        };
        let halves = Mutex::new(Halves { halves: [half()?, half()?], turn: 0 });
        let uncounted = Buffer::<u64, Device>::from_slice(&Stream::new(gpu)?, &[0; SERVED_WORDS])?.whole().clone();
        let (rows, busy_ns) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Some(Self { disk: Arc::clone(disk), stored, halves, rows, busy_ns, uncounted }))
    }

    pub fn prefetch(&self, rows: &[u64]) -> bool {
        self.disk.prefetch(rows)
    }

    /// Rows that were brought, and the time that took.
    pub fn brought(&self) -> (u64, Duration) {
        (self.rows.load(Relaxed), Duration::from_nanos(self.busy_ns.load(Relaxed)))
    }

    /// What the file gave to all who read it.
    pub fn counts(&self) -> DiskCounts {
        self.disk.counts()
    }

    /// The rows among `ordered` that no memory has. Waits for the stream.
    pub fn list(&self, stream: &Stream, ordered: &Ordered, layout: &Layout) -> Result<Absent> {
        let bucket = index(layout.host_end >> ordered.shift);
        // The first bucket that has some may have rows of memory too.
        let mut first = [0u32];
        if bucket > 0 {
            let end = ordered.ends.part((bucket - 1) * 4, 4).ok_or(Error::Table { why: "has no such bucket" })?;
            stream.download(&end, bytemuck::cast_slice_mut(&mut first))?;
        }
        let width = ordered.row_type.size_bytes();
        let count = ordered.places.bytes() / 4;
        let first = (first[0] as usize).min(count);
        let part = |span: &Span, width: usize| {
            span.part(first * width, (count - first) * width).ok_or(Error::Table { why: "has no such rows" })
        };
        let mut bytes = vec![0u64; ((count - first) * width).div_ceil(8)];
        let bytes: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut bytes)[..(count - first) * width];
        stream.download(&part(&ordered.rows, width)?, bytes)?;
        let mut places = vec![0u32; count - first];
        stream.download(&part(&ordered.places, 4)?, bytemuck::cast_slice_mut(&mut places))?;
        let on_disk = layout.host_end..layout.rows;
        let pairs = |rows: &mut dyn Iterator<Item = u64>| {
            let pairs = rows.zip(&places).filter(|(row, _)| on_disk.contains(row));
            let (rows, places) = pairs.map(|(row, place)| (row, *place)).unzip();
            Absent { rows, places }
        };
        Ok(match ordered.row_type {
            IdType::U32 | IdType::I32 => {
                pairs(&mut bytemuck::cast_slice::<u8, u32>(bytes).iter().map(|row| u64::from(*row)))
            }
            IdType::U64 | IdType::I64 => pairs(&mut bytemuck::cast_slice::<u8, u64>(bytes).iter().copied()),
        })
    }

    /// Reads the rows and queues their way to `out`.
    #[expect(unsafe_code, reason = "one half is filled while a kernel reads the other")]
    pub fn bring(
        &self,
        stream: &Stream,
        absent: &Absent,
        file_row: impl Fn(u64) -> u64,
        elements: usize,
        out_type: Stored,
        out: &Span,
    ) -> Result<()> {
        let format = RowFormat::packed(elements, self.stored);
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        let most = halves.halves[0].places.len();
        for (rows, places) in absent.rows.chunks(most).zip(absent.places.chunks(most)) {
            let turn = halves.turn;
            halves.turn = 1 - turn;
            let half = &mut halves.halves[turn];
            let rows: Vec<u64> = rows.iter().map(|row| file_row(*row)).collect();
            if let Some(taken) = half.taken.take() {
                taken.synchronize()?;
            }
            let begun = Instant::now();
            // SAFETY: work on a half is queued below alone, one thread at a time, and what was queued last has passed.
            let (room, room_of_places) = unsafe {
                (half.rows.part_mut(0..rows.len() * format.row_bytes())?, half.places.part_mut(0..places.len())?)
            };
            self.disk.fetch(&rows, room)?;
            room_of_places.copy_from_slice(places);
            self.busy_ns.fetch_add(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
            self.rows.fetch_add(rows.len() as u64, Relaxed);
            let handed = self.hand_over(stream, half, rows.len(), &format, out_type, out);
            // Also after an error: the kernel may have been queued.
            half.taken = Some(stream.record()?);
            handed?;
        }
        Ok(())
    }

    fn hand_over(
        &self,
        stream: &Stream,
        half: &Half,
        count: usize,
        format: &RowFormat,
        out_type: Stored,
        out: &Span,
    ) -> Result<()> {
        let same_out = if out_type == format.stored { out.pointer() } else { 0 };
        let addresses = same_out | half.rows.whole().pointer();
        let rows = count as u64;
        let plan = plan_rows(stream, format, addresses, rows, rows, TablePlace::Host);
        let turn = stream.scratch(8 * TURN_WORDS)?;
        stream.fill(&turn, 0)?;
        let tiers = Tiers {
            rows,
            replicated_end: 0,
            interleaved_end: 0,
            host_end: rows,
            width: format.row_bytes() as u64,
            stride: format.stride_bytes as u64,
            elements: format.elements as u64,
            count: rows,
            out_rows: (out.bytes() / (format.elements * out_type.bytes()).max(1)) as u64,
            chunks: plan.lanes.chunks(),
            cold_bucket: 0,
            link_blocks: u64::from(plan.blocks),
            window: WINDOW,
            scale_rows: 0,
            read_rows: 0,
            member_rows: [0; MOST_MEMBERS],
        };
        let build = Build {
            row_type: IdType::U32,
            lanes: plan.lanes,
            threads: plan.threads,
            stored: format.stored,
            out: out_type,
            members: 1,
            in_stretches: false,
        };
        let (host, places) = (half.rows.whole(), half.places.whole());
        let list = List::Staged { places };
        // Parts that have no rows are never read.
        let buffers = Buffers {
            replicated: host,
            members: &[],
            host,
            scales: &self.uncounted,
            list,
            out,
            turn: &turn,
            served: &self.uncounted,
            reads: None,
        };
        serve(stream, build, plan.blocks, &tiers, &buffers)
    }
}
