//! GPU and CPU on one gather: the GPU visits the table from its front, CPU threads from its back, until they meet.
//!
//! On very large tables the GPU is bound by address translation at a fraction of the link, and the CPU, whose translation
//! is its own, can fill the rest. The split is by address, not by output: taking every other row from the GPU would leave
//! it nearly as many translations as before. Neither side's speed is predicted; both take the next segment when they are
//! free.

use std::ops::Range;
use std::sync::Mutex;

use headwater_cuda::{Event, Span};
use headwater_memory::Buffer;

use super::courier::Courier;
use super::cuda::{GpuGather, Ordered, Placed, cut};
use super::plan::Plan;
use super::staged::{HostIds, index};
use super::{GatherError, IdSlice};
use crate::error::{Error, Result};
use crate::runtime::{unified_pool, with_threads};

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
    let together = Together { gather, plan, table, ordered: &ordered, is_ordered: &is_ordered, work: &work };
    std::thread::scope(|scope| {
        let helpers = scope.spawn(|| together.help());
        let driven = together.drive();
        if driven.is_err() {
            work.stop();
        }
        let helped = helpers.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        name_bad_id(gather, driven.and(helped))
    })
}

/// The CPU sees ordered ids, the stream knows them as they were written.
fn name_bad_id(gather: &GpuGather<'_>, outcome: Result<()>) -> Result<()> {
    if matches!(outcome, Err(Error::Gather(GatherError::IdOutOfRange { .. }))) {
        gather.stream.synchronize()?;
    }
    outcome
}

/// What both sides see.
struct Together<'a> {
    gather: &'a GpuGather<'a>,
    plan: &'a Plan,
    table: &'a [u8],
    ordered: &'a Ordered,
    is_ordered: &'a Event,
    work: &'a Work,
}

impl Together<'_> {
    /// Feeds the GPU a few launches at a time, so that what it has not begun is still free for the CPU.
    fn drive(&self) -> Result<()> {
        let (gather, mut queued) = (self.gather, Vec::with_capacity(QUEUED + 1));
        while let Some(rows) = self.work.take_front() {
            let (rows, places) = self.ordered.part(&rows)?;
            let placed = Placed { rows: Some((&rows, self.ordered.row_type)), places: &places, ends: None };
            gather.lines(self.plan, gather.stream, gather.table, placed, gather.out)?;
            queued.push(gather.stream.record()?);
            if queued.len() > QUEUED {
                queued.remove(0).synchronize()?;
            }
        }
        Ok(())
    }

    /// The CPU's side: fetches the order, then every thread takes segments from the back.
    fn help(&self) -> Result<()> {
        let helped = self.fetch_order().and_then(|order| {
            let ids = order.slice()?;
            let threads = self.gather.options.cpu_threads.max(1);
            let each = with_threads(threads, || rayon::broadcast(|_| self.help_alone(ids)));
            each.into_iter().fold(Ok(()), Result::and)
        });
        if helped.is_err() {
            self.work.stop();
        }
        helped
    }

    fn fetch_order(&self) -> Result<HostIds> {
        let gpu = self.gather.stream.gpu();
        let stream = gpu.spare_stream()?;
        stream.wait(self.is_ordered)?;
        let bytes = Buffer::from_lease(unified_pool(gpu)?.lease(self.ordered.rows.bytes())?)?;
        stream.copy(&self.ordered.rows, bytes.whole())?;
        Ok(HostIds::arriving(bytes, self.ordered.row_type))
    }

    fn help_alone(&self, ids: IdSlice<'_>) -> Result<()> {
        let (gather, width) = (self.gather, index(self.gather.width_bytes)?);
        let bytes = index(self.work.rows_per_segment)? * width;
        let mut courier = Courier::new(gather.stream.gpu(), bytes)?;
        courier.stream.wait(self.is_ordered)?;
        // Where rows land on the device before they are spread to their places.
        let landing = courier.stream.scratch(bytes)?;
        let brought = self.bring_segments(ids, &mut courier, &landing);
        // Also after an error: the caller's stream must not run ahead of what this thread queued.
        gather.stream.wait_for(&courier.stream)?;
        brought
    }

    fn bring_segments(&self, ids: IdSlice<'_>, courier: &mut Courier, landing: &Span) -> Result<()> {
        let (gather, width) = (self.gather, index(self.gather.width_bytes)?);
        while let Some(rows) = self.work.take_back() {
            let (_, places) = self.ordered.part(&rows)?;
            let count = index(rows.end - rows.start)?;
            let landing = cut(landing, 0, (count * width) as u64)?;
            courier.bring(self.table, width, ids.part(index(rows.start)?, count), 0, &landing)?;
            let placed = Placed { rows: None, places: &places, ends: None };
            gather.lines(self.plan, &courier.stream, &landing, placed, gather.out)?;
        }
        Ok(())
    }
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

impl Ordered {
    /// The rows of a range, and their places.
    fn part(&self, rows: &Range<u64>) -> Result<(Span, Span), GatherError> {
        let size = self.row_type.size_bytes() as u64;
        let count = rows.end - rows.start;
        Ok((cut(&self.rows, rows.start * size, count * size)?, cut(&self.places, rows.start * 4, count * 4)?))
    }
}
