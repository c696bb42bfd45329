//! The pass on the GPU: the launch, and the promise about the kernel's reach.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use std::sync::{Mutex, PoisonError};

use headwater_cuda::{Defines, Element, Kernel, Param, Scalar, Source, Stream};
use headwater_memory::{Buffer, Device, Uploader};

use super::NodeScores;
use crate::error::Result;
use crate::placed::PlacedGraph;
use crate::sample::GpuRelation;
use crate::sample::lists::{HEADER, LISTS, NEIGHBOURS, OFFSETS};
use crate::scan::persistent_grid;

static TEXT: Source = Source { name: "push.cu", text: include_str!("push.cu"), headers: &[HEADER] };

// SAFETY: lists are read as `lists.cuh` bounds them, offsets below `lists.rows` and ids below `lists.edges`; contributions
// are read below `targets` and sums touched below `sources`.
static PUSH: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "push",
        &[
            LISTS,
            OFFSETS,
            NEIGHBOURS,
            Param::Read("contributions", Element::F32, &["targets"]),
            Param::Value("targets", Scalar::U64),
            Param::Write("sums", Element::U64, &["sources"]),
            Param::Value("sources", Scalar::U64),
        ],
    )
};

const THREADS: u32 = 256;
/// Edges a block takes at a time.
const TILE: u32 = 2048;
/// What goes to the GPU and back at a time.
const FERRY_BYTES: usize = 16 << 20;

/// Lists where a GPU reads them, and the stream that passes run on.
#[derive(Debug)]
pub(super) struct GpuLists {
    relations: Vec<GpuRelation>,
    stream: Stream,
    /// Takes contributions there and sums back.
    ferry: Mutex<Uploader>,
}

/// One pass, its sums in GPU memory.
pub(super) struct GpuPass<'a> {
    lists: &'a GpuLists,
    sums: Vec<Buffer<u64, Device>>,
}

impl GpuLists {
    /// Fails when work on `stream` cannot read the graph.
    pub(super) fn new(placed: &PlacedGraph, stream: &Stream) -> Result<Self> {
        placed.check_stream(stream)?;
        let relations = (0..placed.graph().relations().len()).map(|at| {
            // Arrays that are spread over a group are refused here and not by the first pass.
            placed.relations()[at].offsets.whole()?;
            GpuRelation::new(placed, at)
        });
        let relations = relations.collect::<Result<_>>()?;
        let ferry = Mutex::new(Uploader::new(stream.gpu(), FERRY_BYTES)?);
        Ok(Self { relations, stream: stream.clone(), ferry })
    }

    /// Sums of nothing, one a node of each type.
    pub(super) fn begin(&self, counts: &[usize]) -> Result<GpuPass<'_>> {
        let zeros = |&count: &usize| {
            let sums = Buffer::on_stream(&self.stream, count)?;
            self.stream.fill(sums.whole(), 0)?;
            Ok(sums)
        };
        Ok(GpuPass { lists: self, sums: counts.iter().map(zeros).collect::<Result<_>>()? })
    }
}

impl GpuPass<'_> {
    /// Adds what a relation's targets contribute to the sums of sources, which are of type `source`.
    pub(super) fn add(&self, relation: usize, source: usize, contributions: &[f32]) -> Result<()> {
        let (stream, lists, sums) = (&self.lists.stream, &self.lists.relations[relation], &self.sums[source]);
        let tiles = lists.topology().edges().div_ceil(u64::from(TILE));
        if tiles == 0 {
            return Ok(());
        }
        let targets = contributions.len() as u64;
        let there = Buffer::<f32, Device>::shareable(stream.gpu(), contributions.len())?;
        let mut ferry = self.lists.ferry.lock().unwrap_or_else(PoisonError::into_inner);
        ferry.copy(bytemuck::cast_slice(contributions), there.whole())?;
        ferry.wait()?;
        let defines = defines();
        let launch = lists.bind(PUSH.on(stream, &defines, persistent_grid(stream, tiles, THREADS)))?;
        let launch = launch.buffer(there.whole(), Element::F32).u64(targets);
        Ok(launch.buffer(sums.whole(), Element::U64).u64(sums.len() as u64).go()?)
    }

    /// Waits, and writes the sums to host memory.
    pub(super) fn end(self, sums: &mut NodeScores) -> Result<()> {
        self.lists.stream.synchronize()?;
        let mut ferry = self.lists.ferry.lock().unwrap_or_else(PoisonError::into_inner);
        for (from, to) in self.sums.iter().zip(sums) {
            ferry.bring_back(from.whole(), bytemuck::cast_slice_mut(to))?;
        }
        Ok(())
    }
}

fn defines() -> Defines {
    Defines::new().with("THREADS", THREADS).with("TILE", TILE)
}

/// The texts of this folder with the defines they are launched with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    vec![(&TEXT, defines())]
}
