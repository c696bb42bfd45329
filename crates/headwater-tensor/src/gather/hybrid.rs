//! GPU and CPU on one gather: the GPU visits the table from its front, CPU threads from its back, until they meet.
//!
//! On very large tables the GPU is bound by address translation at a fraction of the link, and the CPU, whose translation
//! is its own, can fill the rest. The split is by address, not by output: taking every other row from the GPU would leave
//! it nearly as many translations as before. Neither side's speed is predicted; both take the next segment when they are
//! free.

use std::ops::Range;
use std::sync::Mutex;

use headwater_cuda::{Event, Scratch, Span, SpareStream};
use headwater_memory::{Buffer, Pinned};

use super::cpu::gather_block;
use super::cuda::{GpuGather, Ordered, Placed, cut};
use super::plan::Plan;
use super::staged::index;
use super::{GatherError, IdSlice, IdType};
use crate::error::Result;
use crate::runtime::{staging_pool, with_threads};

/// Bytes of a CPU segment.
const SEGMENT_BYTES: u64 = 2 << 20;
/// Segments the GPU takes at a time, so that a launch's start and end are a small part of it.
const GPU_SEGMENTS: u64 = 8;
/// GPU launches kept queued; with one running, one more hides the launch.
const QUEUED: usize = 2;

/// Gathers with both.
pub(super) fn run(gather: &GpuGather<'_>, plan: &Plan) -> Result<()> {
    let table = gather.host_table.ok_or(GatherError::TableNotOnHost { variant: "hybrid" })?;
    let ordered = gather.order(gather.ids)?;
    let is_ordered = gather.stream.record()?;
    let work = Work::new(gather);
    let threads = gather.options.cpu_threads.max(1);
    let mut outcome = Ok(());
    std::thread::scope(|scope| {
        let helpers = scope.spawn(|| {
            with_threads(threads, || rayon::broadcast(|_| help(gather, plan, table, &ordered, &is_ordered, &work)))
        });
        outcome = drive(gather, plan, &ordered, &work);
        if outcome.is_err() {
            work.stop();
        }
        let helped = helpers.join().unwrap_or_default();
        outcome = helped.into_iter().fold(std::mem::replace(&mut outcome, Ok(())), Result::and);
    });
    outcome
}

/// Segments not yet taken, by index.
struct Work {
    left: Mutex<Range<u64>>,
    rows_per_segment: u64,
    rows: u64,
}

impl Work {
    fn new(gather: &GpuGather<'_>) -> Self {
        let rows_per_segment = (SEGMENT_BYTES / gather.width_bytes).max(1);
        let segments = gather.count().div_ceil(rows_per_segment);
        Self { left: Mutex::new(0..segments), rows_per_segment, rows: gather.count() }
    }

    /// The next rows from the front.
    fn take_front(&self) -> Option<Range<u64>> {
        self.take(|left| {
            let taken = left.start..(left.start + GPU_SEGMENTS).min(left.end);
            left.start = taken.end;
            taken
        })
    }

    /// The next rows from the back.
    fn take_back(&self) -> Option<Range<u64>> {
        self.take(|left| {
            left.end -= 1;
            left.end..left.end + 1
        })
    }

    fn take(&self, cut: impl FnOnce(&mut Range<u64>) -> Range<u64>) -> Option<Range<u64>> {
        let mut left = self.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let segments = (!left.is_empty()).then(|| cut(&mut left))?;
        Some(segments.start * self.rows_per_segment..(segments.end * self.rows_per_segment).min(self.rows))
    }

    /// Leaves nothing to take, so that the other side ends too.
    fn stop(&self) {
        *self.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = 0..0;
    }
}

/// Feeds the GPU a few launches at a time, so that what it has not begun is still free for the CPU.
fn drive(gather: &GpuGather<'_>, plan: &Plan, ordered: &Ordered, work: &Work) -> Result<()> {
    let mut queued: Vec<Event> = Vec::with_capacity(QUEUED + 1);
    while let Some(rows) = work.take_front() {
        ordered.part(&rows)?.gather(gather, plan)?;
        queued.push(gather.stream.record()?);
        if queued.len() > QUEUED {
            queued.remove(0).synchronize()?;
        }
    }
    Ok(())
}

/// One CPU thread: takes segments from the back, gathers them into pinned memory, and has the GPU put them in place.
fn help(
    gather: &GpuGather<'_>,
    plan: &Plan,
    table: &[u8],
    ordered: &Ordered,
    is_ordered: &Event,
    work: &Work,
) -> Result<()> {
    let helped = Helper::new(gather, is_ordered, work).and_then(|mut helper| {
        while let Some(rows) = work.take_back() {
            helper.segment(gather, plan, table, &ordered.part(&rows)?)?;
        }
        // The caller's stream must not run ahead of what this thread queued.
        gather.stream.wait_for(&helper.stream)?;
        Ok(())
    });
    if helped.is_err() {
        work.stop();
    }
    helped
}

/// What a CPU thread needs again and again.
struct Helper {
    stream: SpareStream,
    /// Where staged rows land on the device before they are spread to their places.
    landing: Scratch,
}

impl Helper {
    fn new(gather: &GpuGather<'_>, is_ordered: &Event, work: &Work) -> Result<Self> {
        let stream = gather.stream.gpu().spare_stream()?;
        stream.wait(is_ordered)?;
        let landing = stream.scratch(index(work.rows_per_segment * gather.width_bytes)?)?;
        Ok(Self { stream, landing })
    }

    fn segment(&mut self, gather: &GpuGather<'_>, plan: &Plan, table: &[u8], segment: &Segment) -> Result<()> {
        let (rows, width) = (segment.places.bytes() / 4, index(gather.width_bytes)?);
        let pool = staging_pool(gather.stream.gpu())?;
        let mut staging = Buffer::<u8, Pinned>::from_lease(pool.lease(rows * width)?)?;
        let mut small = vec![0u32; if segment.row_type == IdType::U32 { rows } else { 0 }];
        let mut large = vec![0u64; if segment.row_type == IdType::U64 { rows } else { 0 }];
        let ids = if segment.row_type == IdType::U32 {
            self.stream.download(&segment.rows, bytemuck::cast_slice_mut(&mut small))?;
            IdSlice::U32(&small)
        } else {
            self.stream.download(&segment.rows, bytemuck::cast_slice_mut(&mut large))?;
            IdSlice::U64(&large)
        };
        gather_block(table, width, ids, 0, staging.as_mut_slice()?, true)?;
        let landing = cut(&self.landing, 0, (rows * width) as u64)?;
        self.stream.copy(staging.whole(), &landing)?;
        let placed = Placed { rows: None, places: &segment.places };
        gather.lines(plan, &self.stream, &landing, placed, gather.out)
    }
}

/// Consecutive rows of the order.
struct Segment {
    rows: Span,
    row_type: IdType,
    places: Span,
}

impl Segment {
    /// Has the GPU gather them.
    fn gather(&self, gather: &GpuGather<'_>, plan: &Plan) -> Result<()> {
        let placed = Placed { rows: Some((&self.rows, self.row_type)), places: &self.places };
        gather.lines(plan, gather.stream, gather.table, placed, gather.out)
    }
}

impl Ordered {
    fn part(&self, rows: &Range<u64>) -> Result<Segment, GatherError> {
        let size = self.row_type.size_bytes() as u64;
        let count = rows.end - rows.start;
        Ok(Segment {
            rows: cut(&self.rows, rows.start * size, count * size)?,
            row_type: self.row_type,
            places: cut(&self.places, rows.start * 4, count * 4)?,
        })
    }
}
