//! Negatives on the GPU: the launches, and the promises about the kernels' reach.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Kernel, KernelStruct, Param, Scalar, Scratch, Source, Stream};
use headwater_memory::{Buffer, Device};

use super::super::lists::{GpuRelation, HEADER, LISTS, NEIGHBOURS, OFFSETS};
use super::{Negatives, Pairs, Sources, Strictness};
use crate::error::Result;
use crate::random::{CUDA_HEADER, Key};
use crate::scan::{HEADER as SCAN, Tickets, persistent_grid};
use crate::topology::{Layout, index};

static TEXT: Source =
    Source { name: "negative.cu", text: include_str!("negative.cu"), headers: &[CUDA_HEADER, SCAN, HEADER] };

// SAFETY: lists are read as `lists.cuh` bounds them, given sources below `d.given`, and what is written is below `d.count`.
static DRAW: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "draw",
        &[
            LISTS,
            OFFSETS,
            NEIGHBOURS,
            Param::Struct("d", size_of::<Draw>()),
            Param::Read("given", Element::U64, &["d.1"]),
            Param::Write("sources", Element::U64, &["d.0"]),
            Param::Write("targets", Element::U64, &["d.0"]),
            Param::Write("is_free", Element::U32, &["d.0"]),
            Param::Write("unresolved", Element::U64, &[]),
        ],
    )
};
// SAFETY: pairs are read below `count`, written below `room`, and words touched below `tiles`.
static CLOSE_GAPS: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "close_gaps",
        &[
            Param::Value("count", Scalar::U64),
            Param::Read("is_free", Element::U32, &["count"]),
            Param::Read("sources", Element::U64, &["count"]),
            Param::Read("targets", Element::U64, &["count"]),
            Param::Value("room", Scalar::U64),
            Param::Write("free_sources", Element::U64, &["room"]),
            Param::Write("free_targets", Element::U64, &["room"]),
            Param::Write("ticket", Element::U64, &[]),
            Param::Write("words", Element::U64, &["tiles"]),
            Param::Value("tiles", Scalar::U64),
        ],
    )
};

const THREADS: u32 = 256;
const ITEMS: u32 = 8;

/// How pairs are drawn. The same struct stands in `negative.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Draw {
    key: u64,
    sources: u64,
    targets: u64,
    lookups: u64,
    rows_are_targets: u64,
    count: u64,
    given: u64,
    pairs: u64,
}

// SAFETY: eight words in the order of the text, which writes below `count` and reads given sources below `given`.
unsafe impl KernelStruct for Draw {
    fn extents(&self) -> Vec<u64> {
        vec![self.count, self.given]
    }
}

/// Pairs that are no edges, in GPU memory.
#[derive(Debug)]
pub struct DeviceNegatives {
    /// Where they would begin.
    pub sources: Buffer<u64, Device>,
    /// Where they would end.
    pub targets: Buffer<u64, Device>,
    /// Pairs that hit an edge in every trial, and are left out.
    pub unresolved: u64,
}

impl DeviceNegatives {
    /// The same pairs in host memory, once `stream` has come this far.
    pub fn to_host(&self, stream: &Stream) -> Result<Negatives> {
        let (sources, targets) = (self.sources.to_vec(stream)?, self.targets.to_vec(stream)?);
        Ok(Negatives { sources, targets, unresolved: self.unresolved })
    }
}

impl GpuRelation {
    /// What [`negative_edges`](super::negative_edges) returns, to the bit, in GPU memory. Strict draws wait once, for the
    /// number of those that could not be resolved; loose ones do not.
    pub fn negative_edges(
        &self,
        stream: &Stream,
        count: u64,
        strictness: Strictness,
        key: Key,
    ) -> Result<DeviceNegatives> {
        let pairs = Pairs { topology: self.topology(), strictness, key, sources: Sources::Drawn };
        if pairs.is_empty() {
            let nothing = || Buffer::on_stream(stream, 0);
            return Ok(DeviceNegatives { sources: nothing()?, targets: nothing()?, unresolved: count });
        }
        let (drawn, is_free) = self.draw(stream, &pairs, count)?;
        if drawn.unresolved == 0 { Ok(drawn) } else { close_gaps(stream, &drawn, &is_free) }
    }

    /// As [`Pairs::draw`]: those that could not be resolved stand where they are. Also says which those are.
    pub(in crate::sample) fn draw(
        &self,
        stream: &Stream,
        pairs: &Pairs<'_>,
        count: u64,
    ) -> Result<(DeviceNegatives, Scratch)> {
        self.placed().check_stream(stream)?;
        let [sources, targets] = [(); 2].map(|()| Buffer::<u64, Device>::on_stream(stream, index(count)));
        let (sources, targets) = (sources?, targets?);
        let is_free = stream.scratch(index(count).saturating_mul(4))?;
        let unresolved = stream.scratch(8)?;
        stream.fill(&unresolved, 0)?;
        let (of, each) = match pairs.sources {
            Sources::Drawn => (&[][..], 0),
            Sources::Each { of, pairs } => (of, pairs),
        };
        let given = Buffer::<u64, Device>::from_slice(stream, of)?;
        let draw = Draw {
            key: pairs.key.bits(),
            sources: pairs.source_count(),
            targets: pairs.target_count(),
            lookups: pairs.lookups(),
            rows_are_targets: u64::from(pairs.topology.layout() == Layout::Csc),
            count,
            given: of.len() as u64,
            pairs: each,
        };
        let (defines, grid) = (defines(), persistent_grid(stream, count.div_ceil(u64::from(THREADS)), THREADS));
        let launch = self.bind(DRAW.on(stream, &defines, grid))?.structure(&draw).buffer(given.whole(), Element::U64);
        let launch = launch.buffer(sources.whole(), Element::U64).buffer(targets.whole(), Element::U64);
        launch.buffer(&is_free, Element::U32).buffer(&unresolved, Element::U64).go()?;
        let mut found = [0u64];
        if draw.lookups > 0 {
            stream.download(&unresolved, bytemuck::cast_slice_mut(&mut found))?;
        }
        Ok((DeviceNegatives { sources, targets, unresolved: found[0] }, is_free))
    }
}

/// The pairs that are free, in their order.
fn close_gaps(stream: &Stream, drawn: &DeviceNegatives, is_free: &Scratch) -> Result<DeviceNegatives> {
    let count = drawn.sources.len() as u64;
    let room = count.saturating_sub(drawn.unresolved);
    let [sources, targets] = [(); 2].map(|()| Buffer::<u64, Device>::on_stream(stream, index(room)));
    let made = DeviceNegatives { sources: sources?, targets: targets?, unresolved: drawn.unresolved };
    let tickets = Tickets::new(stream, count.div_ceil(u64::from(THREADS * ITEMS)))?;
    stream.fill(&tickets.memory, 0)?;
    let (defines, grid) = (defines(), persistent_grid(stream, tickets.tiles, THREADS));
    let launch = CLOSE_GAPS.on(stream, &defines, grid).u64(count).buffer(is_free, Element::U32);
    let launch = launch.buffer(drawn.sources.whole(), Element::U64).buffer(drawn.targets.whole(), Element::U64);
    let launch = launch.u64(room).buffer(made.sources.whole(), Element::U64).buffer(made.targets.whole(), Element::U64);
    let launch = launch.buffer(&tickets.ticket, Element::U64).buffer(&tickets.words, Element::U64);
    launch.u64(tickets.tiles).go()?;
    Ok(made)
}

fn defines() -> Defines {
    Defines::new().with("THREADS", THREADS).with("ITEMS", ITEMS)
}

/// The texts of this folder with the defines they are launched with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    vec![(&TEXT, defines())]
}
