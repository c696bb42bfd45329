//! Links around the GPU's sampler: the launch that names trees, and the promise about its reach.
#![allow(unsafe_code, reason = "kernels are declared beside their text")]

use headwater_cuda::{Defines, Element, Kernel, Param, Scalar, Source, Span, Stream};

use super::super::exclude::Excluded;
use super::super::gpu::{DeviceSample, GpuNeighbourSampler};
use super::super::lists::GpuRelation;
use super::super::negative::{Negatives, Strictness};
use super::ends::{Asked, Owner};
use super::{LinkSample, LinkSeeds, Negative};
use crate::error::Result;
use crate::random::Key;
use crate::scan::persistent_grid;
use crate::width::IdWidth;

static TEXT: Source = Source { name: "trees.cu", text: include_str!("trees.cu"), headers: &[] };

// SAFETY: trees are touched below `count`.
static NAME_TREES: Kernel = unsafe {
    Kernel::declare(
        &TEXT,
        "name_trees",
        &[
            Param::Write("trees", Element::U32, &["count"]),
            Param::Value("count", Scalar::U64),
            Param::Value("sources", Scalar::U64),
            Param::Value("positives", Scalar::U64),
            Param::Value("triplets", Scalar::U64),
        ],
    )
};

const THREADS: u32 = 256;

/// A neighbourhood of edges whose nodes and edges are in GPU memory: what [`LinkSample`] is in host memory.
#[derive(Debug)]
pub struct DeviceLinkSample {
    /// The nodes and edges.
    pub sample: DeviceSample,
    /// Local numbers of the sources: the edges' own, then those of binary negatives.
    pub sources: Vec<u32>,
    /// Local numbers of the targets, likewise; after them those of triplet negatives, edge after edge.
    pub targets: Vec<u32>,
    /// How many of `sources` and `targets` are the edges' own.
    pub positives: usize,
    /// Negatives that hit an edge in every trial, and were kept as they are.
    pub unresolved: u64,
}

impl DeviceLinkSample {
    /// The same sample in host memory.
    pub fn to_host(&self) -> Result<LinkSample> {
        let (sample, sources, targets) = (self.sample.to_host()?, self.sources.clone(), self.targets.clone());
        Ok(LinkSample { sample, sources, targets, positives: self.positives, unresolved: self.unresolved })
    }
}

impl GpuNeighbourSampler {
    /// What [`sample_links`](super::sample_links) returns, to the bit. Loose negatives are drawn on the host. Strict ones
    /// are looked up where the graph is, on the GPU, which takes a few short waits more than a sample.
    pub fn sample_links(
        &self,
        stream: &Stream,
        links: LinkSeeds<'_>,
        negative: Negative,
        excluded: &Excluded,
        key: Key,
    ) -> Result<DeviceLinkSample> {
        let is_spread = self.placed().spread_rule().is_some();
        let asked = Asked::new(self.placed().graph(), self.options(), links, negative, key)?;
        let drawn = match asked.negatives {
            None => Negatives::default(),
            // A graph spread over a group is looked up in host memory: the same pairs.
            Some((pairs, count)) if pairs.strictness == Strictness::Loose || is_spread => pairs.draw(count)?,
            Some((pairs, count)) => {
                let relation = GpuRelation::new(self.placed(), links.relation)?;
                relation.draw(stream, &pairs, count)?.0.to_host(stream)?
            }
        };
        let start = asked.start(drawn)?;
        let sample = self.sample_without(stream, &start.seeds(), excluded, key)?;
        if let Some(owner) = start.owner {
            let mut trees = sample.nodes.iter().filter_map(|nodes| nodes.trees.as_ref());
            trees.try_for_each(|trees| name_trees(stream, trees, owner))?;
        }
        let (positives, unresolved) = (start.positives, start.unresolved);
        Ok(DeviceLinkSample { sample, sources: start.sources, targets: start.targets, positives, unresolved })
    }
}

fn name_trees(stream: &Stream, trees: &Span, owner: Owner) -> Result<()> {
    let count = IdWidth::U32.elements("trees", trees)?;
    let (defines, grid) = (defines(), persistent_grid(stream, count.div_ceil(u64::from(THREADS)), THREADS));
    let launch = NAME_TREES.on(stream, &defines, grid).buffer(trees, Element::U32).u64(count);
    Ok(launch.u64(owner.sources as u64).u64(owner.positives as u64).u64(owner.triplets as u64).go()?)
}

fn defines() -> Defines {
    Defines::new().with("THREADS", THREADS)
}

/// The texts of this folder with the defines they are launched with.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    vec![(&TEXT, defines())]
}
